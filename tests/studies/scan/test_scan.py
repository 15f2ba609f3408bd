"""The scan of a project: what it lists, what it marks, and why.

A test writes the files of a project; ``# strong`` and ``# strong`` at the end of a line say what the
scan must think of the collective in it. A collective without a mark must not be marked.
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
            for doubt in ("strong", "none"):
                if line.endswith(f"# {doubt}"):
                    expected[file, number] = doubt
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


def test_gather_is_one_only_of_an_accelerator():
    assert scan({"t.py": "def f(accelerator, x):\n    accelerator.gather(x)\n"}, ["t.py"]).sites == ()
    with_import = "import accelerate\n\ndef f(accelerator, x):\n    accelerator.gather(x)\n"
    assert [one.op for one in scan({"t.py": with_import}, ["t.py"]).sites] == ["gather"]


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


def test_variables_made_of_the_rank():
    mark(
        """
        me = dist.get_rank()
        main = me == 0
        writer = object() if main else None
        flag = False
        if main:
            flag = True
        first, size = dist.get_rank(), 3
        if main:
            dist.barrier()  # strong
        if writer is not None:
            dist.barrier()  # strong
        if flag:
            dist.barrier()  # strong
        if first == 3:
            dist.barrier()  # strong
        if size:
            dist.barrier()
        """
    )
    mark("local_rank = 8\nif local_rank:\n    dist.barrier()")


def test_a_value_that_was_agreed_on_is_the_same_for_all():
    mark(
        """
        stop = torch.tensor(rank == 0)
        if stop:
            dist.barrier()  # strong
        dist.all_reduce(stop)
        if stop:
            dist.barrier()
        found = [rank]
        dist.broadcast_object_list(found, src=0)
        if found[0]:
            dist.barrier()
        decision = [compute() if rank == 0 else None]
        dist.broadcast_object_list(decision, src=0)
        if rank != 0:
            choice = decision[0]
        else:
            choice = decision[0]
        if choice:
            dist.barrier()
        """
    )


def test_the_loop_variable_over_all_ranks_is_no_rank():
    mark(
        """
        for rank in range(world_size):
            if rank == 2:
                dist.barrier()
        """
    )


def test_same_work_with_other_arguments_makes_no_difference_of_the_result():
    """Only the main process downloads; what is loaded is the same for all."""
    mark(
        """
        dataset = load(download=True) if rank == 0 else load(download=False)
        if len(dataset) > 3:
            dist.barrier()
        device = torch.device("cuda", rank)
        model = build().to(device)
        if model.big:
            dist.barrier()
        """
    )


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


def test_a_function_that_a_decorator_keeps_on_one_rank():
    check(
        train="""
        import torch.distributed as dist
        from lightning.pytorch.utilities import rank_zero_only

        @rank_zero_only
        def log():
            dist.barrier()  # strong

        @staticmethod
        def other():
            dist.barrier()
        """
    )


# -- what all ranks make after all


def test_arms_that_make_the_same_calls_are_no_difference():
    mark(
        """
        if rank == 0:
            x = x + 7
            dist.broadcast(x, src=0)
        else:
            dist.broadcast(x, src=0)
        if rank == 0:
            for p in args:
                dist.broadcast(p, 0)
        else:
            for p in args:
                dist.broadcast(p, 0)
        if rank == 0:
            dist.broadcast(x, 0)  # strong
        else:
            dist.all_reduce(x)  # strong
        """
    )


def test_the_main_process_first():
    mark(
        """
        if rank != 0:
            dist.barrier()
        data = load()
        if rank == 0:
            dist.barrier()
        if args.distributed:
            if args.local_rank not in [-1, 0]:
                dist.barrier()
            data = load()
        if args.distributed:
            if args.local_rank == 0:
                dist.barrier()
        if rank != 0:
            dist.barrier()  # strong
        data = load()
        if rank == 1:
            dist.barrier()  # strong
        """
    )


def test_the_main_process_first_as_context_managers():
    check(
        train="""
        import torch.distributed as dist
        from contextlib import contextmanager

        @contextmanager
        def zero_first(local_rank):
            if local_rank not in [-1, 0]:
                dist.barrier(device_ids=[local_rank])
            yield
            if local_rank == 0:
                dist.barrier(device_ids=[0])

        class MainFirst:
            def __enter__(self):
                if dist.get_rank() > 0:
                    dist.barrier()

            def __exit__(self, *error):
                if dist.get_rank() == 0:
                    dist.barrier()

        with zero_first(int("3")), MainFirst():
            load()
        """
    )


def test_an_early_return_that_makes_the_same_calls():
    mark(
        """
        if rank == 0:
            x = torch.ones(3)
            dist.broadcast(x, 0)
            return x
        x = torch.zeros(3)
        dist.broadcast(x, 0)
        return x
        """
    )


def test_sends_and_receives_are_for_some_ranks_by_nature():
    mark(
        """
        if rank == 0:
            dist.send(x, dst=1)
        elif rank == 1:
            dist.recv(x, src=0)
        dist.gather(x, [x] if rank == 0 else None, dst=0)
        dist.scatter(x, [x] if rank == 0 else None, src=0)
        """
    )


def test_a_group_of_its_own_is_for_its_members():
    mark(
        """
        pair = dist.new_group([0, 1])
        low = dist.new_group(list(range(2)))
        named = args.group
        if rank < 2:
            dist.all_reduce(x, group=pair)
            dist.barrier(low)
        if rank == 0:
            dist.all_reduce(x, group=named)
            dist.all_reduce(x, group=None)  # strong
            dist.all_reduce(x, group=dist.group.WORLD)  # strong
        """
    )


def test_raising_on_one_rank_ends_the_run_and_leaves_nobody_waiting_for_long():
    mark(
        """
        if args.local_rank >= torch.cuda.device_count():
            raise ValueError("more ranks than devices")
        if rank == 99:
            sys.exit(3)
        dist.barrier()
        """
    )


def test_a_run_without_ranks_is_not_what_is_asked_about():
    mark(
        """
        if not dist.is_initialized():
            return 0
        if world_size < 2:
            rank = 0
            return x
        dist.barrier()
        """
    )


# -- ways around


def test_leaving_early():
    mark(
        """
        dist.barrier()
        for step in range(9):
            if rank == 1 and step == 7:
                continue
            dist.all_reduce(x)  # strong
        dist.barrier()
        while True:
            dist.all_reduce(x)  # strong
            if rank == 0:
                break
        dist.barrier()
        if rank == 1:
            return
        dist.barrier()  # strong
        """
    )


def test_leaving_in_the_other_arm_is_not_leaving():
    mark(
        """
        if rank == 0:
            return
        elif args.y:
            dist.barrier()  # strong
        """
    )


def test_a_return_within_a_loop_ends_what_comes_after_it_too():
    mark(
        """
        for step in range(9):
            dist.all_reduce(x)  # strong
            if rank == 0 and step == 3:
                return
        dist.barrier()  # strong
        """
    )


def test_leaving_the_process():
    mark(
        "if rank != 0:\n    sys.exit(0)\ndist.barrier()  # strong",
        head="import sys, os\nimport torch.distributed as dist\n",
    )
    mark(
        "if rank != 0:\n    os._exit(0)\ndist.barrier()  # strong",
        head="import sys, os\nimport torch.distributed as dist\n",
    )


def test_a_raise_that_is_swallowed():
    mark(
        """
        try:
            if rank == 2:
                raise ValueError
            dist.all_reduce(x)  # strong
        except ValueError:
            pass
        dist.barrier()
        """
    )


# -- data


def test_reduced_before_it_is_decided_by():
    mark(
        """
        for step, (images, labels) in enumerate(tqdm(loader)):
            loss = criterion(model(images), labels)
            bad = torch.isnan(loss).float()
            dist.all_reduce(bad)
            if bad.item() > 0:
                continue
            dist.all_reduce(loss)
            if step % 10 == 0:
                dist.barrier()
        """
    )


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


def test_join_lets_ranks_have_fewer_batches():
    mark(
        """
        files = list_files()[rank::world_size]
        with Join([model]):
            for file in files:
                dist.all_reduce(x)
        """
    )


# -- through functions


def test_a_chain_through_modules():
    sources = project(
        pkg__init__="",
        pkg__dist_utils="""
        import torch.distributed as dist

        def is_primary():
            if not dist.is_initialized():
                return True
            return dist.get_rank() == 0

        def synchronise():
            dist.barrier()
        """,
        pkg__io="""
        import torch
        from .dist_utils import synchronise

        class Saver:
            def save(self, state):
                torch.save(state, "p")
                self._settle()

            def _settle(self):
                synchronise()
        """,
        train="""
        from pkg import dist_utils as du
        from pkg.io import Saver

        def main():
            saver = Saver()
            if du.is_primary():
                saver.save({})

        if __name__ == "__main__":
            main()
        """,
    )
    found = scan(sources, ["train.py"])
    assert set(found.files) == {"train.py", "pkg/__init__.py", "pkg/dist_utils.py", "pkg/io.py"}
    (site,) = found.marked
    assert [str(place) for place in site.places] == ["train.py:7", "pkg/io.py:7", "pkg/io.py:10", "pkg/dist_utils.py:9"]
    assert site.through == ("Saver.save()", "Saver._settle()", "synchronise()")
    assert (site.op, site.decision.line, site.decision.text) == ("barrier", 6, "du.is_primary()")
    assert site.reason.startswith("`is_primary()` (dist_utils.py:3) depends on the rank")
    assert [str(one.site) for one in found.own] == ["pkg/dist_utils.py:9"]


def test_functions_that_call_each_other_end():
    check(
        train="""
        import torch.distributed as dist

        def a(rank):
            b(rank)

        def b(rank):
            if rank == 0:
                a(rank)
            dist.barrier()  # strong
        """
    )


def test_a_function_that_is_handed_on():
    sources = check(
        train="""
        import threading
        import torch.distributed as dist

        def main(rank):
            def talk():
                dist.all_reduce(1)  # strong

            if rank != 0:
                threading.Thread(target=talk).start()
        """
    )
    (site,) = scan(sources, ["train.py"]).marked
    assert site.through == ("talk",)


def test_the_argument_of_spawn_is_the_rank():
    check(
        train="""
        import torch.distributed as dist
        import torch.multiprocessing as mp

        def worker(gpu, args):
            if gpu == 0:
                dist.barrier()  # strong
            if args == 0:
                dist.barrier()

        mp.spawn(worker, nprocs=2, args=(3,))
        """
    )


def test_arguments_carry_the_rank():
    check(
        train="""
        import torch.distributed as dist

        def train(number, lora, rank):
            if number == 0:
                dist.barrier()  # strong
            if lora == 0:
                dist.barrier()
            if rank == 0:
                dist.barrier()

        train(dist.get_rank(), 8, rank=16)
        """
    )


def test_attributes_of_objects():
    check(
        train="""
        import torch.distributed as dist

        class Trainer:
            def __init__(self, steps):
                self.number = dist.get_rank()
                self.leads = self.number == 0
                self.steps = steps
                self.rank = 8

            def fit(self):
                if self.leads:
                    dist.barrier()  # strong
                if self.steps:
                    dist.barrier()
                if self.rank:
                    dist.barrier()

            def settle(self):
                dist.all_reduce(1)  # strong

        class Special(Trainer):
            def finish(self):
                if self.number:
                    super().settle()

        def main():
            trainer = Trainer(3)
            if trainer.number == 3:
                dist.barrier()  # strong
            trainer.fit()
        """
    )


def test_an_object_that_one_rank_has():
    check(
        train="""
        import torch.distributed as dist

        class Scheduler:
            def __init__(self, votes):
                self.votes = votes

            def decide(self, x):
                dist.broadcast(x, 0)

            def vote(self, x):
                if self.votes:
                    dist.barrier()  # strong
                else:
                    dist.all_reduce(x)  # strong

        def main():
            rank, size = dist.get_rank(), dist.get_world_size()
            scheduler = Scheduler(False) if rank == 0 else None
            if rank == 0:
                scheduler.decide(1)
            else:
                dist.broadcast(1, 0)
            Scheduler(votes=rank != size - 1).vote(1)
        """
    )


def test_a_choice_by_name():
    mark(
        """
        how = {"new": 1, "old": 2}["old" if rank == 3 else "new"]
        if how == 2:
            dist.barrier()  # strong
        """
    )


def test_a_global_of_another_module():
    check(
        settings="""
        import os
        RANK = int(os.environ["RANK"])
        LEADS = RANK == 0
        SIZE = 4
        """,
        train="""
        import settings
        from settings import LEADS, SIZE
        import torch.distributed as dist

        def main():
            if settings.RANK == 0:
                dist.barrier()  # strong
            if LEADS:
                dist.barrier()  # strong
            if SIZE:
                dist.barrier()
        """,
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


def test_a_script_in_a_folder_of_a_project():
    package = "import torch.distributed as dist\ndef f():\n    dist.barrier()\n"
    top = {"p/scripts/train.py": "import lib.comm\n", "p/lib/__init__.py": "", "p/lib/comm.py": package}
    assert [str(one.site) for one in scan(top, ["p/scripts/train.py"]).sites] == ["p/lib/comm.py:3"]
    src = {"p/scripts/train.py": "from lib import comm\n", "p/src/lib/__init__.py": "", "p/src/lib/comm.py": package}
    assert [str(one.site) for one in scan(src, ["p/scripts/train.py"]).sites] == ["p/src/lib/comm.py:3"]


def test_names_that_a_package_hands_through():
    sources = project(
        pkg__init__="from .comm import barrier_all as sync\n",
        pkg__comm="import torch.distributed as dist\ndef barrier_all():\n    dist.barrier()\n",
        train="from pkg import sync\nimport torch.distributed as dist\nif dist.get_rank() == 0:\n    sync()\n",
    )
    (site,) = scan(sources, ["train.py"]).marked
    assert [str(place) for place in site.places] == ["train.py:4", "pkg/comm.py:3"]


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


def test_a_script_that_nobody_has():
    assert scan({}, ["train.py"]).sites == ()


def test_many_arms_take_no_endless_time():
    tests = "\n".join(f"    if x{n}:\n        return {n}" for n in range(40))
    arms = "\n".join(f"    if y{n} and rank == {n}:\n        dist.barrier()" for n in range(40))
    found = scan({"t.py": f"import torch.distributed as dist\ndef f(rank, x):\n{tests}\n{arms}\n"}, ["t.py"])
    assert len(found.marked) == 40


def test_functions_that_call_each_other_in_a_long_chain_are_scanned():
    chain = "".join(f"def f{n}(rank):\n    if rank == {n}:\n        f{n + 1}(rank)\n" for n in range(1500))
    last = "def f1500(rank):\n    dist.barrier()\n"
    found = scan({"t.py": f"import torch.distributed as dist\n{chain}{last}"}, ["t.py"])
    assert {site.site.line for site in found.sites} == {4503}
    assert found.problems == ()


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
    assert first.reason == "`leads` is `number == 0` (line 6), and `number` is `dist.get_rank()` (line 5)"
    assert str(first.decision) == "only if leads"
    assert first.advice.startswith("Call it on all ranks")
    assert second.reason == "`number` is `dist.get_rank()` (line 5)"
    assert (str(second.decision), second.decision.line) == ("return if number == 3", 9)
    assert "before line 9" in second.advice


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


def test_what_is_marked_comes_first():
    sources = project(train=script(
        """
        dist.barrier()
        if rank == 0:
            dist.barrier()
        """
    ))  # fmt: skip
    assert [site.marked for site in scan(sources, ["train.py"]).sites] == [True, False]


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


def test_places_that_the_source_does_not_show_are_kept():
    rows = counted({0: {("train.py", 50): 3}, 1: {("train.py", 50): 2}})
    assert rows[50, ""] == ({0: 3, 1: 2}, True)


def test_ranks_outside_of_the_group_are_not_asked():
    rows = counted({0: {("train.py", 9): 2}, 1: {("train.py", 9): 2}, 2: {}}, members={("train.py", 9): {0, 1}})
    assert rows[9, "barrier"] == ({0: 2, 1: 2}, False)


def test_two_lines_of_one_broadcast_are_no_difference():
    text = "import torch.distributed as dist\ndef f(rank, x):\n    if rank == 0:\n        dist.broadcast(x, 0)\n    else:\n        dist.broadcast(x, 0)\n"
    rows = joined(scan({"t.py": text}, ["t.py"]).sites, {0: {("t.py", 4): 1}, 1: {("t.py", 6): 1}})
    assert [row.unequal for row in rows] == [False, False]


# -- the victims


def strongly_marked(name):
    path = str(VICTIMS / name)
    return {site.site.line for site in scan({path: (VICTIMS / name).read_text()}, [path]).marked}


def test_healthy_scripts_are_left_in_peace():
    assert strongly_marked("healthy.py") == set()


def test_collectives_that_a_rank_never_makes_are_found():
    text = (VICTIMS / "missing.py").read_text().splitlines()
    found = strongly_marked("missing.py")
    waited_in = {number for number, line in enumerate(text, 1) if "# waiting" in line and "dist." in line}
    assert waited_in <= found
    assert not {number for number, line in enumerate(text, 1) if "# culprit" in line} & found


@pytest.mark.parametrize("path", sorted(VICTIMS.glob("*.py")), ids=lambda path: path.stem)
def test_every_collective_that_a_victim_waits_in_is_listed(path):
    text = path.read_text()
    lines = {n for n, line in enumerate(text.splitlines(), 1) if "# waiting" in line and "dist." in line}
    found = scan({str(path): text}, [str(path)]).own
    assert lines <= {line for site in found for line in range(site.site.line, site.last_line + 1)}


def test_objects_that_are_handed_in_are_known_by_their_names():
    sources = check(
        train="""
        import torch.distributed as dist

        class Checkpointer:
            def save(self, state):
                dist.barrier()  # strong

        class Meter:
            def update(self):
                dist.broadcast(1, 0)

        class Trainer:
            def __init__(self, checkpointer, meter_of_loss):
                self.checkpointer = checkpointer

            def fit(self, rank, thing):
                if rank == 0:
                    self.checkpointer.save({})
                    thing.update()
        """
    )
    assert len(scan(sources, ["train.py"]).marked) == 1


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
    assert [site.advice_on(one)[:21] for one in site.decisions] == ["Call it before line 6", "Call it before line 8"]
