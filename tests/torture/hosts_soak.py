"""Random events on a world of two hosts, after each of which the world must be what it was.

What happens is decided by a seed alone, so that a failure can be repeated. Whatever is called has a deadline.
"""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ddpnb
from ddpnb.errors import DdpnbError, WorldError
from tests.conftest import VICTIMS
from tests.two_hosts import TwoHosts
from tests.victims import hands
from tests.victims import hosts as victims

PATIENCE_S = 3.0
CALL_S = 60.0  # for one call of the user's
AGAIN_S = 120.0  # until a host whose link is restored is heard: TCP repeats what was lost ever more rarely
_HANGS = [
    ("missing.py", "early_return", "DDP301", 1),
    ("missing.py", "asynchronous", "DDP308", 3),
    ("mismatch.py", "operation", "DDP302", 2),
    ("elsewhere.py", "lock", "DDP313", 1),
    ("elsewhere.py", "stopped", "DDP314", 1),
]
_CELL = """
import torch, torch.distributed as dist
if not dist.is_initialized():
    dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
total.item()
"""


@contextlib.contextmanager
def deadline(what: str, seconds: float = CALL_S) -> Iterator[None]:
    """Interrupts the main thread after so many seconds: nothing may take longer. The alarm of pytest-timeout continues after it."""

    def late(*_: object) -> None:
        raise AssertionError(f"an endless wait: {what} takes longer than {seconds:g} s")

    began = time.monotonic()
    handler, (left, _) = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(0.1, left - (time.monotonic() - began)))


def attempt(call: Callable[[], Any]) -> tuple[Any, DdpnbError | None]:
    """What a call returns, or why ddpnb refuses it."""
    try:
        return call(), None
    except DdpnbError as error:
        return None, error


