"""Works that nobody waits for in time: found where it is certain, silent everywhere else."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from ddpnb.recording.source.unwaited import changed_between, unwaited

HEAD = "import torch\nimport torch.distributed as dist\nfrom torch.distributed import all_reduce as ar, irecv\n\n"
VICTIMS = Path(__file__).parents[2] / "victims"


def found(body, head=HEAD):
    """(line of the call, line of the use, kind) for a function body; lines count from its first line."""
    text = (
        head + "def f(x, y, rank, model, out, handles):\n" + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    )
    before = text.split("def f(")[0].count("\n") + 1
    return [(one.line - before, one.use_line and one.use_line - before, one.tensor, one.kind) for one in unwaited(text)]


@pytest.mark.parametrize(
    "use",
    [
        "y = x / 2",
        "x /= 2",
        "x.div_(2)",
        "print(x)",
        "y = x.sum()",
        "y = x.view(-1).sum()",
        "y = x[0].item()",
        "x[0] = 1",
        "x[0] += 1",
        "y = -x",
        "y = f'{x}'",
        "if x > 3:\n    pass",
        "while x:\n    pass",
        "y = torch.sum(x)",
        "y = float(x)",
        "y = model(x)",
        "y.add_(x)",
        "y = torch.nn.functional.relu(input=x)",
        "torch.add(y, 1, out=x)",
        "x = x / 2",
        "x.data.mul_(2)",
        "x.data = y",
        "with torch.no_grad():\n    x.mul_(2)",
        "for i in range(3):\n    x.mul_(2)",
        "if rank == 0:\n    print(x)",
        "try:\n    y = x + 1\nfinally:\n    y = 0",
        "y = [x + 1, 2]",
        "assert x.all()",
        "y = 1 if x > 2 else 0",
        "y[x] = 3",
        "y = y @ x",
    ],
)
def test_used_before_the_wait(use):
    lines = use.count("\n") + 1
    reported = found(f"work = dist.all_reduce(x, async_op=True)\n{use}\nwork.wait()")
    assert [(one[0], *one[2:]) for one in reported] == [(1, "x", "used-before-wait")]
    assert 2 <= reported[0][1] < 2 + lines


@pytest.mark.parametrize(
    "use",
    [
        "y = x.shape",
        "y = x.shape[0] + 1",
        "y = x.size(0) * 2",
        "y = x.numel()",
        "print(x.dtype, x.device)",
        "y = len(x)",
        "if x is None:\n    y = 0",
        "if x.requires_grad:\n    y = 0",
        "y = torch.empty_like(x)",
        "y = isinstance(x, int)",
        "y = x",
        "handles.append(x)",
        "out = [x, y]",
        "y = x.view(-1)",
        "y = x.detach()",
        "y = (rank, x)",
        "x = torch.zeros(3)\ny = x + 1",
        "del x",
        "y = y + 1",
        "y = x.grad",
        "rank.x = x",
        "def later():\n    return x + 1",
        "y = lambda: x + 1",
        "out.register_hook(x)",
        "handles.record(x)",
    ],
)
def test_what_is_no_use(use):
    assert found(f"work = dist.all_reduce(x, async_op=True)\n{use}\nwork.wait()\nx /= 2") == []


@pytest.mark.parametrize(
    "code",
    [
        "work = dist.all_reduce(x, async_op=True)\nwork.wait()\ny = x + 1",
        "dist.all_reduce(x, async_op=True).wait()\ny = x + 1",
        "dist.all_reduce(x)\ny = x + 1",
        "dist.all_reduce(x, async_op=False)\ny = x + 1",
        "dist.all_reduce(x, async_op=rank)\ny = x + 1",
        "handles.append(dist.all_reduce(x, async_op=True))\ny = x + 1",  # whoever gave the list may wait
        "works = []\nworks.append(dist.isend(x, 1))\nfinish(works)\nx.zero_()",
        "works = []\nworks.append(dist.isend(x, 1))\nfor work in works:\n    work.wait()\nx.zero_()",
        "handles = [dist.isend(x, 1), dist.irecv(y, 1)]\ny = x + y",
        "work = dist.all_reduce(x, async_op=True)\nhandles.append(work)\ny = x + 1",
        "work = dist.all_reduce(x, async_op=True)\nhandles.append((work, x))\ny = x + 1",
        "work = dist.all_reduce(x, async_op=True)\nreturn work",
        "work = dist.all_reduce(x, async_op=True)\nreturn x, work",
        "return dist.all_reduce(x, async_op=True)",
        "rank.work = dist.all_reduce(x, async_op=True)\ny = x + 1",
        "work = dist.all_reduce(x, async_op=True)\nfinish(work)\ny = x + 1",
        "work = dist.all_reduce(x, async_op=True)\ntorch.cuda.synchronize()\ny = x + 1",
        "dist.all_reduce(x, async_op=True)\ntorch.cuda.synchronize()\ny = x + 1",
        "dist.all_reduce(x, async_op=True)\ndist.barrier()\ny = x + 1",
        "work = dist.all_reduce(x, async_op=True)\nif work is not None:\n    work.wait()\ny = x + 1",
        "work = dist.all_reduce(x, async_op=True)\nwhile not work.is_completed():\n    pass\ny = x + 1",
        "work = dist.all_reduce(x, async_op=True)\ntry:\n    work.wait()\nexcept RuntimeError:\n    raise\ny = x + 1",
        "a = dist.all_reduce(x, async_op=True)\nb = dist.all_reduce(y, async_op=True)\nb.wait()\nx /= 2\na.wait()",
        "work = dist.all_reduce(x, async_op=True)\ndist.broadcast(x, 0)\nwork.wait()",
        "with dist._coalescing_manager():\n    dist.all_reduce(x, async_op=True)\ny = x + 1",
        "with torch.cuda.stream(rank):\n    dist.all_reduce(x, async_op=True)\n    y = x + 1",
        "work = dist.isend(x, 1)\ny = x + 1\nwork.wait()",  # a send only reads
        "work = dist.all_gather(out, x, async_op=True)\ny = x + 1\nwork.wait()",
        "work = dist.broadcast_object_list(out, async_op=True)\nprint(out)",
        "work = None\nfor y in out:\n    if work is not None:\n        work.wait()\n    work = dist.all_reduce(y, async_op=True)\nwork.wait()",
        "work = None\nwhile True:\n    if work is not None:\n        work.wait()\n        if rank:\n            break\n    rank += 1\n"
        "    work = dist.all_reduce(x, async_op=True)\ny = x + 1",
        "global work\nwork = dist.all_reduce(x, async_op=True)",
        "work = dist.all_reduce(x, async_op=True)\nif rank:\n    work.wait()\n    y = x + 1\n    return\nwork.wait()",
        "if rank == 0:\n    work = dist.all_reduce(x, async_op=True)\nelse:\n    y = x + 1\nwork.wait()",
        "work = dist.all_reduce(x, async_op=True)\nif rank:\n    x = torch.zeros(1)\n    y = x + 1\nwork.wait()",
        "req = dist.irecv(x, 0)\ncheck = lambda: req.wait()\ncheck()\ny = x + 1",
    ],
)
def test_the_benefit_of_the_doubt(code):
    assert found(code) == []


def test_thrown_away_and_used():
    assert found("dist.all_reduce(x, async_op=True)\ny = 0\nx /= 2") == [(1, 3, "x", "thrown-away")]
    assert found("_ = dist.broadcast(x, 0, async_op=True)\nreturn x") == [(1, 2, "x", "thrown-away")]


def test_never_waited_for():
    assert found("work = dist.all_reduce(x, async_op=True)\nx /= 2\nreturn x") == [(1, 2, "x", "never-waited")]
    assert found("work = dist.all_reduce(x, async_op=True)\nreturn x") == [(1, 2, "x", "never-waited")]


def test_thrown_away_and_never_seen_again():
    assert found("for p in model.parameters():\n    dist.all_reduce(p.data, async_op=True)") == [
        (2, None, "p.data", "thrown-away")
    ]
    assert found("work = dist.broadcast(x, 0, async_op=True)") == [(1, None, "x", "never-waited")]


def test_a_buffer_that_is_used_again_while_its_work_lies_in_a_list():
    code = """
    works = []
    for peer in range(3):
        x.fill_(peer)
        works.append(dist.isend(x, peer))
        works.append(dist.irecv(y, peer))
        x.zero_()
    for work in works:
        work.wait()
    """
    assert found(code) == [(4, 6, "x", "used-before-wait")]


def test_a_work_that_the_next_one_pushes_out_is_waited_for_too_late():
    code = """
    work = dist.all_reduce(x, async_op=True)
    y = x.sum()
    work = dist.all_reduce(y, async_op=True)
    work.wait()
    """
    assert found(code) == [(1, 2, "x", "used-before-wait")]


def test_sends_and_receives():
    assert found("dist.isend(x, 1)") == [(1, None, "x", "thrown-away")]
    assert found("req = dist.isend(x, 1)\nreturn 0") == [(1, None, "x", "never-waited")]
    assert found("req = dist.isend(x, 1)\nx.zero_()\nreq.wait()") == [(1, 2, "x", "used-before-wait")]
    assert found("req = irecv(x, 0)\ny = x + 1\nreq.wait()") == [(1, 2, "x", "used-before-wait")]
    assert found("dist.batch_isend_irecv(out)") == [(1, None, "out", "thrown-away")]
    assert found("for req in dist.batch_isend_irecv(out):\n    req.wait()") == []


def test_the_tensor_stands_at_another_place_in_other_calls():
    assert found("w = dist.all_gather(out, x, async_op=True)\ny = torch.cat(out)\nw.wait()") == [
        (1, 2, "out", "used-before-wait")
    ]
    assert found("w = dist.all_gather(tensor_list=out, tensor=x, async_op=True)\nx.zero_()\nw.wait()") == [
        (1, 2, "x", "used-before-wait")
    ]
    assert found("w = dist.reduce_scatter_tensor(out, x, async_op=True)\nprint(out)\nw.wait()") == [
        (1, 2, "out", "used-before-wait")
    ]


@pytest.mark.parametrize(
    "head",
    [
        "import torch.distributed as d\n",
        "import torch.distributed\nd = torch.distributed\n",
        "from torch import distributed as d\n",
        "import torch.distributed.distributed_c10d as d\n",
    ],
)
def test_any_alias(head):
    code = "w = d.all_reduce(x, async_op=True)\ny = x + 1\nw.wait()"
    assert found(code, head + "import torch\n") == [(1, 2, "x", "used-before-wait")]
    assert found("w = ar(x, async_op=True)\ny = x + 1\nw.wait()") == [(1, 2, "x", "used-before-wait")]


def test_what_is_not_torch_is_not_ours():
    assert found("w = d.all_reduce(x, async_op=True)\ny = x + 1", "import other as d\n") == []


def test_an_attribute_is_a_tensor_too():
    assert found("w = dist.all_reduce(rank.buf, async_op=True)\nrank.buf.div_(2)\nw.wait()") == [
        (1, 2, "rank.buf", "used-before-wait")
    ]
    assert found("w = dist.all_reduce(rank.buf, async_op=True)\nrank = y\nrank.buf.div_(2)\nw.wait()") == []


def test_a_function_of_the_file_is_looked_into():
    head = HEAD + "def shapes(t):\n    return t.shape\n\ndef halves(t):\n    t.div_(2)\n\n"
    assert found("w = dist.all_reduce(x, async_op=True)\nshapes(x)\nw.wait()", head) == []
    assert found("w = dist.all_reduce(x, async_op=True)\nhalves(x)\nw.wait()", head) == [
        (1, 2, "x", "used-before-wait")
    ]


def test_after_the_arm_the_code_goes_on():
    assert found("if rank:\n    w = dist.all_reduce(x, async_op=True)\ny = x + 1\nif rank:\n    w.wait()") == [
        (2, 3, "x", "used-before-wait")
    ]


def test_in_words():
    (one,) = unwaited(HEAD + "x = torch.ones(3)\nwork = dist.all_reduce(x, async_op=True)\nx /= 2\nwork.wait()\n")
    assert one.reason == "`x` is changed at line 7, before wait()."
    assert one.advice == "Keep the work and call wait() on it before line 7."
    assert one.function == "<module>"


def test_sends_that_are_dropped_are_found_in_the_victim_and_nothing_in_healthy_ones():
    text = (VICTIMS / "p2p.py").read_text()
    lines = text.splitlines()
    reported = [one.line for one in unwaited(text)]
    assert reported == [number for number, line in enumerate(lines, 1) if line.strip().startswith("dist.isend")]
    assert len(reported) == 1
    assert unwaited((VICTIMS / "healthy.py").read_text()) == []


@pytest.mark.parametrize("source", ["", "def f(:\n", "x = 1\0", "(" * 3000, "dist.isend(x, 1)", "\n" * 10])
def test_odd_sources_raise_nothing(source):
    assert isinstance(unwaited(source), list)


# -- a function that begins the call and hands its work back

GATHER = """
def begin(local):
    parts = [torch.zeros_like(local) for _ in range(4)]
    return parts, dist.all_gather(parts, local, async_op=True)

