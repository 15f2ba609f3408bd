"""The path, recorded by the interpreter itself on a real group of one: Python 3.12 and later."""

from __future__ import annotations

import cProfile
import importlib.util
import os
import pstats
import signal
import sys
import textwrap
import threading
import time
from contextlib import suppress

import pytest
import torch.distributed as dist

from ddpnb.recorder.collectives.door import Door
from ddpnb.recorder.collectives.phases import Phases
from ddpnb.recorder.events.data import Data
from ddpnb.recorder.events.hooks import put_in_place
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.paths import path as recorder_path
from ddpnb.recorder.paths.path import PathRecorder
from ddpnb.recording import path_file as layout
from ddpnb.recording.blackbox import RUN_ACTIVE, BoxReader
from ddpnb.recording.events.runs import HooksDetached
from ddpnb.recording.path import KIND, Kind
from ddpnb.recording.path_file import PathReader
from ddpnb.recording.path_lines import executed
from tests.recorder.paths.paths import told

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="Python reports branches from 3.12 on")


class OfFolder(PathRecorder):
    """Records the modules of one folder: the tests themselves are code of the user's too."""

    def _is_recorded(self, code, frame):
        return super()._is_recorded(code, frame) and recorder_path._origin(frame).startswith(
            os.path.dirname(self._path)
        )


class RankOfOne:
    """A rank in this process, and modules of its user."""

    def __init__(self, folder):
        self.folder = folder
        self.box = BlackBox(str(folder / "rank0.box"), 0)
        self.door = Door(self.box, str(folder))
        self.door.open()
        self.data = Data(self.box)
        self.phases = Phases(self.box, self.door)
        self.recorder = OfFolder(self.box, self.door, self.phases, self.data, str(folder), 0)
        self.begin(1)

    def begin(self, run):
        self.recorder.remove()
        self.recorder.install()
        self.recorder.begin(run)
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
    def path(self):
        self.recorder.write()
        return self.written

    @property
    def written(self):
        return PathReader((self.folder / "rank0.path").read_bytes()).read(self.run)

    def told(self, function, thread="MainThread"):
        """What was recorded from the last beginning of this function to its end."""
        words = told(self.path, thread)
        first = max(at for at, word in enumerate(words) if word.startswith(f"begin {function} "))
        depth = 0
        for at, word in enumerate(words[first:], first):
            depth += word.startswith(("begin ", "resume ")) - word.startswith(("return ", "yield ", "unwind "))
            if not depth:
                return words[first + 1 : at + 1]
        return words[first + 1 :]

    def events(self, kind):
        return [event for event in BoxReader(self.box.memory).events() if isinstance(event, kind)]


@pytest.fixture
def rank(tmp_path, alone):
    rank = RankOfOne(tmp_path)
    yield rank
    rank.recorder.remove()
    rank.data.remove()
    rank.phases.remove()
    rank.door.close()
    assert not rank.events(HooksDetached) or rank.recorder._failed == "expected"


LOOP = """
    import torch, torch.distributed as dist
    def train(steps, bad):
        for step in range(steps):
            x = torch.ones(2)
            if step == bad:
                continue
            dist.all_reduce(x)
"""


def test_the_decisions_between_collectives(rank):
    rank.module(LOOP).train(3, bad=1)
    assert rank.told("train") == [
        "4 -> 4", "6 -> 8", "all_reduce #1 of default_pg at 8",
        "4 -> 4", "6 -> 7",
        "4 -> 4", "6 -> 8", "all_reduce #2 of default_pg at 8",
        "4 -> 4", "return at 4",
    ]  # fmt: skip


def test_what_is_needed_of_a_function_is_in_the_file(rank):
    rank.module(LOOP).train(3, bad=1)
    (code,) = (code for code in rank.path.codes if code.function == "train")
    assert code.file == str(rank.folder / "user.py") and code.line == 3 and code.user and code.digest
    loop, branch = code.branches
    assert (loop.line, loop.loop) == (4, True) and (branch.line, branch.loop, branch.names) == (
        6,
        False,
        ("step", "bad"),
    )
    assert code.blocks and dict(code.lines)


