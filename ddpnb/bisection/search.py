"""A search with its log: what to try next, what is known, undo, save and resume.

The state is the log alone: the algorithms of ``algorithms.py`` run again from the beginning over its answers, up to the
first question that it does not answer. That is the next probe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ddpnb.bisection.algorithms import Answer, first_bad, minimal_set
from ddpnb.bisection.confidence import Rate
from ddpnb.bisection.space import Probe, RangeSpace, SetSpace, Space, Value, space_from_json
from ddpnb.errors import UsageError

SCHEMA = 1
MEASURED = 4  # failures that are waited for where it is to be learnt how often it fails
_UNSEEN = (
    30  # probes of the start without one, after which nothing fails; for each failure, after which it is too seldom
)
_MOST_CAUSES = 8


@dataclass(frozen=True, slots=True)
class Trial:
    """One probe that was answered.

    ``answer``: ``bad`` is the failure that is searched for, ``other`` another failure, ``skip`` cannot be judged.
    ``code``: of the finding. ``seconds``: that it took. ``reason``: for people. ``asked``: the search asked for it; else
    it ran beside others, and was not needed.
    """

    probe: Probe
    answer: Answer
    code: str | None = None
    seconds: float = 0.0
    reason: str = ""
    asked: bool = True

    def to_json(self) -> dict[str, Any]:
        on, at = list(self.probe.on), self.probe.at
        common = {"answer": self.answer, "code": self.code, "seconds": round(self.seconds, 3)}
        return {"on": on, "at": at, **common, "reason": self.reason} | ({} if self.asked else {"asked": False})


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


class _Unanswered(Exception):
    def __init__(self, step: Step) -> None:
        super().__init__(step)
        self.step = step


@dataclass
class Search:
    """A search over a space. Ask ``next_probe()``, try it, and give its ``answer()``, until there is a result.

    Args:
        space: what is searched.
        repeat: how many times a configuration has to be good to count as good; None: as often as ``confidence`` needs,
            which follows from how often it fails where it can. With 1 each is tried once, and what was found once
            more; if that does not fail again, the search continues as with None.
        confidence: probability that the result is right, that is wanted for a failure that does not always happen.
        ends_known: that the start fails and the harmless configuration does not is known already.
        trials: a log to continue.

    Example:
        >>> search = Search(RangeSpace("step", range(9)), ends_known=True)
        >>> while probe := search.next_probe():
        ...     search.answer(probe, "bad" if probe.at >= 6 else "good")
        >>> search.result.first_bad, len(search.trials)
        (6, 3)
    """

    space: Space
    repeat: int | None = 1
    confidence: float = 0.99
    ends_known: bool = False
    trials: list[Trial] = field(default_factory=list[Trial])

    def __post_init__(self) -> None:
        if self.repeat is not None and self.repeat < 1:
            raise UsageError(f"repeat is {self.repeat}.", "Give 1 or more.")
        if not 0.5 <= self.confidence < 1:
            raise UsageError(
                f"confidence is {self.confidence}.", "Give a probability from 0.5 to below 1, such as 0.99."
            )
        self._forget()

    # -- the verbs

    def next_probe(self) -> Probe | None:
        """The configuration to try next; None: there is a result."""
        return self.step.probe

    def next_probes(self, limit: int) -> tuple[Probe, ...]:
        """Up to ``limit`` configurations worth trying at the same time: the next one, and those that may follow.

        Where the failure does not always happen, the next one that many times.
        """
        if self.sometimes and self.step.probe is not None:
            return (self.step.probe,) * limit
        found: list[Probe] = []
        assumed: list[Mapping[Probe, Answer]] = [{}]
        for assumptions in assumed:
            if len(found) >= limit or len(assumed) > 4 * limit:
                break
            probe = self._replay(assumptions).probe
            if probe is not None:
                found += [probe] if probe not in found else []
                both: tuple[Answer, Answer] = ("bad", "good")
                assumed.extend({**assumptions, probe: answer} for answer in both)
        return tuple(found)

    def answer(
        self,
        probe: Probe,
        answer: Answer,
        code: str | None = None,
        seconds: float = 0.0,
        reason: str = "",
        asked: bool = True,
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
        self.trials.append(Trial(probe, answer, code, seconds, reason, asked))
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
            self._step = self._replay({})
        return self._step

    @property
    def result(self) -> SearchResult | None:
        """What was found; None: there is more to probe."""
        return self.step.result

    @property
    def sometimes(self) -> bool:
        """Whether the failure does not always happen: said from the beginning, or a configuration failed and did not."""
        counts = self._counts
        return self.repeat != 1 or any(bad and good for bad, good in counts.values())

    @property
    def rate(self) -> Rate:
        """How often the failure happens where it can."""
        failing = [(bad, good) for bad, good in self._counts.values() if bad]
        return Rate(sum(bad for bad, _ in failing), sum(good for _, good in failing))

    @property
    def stated_confidence(self) -> float:
        """The probability that no good answer hides a failure; 1 where the failure has always happened."""
        return self.step.confidence

    def to_json(self) -> dict[str, Any]:
        """The log: everything that ``from_json()`` needs to continue."""
        return {
            "schema": SCHEMA,
            "space": self.space.to_json(),
            "repeat": self.repeat,
            "confidence": self.confidence,
            "ends_known": self.ends_known,
            "trials": [trial.to_json() for trial in self.trials],
        }

    @classmethod
    def from_json(cls, data: Any) -> Search:
        """Continue a log.

        Raises:
            UsageError: it is of another version, or not a log.
        """
        try:
            if data["schema"] != SCHEMA:
                raise UsageError(
                    f"this log is of version {data['schema']!r:.20}, and this ddpnb reads version {SCHEMA}.",
                    "Begin a new search, or use the version of ddpnb that wrote it.",
                )
            repeat = data["repeat"]
            search = cls(
                space_from_json(data["space"]),
                None if repeat is None else int(repeat),
                float(data["confidence"]),
                bool(data["ends_known"]),
            )
            for one in data["trials"]:
                probe = Probe(tuple(map(str, one["on"])), one["at"])
                said = one["code"], float(one["seconds"]), str(one["reason"]), bool(one.get("asked", True))
                search.answer(probe, one["answer"], *said)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, UsageError):
                raise
            raise UsageError("this is not the log of a search.", "Give the file that a search has written.") from error
        return search

    # -- the algorithms, over the log

    def _forget(self) -> None:
        """The log has changed: count again."""
        self._step: Step | None = None
        self._counts: dict[Probe, tuple[int, int]] = {}  # how often each configuration was bad, and good
        for trial in self.trials:
            bad, good = self._counts.get(trial.probe, (0, 0))
            self._counts[trial.probe] = (bad + (trial.answer == "bad"), good + (trial.answer == "good"))

    def _replay(self, assumed: Mapping[Probe, Answer]) -> Step:
        replay = _Replay(self, self._counts, assumed)
        try:
            found = replay.of_range(self.space) if isinstance(self.space, RangeSpace) else replay.of_set(self.space)
            return Step(found, confidence=replay.confidence)
        except _Unanswered as unanswered:
            return unanswered.step


class _Replay:
    """One pass of an algorithm over the answers."""

    def __init__(self, search: Search, counts: dict[Probe, tuple[int, int]], assumed: Mapping[Probe, Answer]) -> None:
        self._search, self._counts, self._assumed = search, counts, assumed
        self._others: dict[Probe, Answer] = {
            trial.probe: trial.answer for trial in search.trials if trial.answer in ("other", "skip")
        }
        self._repeats = self._repeats_needed()
        self._good: dict[Probe, int] = {}  # the configurations that were taken for good
        self._seldom, self._harmless_works = False, True

    @property
    def confidence(self) -> float:
        rate, sure = self._search.rate, 1.0
        for good in self._good.values() if self._search.sometimes else ():
            sure *= 1 - rate.missed(good)
        return sure

    def _repeats_needed(self) -> int:
        search = self._search
        if not search.sometimes:
            return 1
        if search.repeat is not None and search.repeat > 1:
            return search.repeat
        space = search.space
        size = len(space.values) if isinstance(space, RangeSpace) else len(space.names)
        concluded = sum(1 for bad, good in self._counts.values() if good and not bad)
        risk = (1 - search.confidence) / max(concluded, 2 + size.bit_length())
        rate = search.rate if search.rate.bad >= MEASURED else Rate(MEASURED, MEASURED)  # a first estimate
        return rate.probes_needed(risk)

    def _probes(self, configurations: int, good: int = 0) -> int:
        """How many probes it takes to judge that many configurations, of which the first has been good some times."""
        if self._repeats == 1:
            return configurations
        to_see_one = min(1 / self._search.rate.mean, self._repeats)  # where it can fail
        return self._repeats - good + round((configurations - 1) * (self._repeats + to_see_one) / 2)

    def ask(self, probe: Probe, expected: int, candidates: Sequence[Value]) -> Answer:
        """What is known of a configuration.

        Raises:
            _Unanswered: nothing, or not enough.
        """
        bad, good = self._counts.get(probe, (0, 0))
        if bad:
            return "bad"
        if good >= self._repeats:
            self._good[probe] = good
            return "good"
        if probe in self._others and not good:
            return self._others[probe]
        if probe in self._assumed:
            return self._assumed[probe]
        raise _Unanswered(Step(None, probe, self._probes(expected, good), tuple(candidates)))

    def _start(self, expected: int, candidates: Sequence[Value]) -> bool:
        """Whether the start fails; where the failure does not always happen, it is first learnt how often."""
        search, start = self._search, self._search.space.start
        bad, good = self._counts.get(start, (0, 0))
        if search.sometimes and start not in self._assumed and start not in self._others:
            enough = search.repeat if search.repeat is not None and search.repeat > 1 else _UNSEEN
            measures = search.repeat in (None, 1) and bad < MEASURED
            if good < enough if not bad else measures and good < _UNSEEN * bad:
                raise _Unanswered(Step(None, start, self._probes(expected), tuple(candidates)))
            self._seldom = measures and bad > 0
            return bad > 0
        return self.ask(start, expected, candidates) == "bad"

    def _ends(self, expected: int, candidates: Sequence[Value]) -> SearchResult | None:
        if self._search.ends_known:
            return None
        if not self._start(expected + 2, candidates):
            return SearchResult("nothing fails")
        if self._seldom:
            return SearchResult("undecided", candidates=tuple(candidates), seldom=True)
        harmless = self.ask(self._search.space.harmless, expected + 1, candidates)
        if harmless == "bad":
            return SearchResult("always fails")
        self._harmless_works = harmless == "good"
        return None

    def _confirm(self, probe: Probe) -> None:
        """Where each configuration is tried once, that what was found fails a second time.

        Raises:
            _Unanswered: it has not been tried again.
        """
        again = sum(1 for trial in self._search.trials if trial.probe == probe)
        if again < 2 and not self._search.ends_known and not self._search.sometimes and probe not in self._assumed:
            raise _Unanswered(Step(None, probe, 1, probe.on if probe.at is None else (probe.at,)))

    def of_range(self, space: RangeSpace) -> SearchResult:
        count = len(space.values)
        ended = self._ends((count - 2).bit_length() + 1, space.values[1:])
        if ended is not None:
            return ended
        after = 0 if self._search.ends_known else 1  # it is tried again
        places = first_bad(
            lambda place, expected, left: self.ask(
                space.probe(place), expected + after, space.values[left.start : left.stop]
            ),
            0,
            count - 1,
        )
        self._confirm(space.probe(places.stop - 1))
        last_good = space.values[places.start - 1]
        if places.start == 1 and not self._harmless_works:
            return SearchResult("undecided", candidates=space.values[: places.stop])
        if len(places) > 1:
            return SearchResult("undecided", last_good=last_good, candidates=space.values[places.start : places.stop])
        return SearchResult("found", first_bad=space.values[places.start], last_good=last_good)

    def of_set(self, space: SetSpace) -> SearchResult:
        ended = self._ends((len(space.names) - 1).bit_length() + 3, space.names)
        if ended is not None:
            return ended
        after = 0 if self._search.ends_known else 2  # it is tried again, and all the others together
        good: list[frozenset[str]] = []
        bad: list[frozenset[str]] = [frozenset(space.names)]

        def fails(names: Sequence[str], expected: int, candidates: Sequence[str]) -> bool:
            probe = space.probe(names)
            on = frozenset(probe.on)
            if any(on <= known for known in good):
                return False
            if any(on >= known for known in bad):
                return True
            answer = self.ask(probe, expected + after, candidates)
            if answer in ("good", "bad"):
                (good if answer == "good" else bad).append(on)
            return answer == "bad"

        causes: list[tuple[str, ...]] = []
        left = list(space.names)
        rungs = [probe.on for _, probe in space.cumulative()]
        failing = next((on for place, on in enumerate(rungs) if fails(on, len(rungs) - place, on)), space.names)
        while left and len(causes) < _MOST_CAUSES:
            if causes and not fails(left, 1 - after, left):
                break
            cause = space.probe(minimal_set(fails, left if causes else failing, one_way=space.dependent)).on
            self._confirm(Probe(cause))
            causes.append(cause)
            left = [name for name in left if not set(space.probe([name]).on) & set(cause)]
        works = good or self._search.ends_known or self.ask(space.harmless, 1, space.names) == "good"
        if set(causes[0]) == set(space.names) and not works:
            return SearchResult("undecided", candidates=space.names)
        return SearchResult("found", tuple(causes))