def reduce(value, group=None):
    work = dist.all_reduce(value, group=group, async_op=True)
    return work

def waits(value):
    work = dist.all_reduce(value, async_op=True)
    work.wait()
    return value

def chooses(value, now):
    if now:
        return dist.all_reduce(value, async_op=True)
    return None

"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("parts, work = begin(x)\ny = torch.cat(parts)\nwork.wait()", [(1, 2, "parts", "used-before-wait")]),
        ("parts, work = begin(x)\nif rank == 0:\n    print(parts)\nwork.wait()", [(1, 3, "parts", "used-before-wait")]),
        ("parts, work = begin(x)\nx.mul_(2)\nwork.wait()", [(1, 2, "x", "used-before-wait")]),
        ("work = reduce(x)\ny = x / 4\nwork.wait()", [(1, 2, "x", "used-before-wait")]),
        ("work = reduce(group=y, value=x)\ny = x / 4\nwork.wait()", [(1, 2, "x", "used-before-wait")]),
        ("work = reduce(x)\ny = x / 4", [(1, 2, "x", "never-waited")]),
        ("parts, work = begin(x)\nwork.wait()\ny = torch.cat(parts)", []),
        ("parts, work = begin(x)\ny = x * 2\nwork.wait()", []),  # it is only read
        ("both = begin(x)\ny = x * 2", []),
        ("value = waits(x)\ny = x / 2", []),
        ("work = chooses(x, y)\ny = x / 2", []),
        ("handles.work = reduce(x)\ny = x / 2", []),
    ],
)
def test_the_work_of_a_function(body, expected):
    assert found(body, HEAD + GATHER) == expected


def test_lines_that_change_something_in_place():
    source = "a = b\nc[0] = 1\nc.add_(1)\nc.add(1)\nc.__len__()\nc /= 2\nc *= 2\n"
    assert changed_between(source, 1, 7) == (2, 3, 6) and changed_between("if", 0, 9) == ()


def test_lines_that_change_something_in_the_next_iteration():
    source = "a *= 2\nfor i in b:\n    a.fill_(i)\n    if w:\n        w.wait()\n    w = isend(a)\n    c += 1\na += 1\n"
    assert changed_between(source, 6, 5) == (3, 7) and changed_between(source, 8, 1) == ()