def test_functions_and_where_they_are_called(rank):
    user = rank.module("""
        def skips(batch):
            if not batch:
                return None
            return helper(
                batch)
        def helper(batch):
            return [n for n in batch if n > 1]
        def run():
            skips([])
            return skips([1, 2])
    """)
    user.run()
    assert rank.told("run") == [
        "begin skips from 10", "3 -> 4", "return at 4",
        "begin skips from 11", "3 -> 5", "begin helper from 5",
        "8 -> 8", "8 -> 8", "8 -> 8", "8 -> 8", "8 -> 8", "return at 8", "return at 5", "return at 11",
    ]  # fmt: skip


def test_a_caller_in_the_users_code_with_library_frames_between(rank):
    user = rank.module("""
        import functools
        import torch
        class Model(torch.nn.Module):
            def forward(self, x):
                return x
        def run(model):
            return model(
                torch.ones(1))
    """)
    user.run(user.Model())
    assert rank.told("run") == ["begin Model.forward from 8", "return at 6", "return at 8"]


def test_exceptions_handled_and_passed_through(rank):
    user = rank.module("""
        def parse(text):
            return int(text)
        def middle(text):
            return parse(text)
        def run():
            try:
                middle("x")
            except KeyError:
                pass
            except ValueError:
                return 1
            finally:
                middle("1")
    """)
    user.run()
    assert rank.told("run") == [
        "begin middle from 8", "begin parse from 5", "raise ValueError at 3", "unwind at 3 ValueError",
        "raise ValueError at 5", "unwind at 5 ValueError", "raise ValueError at 8", "handled ValueError at 14",
        "9 -> 11", "11 -> 11", "begin middle from 14", "begin parse from 5", "return at 3", "return at 5", "return at 14",
    ]  # fmt: skip


def test_the_end_of_an_iterator_is_no_exception_of_the_program(rank):
    user = rank.module("""
        class Twice:
            count = 0
            def __iter__(self):
                return self
            def __next__(self):
                self.count += 1
                if self.count > 2:
                    raise StopIteration
        def run():
            for _ in Twice():
                pass
    """)
    user.run()
    ended = rank.told("run")[-5:]
    assert ended == ["8 -> 9", "raise StopIteration at 9", "unwind at 9 StopIteration", "11 -> 11", "return at 11"]


def test_generators_and_coroutines_are_segments(rank):
    user = rank.module("""
        import asyncio
        def some():
            for n in range(2):
                yield n
        def delegated():
            return (yield from some())
        async def later(n):
            await asyncio.sleep(0)
            return n
        async def all_of():
            return [await later(1), await later(2)]
        def closed():
            try:
                yield 1
            finally:
                pass
        def run():
            list(delegated())
            pending = closed()
            next(pending)
            pending.close()
        def drive():
            coroutine = all_of()
            while True:
                try:
                    coroutine.send(None)
                except StopIteration:
                    return
    """)
    user.run()
    assert rank.told("run") == [
        "begin delegated from 19", "begin some from 7", "4 -> 4", "yield at 5", "yield at 7",
        "resume delegated from 19", "resume some from 7", "4 -> 4", "yield at 5", "yield at 7",
        "resume delegated from 19", "resume some from 7", "4 -> 4", "return at 4", "return at 7",
        "begin closed from 21", "yield at 15", "resume closed from 22", "raise GeneratorExit at 15",
        *3 * ["handled GeneratorExit at 17"], "unwind at 17 GeneratorExit", "return at 22",
    ]  # fmt: skip
    user.drive()
    begun, again = (
        ["begin later from 12", "yield at 9"],
        ["resume all_of from 27", "resume later from 12", "return at 10"],
    )
    assert rank.told("drive") == [
        "begin all_of from 27", *begun, "yield at 12", *again, *begun, "yield at 12", *again, "return at 12",
        "raise StopIteration at 27", "handled StopIteration at 25", "28 -> 28", "return at 29",
    ]  # fmt: skip


