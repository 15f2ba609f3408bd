"""A bisection that reads its answer from the recording of one run, and looks closer in a second one where it has to."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from ddpnb.bisection.algorithms import Answer
from ddpnb.bisection.checkpoints import CHECKPOINT, checkpoints
from ddpnb.bisection.failure import failures
from ddpnb.bisection.modules import MODULE, modules
from ddpnb.bisection.recorded import Located, RunSpace
from ddpnb.bisection.results import SearchResult, Trial
from ddpnb.bisection.search import Search
from ddpnb.bisection.space import Probe, RangeSpace
from ddpnb.bisection.steps import STEP, steps
from ddpnb.bisection.varied import Trying
from ddpnb.control.bisecting import Bisection, Runs
from ddpnb.control.probing import Ran, finding_of
from ddpnb.control.worktrees import Repository
from ddpnb.errors import UsageError
from ddpnb.model.recording import Recording
from ddpnb.processes.environment import working_directory
from ddpnb.recorder import protocol
from ddpnb.render.text import relative
from ddpnb.rules.diagnose import diagnose
from ddpnb.texts import printable

# what is searched, and how it is read
LOCATORS: dict[str, tuple[str, Callable[[Recording], Located]]] = {
    "steps": (STEP, steps),
    "checkpoints": (CHECKPOINT, checkpoints),
    "modules": (MODULE, modules),
}


class RecordedBisection(Bisection):
    """A search of which a recording is the answer: ``ddpnb.bisect(..., by="steps")``.

    Args:
        by: a key of ``LOCATORS``.
        prober: which runs the program.
        command, own: as for ``RunSpace``.
        once: there can be no second run.
    """

    space: RunSpace
    by_hand = False

    def __init__(
        self, by: str, prober: Runs, command: Sequence[str] = (), own: bool | None = None, *, once: bool = False
    ) -> None:
        what, self._locate = LOCATORS[by]
        self._what, self._once = what, once
        space = RunSpace(what, command, own)
        super().__init__(space, Search(space.space), prober)
        self._located: list[Located] = []  # of each run
        self._otherwise = ""  # how it failed where nothing of this was recorded
        self.expected = 1

    @property
    def located(self) -> Located | None:
        """What is known; None: it has not run."""
        bounded = [one for one in self._located if one.places]
        return min(bounded, key=lambda one: len(one.places)) if bounded else next(iter(self._located), None)

    @property
    def result(self) -> SearchResult | None:
        """What was found; None: there is more to run."""
        return self.located.result if self.located is not None and not self.left else None

    @property
    def left(self) -> int:
        """How many more runs there are."""
        closer = len(self._located) == 1 and self._located[0].looks is not None and not self._once
        return 1 if closer or not self._located else 0

    @property
    def finding(self) -> dict[str, Any] | None:
        """The finding of the last run that had one, as in the diagnosis's JSON; None: there is none."""
        return next((one for one in reversed(self._findings) if one is not None), None)

    def step(self) -> Trial | None:
        """Run the program; the second time, look closer where the first recording leaves several places."""
        if not self.left:
            return None
        ran = self._prober.run(self._trying())
        if not ran.ran or ran.recording is None:
            why = ran.reason or "no rank has made a process group"
            raise UsageError(f"there is no recording: {why}", "Run it with ddpnb run first.")
        located = self._read(ran.recording)
        if not located.places:
            self._otherwise = ran.failures[0].summary if ran.failures else ""
        self._located.append(located)
        answer: Answer = "bad" if located.places else "skip" if located.missing else "good"
        code = next((failure.code for failure in ran.failures[:1]), None)
        reason = located.missing or " ".join(located.lines[:1])
        self._arrange()
        self._answer(self.search.space.start, answer, code, ran.seconds, reason, ran.finding)
        return self.search.trials[-1]

    def _trying(self) -> Trying:
        """What the next run is."""
        self.space.looks = self._located[0].looks if self._located else None
        return self.space.trying(self.search.space.start)

    def _read(self, recording: Recording) -> Located:
        return self._locate(recording)

    def answer(self, *_args: Any, **_more: Any) -> None:
        """A recording answers, not a person.

        Raises:
            UsageError: always.
        """
        raise UsageError("the recording of a run answers this.", "Call step() or run().")

    def undo(self) -> Trial:
        """Forget the last run."""
        trial = super().undo()
        self._located.pop()
        self._arrange()
        return trial

    def _arrange(self) -> None:
        """The search over the places that are left."""
        located = self.located
        places = located.places if located is not None else ()
        space = RangeSpace(self._what, places or self.space.space.values)
        self.search = Search(space, ends_known=bool(places), trials=self.search.trials)

    @property
    def title(self) -> str:
        """What is searched: the command, functions, or a recording."""
        return "a recording" if self._once else super().title

    def typed(self, probe: Probe | None = None) -> str:  # noqa: ARG002
        """The program as a command line; empty for functions."""
        trying = Trying(self.space.trying(self.search.space.start).command)
        return self.space.typed(trying, self._prober.options(trying))

    def conclusion(self) -> str:
        """What was found, in one or a few sentences; empty if there is more to run."""
        located, result = self.located, self.result
        if located is None or result is None:
            return ""
        lines = [*([located.missing] if located.missing else []), *located.lines]
        if result.outcome == "nothing fails" and not self._otherwise:
            lines.insert(0, "Nothing fails.")
        elif not located.places and self._otherwise:
            lines.append(f"The run fails: {self._otherwise}")
        elif len(located.places) > 2:
            lines.append(f"Undecided: it is one of the {located.what}s {located.places[1]} to {located.places[-1]}.")
            if self._once and located.looks is not None:
                lines.append("A run that looks at each of them would say it: bisect the program, not its recording.")
        if located.places and any(not one.places for one in self._located[1:]):
            lines.append("In the second run, which looked closer, nothing differed: it does not always fail.")
        return printable("\n".join(relative(line) for line in lines))

    def __repr__(self) -> str:
        if self.result is None:
            return f"{len(self.trials)} runs done, at most {2 - len(self.trials)} to go"
        return f"{self.conclusion()}\n{self.typed()}".rstrip()

    @property
    def pair(self) -> list[int] | None:
        """Two ranks that hold something different."""
        return self.located.facts.get("pair") if self.located is not None else None

    def to_json(self) -> dict[str, Any]:
        """The result as JSON, schema 1, with what was recorded there."""
        facts = dict(self.located.facts) if self.located is not None else {}
        for place in facts.get("where", ()):
            place["file"] = relative(place["file"])
        return super().to_json() | {"recorded": facts, "said": self.conclusion().splitlines()}


