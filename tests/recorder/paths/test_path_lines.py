"""Executed lines, by the path that is recorded on a real group of one: Python 3.12 and later.

With 3.11 only the last test runs: there, nothing is recorded, and nothing else changes.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import textwrap
import warnings

import pytest
import torch
import torch.distributed as dist

from ddpnb.recorder.collectives.door import Door
from ddpnb.recorder.collectives.phases import Phases
from ddpnb.recorder.events.data import Data
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.paths.path import PathRecorder
from ddpnb.recording.blackbox import RUN_ACTIVE, BoxReader
from ddpnb.recording.events.runs import ExceptionHandled, HooksDetached, LinesNotRecorded
from ddpnb.recording.path_file import PathReader
from ddpnb.recording.path_lines import executed

recorded = pytest.mark.skipif(sys.version_info < (3, 12), reason="Python reports lines from 3.12 on")


class RankOfOne:
    """A rank in this process, and modules of its user."""

    def __init__(self, folder):
        self.folder = folder
        self.box = BlackBox(str(folder / "rank0.box"), 0)
        self.door = Door(self.box, str(folder))
        self.door.open()
        self.lines = PathRecorder(self.box, self.door, Phases(self.box, self.door), Data(self.box), str(folder), 0)
        self.begin(1)

    def begin(self, run):
        self.lines.remove()
        self.lines.install()
        self.lines.new_run()
        self.lines.begin(run)
        self.run = run
        self.box.set_run(run, RUN_ACTIVE)

    def module(self, text, name="user"):
        path = self.folder / f"{name}.py"
        path.write_text(textwrap.dedent(text))
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    @property
    def executed(self):
        self.lines.write()
        path = PathReader((self.folder / "rank0.path").read_bytes()).read(self.run)
        return None if path is None else executed(path, BoxReader(self.box.memory).calls())

    def windows(self, name="user"):
        """The lines of this module, window by window, without empty windows."""
        found = self.executed
        lines = [[s.line for s in found.of(w) if s.file.endswith(f"/{name}.py")] for w in found.windows]
        return [window for window in lines if window]

    def events(self, kind):
        return [event for event in BoxReader(self.box.memory).events() if isinstance(event, kind)]


@pytest.fixture
def rank(tmp_path, alone):
    rank = RankOfOne(tmp_path)
    yield rank
    rank.lines.remove()
    rank.door.close()
    assert not rank.events(HooksDetached) or rank.lines._failed == "expected"


LOOP = """
    import torch, torch.distributed as dist
    def train(steps, bad):
        for step in range(steps):
            x = torch.ones(2)
            if step == bad:
                continue
            dist.all_reduce(x)
"""


@recorded
def test_the_lines_between_two_collectives(rank):
    rank.module(LOOP).train(5, bad=3)
    assert rank.windows() == [[2, 3, 4, 5, 6, 8], [4, 5, 6, 8], [4, 5, 6, 8], [4, 5, 6, 7, 8], [4]]
    (branch,) = (line for line in rank.executed.lines if line.site.line == 7)
    assert (branch.site.function, branch.windows, branch.first) == ("train", 1, branch.last)
    assert [window.calls for window in rank.executed.windows] == [0, 1, 2, 3, 4]


@recorded
def test_where_a_rank_is_of_which_no_stack_was_read(rank):
    """In the innermost function that has not ended: a process that is killed tells no more."""
    user = rank.module("""
        def late(look, number):
            if number:
                look()
            return number
        def train(look):
            late(look, 0)
            late(look, 1)
    """)
    user.train(rank.lines.write)
    here = executed(PathReader((rank.folder / "rank0.path").read_bytes()).read(rank.run)).within
    assert (here.line, here.function) == (4, "late")


@recorded
def test_the_lines_between_two_steps_of_an_optimizer(rank):
    user = rank.module("""
        import torch
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        def train(steps):
            for step in range(steps):
                optimizer.zero_grad()
                loss = model(torch.ones(1, 2)).sum()
                loss.backward()
                if step == 1:
                    print("seldom")
                optimizer.step()
    """)
    rank.box.step()  # as recorder.steps does at each
    user.train(3)
    assert rank.windows()[-3:] == [[6, 7, 8, 9, 10, 11, 12], [6, 7, 8, 9, 10, 12], [6]]


@recorded
def test_a_loop_that_ran_before_the_recorder_began(rank):
    rank.lines.remove()
    user = rank.module("""
        import torch, torch.distributed as dist
        def unseen(step):
            return step + 1
        def train(start):
            pending = values()
            next(pending)
            for step in range(3):
                if step == 1:
                    start()
                if step:
                    unseen(step)
                    next(pending)
                dist.barrier()
        def values():
            yield 1
            yield 2
            yield 3
    """)
    user.train(lambda: rank.begin(2))
    # the generator began before: it is not recorded
    assert rank.windows() == [[10, 11, 12, 4, 13, 14], [8, 9, 11, 12, 4, 13, 14], [8]]


ODD = """
    import asyncio, functools
    def traced(function):
        @functools.wraps(function)
        def inner(*args):
            return function(*args)
        return inner
    @traced
    def squares(count):
        return [n * n for n in range(count)]
    async def later(value):
        await asyncio.sleep(0)
        return value
    async def several():
        return [await later(n) async for n in ticks()]
    def all_of(coroutine):  # a loop of asyncio's may run already, that of tests in a browser
        while True:
            try:
                coroutine.send(None)
            except StopIteration as end:
                return end.value
    async def ticks():
        for n in range(3):
            yield n
    class Sized:
        total = sum(range(4))
        @property
        def size(self):
            return self.total
    def deep(n):
        return n and 1 + deep(n - 1)
    pick = lambda value: value or {}
    def run():
        scope = {}
        exec("def made(x):\\n    return x + 1\\nvalue = made(1)", scope)
        exec(compile("shown = 1\\nother = 2", "<cell>", "exec"), scope)
        try:
            raise KeyError(1)
        except KeyError as error:
            found = error.args
        finally:
            found = 1
        return squares(3), all_of(several()), Sized().size, deep(50), pick(0), scope["value"], found