def test_what_is_thrown_into_a_coroutine_resumes_those_that_await_it_first(rank):
    """As a time-out of asyncio: the innermost is cancelled first, then each that awaited it."""
    user = rank.module("""
        import asyncio
        async def load():
            await asyncio.sleep(0)
        async def main():
            try:
                await load()
            except KeyError:
                pass
        def run():
            coroutine = main()
            coroutine.send(None)
            try:
                coroutine.throw(KeyError())
            except StopIteration:
                pass
    """)
    user.run()
    told = rank.told("run")
    assert told[:4] == ["begin main from 12", "begin load from 7", "yield at 4", "yield at 7"]
    assert told[4:7] == ["resume main from 14", "resume load from 7", "raise KeyError at 4"]
    assert not any("resume" in one for one in told[6:])
    assert told.index("unwind at 4 KeyError") < told.index("raise KeyError at 7")


def test_exec_reload_and_lambdas(rank):
    before = rank.module("def f(x):\n    return 1 if x else 2\n")
    before.f(0)
    after = rank.module(
        "\n\ndef f(x):\n    return 1 if x else 2\nexec('def g(x):\\n if x:\\n  return 1')\npick = lambda x: x or 1\n"
    )
    before.f(0)
    after.f(1)
    after.g(1)
    after.pick(0)
    codes = {(code.file.rpartition("/")[2], code.function, code.line) for code in rank.path.codes}
    assert {("user.py", "f", 1), ("user.py", "f", 3), ("<string>", "g", 1), ("user.py", "<lambda>", 6)} <= codes
    for module in (before, after):
        rank.begin(rank.run + 1)
        module.f(0)
        line = 2 if module is before else 4
        assert rank.told("f") == [f"{line} -> {line}", f"return at {line}"]


def test_text_that_is_compiled_again_and_again_is_one_code(rank):
    user = rank.module("def run(n):\n    for _ in range(n):\n        exec('a = 1')\n")
    user.run(40)
    assert sum((code.file, code.function) == ("<string>", "<module>") for code in rank.path.codes) == 1


def test_a_loop_that_runs_very_often_is_hot(rank):
    user = rank.module("""
        import torch, torch.distributed as dist
        def total(n):
            found = 0
            for i in range(n):
                if i & 1:
                    found += 1
            return found
        def run(n):
            for step in range(3):
                if total(n):
                    dist.barrier()
    """)
    rank.recorder._pause = 20.0  # a busy machine
    user.run(100_000)
    words = rank.told("run")
    first = words[: words.index("barrier #1 of default_pg at 12")]
    assert (
        len(first) < 1500
        and first[-4:-2] == ["hot total at 5", "hot total at 6"]
        or first[-4:-2] == ["hot total at 6", "hot total at 5"]
    )
    assert words[len(first) :] == [
        "barrier #1 of default_pg at 12", "10 -> 10", "begin total from 11", "return at 8", "11 -> 12",
        "barrier #2 of default_pg at 12", "10 -> 10", "begin total from 11", "return at 8", "11 -> 12",
        "barrier #3 of default_pg at 12", "10 -> 10", "return at 10",
    ]  # fmt: skip


def test_hot_code_comes_back_after_a_pause(rank):
    user = rank.module("""
        import torch, torch.distributed as dist
        def inner(x):
            return x
        def many(n):
            for i in range(n):
                inner(i)
        def run(n):
            many(n)
            dist.barrier()
    """)
    rank.recorder._pause = 20.0  # a busy machine
    user.run(10_000)
    words = rank.told("run")
    assert "hot inner" in words and "hot many at 6" in words
    user.run(2)
    assert rank.told("run") == ["begin many from 9", "return at 6", "barrier #2 of default_pg at 10", "return at 10"]
    rank.recorder._cooled -= 21.0
    user.run(2)
    assert rank.told("run")[2:] == ["barrier #3 of default_pg at 10", "cold", "base of 1", "return at 10"]
    user.run(1)
    assert rank.told("run") == [
        "begin many from 9", "6 -> 6", "begin inner from 7", "return at 4", "6 -> 6", "return at 6",
        "barrier #4 of default_pg at 10", "return at 10",
    ]  # fmt: skip
    assert rank.recorder._pause == 40.0
    assert not any(word == "gap" for word in told(rank.path))


