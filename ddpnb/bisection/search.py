"""A search with its log: what to try next, what is known, undo, save and resume.

The state is the log alone: the algorithms run again from the beginning over its answers (``replay.py``), up to the first
question that it does not answer. That is the next probe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from ddpnb.bisection.algorithms import Answer
from ddpnb.bisection.confidence import Rate
from ddpnb.bisection.replay import Replay, Unanswered
from ddpnb.bisection.results import SearchResult, Step, Trial
from ddpnb.bisection.space import Probe, RangeSpace, Space, space_from_json
from ddpnb.errors import UsageError

SCHEMA = 1


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
        replay = Replay(self, self._counts, assumed)
        try:
            found = replay.of_range(self.space) if isinstance(self.space, RangeSpace) else replay.of_set(self.space)
            return Step(found, confidence=replay.confidence)
        except Unanswered as unanswered:
            return unanswered.step