"""


@recorded
def test_all_kinds_of_code_run_as_without(rank):
    user = rank.module(ODD)
    for _ in range(3):
        assert user.run() == ([0, 1, 4], [0, 1, 2], 6, 50, {}, 2, 1)
        dist.barrier()
    _, second, third = rank.windows()
    text = textwrap.dedent(ODD).splitlines()
    for line in ("return function(*args)", "return [n * n", "await asyncio", "return [await", "yield n", "return self.total",
                 "return n and 1", "pick =", "exec(compile(", "found = error.args", "return squares"):  # fmt: skip
        assert next(number for number, one in enumerate(text, 1) if one.strip().startswith(line)) in second
    assert second == third
    assert not [line for line in rank.executed.lines if line.site.file.startswith("<")]
    with pytest.raises(RecursionError):
        user.deep(100_000)
    dist.barrier()
    assert user.deep(20) == 20


@recorded
def test_a_module_that_is_edited_and_loaded_again(rank):
    before = rank.module("def f():\n    return 1\n")
    assert before.f() == 1
    dist.barrier()
    after = rank.module("\n\ndef f():\n    return 2\n")
    assert (after.f(), before.f()) == (2, 1)
    assert rank.windows()[-1] == [3, 4, 2]


@recorded
@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.full)])
def test_compiled_functions(rank, backend):
    if backend == "inductor" and shutil.which("c++") is None:
        pytest.skip("no compiler")
    user = rank.module("""
        import torch
        def f(x):
            y = x * 2
            if y.sum() > 3:
                return y
            return y - 1
    """)
    torch._dynamo.reset()
    warnings.simplefilter("ignore", DeprecationWarning)  # of torch, when it imports inductor
    compiled = torch.compile(user.f, backend=backend)
    graphs = []
    for factor in (1.0, 5.0, 1.0, 5.0):
        x = torch.full((2,), factor)
        assert torch.equal(compiled(x), user.f(x))
        dist.barrier()
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert graphs[2:] == [graphs[1]] * 2, "enabled events make nothing compile again"
    assert not [line for line in rank.executed.lines if "torchinductor_" in line.site.file]


@recorded
def test_windows_count_the_calls_of_their_own_run(rank):
    """Ranks of a world may have made different numbers of calls in earlier runs, as in one that hung."""
    user = rank.module("""
        import torch, torch.distributed as dist

        def train(steps):
            for step in range(steps):
                x = torch.ones(2)
                dist.all_reduce(x)
    """)
    user.train(3)
    rank.begin(2)
    user.train(2)
    assert [window.calls for window in rank.executed.windows] == [0, 1, 2]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python reports lines from 3.12 on")
def test_older_versions_of_python_record_no_lines(rank):
    user = rank.module(ODD)
    assert user.all_of(user.several()) == [0, 1, 2]
    rank.module(LOOP).train(3, bad=1)
    assert not (rank.folder / "rank0.path").exists() and not rank.events(LinesNotRecorded)


@recorded
def test_where_an_exception_that_is_caught_was_raised(rank):
    user = rank.module("""
        def table():
            values = {}
            return values["key"]

        def summarize():
            try:
                return table()
            except Exception as error:
                message = repr(error)
                return message

        def closes():
            try:
                return 1
            finally:
                summarize()
    """)
    for _ in range(3):
        user.summarize()
    user.closes()
    events = rank.events(ExceptionHandled)
    for event in events:
        assert (event.exception, event.raised.line, event.raised.function) == ("KeyError", 4, "table")
        assert event.raised.file == user.__file__
    # The line of the `except` also runs for exceptions that it does not handle, so the next one is recorded too.
    assert [(event.site.line, event.site.function) for event in events] == [(9, "summarize"), (10, "summarize")]
