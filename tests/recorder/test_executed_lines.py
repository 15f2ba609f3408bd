"""Executed lines, recorded by the interpreter itself on a real group of one: Python 3.12 and later.

With 3.11 only the last test runs: there, nothing is recorded, and nothing else changes.
"""

from __future__ import annotations

import cProfile
import importlib.util
import os
import pstats
import shutil
import signal
import sys
import textwrap
import threading
import warnings
from contextlib import suppress

import pytest
import torch
import torch.distributed as dist

from ddpnb.model import line_file as layout
from ddpnb.model.blackbox import RUN_ACTIVE, BoxReader
from ddpnb.model.events.runs import ExceptionHandled, HooksDetached, LinesNotRecorded
from ddpnb.model.line_file import LineReader
from ddpnb.model.recording import RankRecord
from ddpnb.recorder.blackbox import BlackBox
from ddpnb.recorder.door import Door
from ddpnb.recorder.executed_lines import Lines
from ddpnb.recorder.line_file import LineFile

recorded = pytest.mark.skipif(sys.version_info < (3, 12), reason="Python reports lines from 3.12 on")


class RankOfOne:
    """A rank in this process, and modules of its user."""

    def __init__(self, folder):
        self.folder = folder
        self.box = BlackBox(str(folder / "rank0.box"), 0)
        self.door = Door(self.box, str(folder))
        self.door.open()
        self.lines = Lines(self.box, self.door, str(folder), 0)
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
        return LineReader((self.folder / "rank0.lines").read_bytes()).read(self.run)

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
    assert rank.windows() == [[11, 12, 4, 13, 17, 14], [8, 9, 11, 12, 4, 13, 18, 14], [8]]


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
def test_threads_count_and_a_forked_process_does_not(rank):
    user = rank.module("def f():\n    return 1\ndef g():\n    return 2\n")
    thread = threading.Thread(target=user.f)
    thread.start()
    thread.join()
    pid = os.fork()
    if not pid:
        rank.box.silence()
        with suppress(BaseException):
            os._exit(user.g() + user.f())
        os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    assert rank.windows() == [[1, 3, 2]]


@recorded
def test_workers_of_a_data_loader_are_forked_and_their_lines_are_not_the_ranks(rank):
    user = rank.module("""
        import torch
        class Squares(torch.utils.data.Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, index):
                return index * index
        def total():
            loader = torch.utils.data.DataLoader(Squares(), num_workers=2, multiprocessing_context="fork")
            return [int(batch) for batch in loader]
    """)
    os.register_at_fork(after_in_child=rank.box.silence)  # as the recorder does
    assert user.total() == [0, 1, 4, 9]
    (window,) = rank.windows()
    assert {5, 9, 10} <= set(window) and 7 not in window


@recorded
@pytest.mark.timeout(300)  # inductor's first use compiles C++
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
def test_a_debugger_that_traces_sees_the_same(rank):
    """``pdb`` and others use ``sys.settrace``."""
    user = rank.module(LOOP)

    def traced():
        seen = []

        def trace(frame, event, _):
            if frame.f_code is user.train.__code__:
                seen.append((event, frame.f_lineno))
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            user.train(4, bad=2)
        finally:
            sys.settrace(before)
        return seen

    found = traced()
    assert rank.windows() == [[2, 3, 4, 5, 6, 8], [4, 5, 6, 8], [4, 5, 6, 7, 8], [4]]
    rank.lines.remove()
    assert found == traced()


@recorded
def test_a_profiler_of_the_standard_library_counts_the_same(rank):
    """It uses ``sys.monitoring`` too: the lines are one window."""
    user = rank.module("""
        import torch.distributed as dist
        def inner():
            pass
        def train():
            for _ in range(3):
                inner()
    """)

    def profiled():
        profiler = cProfile.Profile()
        profiler.enable()
        user.train()
        rank.lines._called(0)
        user.train()
        profiler.disable()
        stats = pstats.Stats(profiler).stats
        return sorted((name, count) for (file, _, name), (count, *_) in stats.items() if file == user.__file__)

    assert profiled() == [("inner", 6), ("train", 2)]
    assert rank.windows() == [[2, 3, 5, 6, 7, 4]]
    dist.barrier()
    assert profiled() == [("inner", 6), ("train", 2)]


@recorded
def test_a_program_of_a_hundred_thousand_lines(rank):
    """The table has room for 65536 lines: what follows is counted, and what was recorded stays right."""
    functions = "".join(
        f"def f{number}(x):\n" + "".join(f"    x = {line}\n" for line in range(48)) + "    return x\n"
        for number in range(20)
    )
    modules = [rank.module(functions, f"user{number}") for number in range(100)]

    def call(some):
        for module in some:
            for number in range(20):
                assert vars(module)[f"f{number}"](0) == 47
        dist.barrier()

    call(modules[:60])
    found = rank.executed
    assert found.dropped == 0 and len({(line.site.file, line.site.line) for line in found.lines}) > 60_000
    call(modules)
    call(modules[:2])
    found = rank.executed
    assert len(found.lines) == layout.LINES and found.dropped > 100_000 - layout.LINES - 1000
    assert all(any(found.of(window)) for window in found.windows[-2:])
    last = {(site.file, site.line) for site in found.of(found.windows[-2])}
    assert last >= {(module.__file__, line) for module in modules[:2] for line in range(2, 1001) if line % 50 != 1}


