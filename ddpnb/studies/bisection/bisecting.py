"""A bisection: the search, the probes that it asks for, and a log that continues after an interruption."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil

from ddpnb.errors import UsageError
from ddpnb.recording.files import write_whole
from ddpnb.render import markup
from ddpnb.studies.bisection import guide
from ddpnb.studies.bisection import words as render
from ddpnb.studies.bisection.algorithms import Answer
from ddpnb.studies.bisection.failure import Failure, judge, read, refused, same
from ddpnb.studies.bisection.log import SCHEMA, not_a_log
from ddpnb.studies.bisection.probing import CommandProber, Ran
from ddpnb.studies.bisection.search import Search, SearchResult, Trial
from ddpnb.studies.bisection.space import Probe, SetSpace
from ddpnb.studies.bisection.world_probes import WorldProber
from ddpnb.texts import comment


class Bisection:
    """A search for what makes a program fail, as ``ddpnb.bisect()`` returns it. It shows its result as text.

    Args:
        search: over the configurations.
        prober: which runs them.
        path: of the log, written after each answer; None: there is none.
        options: what the log keeps, to continue from it.

    Example:
        >>> bisection = ddpnb.bisect("train.py", "--amp", "--compile", run=False)
        >>> while bisection.step():
        ...     pass
        >>> bisection.minimal
        [{'name': '--compile', 'value': ''}]
    """

    by_hand = True  # a person may answer

    def __init__(
        self,
        search: Search,
        prober: CommandProber | WorldProber,
        path: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.search, self.prober, self.path = search, prober, path
        self._options = options or {}
        self.seconds = 0.0  # that the search has taken
        self._again: Probe | None = None  # to be tried a second time
        self._others: list[Failure] = []  # that came twice, or cannot be by chance: they need no second try
        self.original: Failure | None = None
        self.expected = search.step.expected

    @property
    def title(self) -> str:
        """What is searched: the command, or that functions are."""
        return self.prober.title

    @property
    def trials(self) -> tuple[Trial, ...]:
        """What has been probed, in order."""
        return tuple(self.search.trials)

    @property
    def result(self) -> SearchResult | None:
        """What was found; None: there is more to probe."""
        return self.search.result

    @property
    def left(self) -> int:
        """How many more probes are expected."""
        return self.search.step.expected

    @property
    def minimal(self) -> list[dict[str, str]]:
        """The smallest failing set, as names and values; empty if none was found, or a value or commit is searched."""
        return next(iter(self._causes()), [])

    @property
    def finding(self) -> dict[str, Any] | None:
        """The finding, as in the diagnosis's JSON, of the smallest configuration that has failed; None: there is none."""
        failed = [one for one in self.search.trials if one.answer == "bad" and one.finding is not None]
        smallest = [one for one in failed if one.probe == self._found] or failed
        return smallest[-1].finding if smallest else None

    @property
    def _found(self) -> Probe | None:
        """The smallest configuration that fails; None: none was found."""
        result = self.result
        return Probe(result.minimal, result.first_bad) if result is not None and result.outcome == "found" else None

    @property
    def pair(self) -> list[int] | None:
        """Two ranks that hold different tensors, where that is the finding."""
        finding = self.finding or {}
        if len(sides := finding.get("sides", ())) > 1:
            return [sides[0][0], sides[1][0]]
        culprits, others = finding.get("culprits"), finding.get("waiting")
        return [others[0], culprits[0]] if finding.get("tensors") and culprits and others else None

    # -- probes

    def next_probe(self) -> Probe | None:
        """What ``step()`` runs; None: there is a result."""
        return self._again or self.search.next_probe()

    def step(self) -> Trial | None:
        """Run the next probe; None: there is a result. One that fails in another way is tried a second time.

        Raises:
            ProbeEnded: ``stop()`` was called meanwhile.
        """
        probe = self.next_probe()
        if probe is None:
            return None
        ran = self.prober.run(probe)
        answer, again = self._judge(probe, ran), self._again is not None
        self.answer(probe, answer, ran.code, ran.seconds, ran.reason, ran.finding)
        if answer == "other" and ran.failures:
            # A crash that has nothing to do with it, such as one of the backend at its end, should not decide.
            other = ran.failures[0]
            known = refused(other) or any(same(one, other) for one in self._others)
            if again and not known:
                self._others.append(other)
            self._again = None if again or known else probe
        return self.search.trials[-1]

    def run(self, tell: Callable[[Trial], None] | None = None) -> SearchResult:
        """Probe until there is a result.

        Args:
            tell: called after each probe.
        """
        began, before = time.monotonic(), self.seconds
        while (trial := self.step()) is not None:
            self.seconds = before + time.monotonic() - began
            if tell is not None:
                tell(trial)
        result = self.result
        assert result is not None
        return result

    def stop(self) -> None:
        """End the probe that ``step()`` or ``run()`` runs in another thread, or the next one: it has no answer."""
        self.prober.stop()

    def answer(
        self,
        probe: Probe,
        answer: Answer,
        code: str | None = None,
        seconds: float = 0.0,
        reason: str = "",
        finding: dict[str, Any] | None = None,
    ) -> None:
        """Add an answer (``bad``, ``good``, ``other`` or ``skip``), and save the log; the rest is as of a ``Trial``."""
        self._again = None
        self.search.answer(probe, answer, code, seconds, reason, finding)
        self.save()

    def undo(self) -> Trial:
        """Take the last answer back, and save the log."""
        trial = self.search.undo()
        self._again = None
        if not any(one.answer == "bad" for one in self.search.trials):
            self.original = None
        self.save()
        return trial

    def _judge(self, probe: Probe, ran: Ran) -> Answer:
        space = self.search.space
        if self.original is None and probe == space.start:  # the first failure is the one that is searched for
            if not ran.ran:
                raise UsageError(f"the failing configuration cannot run: {ran.reason}", "Run it with ddpnb run first.")
            if ran.failures and refused(ran.failures[0]):
                raise UsageError(ran.reason, "Give the command that fails as it is, and values that it takes.")
            self.original = next(iter(ran.failures), None)
        if not ran.ran or (self.original is None and ran.failures):
            return "other"
        return "good" if self.original is None else judge(self.original, ran.failures, moved=space.kind == "git")

    # -- results

    def typed(self, probe: Probe | None = None) -> str:
        """A configuration as a command line that can be typed; empty where there is none.

        Args:
            probe: the configuration; None: the smallest failing one, if one was found, and it is not a commit that fails.
        """
        if probe is None and self.search.space.kind != "git":
            probe = self._found
        return self.prober.typed(probe) if probe is not None else ""

    def commit(self) -> str:
        """The first commit that fails, in one line; empty if no commit was found."""
        result = self.result
        return self.prober.commit(str(result.first_bad)) if result is not None and result.first_bad is not None else ""

    def write_repro(self, path: str | os.PathLike[str]) -> None:
        """Write the smallest failing command, or the commit, as a shell script.

        Raises:
            UsageError: none was found.
            CannotWrite: it cannot be written.
        """
        command, commit = self.typed(), self.commit()
        if not command and not commit:
            raise UsageError("there is no smallest failing command to write.", "Search until a cause is found.")
        lines = str((self.finding or {}).get("summary", "")).splitlines()
        lines += [] if command else [f"The first commit that fails: {commit}"]  # its subject is anybody's text
        notes = "".join(f"# {comment(line, 600)}\n" for line in lines)
        write_whole(path, f"#!/bin/sh\n{notes}{command}\n")

    def conclusion(self) -> str:
        """What was found, in one or a few sentences; empty if there is more to probe."""
        result = self.result
        if result is None:
            return ""
        named = {rank for side in (self.finding or {}).get("sides", ()) for rank in side}
        pair = self.pair if len(named) > 2 else None  # of two ranks the finding says it
        more = f"\nRanks {pair[0]} and {pair[1]} disagree." if pair is not None else ""
        return render.conclusion(result, self.search) + more

    def _repr_html_(self) -> str:
        return markup.standalone(guide.still(self), "bisection")

    def __repr__(self) -> str:
        if self.result is not None:
            return f"{self.conclusion()}\n{self.typed() or self.commit()}".rstrip()
        step = self.search.step
        assert step.probe is not None
        return f"{len(self.trials)} probes done, about {step.expected} to go; next: {render.named(step.probe, self.search)}"

    def to_json(self) -> dict[str, Any]:
        """The result as JSON, schema 1."""
        result = self.result
        return {
            "schema": 1,
            "kind": self.search.space.kind,
            "outcome": result.outcome if result is not None else "unfinished",
            "minimal": self.minimal,
            "also": self._causes()[1:],
            "first_bad": result.first_bad if result is not None else None,
            "last_good": result.last_good if result is not None else None,
            "candidates": list(result.candidates if result is not None else self.search.step.candidates),
            "finding": self.finding,
            "pair": self.pair,
            "probes": [trial.to_json() for trial in self.search.trials],
            "expected_probes": self.expected,
            "confidence": round(self.search.stated_confidence, 4),
        }

    def _causes(self) -> list[list[dict[str, str]]]:
        space, result = self.search.space, self.result
        if result is None or not isinstance(space, SetSpace):
            return []
        return [[one.to_json() for one in space.shown(cause)] for cause in result.causes]

    # -- the log

    def save(self) -> None:
        """Write the log.

        Raises:
            CannotWrite: it cannot be written.
        """
        if self.path is not None:
            log = {
                "schema": SCHEMA,
                "process": [os.getpid(), psutil.Process().create_time()],
                "options": self._options,
                "original": self.original,
                "seconds": round(self.seconds, 3),
                "trials": [trial.to_json() | {"finding": trial.finding} for trial in self.search.trials],
            }
            write_whole(self.path, json.dumps(log, indent=1) + "\n")

    def resume(self, log: Any) -> None:
        """Continue a log.

        Args:
            log: from ``read_log``.

        Raises:
            UsageError: it is not one, or of another search.
        """
        with not_a_log():
            self.original = None if log["original"] is None else read(log["original"])
            self.seconds = float(log["seconds"])
            for one in log["trials"]:
                if one["finding"] is not None:
                    read(one["finding"])
                code = str(one["code"]) if one["code"] is not None else None
                probe, seconds, reason = Probe(tuple(one["on"]), one["at"]), float(one["seconds"]), str(one["reason"])
                self.search.answer(probe, one["answer"], code, seconds, reason, one["finding"])

    def remove_log(self) -> None:
        """Remove the log: the search is over."""
        if self.path is not None:
            with suppress(FileNotFoundError):
                os.unlink(self.path)