class ModulesBisection(RecordedBisection):
    """A search for the first module whose output differs: the second run is one of the same program with one rank.

    Args:
        prober, command, own: as for ``RecordedBisection``; the prober makes one rank of ``-n 1``.
        reference: whether there is a second run.
    """

    def __init__(
        self, prober: Runs, command: Sequence[str] = (), own: bool | None = None, *, reference: bool = True
    ) -> None:
        super().__init__("modules", prober, command, own)
        self._runs = 1 + reference
        self._first: Recording | None = None

    @property
    def located(self) -> Located | None:
        """What is known; None: it has not run."""
        return self._located[-1] if self._located else None

    @property
    def left(self) -> int:
        """How many more runs there are."""
        return self._runs - len(self._located)

    def _trying(self) -> Trying:
        traced = {protocol.MODULES: "1"}
        if not self._located:
            return Trying(self.space.trying(self.search.space.start).command, traced)
        # With as many threads as each of the ranks: sums of others are rounded otherwise.
        threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        return Trying(self.space.trying(self.search.space.start).command, traced | threads, {"-n": "1"})

    def _read(self, recording: Recording) -> Located:
        if not self._located:
            self._first = recording
            return modules(recording)
        assert self._first is not None
        return modules(self._first, recording)


class Loaded:
    """In place of a prober: a recording that there is."""

    repository: Repository | None = None

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def stop(self) -> None:
        """Nothing runs."""

    def options(self, _trying: Trying, /) -> list[str]:
        return []

    def run(self, trying: Trying) -> Ran:  # noqa: ARG002 (as a prober)
        began, folder = time.monotonic(), working_directory()
        diagnosis = diagnose(self._recording)
        found = tuple(failures(diagnosis, 0, folder))
        seconds = time.monotonic() - began
        return Ran(found, finding_of(diagnosis, folder), "", seconds, recording=self._recording)
