"""A search with its answers: what to try next, what is known, undo.

The state is the answers alone: the algorithms run again from the beginning over them, up to the first question that they
do not answer. That is the next probe.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ddpnb.errors import UsageError
from ddpnb.studies.bisection.algorithms import Answer, first_bad, minimal_set
from ddpnb.studies.bisection.space import Probe, RangeSpace, SetSpace, Space, Value

MEASURED = 4  # failures that are waited for where it is to be learnt how often it fails
_UNSEEN = 30  # probes of the start without one, after which nothing fails; for each, after which it is too seldom
_MOST_CAUSES = 8
_MOST_REPEATS = 10_000


@dataclass(frozen=True, slots=True)
class Trial:
    """One probe that was answered.

    ``answer``: ``bad`` is the failure that is searched for, ``other`` another failure, ``skip`` cannot be judged.
    ``code``: of the finding. ``seconds``: that it took. ``reason``: for people. ``finding``: as in the diagnosis's JSON.
    """

    probe: Probe
    answer: Answer
    code: str | None = None
    seconds: float = 0.0
    reason: str = ""
    finding: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Without the finding."""
        common = {"answer": self.answer, "code": self.code, "seconds": round(self.seconds, 3), "reason": self.reason}
        return {"on": list(self.probe.on), "at": self.probe.at, **common}


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search has found.

    ``outcome``: ``found``; ``nothing fails``: the start does not; ``always fails``: the harmless configuration fails too;
    ``undecided``: probes that matter could not be judged. ``causes``: smallest failing sets, each on its own.
    ``first_bad``, ``last_good``: of values in order. ``candidates``: what is left where it is undecided. ``seldom``: it is
    undecided because the start has failed, but hardly ever does.
    """

    outcome: Literal["found", "nothing fails", "always fails", "undecided"]
    causes: tuple[tuple[str, ...], ...] = ()
    first_bad: Value | None = None
    last_good: Value | None = None
    candidates: tuple[Value, ...] = ()
    seldom: bool = False

    @property
    def minimal(self) -> tuple[str, ...]:
        """The first of the smallest failing sets."""
        return self.causes[0] if self.causes else ()


@dataclass(frozen=True, slots=True)
class Step:
    """Where a search stands: its result, or the next probe with what is left."""

    result: SearchResult | None = None
    probe: Probe | None = None
    expected: int = 0  # probes from here on
    candidates: tuple[Value, ...] = ()
    confidence: float = 1.0  # that no good answer which was used hides a failure


@dataclass(frozen=True, slots=True)
class Rate:
    """How often the failure happened in configurations that can fail: ``bad`` times, and ``good`` times not.

    A bad answer is certain: the failure was seen. A good one may be a failure that did not happen. How often it happens where
    it can is known from the configurations that have failed, with a uniform prior.
    """

    bad: int = 0
    good: int = 0

    @property
    def mean(self) -> float:
        """The expected rate."""
        return (self.bad + 1) / (self.bad + self.good + 2)

    def missed(self, probes: int) -> float:
        """The probability that a configuration that can fail does not in this many probes.

        Example:
            >>> round(Rate(bad=3, good=7).missed(10), 3)
            0.088
        """
        return next(itertools.islice(self._chances(), probes, None))

    def probes_needed(self, risk: float) -> int:
        """How many good answers it takes so that the probability of an error is at most ``risk``.

        Example:
            >>> Rate(bad=30, good=70).probes_needed(0.001)
            24
        """
        return next(
            number for number, chance in enumerate(self._chances()) if chance <= risk or number == _MOST_REPEATS
        )

    def _chances(self) -> Iterator[float]:
        """The probability that none of no, one, two and more probes fails."""
        chance = 1.0
        for number in itertools.count():
            yield chance
            chance *= (self.good + 1 + number) / (self.bad + self.good + 2 + number)


@dataclass
class Search:
    """A search over a space. Ask ``next_probe()``, try it, and give its ``answer()``, until there is a result.

    Args:
        space: what is searched.
        repeat: how many times a configuration has to be good to count as good; None: as often as ``confidence`` needs,
            which follows from how often it fails where it can. With 1 each is tried once, and what was found once
            more; if that does not fail again, the search continues as with None.
        confidence: probability that the result is right, that is wanted for a failure that does not always happen.
        trials: answers to continue from.

    Example:
        >>> search = Search(RangeSpace("step", range(9)))
        >>> while probe := search.next_probe():
        ...     search.answer(probe, "bad" if probe.at >= 6 else "good")
        >>> search.result.first_bad, len(search.trials)
        (6, 7)
    """

    space: Space
    repeat: int | None = 1
    confidence: float = 0.99
    trials: list[Trial] = field(default_factory=list[Trial])

    def __post_init__(self) -> None:
        if self.repeat is not None and self.repeat < 1:
            raise UsageError(f"repeat is {self.repeat}.", "Give 1 or more.")
        if not 0.5 <= self.confidence < 1:
            raise UsageError(
                f"confidence is {self.confidence}.", "Give a probability from 0.5 to below 1, such as 0.99."
            )
        self._forget()

    def next_probe(self) -> Probe | None:
        """The configuration to try next; None: there is a result."""
        return self.step.probe

    def answer(
        self,
        probe: Probe,
        answer: Answer,
        code: str | None = None,
        seconds: float = 0.0,
        reason: str = "",
        finding: dict[str, Any] | None = None,
    ) -> None:
        """Add an answer. It may be about any configuration of the space.

        Raises:
            UsageError: the space has no such configuration, or there is no such answer.
        """
        if probe not in self.space:
            raise UsageError(
                f"{probe} is not a configuration of this search.", "Answer the probe that it has asked for."
            )
        if answer not in get_args(Answer):
            raise UsageError(f"there is no answer {answer!r}.", "Answer bad, good, other or skip.")
        self.trials.append(Trial(probe, answer, code, seconds, reason, finding))
        self._forget()

    def undo(self) -> Trial:
        """Take back the last answer.

        Raises:
            UsageError: there is none.
        """
        if not self.trials:
            raise UsageError("there is no answer to undo.", "Probe first.")
        trial = self.trials.pop()
        self._forget()
        return trial

    # -- what is known

    @property
    def step(self) -> Step:
        """Where the search stands."""
        if self._step is None:
            replay = _Replay(self)
            try:
                self._step = Step(replay.result(), confidence=replay.confidence)
            except _Unanswered as unanswered:
                self._step = unanswered.step
        return self._step

    @property
    def result(self) -> SearchResult | None:
        """What was found; None: there is more to probe."""
        return self.step.result

    @property
    def sometimes(self) -> bool:
        """Whether the failure does not always happen: said from the beginning, or a configuration failed and did not."""
        return self.repeat != 1 or any(bad and good for bad, good in self.counts.values())

    @property
    def rate(self) -> Rate:
        """How often the failure happens where it can."""
        failing = [(bad, good) for bad, good in self.counts.values() if bad]
        return Rate(sum(bad for bad, _ in failing), sum(good for _, good in failing))

    @property
    def stated_confidence(self) -> float:
        """The probability that no good answer hides a failure; 1 where the failure has always happened."""
        return self.step.confidence

    def _forget(self) -> None:
        """The answers have changed: count again."""
        self._step: Step | None = None
        self.counts: dict[Probe, tuple[int, int]] = {}  # how often each configuration was bad, and good
        for trial in self.trials:
            bad, good = self.counts.get(trial.probe, (0, 0))
            self.counts[trial.probe] = (bad + (trial.answer == "bad"), good + (trial.answer == "good"))


class _Unanswered(Exception):
    def __init__(self, step: Step) -> None:
        super().__init__(step)
        self.step = step


class _Replay:
    """One pass of the algorithms over the answers."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._others: dict[Probe, Answer] = {
            trial.probe: trial.answer for trial in search.trials if trial.answer in ("other", "skip")
        }
        self._repeats = self._repeats_needed()
        self._good: dict[Probe, int] = {}  # the configurations that were taken for good

    def result(self) -> SearchResult:
        """What was found.

        Raises:
            _Unanswered: there is more to probe.
        """
        space = self._search.space
        more = 1 if isinstance(space, RangeSpace) else 3
        if (ended := self._of_start(more + 2)) is not None:
            return ended
        harmless = self._ask(space.harmless, space.candidates, more + 1)
        if harmless == "bad":
            return SearchResult("always fails")
        works = harmless == "good"
        return self._first_value(space, works) if isinstance(space, RangeSpace) else self._causes(space, works)

    def _of_start(self, more: int) -> SearchResult | None:
        """Why there is nothing to search: where the failure does not always happen, it is first learnt how often."""
        search, start, candidates = self._search, self._search.space.start, self._search.space.candidates
        bad, good = search.counts.get(start, (0, 0))
        if not search.sometimes or start in self._others:
            bad, measures = int(self._ask(start, candidates, more) == "bad"), False
        else:
            automatic = search.repeat in (None, 1)
            measures = automatic and bad < MEASURED
            enough = _UNSEEN * max(bad, 1) if automatic else search.repeat or 1
            if good < enough and (measures or not bad):
                raise self._unanswered(start, candidates, more)
        if not bad:
            return SearchResult("nothing fails")
        return SearchResult("undecided", candidates=candidates, seldom=True) if measures else None

    @property
    def confidence(self) -> float:
        used = self._good.values() if self._search.sometimes else ()
        return math.prod((1 - self._search.rate.missed(good) for good in used), start=1.0)

    def _repeats_needed(self) -> int:
        search = self._search
        if not search.sometimes:
            return 1
        if search.repeat is not None and search.repeat > 1:
            return search.repeat
        size = len(search.space.candidates)
        concluded = sum(1 for bad, good in search.counts.values() if good and not bad)
        risk = (1 - search.confidence) / max(concluded, 2 + size.bit_length())
        rate = search.rate if search.rate.bad >= MEASURED else Rate(MEASURED, MEASURED)  # a first estimate
        return rate.probes_needed(risk)

    def _unanswered(self, probe: Probe, candidates: Sequence[Value], more: int, good: int = 0) -> _Unanswered:
        """The next probe, which has been good some times, and about how many there are from here on.

        Args:
            probe: to be made.
            candidates: that are left, and are halved.
            more: probes besides.
            good: how often it has been.
        """
        expected = (len(candidates) - 1).bit_length() + more
        if self._repeats > 1:
            to_see_one = min(1 / self._search.rate.mean, self._repeats)  # where it can fail
            expected = self._repeats - good + round((expected - 1) * (self._repeats + to_see_one) / 2)
        return _Unanswered(Step(None, probe, expected, tuple(candidates)))

    def _ask(self, probe: Probe, candidates: Sequence[Value], more: int) -> Answer:
        """What is known of a configuration; the rest is as of ``_unanswered``.

        Raises:
            _Unanswered: nothing, or not enough.
        """
        bad, good = self._search.counts.get(probe, (0, 0))
        if bad:
            return "bad"
        if good >= self._repeats:
            self._good[probe] = good
            return "good"
        if probe in self._others and not good:
            return self._others[probe]
        raise self._unanswered(probe, candidates, more, good)

    def _confirm(self, probe: Probe, expected: int = 1) -> None:
        """Where each configuration is tried once, that one on which the result depends gives its answer a second time.

        Raises:
            _Unanswered: it has not been tried again.
        """
        again = sum(1 for trial in self._search.trials if trial.probe == probe)
        if again < 2 and not self._search.sometimes:
            raise _Unanswered(Step(None, probe, expected, probe.on if probe.at is None else (probe.at,)))

    def _first_value(self, space: RangeSpace, harmless_works: bool) -> SearchResult:
        values = space.values

        def ask(place: int, places: range) -> Answer:
            return self._ask(
                Probe(at=values[place]), values[places.start : places.stop], 2
            )  # both sides are tried again

        places = first_bad(ask, 0, len(values) - 1)
        works = places.start > 1 or harmless_works
        self._confirm(Probe(at=values[places.stop - 1]), 1 + works)
        if not works:
            return SearchResult("undecided", candidates=values[: places.stop])
        # Where it fails only now and then, the last one that works is what is most likely wrong.
        last_good = values[places.start - 1]
        self._confirm(Probe(at=last_good))
        if len(places) > 1:
            return SearchResult("undecided", last_good=last_good, candidates=values[places.start : places.stop])
        return SearchResult("found", first_bad=values[places.start], last_good=last_good)

    def _causes(self, space: SetSpace, harmless_works: bool) -> SearchResult:
        good: list[frozenset[str]] = []
        bad: list[frozenset[str]] = [frozenset(space.names)]

        def fails(names: Sequence[str], candidates: Sequence[str], more: int = 2) -> bool:
            probe = space.probe(names)
            on = frozenset(probe.on)
            if any(on <= known for known in good):
                return False
            if any(on >= known for known in bad):
                return True
            answer = self._ask(probe, candidates, more)  # it is tried again, and all the others together
            if answer in ("good", "bad"):
                (good if answer == "good" else bad).append(on)
            return answer == "bad"

        causes: list[tuple[str, ...]] = []
        left = list(space.names)
        rungs = [probe.on for _, probe in space.cumulative()]
        failing = next((on for on in rungs if fails(on, on)), space.names)
        # The others together are one probe, whatever is left of them.
        while (
            left and len(causes) < _MOST_CAUSES and (not causes or fails(left, left, 1 - (len(left) - 1).bit_length()))
        ):
            cause = space.probe(minimal_set(fails, left if causes else failing, one_way=space.dependent)).on
            self._confirm(Probe(cause))
            causes.append(cause)
            left = [name for name in left if not set(space.probe([name]).on) & set(cause)]
        if set(causes[0]) == set(space.names) and not good and not harmless_works:
            return SearchResult("undecided", candidates=space.names)
        return SearchResult("found", tuple(causes))
