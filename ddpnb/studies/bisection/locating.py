"""A bisection that reads its answer from the recording of one run, and looks closer in a second one where it has to."""

from __future__ import annotations

from typing import Any

from ddpnb.errors import UsageError
from ddpnb.recording import protocol
from ddpnb.studies.bisection.bisecting import Bisection
from ddpnb.studies.bisection.probing import NOTHING, CommandProber
from ddpnb.studies.bisection.search import Search, SearchResult, Trial
from ddpnb.studies.bisection.space import AS_GIVEN, START, Probe, RangeSpace
from ddpnb.studies.bisection.steps import STEP, Located, steps
from ddpnb.studies.bisection.world_probes import WorldProber
from ddpnb.texts import printable, relative


class StepsBisection(Bisection):
    """A search for the first optimizer step at which replicas differ: ``ddpnb.bisect(..., by="steps")``.

    Args:
        prober: which runs the program.
    """

    by_hand = False

    def __init__(self, prober: CommandProber | WorldProber) -> None:
        super().__init__(Search(RangeSpace(STEP, (START, AS_GIVEN))), prober)
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
        closer = len(self._located) == 1 and self._located[0].looks is not None
        return 1 if closer or not self._located else 0

    @property
    def finding(self) -> dict[str, Any] | None:
        """The finding of the last run that had one, as in the diagnosis's JSON; None: there is none."""
        return next((one.finding for one in reversed(self.search.trials) if one.finding is not None), None)

    @property
    def pair(self) -> list[int] | None:
        """Two ranks that hold something different."""
        return self.located.facts.get("pair") if self.located is not None else None

    def step(self) -> Trial | None:
        """Run the program; the second time, look closer where the first recording leaves several places."""
        if not self.left:
            return None
        looks = self._located[0].looks if self._located else None
        ran = self.prober.run(
            self.search.space.start, {protocol.LOOKS: f"{looks[0]}..{looks[1]}"} if looks is not None else NOTHING
        )
        if not ran.ran or ran.recording is None:
            why = ran.reason or "no rank has made a process group"
            raise UsageError(f"there is no recording: {why}", "Run it with ddpnb run first.")
        located = steps(ran.recording)
        if not located.places:
            self._otherwise = ran.failures[0]["summary"] if ran.failures else ""
        self._located.append(located)
        self._arrange()
        answer = "bad" if located.places else "skip" if located.missing else "good"
        reason = located.missing or " ".join(located.lines[:1])
        super().answer(self.search.space.start, answer, ran.code, ran.seconds, reason, ran.finding)
        return self.search.trials[-1]

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
        places = self.located.places if self.located is not None else ()
        self.search = Search(RangeSpace(STEP, places or (START, AS_GIVEN)), trials=self.search.trials)

    def typed(self, probe: Probe | None = None) -> str:
        """The program as a command line; empty for functions."""
        return self.prober.typed(probe or self.search.space.start)

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
            lines.append(f"Undecided: it is one of the {STEP}s {located.places[1]} to {located.places[-1]}.")
        if located.places and any(not one.places for one in self._located[1:]):
            lines.append("In the second run, which looked closer, nothing differed: it does not always fail.")
        return printable("\n".join(relative(line) for line in lines))

    def __repr__(self) -> str:
        if self.result is None:
            return f"{len(self.trials)} runs done, at most {2 - len(self.trials)} to go"
        return super().__repr__()

    def to_json(self) -> dict[str, Any]:
        """The result as JSON, schema 1, with what was recorded there."""
        facts = dict(self.located.facts) if self.located is not None else {}
        for place in facts.get("where", ()):
            place["file"] = relative(place["file"])
        return super().to_json() | {"recorded": facts, "said": self.conclusion().splitlines()}