class Soak:
    """Does things to a world, and checks it.

    Args:
        hosts: of its ranks, two on each.
        world: four ranks, all idle.
        seed: of what is done.
        folder: for recordings.
    """

    def __init__(self, hosts: TwoHosts, world: Any, seed: int, folder: Path) -> None:
        self._hosts = hosts
        self._world = world
        self._random = random.Random(seed)
        self._saved = folder / "soak.ddpnb"
        self.done: list[str] = []
        self._events: dict[Callable[[], None], int] = {
            self.run: 3, self.cell: 2, self.cell_on_some: 1, self.hang: 3, self.killed: 2, self.held: 2, self.restart: 1,
            self.short_cut: 3, self.some_cut: 2, self.long_cut: 3, self.cut_while_idle: 1, self.cut_while_held: 1,
            self.cut_during: 2, self.both_cut: 1, self.cell_beside_a_cut: 1,
        }  # fmt: skip

    def step(self) -> None:
        """One event, after which the ranks compute together again."""
        event = self._random.choices(list(self._events), list(self._events.values()))[0]
        self._say(f"{event.__name__}")
        event()
        self._recover()

    def _say(self, text: str) -> None:
        self.done.append(text)
        print(f"  {len(self.done)}: {text}", flush=True)

    # -- checks

    def _ok(self, run: Any) -> Any:
        with deadline("Run.wait of a run that ends"):
            run.wait(CALL_S)
        assert run.outcome == "ok", f"{run.outcome}: {run.diagnosis}"
        assert not run.diagnosis.findings, str(run.diagnosis)
        return run

    def _sums(self) -> None:
        with deadline("a run of a function"):
            run = self._world.run(victims.sums, stream=None)
        assert self._ok(run).results == [10.0] * 4

    def _check(self, run: Any = None) -> None:
        """The world answers, and what is saved now can be read, with all ranks."""
        with deadline("status"):
            assert len(self._world.status().ranks) == 4
        with deadline("save"):
            self._world.save(self._saved)
        recordings = [ddpnb.load(self._saved)]
        if run is not None and run.recording is not None:
            run.recording.save(self._saved)
            recordings.append(ddpnb.load(self._saved))
        for recording in recordings:
            assert set(recording.ranks) == set(range(4))
            ddpnb.diagnose(recording, patience=PATIENCE_S, end_after_patience=True)
            str(recording)

    def _release(self) -> list[int]:
        with deadline("release"):
            freed = self._world.release()
        return sorted(freed.left)

    def _recover(self) -> None:
        left = self._release()
        if left:
            self._say(f"restart {left}")
            with deadline("restart", 2 * CALL_S):
                self._world.restart(left)
        self._sums()

    def _restored(self) -> None:
        """Wait until all hosts are heard again, and release what still waits."""
        with deadline("the hosts are heard again", AGAIN_S):
            while self._world._own.processes.silent_hosts():
                time.sleep(0.05)

    def _paced(self, seconds: float = 60.0) -> Any:
        """A run of many collectives, which has begun."""
        run = self._world.run(victims.paced, seconds, stream=None)
        with deadline("the ranks call"):
            while any(not one.calls or one.calls[-1].seq < 20 for one in self._world.snapshot().ranks.values()):
                time.sleep(0.05)
        return run

    # -- events without a fault of the network

    def run(self) -> None:
        script = self._random.random() < 0.5
        if not script:
            return self._sums()
        self._ok(self._world.run(VICTIMS / "healthy.py", "checkpoint", stream=None))
        return self._check(self._world.last_run)

    def cell(self) -> None:
        run = self._ok(self._world.execute(_CELL, stream=None))
        assert all(run.log(rank).rstrip().endswith("4.0") for rank in range(4))
        self._check(run)

    def cell_on_some(self) -> None:
        ranks = sorted(self._random.sample(range(4), self._random.randint(1, 3)))
        value = self._random.randrange(1000)
        self._ok(self._world.execute(f"chosen = {value}", ranks=ranks, stream=None))
        found = self._world.evaluate("chosen", ranks=ranks).values_by_rank
        assert found == dict.fromkeys(ranks, value)

    def hang(self) -> None:
        file, case, code, culprit = self._random.choice(_HANGS)
        self._say(f"{file} {case}")
        run = self._world.run(VICTIMS / file, case, stream=None)
        with deadline("the verdict"):
            run.wait(CALL_S)
        assert run.outcome == "hang", f"{run.outcome}: {run.diagnosis}"
        finding = run.diagnosis.errors[0]
        assert (finding.code, finding.culprits) == (code, (culprit,)), str(run.diagnosis)
        self._check(run)
        left = self._release()
        assert set(left) <= {culprit}, left
        if left:
            self._world.restart(left)

    def killed(self) -> None:
        run, rank = self._paced(), self._random.randrange(4)
        self._say(f"kill rank {rank}")
        name = self._hosts.names[rank // 2]
        assert self._hosts.run(name, "kill", "-KILL", self._world.pids()[rank]).returncode == 0
        with deadline("the verdict"):
            run.wait(CALL_S)
        assert run.outcome == "crash", f"{run.outcome}: {run.diagnosis}"
        assert run.diagnosis.errors[0].code == "DDP311" and run.diagnosis.errors[0].culprits == (rank,), str(
            run.diagnosis
        )
        self._check(run)
        self._release()
        with deadline("restart"):
            self._world.restart(rank)

    def held(self) -> None:
        run = self._hold()
        assert self._world.evaluate("step").values_by_rank == dict.fromkeys(range(4), 4)
        self._check(run)
        if self._random.random() < 0.5:
            with deadline("resume"):
                self._world.resume()
            self._ok(run)
        else:
            assert not self._release()

    def _hold(self) -> Any:
        with deadline("hold"):
            holding = self._world.hold("all_reduce", seq=5)
            run = self._world.run(hands.steps, 12, stream=None)
            assert holding.wait(30).held == (0, 1, 2, 3)
        return run

    def restart(self) -> None:
        ranks = sorted(self._random.sample(range(4), self._random.randint(1, 4)))
        before = self._world.pids()
        with deadline("restart", 2 * CALL_S):
            self._world.restart(ranks)
        assert [rank for rank in range(4) if self._world.pids()[rank] != before[rank]] == ranks

    # -- links that are cut

    @contextlib.contextmanager
    def _cut(self, *names: str) -> Iterator[None]:
        for name in names:
            self._hosts.cut(name)
        try:
            yield
        finally:
            for name in names:
                self._hosts.restore(name)

    def _some_host(self) -> str:
        return self._random.choice(self._hosts.names)

    def short_cut(self) -> None:
        """Shorter than half of the patience: nobody may notice it."""
        name, seconds = self._some_host(), self._random.uniform(0.2, PATIENCE_S / 2)
        self._say(f"cut {name} for {seconds:.2f} s")
        run = self._paced(seconds + 4)
        with self._cut(name):
            time.sleep(seconds)
        self._ok(run)
        self._check(run)

    def some_cut(self) -> None:
        """About as long as the patience: there is a finding about the host, or none at all."""
        name, seconds = self._some_host(), self._random.uniform(PATIENCE_S / 2, PATIENCE_S + 2)
        self._say(f"cut {name} for {seconds:.2f} s")
        run = self._paced(seconds + 4)
        with self._cut(name):
            time.sleep(seconds)
        with deadline("the outcome of a run whose link was cut"):
            run.wait(CALL_S)
        codes = [finding.code for finding in run.diagnosis.findings]
        assert (run.outcome, codes) in (("ok", []), ("hang", ["DDP708"])), f"{run.outcome}: {run.diagnosis}"
        self._check(run)
        self._restored()

    def long_cut(self) -> None:
        name, more = self._some_host(), self._random.uniform(0, 8)
        self._say(f"cut {name} until there is a finding, and for {more:.2f} s more")
        run = self._paced()
        with self._cut(name):
            self._is_unreachable(run, name)
            left = self._release()
            assert set(self._ranks_on(name)) <= set(left), left
            with contextlib.suppress(WorldError), deadline("restart of a host that does not answer"):
                self._world.restart(self._ranks_on(name))
            time.sleep(more)
        self._restored()

    def both_cut(self) -> None:
        run = self._paced()
        with self._cut(*self._hosts.names):
            with deadline("the verdict"):
                run.wait(CALL_S)
            assert [finding.code for finding in run.diagnosis.findings] == ["DDP708"], str(run.diagnosis)
            assert all(name in str(run.diagnosis) for name in self._hosts.names)
            self._check(run)
            assert self._release() == [0, 1, 2, 3]
        self._restored()

    def _is_unreachable(self, run: Any, name: str) -> None:
        with deadline("the verdict"):
            run.wait(CALL_S)
        assert run.outcome == "hang", f"{run.outcome}: {run.diagnosis}"
        assert [finding.code for finding in run.diagnosis.findings] == ["DDP708"], str(run.diagnosis)
        assert name in str(run.diagnosis)
        self._check(run)

    def _ranks_on(self, name: str) -> list[int]:
        first = 2 * self._hosts.names.index(name)
        return [first, first + 1]

    def cut_while_idle(self) -> None:
        """What is begun then is refused, or has a finding; nothing waits."""
        name, wait = self._some_host(), self._random.choice([0.0, 1.5, 4.0])
        self._say(f"cut {name}, and {wait:g} s later a run")
        with self._cut(name):
            time.sleep(wait)
            with deadline("a run while a host is cut off"):
                run, error = attempt(lambda: self._world.run(victims.sums, stream=None))
            if error is None:
                self._is_unreachable(run, name)
            else:
                assert name in str(error), str(error)
                assert not self._world._own.busy()
            self._check()
        self._restored()

    def cell_beside_a_cut(self) -> None:
        """A cell on the ranks of one host; the other does not answer."""
        name = self._hosts.names[1]
        with self._cut(name):
            time.sleep(self._random.choice([0.0, 1.5]))
            with deadline("a cell"):
                run = self._world.execute(f"import time; time.sleep({PATIENCE_S + 2})", ranks=[0, 1], stream=None)
            self._ok(run)
        self._restored()

    def cut_while_held(self) -> None:
        name, seconds = self._some_host(), self._random.uniform(0.5, 6)
        self._say(f"cut {name} for {seconds:.2f} s while ranks are held")
        run = self._hold()
        with self._cut(name):
            time.sleep(seconds)
            with contextlib.suppress(WorldError), deadline("resume while a host is cut off"):
                self._world.resume()
        self._restored()
        with deadline("the outcome of a run that was held"):
            run.wait(CALL_S)
        codes = [finding.code for finding in run.diagnosis.findings]
        assert (run.outcome, codes) in (("ok", []), ("hang", ["DDP708"])) or not run.done, (
            f"{run.outcome}: {run.diagnosis}"
        )
        self._check(run)

    def cut_during(self) -> None:
        """A call of the user's is under way when the link is cut: it succeeds, or says which host does not answer."""
        name, seconds = self._some_host(), self._random.uniform(0.5, 8)
        what = self._random.choice(["release", "restart", "run", "snapshot"])
        delay = self._random.uniform(0, 0.3)
        self._say(f"cut {name} for {seconds:.2f} s during {what}")
        self._paced()
        if what == "run":
            self._release()
        call = {
            "release": self._world.release,
            "restart": lambda: self._world.restart(self._ranks_on(name)),
            "run": lambda: self._world.run(victims.sums, stream=None),
            "snapshot": self._world.snapshot,
        }[what]
        with self._later(name, delay, seconds), deadline(f"{what} while the link is cut", 2 * CALL_S):
            error = attempt(call)[1]
            assert error is None or name in str(error), str(error)
        self._restored()
        self._check()

    @contextlib.contextmanager
    def _later(self, name: str, delay: float, seconds: float) -> Iterator[None]:
        """Cut a link in a thread after ``delay``, for so many seconds."""

        def cut() -> None:
            time.sleep(delay)
            with self._cut(name):
                time.sleep(seconds)

        thread = threading.Thread(target=cut)
        thread.start()
        try:
            yield
        finally:
            thread.join()