def test_what_comes_often_is_hot_sooner_where_the_path_costs_too_much(rank, monkeypatch):
    monkeypatch.setattr(recorder_path, "_FREE_WORDS", 0)
    monkeypatch.setattr(recorder_path, "_FREE_S", 0.0)
    monkeypatch.setattr(recorder_path, "_SHARE", 1e-9)
    user = rank.module("""
        import torch, torch.distributed as dist
        def many(n):
            for i in range(n):
                if i == 3:
                    n += 0
        def run(n):
            many(n)
            if n:
                dist.barrier()
    """)
    rank.recorder._pause = 20.0  # a busy machine
    for _ in range(3):
        user.run(40)
    words = rank.told("run")
    assert [word for word in words if "->" in word] == ["9 -> 10"]
    assert {"hot many at 4", "hot many at 5"} <= set(told(rank.path))
    monkeypatch.setattr(recorder_path, "_FREE_S", 1e9)
    rank.recorder._cooled -= 21.0
    user.run(0), user.run(1), user.run(40)
    assert sum("->" in word for word in rank.told("run")) > 60


def test_exceptions_that_come_very_often_are_hot_too(rank):
    user = rank.module("""
        import torch.distributed as dist
        def run(n):
            for i in range(n):
                try:
                    int("x")
                except ValueError:
                    pass
            dist.barrier()
    """)
    user.run(5000)
    words = rank.told("run")
    assert len(words) < 2000 and {"hot run at 4", "hot run at 6"} <= set(words)
    assert words[-2:] == ["barrier #1 of default_pg at 9", "return at 9"]


def test_an_exception_in_each_step_is_not_hot_since_other_code_is(rank):
    user = rank.module("""
        import torch.distributed as dist
        def inner(x):
            return x
        def step():
            try:
                int("x")
            except ValueError:
                pass
            dist.barrier()
        def run():
            for i in range(10_000):
                inner(i)
            for _ in range(100):
                step()
    """)
    user.run()
    words = told(rank.path)
    assert "hot inner" in words and "hot step at 7" not in words
    assert words.count("raise ValueError at 7") == words.count("handled ValueError at 10") == 100


def test_a_function_that_is_hot_while_it_is_open(rank):
    """A recursion turns dark while it runs: what encloses it stays right."""
    user = rank.module("""
        import torch.distributed as dist
        def tree(depth):
            if depth:
                tree(depth - 1)
                tree(depth - 1)
            return depth
        def run():
            tree(12)
            dist.barrier()
            return 1 if dist.get_rank() else 2
    """)
    user.run()
    words = rank.told("run")
    at = words.index("hot tree")
    assert words[at + 1] == "base of 1" and words[at + 2 :] == [
        "barrier #1 of default_pg at 10",
        "11 -> 11",
        "return at 11",
    ]


def test_a_hot_function_that_makes_a_collective_after_all_is_recorded_again(rank):
    """The path of another rank, on which it was not hot, has its frame."""
    user = rank.module("""
        import torch.distributed as dist
        def maybe(call):
            if call:
                dist.barrier()
        def run(calls):
            for _ in range(calls):
                maybe(False)
            maybe(True)
            dist.barrier()
    """)
    for calls, number in ((5000, 1), (70, 3)):
        user.run(calls)
        words = told(rank.path)
        at = words.index(f"barrier #{number} of default_pg at 5")
        assert words[at - 2 :] == [
            *(["cold", "base of 2"] if number == 1 else ["begin maybe from 9", "4 -> 5"]),
            f"barrier #{number} of default_pg at 5", "return at 5", f"barrier #{number + 1} of default_pg at 10", "return at 10",
        ]  # fmt: skip
    assert words.count("hot maybe") == 1


def test_decisions_of_a_function_that_makes_collectives_are_seldom_hot(rank):
    user = rank.module("""
        import torch.distributed as dist
        def run(steps):
            for step in range(steps):
                if step < 0 or step > 10_000 or step == -1:
                    return
                if step < -1 or step > 10_001 or step == -2:
                    return
                if step % 200 == 199:
                    dist.barrier()
    """)
    user.run(600)
    words = told(rank.path)
    first, second, third = (words.index(f"barrier #{number} of default_pg at 10") for number in (1, 2, 3))
    assert "hot run at 9" in words[:first] and not [word for word in words[first:] if word.startswith("hot")]
    for of in words[first:second], words[second:third]:
        assert (sum(word.startswith("9 -> ") for word in of), of.count("9 -> 10")) == (200, 1)


