"""The scan of a project: what it lists, what it marks, and why.

A test writes the files of a project; ``# strong`` at the end of a line says that the collective in it is marked.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from ddpnb.studies.scan.scan import scan
from ddpnb.studies.scan.tally import joined

VICTIMS = Path(__file__).parents[2] / "victims"


def project(entry="train.py", **files):
    """A project from its files; ``pkg__io`` stands for ``pkg/io.py``."""
    return {
        name.replace("__", "/").replace("/init/", "/__init__") + ".py": textwrap.dedent(text).lstrip("\n")
        for name, text in files.items()
    }


def looked_at(sources, *entries):
    """{(file, line): mark} for every collective: ``strong`` if one of the ways that lead to it is marked."""
    found: dict[tuple[str, int], str] = {}
    for site in scan(sources, list(entries or ["train.py"])).sites:
        place = (site.site.file, site.site.line)
        found[place] = "strong" if site.marked or found.get(place) == "strong" else "none"
    return found


def check(**files):
    """The marks of the scan are those in the files."""
    sources = project(**files)
    found = looked_at(sources)
    expected = dict.fromkeys(found, "none")
    for file, text in sources.items():
        for number, line in enumerate(text.splitlines(), 1):
            if line.endswith("# strong"):
                expected[file, number] = "strong"
    assert found == expected
    assert found, "the scan saw no collective at all"
    return sources


def script(body, head="import torch\nimport torch.distributed as dist\n"):
    """A training script whose main() has this body."""
    return (
        head
        + "\ndef main(rank, world_size, loader, x, args):\n"
        + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
        + "\n\nmain(dist.get_rank(), dist.get_world_size(), None, None, None)\n"
    )


def mark(body, **more):
    return check(train=script(body, **more))


# -- what is a collective


@pytest.mark.parametrize(
    ("head", "call", "op"),
    [
        ("import torch.distributed as dist", "dist.all_reduce(x)", "all_reduce"),
        ("import torch", "torch.distributed.barrier()", "barrier"),
        ("import torch.distributed", "torch.distributed.barrier()", "barrier"),
        ("from torch import distributed as d", "d.broadcast(x, 0)", "broadcast"),
        ("from torch.distributed import all_reduce as ar", "ar(x)", "all_reduce"),
        ("from torch.distributed import *", "all_gather_object(a, b)", "all_gather_object"),
        ("from torch.distributed.distributed_c10d import scatter", "scatter(x)", "scatter"),
        ("import torch\ndist = torch.distributed\nreduce_all = dist.all_reduce", "reduce_all(x)", "all_reduce"),
        ("import torch.distributed.nn.functional as F", "F.all_gather(x)", "all_gather"),
        ("import torch.distributed._functional_collectives as f", "f.all_reduce(x, 'sum', g)", "all_reduce"),
        ("import torch.distributed as dist", "dist.isend(x, 1)", "isend"),
        ("import torch.distributed as dist", "dist.batch_isend_irecv(ops)", "batch_isend_irecv"),
        ("import torch.distributed as dist", "dist.init_process_group('gloo')", "init_process_group"),
        ("import torch.distributed as dist", "dist.destroy_process_group()", "destroy_process_group"),
        ("import torch.distributed as dist", "dist.new_group([0, 1])", "new_group"),
        ("import torch.distributed as dist\npg = dist.new_group([0])", "pg.allreduce([x])", "all_reduce"),
        ("import torch.distributed as dist\npg = dist.new_group([0])", "pg.barrier()", "barrier"),
        ("from torch.nn.parallel import DistributedDataParallel as DDP", "DDP(net)", "DistributedDataParallel"),
        ("from torch import nn", "nn.parallel.DistributedDataParallel(net)", "DistributedDataParallel"),
        ("from torch.distributed.fsdp import fully_shard", "fully_shard(net)", "fully_shard"),
        ("from torch.distributed.fsdp import FullyShardedDataParallel as FSDP", "FSDP(net)", "FullyShardedDataParallel"),
        ("import torch.distributed.checkpoint as dcp", "dcp.save(state, 'p')", "checkpoint.save"),
        ("from torch.distributed.device_mesh import init_device_mesh", "init_device_mesh('cpu', (2,))",
         "init_device_mesh"),
        ("from accelerate import Accelerator\naccelerator = Accelerator()", "accelerator.wait_for_everyone()",
         "wait_for_everyone"),
        ("from accelerate import Accelerator\nacc = Accelerator()", "acc.gather(x)", "gather"),
        ("from lightning.fabric import Fabric\nfabric = Fabric()", "fabric.barrier()", "barrier"),
        ("from somewhere import zero", "zero.consolidate_state_dict()", "consolidate_state_dict"),
        ("try:\n    import torch.distributed as dist\nexcept ImportError:\n    dist = None", "dist.barrier()", "barrier"),
        ("", "dist.barrier()", "barrier"),
    ],
)  # fmt: skip
def test_a_collective_by_any_name(head, call, op):
    (site,) = [
        one
        for one in scan({"t.py": f"{head}\n\ndef made():\n    {call}\n"}, ["t.py"]).sites
        if one.site.function == "made"
    ]
    assert (site.op, site.text, site.marked) == (op, call, False)


@pytest.mark.parametrize(
    "line",
    [
        "x.gather(0, index)", "loss.backward()", "model(x)", "torch.distributed.get_rank()", "dist.is_initialized()",
        "queue.send(x)", "group.barrier", "threading.Barrier(2)", "x.reduce(y)", "net.broadcast(y)",
        "dist.P2POp(dist.isend, x, 1)", "np.gather(x)",
    ],
)  # fmt: skip
def test_what_only_looks_like_one(line):
    sources = {
        "t.py": f"import torch\nimport torch.distributed as dist\nimport threading\nimport numpy as np\n{line}\n"
    }
    assert scan(sources, ["t.py"]).sites == ()


# -- conditions on the rank


@pytest.mark.parametrize(
    "test",
    [
        "rank == 0", "not rank", "rank != 0", "dist.get_rank() == 0", "args.local_rank == 0", "is_main_process()",
        "int(os.environ['RANK']) == 0", "os.environ.get('LOCAL_RANK') == '0'", "args.distributed and rank == 0",
        "rank in (0, 1)", "rank % 2", "rank < world_size - 1", "accelerator.is_main_process", "0 == rank",
        "rank == 0 and args.save", "master_process", "get_local_rank() == 0", "args.rank in [-1, 0]", "rank == 17",
        "socket.gethostname() == 'a'", "(r := dist.get_rank()) == 0", "bool(rank)", "args['local_rank'] == 0",
        "self_rank == 0 or dp_rank == 0", "getattr(args, 'x', 0) and rank",
    ],
)  # fmt: skip
def test_conditions_that_depend_on_the_rank(test):
    head = "import os, socket\nimport torch.distributed as dist\n"
    mark(f"if {test}:\n    dist.barrier()  # strong\ndist.barrier()", head=head)


@pytest.mark.parametrize(
    "test",
    [
        "args.distributed", "world_size > 1", "dist.is_initialized()", "step % 10 == 0", "args.lora_rank == 8",
        "rank >= 0", "rank == -1", "num_ranks == 4", "args.local_rank != -1", "args.ranks == 0", "x.shape[0] == 2",
        "torch.cuda.is_available()", "epoch == 0", "args.main == 1", "args.ranking == 0", "isinstance(rank, int)",
    ],
)  # fmt: skip
def test_conditions_that_do_not(test):
    mark(f"if {test}:\n    dist.barrier()")


def test_the_arm_the_ladder_and_the_short_circuit():
    mark(
        """
        if rank == 0:
            x = 1
        elif args.y:
            dist.all_reduce(x)  # strong
        else:
            dist.barrier()  # strong
        rank == 0 and dist.barrier()  # strong
        args.y and dist.barrier()
        y = dist.all_gather_object(x, y) if rank == 0 else None  # strong
        match rank:
            case 0:
                dist.barrier()  # strong
            case _:
                pass
        works = [dist.all_reduce(x, async_op=True) for _ in range(3 if rank else 2)]  # strong
        for work in works:
            work.wait()
        """
    )


# -- values that are made from the rank


def test_names_arguments_and_attributes():
    check(
        train="""
        import torch
        import torch.distributed as dist

        class Trainer:
            def __init__(self, steps):
                self.leads = dist.get_rank() == 0
                self.steps = steps

            def fit(self):
                if self.leads:
                    dist.barrier()  # strong
                if self.steps:
                    dist.barrier()

        def train(number, lora):
            rank = 16
            if number == 0 or lora == 0 or rank == 0:
                dist.barrier()

        def main():
            rank, size = dist.get_rank(), 3
            for rank_of_another in range(size):
                if rank_of_another == 2:
                    dist.barrier()
            train(3, 8)
            Trainer(3).fit()
            stop = torch.tensor(int(rank == 0))
            dist.broadcast(stop, 0)
            agreed = [rank == 0]
            dist.broadcast_object_list(agreed)
            if stop or agreed[0]:
                dist.barrier()
            for file in list_files()[rank::size]:
                dist.all_reduce(stop)  # strong
            with Join([model]):
                for batch in range(rank, 9, size):
                    dist.all_reduce(stop)
        """
    )


# -- what all ranks make after all


def test_branches_that_make_the_same_calls_are_no_difference():
    mark(
        """
        if rank == 0:
            x = x + 7
            dist.broadcast(x, src=0)
        else:
            dist.broadcast(x, src=0)
        if rank == 0:
            dist.broadcast(x, 0)  # strong
        else:
            dist.all_reduce(x)  # strong
        if rank != 0:
            dist.barrier()
        data = load()
        if args.distributed:
            if rank == 0:
                dist.barrier()
        if rank != 0:
            dist.barrier()  # strong
        if rank == 1:
            dist.barrier()  # strong
        if rank == 0:
            dist.send(x, dst=1)
        elif rank == 1:
            dist.recv(x, src=0)
        for step in range(3):
            dist.all_reduce(x, group=args.group)
            if rank == 0:
                break
        if rank == 0:
            dist.all_reduce(x, group=args.group)
            dist.all_reduce(x, group=dist.group.WORLD)  # strong
        """
    )
    mark("if rank == 0:\n    dist.broadcast(x, 0)\n    return x\nx = 0\ndist.broadcast(x, 0)\nreturn x")


# -- ways out


def test_leaving_early():
    mark(
        """
        dist.barrier()
        if args.local_rank >= torch.cuda.device_count():
            raise ValueError("more ranks than devices")
        if world_size < 2:
            return x
        for step in range(9):
            if rank == 1 and step == 7:
                continue
            dist.all_reduce(x)  # strong
        dist.barrier()
        if rank == 2:
            raise ValueError
        while True:
            dist.all_reduce(x)  # strong
            if rank == 0:
                break
        dist.barrier()
        if rank == 1:
            return
        elif args.y:
            dist.all_gather(x, x)  # strong
        dist.barrier()  # strong
        """
    )
    head = "import sys\nimport torch.distributed as dist\n"
    mark("if rank == 9:\n    sys.exit(3)\nif rank:\n    sys.exit(0)\ndist.barrier()  # strong", head=head)


def test_loops_over_data_of_a_ranks_own():
    mark(
        """
        files = list_files()[rank::world_size]
        for file in files:
            dist.all_reduce(x)  # strong
        for i in range(rank, 100, world_size):
            dist.all_reduce(x)  # strong
        for batch in DataLoader(TextDataset(files)):
            dist.all_reduce(x)  # strong
        for batch in loader:
            dist.all_reduce(x)
        for step in range(len(files)):
            dist.all_reduce(x)  # strong
        for step in range(100):
            dist.all_reduce(x)
        sampler = DistributedSampler(args.data, num_replicas=world_size, rank=rank)
        for batch in DataLoader(args.data, sampler=sampler):
            dist.all_reduce(x)
        """
    )


# -- projects


def test_imports_of_every_kind():
    barrier = "import torch.distributed as dist\ndef f():\n    dist.barrier()\n"
    sources = {
        "app/run.py": "import a.b\nfrom a import c\nfrom a.d import f as g\nimport flat\nfrom a.e import *\nimport json, torch\n",
        "app/a/__init__.py": "",
        "app/a/b.py": barrier, "app/a/c.py": "from . import inner\nfrom .. import unknown\n", "app/a/d.py": barrier,
        "app/a/inner.py": "from .deep.x import f\n", "app/a/deep/x.py": barrier, "app/a/e.py": barrier,
        "app/flat.py": barrier, "app/other.py": barrier, "app/json.py": "x = 1\n", "app/torch.py": barrier,
    }  # fmt: skip
    found = scan(sources, ["app/run.py"])
    assert {one.site.file for one in found.sites} == {
        "app/a/b.py", "app/a/d.py", "app/a/deep/x.py", "app/a/e.py", "app/flat.py",
    }  # fmt: skip


def test_a_file_that_does_not_parse_is_told_and_the_others_are_scanned():
    sources = {
        "train.py": "import broken\nimport torch.distributed as dist\ndist.barrier()\n",
        "broken.py": "x = 1\ndef f(:\n",
    }
    found = scan(sources, ["train.py"])
    assert [(one.file, one.line) for one in found.problems] == [("broken.py", 2)]
    assert [str(one.site) for one in found.sites] == ["train.py:3"]


@pytest.mark.parametrize(
    "source",
    [
        "", "\n", "def f(:\n", "x = 1\0", "(" * 4000, "-" * 40_000 + "1", "-" * 4000 + "1", "x = a" + ".b()" * 3000, "from . import *\n", "from ..... import x\n",
        "import train\nfrom train import *\nx = x\n", "def f(*a, **k):\n    f(*a, **k)\n", "class A(A): pass\nA().x()\n",
        "self.x = self.x()\nsuper().x()\n", "match x:\n    case [a, *b] | {'k': c}: pass\n", "a = b\nb = a\na()\n",
        "dist.barrier(*x, **y)\n", "if rank == 10**9 ** 9: dist.barrier()\n", "rank = rank + 1\nif rank: dist.barrier()\n",
        "if rank == " + "1 + " * 400 + "1: dist.barrier()\n",
        "try:\n    pass\nexcept* ValueError:\n    dist.barrier()\n",
        "async def f():\n    async for x in y:\n        await z\n    async with a as (b, c): dist.barrier()\n",
        "x: int\nx[0]: int = 3\ndel x\nglobal y\nwith a, b as c.d: pass\n",
        "while (n := rank) and n: dist.barrier()\n", "[dist.barrier() for x in y if rank for z in x]\n",
        "lambda: dist.barrier()\n", "@dist.barrier()\nclass A: pass\n",
    ],
)  # fmt: skip
def test_odd_sources_raise_nothing(source):
    found = scan({"train.py": source}, ["train.py"])
    assert found.files == ("train.py",) or found.problems


def test_many_arms_take_no_endless_time():
    tests = "\n".join(f"    if x{n}:\n        return {n}" for n in range(40))
    arms = "\n".join(f"    if y{n} and rank == {n}:\n        dist.barrier()" for n in range(40))
    found = scan({"t.py": f"import torch.distributed as dist\ndef f(rank, x):\n{tests}\n{arms}\n"}, ["t.py"])
    assert len(found.marked) == 40


# -- what is said


def test_reasons_can_be_followed():
    sources = project(train=script(
        """
        number = dist.get_rank()
        leads = number == 0
        if leads:
            dist.barrier()
        if number == 3:
            return
        dist.all_reduce(x)
        """
    ))  # fmt: skip
    first, second = scan(sources, ["train.py"]).marked
    assert first.decision.reason == "`leads` is `number == 0` (line 6), and `number` is `dist.get_rank()` (line 5)"
    assert str(first.decision) == "only if leads"
    assert first.decision.advice.startswith("Call it on all ranks")
    assert second.decision.reason == "`number` is `dist.get_rank()` (line 5)"
    assert (str(second.decision), second.decision.line) == ("return if number == 3", 9)
    assert "before line 9" in second.decision.advice


def test_all_conditions_are_told_the_deciding_ones_marked():
    sources = project(train=script(
        """
        for epoch in range(3):
            if args.save:
                if rank == 0 and epoch:
                    dist.barrier()
                elif rank != 3:
                    pass
                else:
                    dist.all_reduce(x)
        """
    ))  # fmt: skip
    first, second = scan(sources, ["train.py"]).marked
    assert [(str(one), one.depends_on_rank) for one in first.conditions] == [
        ("for epoch in range(3)", False), ("only if args.save", False), ("only if rank == 0 and epoch", True),
    ]  # fmt: skip
    assert [one.text for one in second.conditions if one.depends_on_rank] == ["not (rank == 0 and epoch)", "rank == 3"]
    assert all(one.reason for one in second.conditions if one.depends_on_rank)


# -- counts

COUNTED = project(train=script(
    """
    dist.all_reduce(
        x,
    )
    if rank == 0:
        dist.barrier()
    if rank == 0:
        dist.send(x, 1)
    else:
        dist.recv(x, 0)
    """
))["train.py"]  # fmt: skip


def counted(counts, **more):
    return {
        (row.line, row.op): (dict(row.counts), row.unequal)
        for row in joined(scan({"/p/train.py": COUNTED}, ["/p/train.py"]).sites, counts, **more)
    }


def test_counts_are_joined_by_place():
    rows = counted({0: {("train.py", 5): 3, ("/p/train.py", 9): 1, ("/p/train.py", 11): 2}, 1: {("train.py", 6): 3}})
    assert rows == {
        (5, "all_reduce"): ({0: 3, 1: 3}, False),
        (9, "barrier"): ({0: 1, 1: 0}, True),
        (11, "send"): ({0: 2, 1: 0}, False),
        (13, "recv"): ({0: 0, 1: 0}, False),
    }


def test_two_lines_of_one_broadcast_are_no_difference():
    text = "import torch.distributed as dist\ndef f(rank, x):\n    if rank == 0:\n        dist.broadcast(x, 0)\n    else:\n        dist.broadcast(x, 0)\n"
    rows = joined(scan({"t.py": text}, ["t.py"]).sites, {0: {("t.py", 4): 1}, 1: {("t.py", 6): 1}})
    assert [row.unequal for row in rows] == [False, False]


def test_names_that_are_made_of_themselves_are_looked_at_once():
    text = "import torch.distributed as dist\ndef f(x, y, z):\n" + "    x, y, z = x + y + z, z + x + y, y + x\n" * 9
    (site,) = scan({"t.py": f"{text}    if x:\n        dist.barrier()\n"}, ["t.py"]).sites
    assert not site.decisions


# -- the victims


@pytest.mark.parametrize("path", sorted(VICTIMS.glob("*.py")), ids=lambda path: path.stem)
def test_every_collective_that_a_victim_waits_in_is_listed(path):
    text = path.read_text()
    lines = {n for n, line in enumerate(text.splitlines(), 1) if "# waiting" in line and "dist." in line}
    found = scan({str(path): text}, [str(path)]).sites
    assert lines <= {line for site in found for line in range(site.site.line, site.last_line + 1)}


def test_every_condition_that_reads_the_rank_is_listed():
    sources = project(train=script(
        """
        for x in loader:
            if rank == 3:
                continue
            if dist.get_rank() > 4:
                break
            dist.barrier()
        """
    ))  # fmt: skip
    (site,) = scan(sources, ["train.py"]).marked
    assert [str(one) for one in site.decisions] == ["continue if rank == 3", "break if dist.get_rank() > 4"]
    assert [one.advice[:21] for one in site.decisions] == ["Call it before line 6", "Call it before line 8"]


def test_what_a_victim_waits_in_is_marked_and_healthy_ones_are_not():
    marked = {}
    for name in ("missing.py", "healthy.py"):
        path = str(VICTIMS / name)
        marked[name] = {site.site.line for site in scan({path: (VICTIMS / name).read_text()}, [path]).marked}
    lines = list(enumerate((VICTIMS / "missing.py").read_text().splitlines(), 1))
    seen = [(n, line) for n, line in lines if "# waiting" in line and "dist." in line]
    # A value of a batch, an exception, and a function that one rank calls: paths of a run say which rank was odd.
    told = ("skip_bad_batch", "swallowed", "in_thread")
    assert {n for n, line in seen if not line.endswith(told)} <= marked["missing.py"]
    assert not {number for number, line in lines if "# culprit" in line} & marked["missing.py"]
    assert marked["healthy.py"] == set()
