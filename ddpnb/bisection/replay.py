"""One pass of the algorithms over the answers of a search, up to the first question that they do not answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ddpnb.bisection.algorithms import Answer, first_bad, minimal_set
from ddpnb.bisection.confidence import Rate
from ddpnb.bisection.results import SearchResult, Step
from ddpnb.bisection.space import Probe, RangeSpace, SetSpace, Value

if TYPE_CHECKING:
    from ddpnb.bisection.search import Search

MEASURED = 4  # failures that are waited for where it is to be learnt how often it fails
_UNSEEN = (
    30  # probes of the start without one, after which nothing fails; for each failure, after which it is too seldom
)
_MOST_CAUSES = 8


class Unanswered(Exception):
    def __init__(self, step: Step) -> None:
        super().__init__(step)
        self.step = step


class Replay:
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
            Unanswered: nothing, or not enough.
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
        raise Unanswered(Step(None, probe, self._probes(expected, good), tuple(candidates)))

    def _start(self, expected: int, candidates: Sequence[Value]) -> bool:
        """Whether the start fails; where the failure does not always happen, it is first learnt how often."""
        search, start = self._search, self._search.space.start
        bad, good = self._counts.get(start, (0, 0))
        if search.sometimes and start not in self._assumed and start not in self._others:
            enough = search.repeat if search.repeat is not None and search.repeat > 1 else _UNSEEN
            measures = search.repeat in (None, 1) and bad < MEASURED
            if good < enough if not bad else measures and good < _UNSEEN * bad:
                raise Unanswered(Step(None, start, self._probes(expected), tuple(candidates)))
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

    def _confirm(self, probe: Probe, expected: int = 1) -> None:
        """Where each configuration is tried once, that one on which the result depends gives its answer a second time.

        Raises:
            Unanswered: it has not been tried again.
        """
        again = sum(1 for trial in self._search.trials if trial.probe == probe)
        if again < 2 and not self._search.ends_known and not self._search.sometimes and probe not in self._assumed:
            raise Unanswered(Step(None, probe, expected, probe.on if probe.at is None else (probe.at,)))

    def of_range(self, space: RangeSpace) -> SearchResult:
        count = len(space.values)
        ended = self._ends((count - 2).bit_length() + 1, space.values[1:])
        if ended is not None:
            return ended
        after = 0 if self._search.ends_known else 2  # both sides of the result are tried again
        places = first_bad(
            lambda place, expected, left: self.ask(
                space.probe(place), expected + after, space.values[left.start : left.stop]
            ),
            0,
            count - 1,
        )
        last_good = space.values[places.start - 1]
        works = places.start > 1 or self._harmless_works
        self._confirm(space.probe(places.stop - 1), 1 + works)
        if works:  # where it fails only now and then, the last one that works is what is most likely wrong
            self._confirm(space.probe(places.start - 1))
        else:
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
        if set(causes[0]) == set(space.names) and not good and not self._harmless_works:
            return SearchResult("undecided", candidates=space.names)
        return SearchResult("found", tuple(causes))