def test_deep_recursion(rank):
    user = rank.module("""
        import torch.distributed as dist
        def deep(n):
            if n:
                return deep(n - 1)
            dist.barrier()
            return 0
        def endless():
            return endless()
        def caught():
            try:
                endless()
            except RecursionError:
                return 1
        def after(x):
            return 1 if x else 2
    """)
    depth = min(900, sys.getrecursionlimit() - 150)
    user.deep(depth)
    assert user.caught() == 1
    assert user.after(0) == 2
    dist.barrier()
    assert rank.told("after") == ["16 -> 16", "return at 16"]
    with pytest.raises(RecursionError):
        user.deep(100_000)
    rank.begin(2)
    user.deep(60)
    words = told(rank.path)
    assert words.count("return at 5") == 60 and words.count("begin deep from 5") == 60


def test_the_ring_keeps_the_last(tmp_path, alone, monkeypatch):
    monkeypatch.setattr(layout, "WORDS", 1 << 15)
    monkeypatch.setattr(layout, "_MARGIN", 1 << 10)
    rank = RankOfOne(tmp_path)
    user = rank.module("""
        import torch.distributed as dist
        def run(times):
            for i in range(times):
                if i % 3:
                    pass
    """)
    for _ in range(1000):
        user.run(25)
        rank.recorder._call("barrier", 1, 1, None)
    path = rank.path
    words = path.threads["MainThread"]
    assert path.forgotten > 0 and words[0] & KIND == Kind.BASE
    assert layout.WORDS / 2 < len(words) < layout.WORDS
    assert rank.told("run")[-1] == "return at 4" and "gap" not in told(path)
    rank.recorder.remove()
    rank.door.close()


def test_another_thread_with_collectives_has_a_path_of_its_own(rank):
    user = rank.module("""
        import torch.distributed as dist
        def checks(x):
            return 1 if x else 0
        def work():
            for x in range(2):
                checks(x)
                dist.barrier()
    """)
    thread = threading.Thread(target=user.work, name="worker")
    thread.start()
    thread.join()
    dist.barrier()
    assert told(rank.path, "worker") == [
        "base of 1", "barrier #1 of default_pg at 8", "6 -> 6", "begin checks from 7", "4 -> 4", "return at 4",
        "barrier #2 of default_pg at 8", "6 -> 6", "return at 6",
    ]  # fmt: skip
    assert "begin work from None" not in told(rank.path)


def test_collectives_of_a_thread_without_python_belong_to_the_main_threads_path(rank):
    """As those that DDP makes in the threads of autograd for a GPU."""
    user = rank.module("""
        import _thread, time, torch, torch.distributed as dist
        def run():
            done = []
            _thread.start_new_thread(lambda: (dist.barrier(), done.append(1)), ())
            while not done:
                time.sleep(0.01)
    """)
    user.run()
    calls = [word for word in rank.told("run") if word.startswith("barrier")]
    assert calls in (
        ["barrier #1 of default_pg at 7"],
        ["barrier #1 of default_pg at 6"],
        ["barrier #1 of default_pg at 5"],
    )


def test_groups_messages_steps_and_batches(rank):
    put_in_place(rank.phases, rank.data)
    user = rank.module("""
        import torch, torch.distributed as dist
        def run():
            group = dist.new_group([0], group_desc="mine")
            weight = torch.nn.Parameter(torch.ones(1))
            optimizer = torch.optim.SGD([weight], lr=0.1)
            for batch in torch.utils.data.DataLoader(torch.arange(2)):
                weight.grad = torch.ones(1)
                optimizer.step()
            dist.all_reduce(weight.detach(), group=group)
            dist.destroy_process_group(group)
    """)
    user.run()
    step = ["iteration at 7", "7 -> 7", "optimizer step at 9"]
    words = rank.told("run")
    assert [word for word in words if "#" not in word] == [
        "new_group with -1 of group [0] at 4", *step, *step, "7 -> 10", "destroy_process_group with -1 of mine [0] at 11",
        "return at 11",
    ]  # fmt: skip
    assert [word for word in words if "#" in word] == ["all_reduce #1 of mine [0] at 10"]


def test_messages_have_peers(tmp_path, of_two):
    rank = RankOfOne(tmp_path)
    try:
        rank.module("""
            import torch, torch.distributed as dist
            def run():
                dist.send(torch.ones(1), 1)
        """).run()
        assert rank.told("run") == ["send with 1 of default_pg at 4", "return at 4"]
    finally:
        rank.recorder.remove()
        rank.door.close()