@recorded
def test_each_run_begins_anew(rank):
    user = rank.module(LOOP)
    user.train(4, bad=2)
    before = rank.executed
    assert before is not None
    rank.run = 2
    rank.lines.begin(2)
    user.train(2, bad=0)
    assert rank.windows() == [[4, 5, 6, 7, 8], [4]] or rank.windows() == [[3, 4, 5, 6, 7, 8], [4]]
    assert LineReader((rank.folder / "rank0.lines").read_bytes()).read(1) is None


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


@recorded
def test_another_tool_makes_the_run_one_window(rank):
    sys.monitoring.use_tool_id(sys.monitoring.COVERAGE_ID, "other")
    try:
        rank.module(LOOP).train(5, bad=3)
    finally:
        sys.monitoring.free_tool_id(sys.monitoring.COVERAGE_ID)
    assert rank.windows() == [[2, 3, 4, 5, 6, 8, 7]]
    (event,) = rank.events(LinesNotRecorded)
    (gap,) = RankRecord(0, history=(event,)).gaps
    assert gap == "Executed lines of rank 0 are only for the run as a whole, not in windows: other uses sys.monitoring."


@recorded
def test_where_no_tool_is_free_lines_are_not_recorded(rank):
    rank.lines.remove()
    for tool in (3, 4):
        sys.monitoring.use_tool_id(tool, "other")
    try:
        rank.begin(2)
        rank.module(LOOP).train(3, bad=0)
    finally:
        for tool in (3, 4):
            sys.monitoring.free_tool_id(tool)
    (event,) = rank.events(LinesNotRecorded)
    (gap,) = RankRecord(0, history=(event,)).gaps
    assert gap == "Executed lines of rank 0 are not recorded: other tools use sys.monitoring."
    assert rank.executed is None


@recorded
@pytest.mark.parametrize("taken", [True, False], ids=["taken", "free"])
def test_a_program_that_frees_all_tools_sees_nothing_of_it(rank, capfd, taken):
    user = rank.module(LOOP)
    user.train(2, bad=5)
    sys.monitoring.free_tool_id(4)
    if taken:
        sys.monitoring.use_tool_id(4, "the program's")
    rank.module(LOOP, "later").train(3, bad=1)
    assert sys.monitoring.get_tool(4) == ("the program's" if taken else None)
    if taken:
        sys.monitoring.free_tool_id(4)
    assert capfd.readouterr().err == "" and rank.executed is None
    (event,) = rank.events(LinesNotRecorded)
    assert event.why == "the program has freed the tool of sys.monitoring that ddpnb uses"
    rank.begin(2)  # it is free again
    user.train(2, bad=5)
    assert rank.windows()


@recorded
def test_a_failure_of_the_hook_is_reported_once_and_lines_are_no_longer_recorded(rank, monkeypatch, capfd):
    monkeypatch.setattr(LineFile, "_number", None)  # where lines are new
    user = rank.module(LOOP)
    user.train(3, bad=5)
    rank.module(LOOP).train(3, bad=5)
    assert capfd.readouterr().err.count("a hook failed and was disabled") == 1
    assert rank.executed is None and len(rank.events(HooksDetached)) == 1
    assert sys.monitoring.get_tool(4) is None
    rank.lines._failed = "expected"


@recorded
def test_what_a_signal_handler_of_the_user_raises_reaches_the_user(rank):
    user = rank.module("""
        def work(next_window):
            while True:
                for n in range(20):
                    n + 1
                    n + 2
                next_window(0)
    """)

    class Alarm(Exception):
        pass

    def handler(*_):
        raise Alarm

    def interrupted():
        signal.setitimer(signal.ITIMER_REAL, 0.004)
        user.work(rank.lines._called)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for _ in range(40):
            with pytest.raises(Alarm):
                interrupted()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    before = len(rank.windows())
    rank.lines._called(0)
    rank.module("a = 1")
    rank.lines._called(0)
    assert not rank.events(HooksDetached) and len(rank.windows()) > min(before, 1000)


@recorded
def test_it_can_be_turned_off(rank, monkeypatch):
    rank.lines.remove()
    monkeypatch.setenv("DDPNB_LINES", "0")
    rank.begin(2)
    rank.module(LOOP).train(3, bad=0)
    assert rank.executed is None and not rank.events(LinesNotRecorded)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python reports lines from 3.12 on")
def test_older_versions_of_python_record_no_lines(rank):
    user = rank.module(ODD)
    assert user.all_of(user.several()) == [0, 1, 2]
    rank.module(LOOP).train(3, bad=1)
    assert not (rank.folder / "rank0.lines").exists() and not rank.events(LinesNotRecorded)


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
