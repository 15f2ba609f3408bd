"""Probes that run at the same time: the one that is needed, and those that may be needed after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType

from ddpnb import interrupts
from ddpnb.bisection.space import Probe
from ddpnb.bisection.varied import Trying
from ddpnb.control.probing import Prober, Probing, Ran


class Ahead:
    """Answers one probe after the other, and runs others meanwhile. Use it as a context manager: the end of it ends them.

    All is done in the thread of the caller, so that Ctrl-C ends all probes as it ends one: each has a thread that watches it.

    Args:
        prober: which runs them, as many at the same time as its job says.
        trying: what a probe runs.
    """

    def __init__(self, prober: Prober, trying: Callable[[Probe], Trying]) -> None:
        self._prober, self._jobs, self._trying = prober, prober.job.jobs, trying
        self._running: list[tuple[Probe, Probing]] = []
        self.done: list[tuple[Probe, Ran]] = []  # that were not asked for

    def __enter__(self) -> Ahead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, wanted: Callable[[int], Sequence[Probe]]) -> Ran:
        """The answer of the first probe that is wanted.

        Args:
            wanted: up to that many probes, the needed one first; one may be listed several times. A probe that runs
                and is not among as many as are known and can run is ended.

        Raises:
            ProbeEnded: ``Prober.stop()`` was called.
        """
        needed = wanted(1)[0]
        while True:
            for place, (probe, ran) in enumerate(self.done):
                if probe == needed:
                    del self.done[place]
                    return ran
            self._begin(wanted(self._jobs + len(self.done)))
            while not (over := [one for one in self._running if one[1].poll()]):
                self._prober.tick()
            for one in over:
                self._running.remove(one)
                self.done.append((one[0], one[1].wait()))

    def _begin(self, wanted: Sequence[Probe]) -> None:
        """End what is not wanted, and begin what is wanted and fits."""
        missing = Counter(wanted) - Counter(probe for probe, _ in self.done)
        for one in list(self._running):
            if missing[one[0]]:
                missing[one[0]] -= 1
            else:
                self._running.remove(one)
                one[1].close()
        for probe in wanted:
            if missing[probe] and len(self._running) < self._jobs:
                missing[probe] -= 1
                with interrupts.put_off():  # what has begun is known here, and is ended
                    self._running.append((probe, self._prober.start(self._trying(probe))))

    def close(self) -> None:
        """End all that runs."""
        with interrupts.put_off():
            while self._running:
                self._running.pop()[1].close()