def test_workers_of_a_data_loader_are_forked_and_do_not_write(rank):
    user = rank.module("""
        import torch
        class Squares(torch.utils.data.Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, index):
                return index * index if index else 0
        def total():
            loader = torch.utils.data.DataLoader(Squares(), num_workers=2, multiprocessing_context="fork")
            return [int(batch) for batch in loader]
    """)
    os.register_at_fork(after_in_child=rank.box.silence)  # as the recorder does
    assert user.total() == [0, 1, 4, 9]
    words = rank.told("total")
    assert "begin Squares.__len__ from 10" in words and not any("__getitem__" in word for word in words)
    assert words[-1] == "return at 10"


def test_a_rank_that_is_killed_keeps_its_path(rank):
    user = rank.module(LOOP)
    all_reduce = lambda: rank.recorder._call("all_reduce", 0, 0, None)  # noqa: E731 (a forked process has no threads of gloo)
    pid = os.fork()
    if not pid:
        with suppress(BaseException):
            dist.all_reduce = lambda _: all_reduce()
            user.train(3, bad=1)
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    words = told(rank.written)
    assert words[-5:] == ["4 -> 4", "6 -> 7", "4 -> 4", "6 -> 8", "all_reduce with -1 of  at 8"]


def test_an_exception_that_ends_the_program_is_written_at_once(rank):
    code = textwrap.dedent("""
        def fails(x):
            if x:
                raise KeyError(x)
        fails(1)
    """)
    program = compile(code, str(rank.folder / "program.py"), "exec")
    with pytest.raises(KeyError):
        exec(program, {})
    assert "unwind at 4 KeyError" in told(rank.written)


def test_very_many_functions_are_named_at_once_and_described_later(rank, monkeypatch):
    monkeypatch.setattr(recorder_path, "_DESCRIBING_S", 0.0)
    monkeypatch.setattr(recorder_path, "_DESCRIBING_SHARE", 0.0)
    monkeypatch.setattr(recorder_path, "_ALL_S", 60.0)  # a busy machine
    user = rank.module("".join(f"def f{number}(x):\n    return 1 if x else 2\n" for number in range(300)))
    for number in range(300):
        vars(user)[f"f{number}"](1)
    monkeypatch.setattr(recorder_path, "_DESCRIBING_S", 1.0)
    dist.barrier()
    codes = [code for code in rank.written.codes if code.function.startswith("f")]
    assert sum(bool(code.branches) for code in codes) == 1 and len(codes) == 300
    assert all(code.branches and code.digest for code in rank.path.codes if code.function.startswith("f"))


def test_more_functions_than_there_is_room_for(rank, monkeypatch):
    monkeypatch.setattr(recorder_path, "_CODES", 20)
    user = rank.module("".join(f"def f{number}(x):\n    return 1 if x else 2\n" for number in range(300)))
    for number in range(300):
        assert vars(user)[f"f{number}"](1) == 1
    assert len(rank.path.codes) == 20 and rank.path.missing == "there are too many functions."


def test_what_hangs_is_read_by_another_thread(rank):
    user = rank.module("""
        def run(look, x):
            if x:
                look()
    """)
    found = []

    def look():
        thread = threading.Thread(target=lambda: found.append(rank.path))
        thread.start()
        thread.join()

    assert user.run(look, 1) is None
    assert "3 -> 4" in told(found[0])


def test_it_is_written_while_others_read(rank):
    """What is read at any moment fits together."""
    user = rank.module("""
        import torch.distributed as dist
        def part(x):
            if x & 1:
                return 1
            return 2
        def run(times, call):
            for i in range(times):
                part(i)
                call()
    """)
    reader, stop, looks = PathReader(str_bytes(rank.folder / "rank0.path")), threading.Event(), []

    def look():
        while not stop.is_set():
            path = reader.read(1)
            looks.append(sum(word & KIND == Kind.GAP for words in path.threads.values() for word in words))
            rank.recorder.write()

    thread = threading.Thread(target=look)
    thread.start()
    end = time.monotonic() + 60
    while len(looks) < 8 and time.monotonic() < end:
        user.run(20, lambda: rank.recorder._call("barrier", 1, 1, None))
    stop.set()
    thread.join()
    assert len(looks) > 5 and not any(looks)


def str_bytes(path):
    from ddpnb.recording.shared import FileBytes

    return FileBytes(str(path))


def test_a_profiler_of_the_standard_library_counts_the_same(rank):
    user = rank.module("""
        def inner(x):
            return 1 if x else 2
        def train():
            for n in range(3):
                inner(n)
    """)
    profiler = cProfile.Profile()
    profiler.enable()
    user.train()
    profiler.disable()
    stats = pstats.Stats(profiler).stats
    assert sorted((name, count) for (file, _, name), (count, *_) in stats.items() if file == user.__file__) == [
        ("inner", 3), ("train", 1),
    ]  # fmt: skip
    assert [word for word in rank.told("train") if word.startswith("begin")] == ["begin inner from 6"] * 3


def test_another_tool_of_the_interpreter_sees_its_events(rank):
    """As coverage does, which switches off each line at its first event."""
    monitoring = sys.monitoring
    seen = []

    def line(code, number):
        if code.co_filename.endswith("user.py"):
            seen.append(number)
        return monitoring.DISABLE

    monitoring.use_tool_id(monitoring.COVERAGE_ID, "other")
    try:
        monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, line)
        monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)
        user = rank.module(LOOP)
        user.train(3, bad=1)
    finally:
        monitoring.set_events(monitoring.COVERAGE_ID, 0)
        monitoring.free_tool_id(monitoring.COVERAGE_ID)
    assert set(seen) == {2, 3, 4, 5, 6, 7, 8} and len(seen) < 10  # a loop has its line at two places
    assert rank.told("train").count("4 -> 4") == 4


def test_a_debugger_that_traces_sees_the_same(rank):
    user = rank.module(LOOP)
    seen = []

    def trace(frame, event, _):
        if frame.f_code is user.train.__code__:
            seen.append((event, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        user.train(2, bad=1)
    finally:
        sys.settrace(before)
    assert [line for event, line in seen if event == "line"] == [4, 5, 6, 8, 4, 5, 6, 7, 4]
    assert rank.told("train")[:2] == ["4 -> 4", "6 -> 8"]


def test_each_run_begins_anew(rank):
    user = rank.module(LOOP)
    user.train(2, bad=5)
    rank.run = 2
    rank.recorder.begin(2)
    user.train(1, bad=0)
    assert rank.told("train") == ["4 -> 4", "6 -> 7", "4 -> 4", "return at 4"]
    assert PathReader((rank.folder / "rank0.path").read_bytes()).read(1) is None
    rank.recorder.finish()
    user.train(1, bad=5)
    assert "all_reduce" not in " ".join(told(rank.written))


def test_where_no_tool_is_free_the_path_says_so(rank):
    rank.recorder.remove()
    for tool in (3, 4):
        sys.monitoring.use_tool_id(tool, "other")
    try:
        rank.begin(2)
        rank.module(LOOP).train(3, bad=0)
    finally:
        for tool in (3, 4):
            sys.monitoring.free_tool_id(tool)
    assert rank.path.threads == {} and rank.path.missing == "other tools use sys.monitoring."


@pytest.mark.parametrize("taken", [True, False], ids=["taken", "free"])
def test_a_program_that_frees_all_tools_sees_nothing_of_it(rank, capfd, taken):
    user = rank.module(LOOP)
    user.train(2, bad=5)
    sys.monitoring.free_tool_id(3)
    if taken:
        sys.monitoring.use_tool_id(3, "the program's")
    rank.module(LOOP, "later").train(3, bad=1)
    assert sys.monitoring.get_tool(3) == ("the program's" if taken else None)
    if taken:
        sys.monitoring.free_tool_id(3)
    assert capfd.readouterr().err == ""
    rank.begin(2)
    user.train(2, bad=5)
    assert rank.told("train")


def test_a_failure_is_reported_once_and_the_program_goes_on(rank, monkeypatch, capfd):
    user = rank.module(LOOP)
    user.train(1, bad=5)
    monkeypatch.setattr(rank.recorder, "_site", None)
    user.train(3, bad=5)
    rank.module(LOOP).train(3, bad=5)
    assert capfd.readouterr().err.count("a hook failed and was disabled") == 1
    assert rank.written is None and len(rank.events(HooksDetached)) == 1
    assert sys.monitoring.get_tool(3) is None
    rank.recorder._failed = "expected"


def test_what_a_signal_handler_of_the_user_raises_reaches_the_user(rank):
    user = rank.module("""
        def part(n):
            return 1 if n else 2
        def work(call):
            while True:
                for n in range(20):
                    part(n)
                call()
        def after(x):
            return 1 if x else 2
    """)

    class Alarm(Exception):
        pass

    def handler(*_):
        raise Alarm

    def interrupted():
        signal.setitimer(signal.ITIMER_REAL, 0.004)
        user.work(lambda: rank.recorder._call("barrier", 1, 1, None))

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for _ in range(40):
            with pytest.raises(Alarm):
                interrupted()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not rank.events(HooksDetached)
    dist.barrier()
    user.after(0)
    assert rank.told("after") == ["10 -> 10", "return at 10"]


def test_it_can_be_turned_off(rank, monkeypatch):
    rank.recorder.remove()
    monkeypatch.setenv("DDPNB_LINES", "0")
    rank.begin(2)
    rank.module(LOOP).train(3, bad=0)
    assert sys.monitoring.get_tool(3) is None and rank.path.threads == {}


def test_a_thread_without_collectives_that_runs_the_same_code_leaves_no_decisions(rank):
    user = rank.module("""
        import torch, torch.distributed as dist
        def decide(x):
            if x:
                return 1
            return 2
        def many(n):
            for i in range(n):
                decide(1)
        def run(call):
            decide(1)
            call()
            decide(1)
            dist.barrier()
    """)

    def elsewhere(work):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    run = ["begin decide from 11", "4 -> 5", "return at 5", "begin decide from 13", "4 -> 5", "return at 5"]
    user.run(lambda: elsewhere(lambda: user.decide(0)))
    assert rank.told("run")[:-2] == run
    rank.begin(2)
    inside = threading.Event()
    leave = threading.Event()
    waiting = threading.Thread(target=lambda: user.run(lambda: (inside.set(), leave.wait(60))))
    waiting.start()
    inside.wait(60)
    rank.begin(3)  # the other thread has begun before
    user.run(lambda: (leave.set(), waiting.join()))
    assert [word for word in rank.told("run") if "barrier" not in word][:6] == run


def test_functions_of_packages_are_recorded_once_they_led_to_a_collective(rank, monkeypatch):
    monkeypatch.setattr(recorder_path, "is_user_file", lambda file: not file.endswith("library.py"))
    monkeypatch.setattr(
        recorder_path, "is_library_frame", lambda frame: frame.f_code.co_filename.endswith("library.py")
    )
    library = rank.module(
        """
        import torch.distributed as dist
        def aside(x):
            return 1 if x else 2
        def reduce(x):
            aside(x)
            if x:
                dist.barrier()
        """,
        "library",
    )
    user = rank.module("""
        def run(reduce, x):
            reduce(x)
    """)
    user.run(library.reduce, 1)
    assert rank.told("run") == ["barrier #1 of default_pg at 3", "cold", "base of 2", "return at 8"]
    user.run(library.reduce, 1), user.run(library.reduce, 0)
    words = told(rank.path)
    assert words.count("begin reduce from 3") == 2 and "gap" not in words and words.count("cold") == 1
    assert rank.told("run")[:3] == ["begin reduce from 3", "7 -> 7", "return at 7"]
    assert {code.function: code.user for code in rank.path.codes if code.branches} == {"reduce": False}
    assert not any(line.site.file.endswith("library.py") for line in executed(rank.path).lines)
    monkeypatch.setattr(recorder_path, "_FREE_WORDS", 0)
    monkeypatch.setattr(recorder_path, "_FREE_S", 0.0)
    monkeypatch.setattr(recorder_path, "_SHARE", 1e-9)
    rank.recorder._pause = 60.0
    for _ in range(40):
        rank.recorder._mark("iteration")
    user.run(library.reduce, 1), user.run(library.reduce, 1)
    assert rank.told("run") == ["barrier #4 of default_pg at 3", "return at 3"]
    assert "hot reduce" in told(rank.path)
