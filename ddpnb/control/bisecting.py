"""A bisection: the search, the probes that it asks for, and a log that continues after an interruption."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import psutil

from ddpnb import interrupts
from ddpnb.bisection.algorithms import Answer
from ddpnb.bisection.command import CommandSpace
from ddpnb.bisection.failure import Failure, judge
from ddpnb.bisection.functions import FunctionSpace, PrefixSpace, RanksSpace
from ddpnb.bisection.recorded import RunSpace
from ddpnb.bisection.results import SearchResult, Trial
from ddpnb.bisection.search import Search
from ddpnb.bisection.space import Probe
from ddpnb.bisection.varied import Trying
from ddpnb.control.ahead import Ahead
from ddpnb.control.bisection_log import SCHEMA
from ddpnb.control.probing import Prober, Ran
from ddpnb.control.worktrees import Repository
from ddpnb.errors import UsageError
from ddpnb.files import write_whole
from ddpnb.model.findings import Finding
from ddpnb.render import bisection as render
from ddpnb.render import guide, markup
from ddpnb.texts import comment


class Runs(Protocol):
    """Runs probes: in fresh processes (``Prober``), or on the ranks of a World."""

    repository: Repository | None

    def run(self, trying: Trying) -> Ran: ...
    def stop(self) -> None: ...
    def options(self, trying: Trying, /) -> list[str]: ...


class Bisection:
    """A search for what makes a program fail, as ``ddpnb.bisect()`` returns it. It shows its result as text.

    Args:
        space: the configurations.
        search: over that space.
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
        space: CommandSpace | FunctionSpace | PrefixSpace | RanksSpace | RunSpace,
        search: Search,
        prober: Runs,
        path: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.space, self.search, self._prober, self.path = space, search, prober, path
        self._options = options or {}
        self.seconds = 0.0  # that the search has taken
        self._ahead: Ahead | None = None  # while several probes run at the same time
        self._again: Probe | None = None  # to be tried a second time
        self._others: list[Failure] = []  # that came twice, or cannot be by chance: they need no second try
        self.original: Failure | None = None
        self._findings: list[dict[str, Any] | None] = []  # of each trial
        self.expected = Search(space.space, search.repeat, search.confidence, search.ends_known).step.expected

    @property
    def trials(self) -> tuple[Trial, ...]:
        """What has been probed, in order."""
        return tuple(self.search.trials)

    @property
    def minimal(self) -> list[dict[str, str]]:
        """The smallest failing set, as names and values; empty if none was found, or a value or commit is searched."""
        result = self.result
        return self.space.minimal(result.minimal) if result is not None else []

    @property
    def finding(self) -> dict[str, Any] | None:
        """The finding, as in the diagnosis's JSON, of the smallest configuration that has failed; None: there is none."""
        smallest: tuple[Probe, dict[str, Any]] | None = None
        # Another thread may show it while a probe is being answered: there is no finding of the last trial yet.
        for trial, finding in zip(self.search.trials, self._findings, strict=False):
            if trial.answer != "bad" or finding is None:
                continue
            if smallest is None or self.search.space.within(trial.probe, smallest[0]):
                smallest = trial.probe, finding
        return smallest[1] if smallest is not None else None

    @property
    def card(self) -> Finding | None:
        """The same as a Finding."""
        finding = self.finding
        return None if finding is None else Finding.from_json(finding)

    @property
    def result(self) -> SearchResult | None:
        """What was found; None: there is more to probe."""
        return self.search.result

    @property
    def left(self) -> int:
        """How many more probes are expected."""
        return self.search.step.expected

    @property
    def pair(self) -> list[int] | None:
        """Two ranks that hold different tensors, where that is the finding."""
        finding = self.finding or {}
        if len(sides := finding.get("sides", ())) > 1:
            return [sides[0][0], sides[1][0]]
        culprits, others = finding.get("culprits"), finding.get("waiting")
        return [others[0], culprits[0]] if finding.get("tensors") and culprits and others else None

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
        ran = self._ahead.run(self._wanted) if self._ahead is not None else self._prober.run(self.space.trying(probe))
        answer = self._judge(probe, ran)
        code = next((failure.code for failure in ran.failures[:1]), None)
        # A crash that has nothing to do with it, such as one of the backend at its end, should not decide.
        other = ran.failures[0] if answer == "other" and ran.failures else None
        known = other is not None and (other.refused or any(one.same(other) for one in self._others))
        if other is not None and self._again is not None and not known:
            self._others.append(other)
        self._again = probe if other is not None and self._again is None and not known else None
        self._answer(probe, answer, code, ran.seconds, ran.reason, ran.finding)
        return self.search.trials[-1]

    def run(self, tell: Callable[[Trial], None] | None = None) -> SearchResult:
        """Probe until there is a result.

        Args:
            tell: called after each probe.
        """
        began, before = time.monotonic(), self.seconds
        with self._several():
            while (trial := self.step()) is not None:
                self.seconds = before + time.monotonic() - began
                if tell is not None:
                    tell(trial)
        result = self.result
        assert result is not None
        return result

    def stop(self) -> None:
        """End the probe that ``step()`` or ``run()`` runs in another thread, or the next one: it has no answer."""
        self._prober.stop()

    def _wanted(self, limit: int) -> Sequence[Probe]:
        """What may run at the same time; a second try runs alone, since probes may have disturbed each other."""
        return [self._again] if self._again is not None else self.search.next_probes(limit)

    @contextmanager
    def _several(self) -> Iterator[None]:
        """Inside, several probes run at the same time, if the job says so."""
        if not isinstance(self._prober, Prober) or self._prober.job.jobs == 1:
            yield
            return
        with Ahead(self._prober, self.space.trying) as self._ahead:
            try:
                yield
            finally:
                with interrupts.put_off():
                    self._keep(self._ahead)
                self._ahead = None

    def _keep(self, ahead: Ahead) -> None:
        """Keep answers that were not asked for; another failure would have been tried a second time."""
        for probe, ran in ahead.done if self.original is not None else ():
            answer = self._judge(probe, ran)
            if answer in ("bad", "good"):
                code = next((failure.code for failure in ran.failures[:1]), None)
                self.search.answer(probe, answer, code, ran.seconds, ran.reason, asked=False)
                self._findings.append(ran.finding)
        self.save()

    def answer(
        self, probe: Probe, answer: Answer, code: str | None = None, seconds: float = 0.0, reason: str = ""
    ) -> None:
        """Add an answer, and save the log."""
        self._again = None
        self._answer(probe, answer, code, seconds, reason, None)

    def undo(self) -> Trial:
        """Take the last answer back, and save the log."""
        trial = self.search.undo()
        self._findings.pop()
        self._again = None
        if not any(one.answer == "bad" for one in self.search.trials):
            self.original = None
        self.save()
        return trial

    @property
    def title(self) -> str:
        """What is searched: the command, or that functions are."""
        return shlex.join(getattr(self.space, "command", ())) or "functions of a World"

    def typed(self, probe: Probe | None = None) -> str:
        """A configuration as a command line that can be typed; empty where there is none.

        Args:
            probe: the configuration; None: the smallest failing one, if one was found, and it is not a commit that fails.
        """
        result = self.result
        if probe is None:
            if result is None or result.outcome != "found" or self.space.kind == "git":
                return ""
            probe = Probe(result.minimal) if self.space.kind == "set" else Probe(at=result.first_bad)
        trying = self.space.trying(probe)
        return self.space.typed(trying, self._prober.options(trying))

    def write_repro(self, path: str | os.PathLike[str]) -> None:
        """Write the smallest failing command, or the commit, as a shell script.

        Raises:
            UsageError: none was found.
            CannotWrite: it cannot be written.
        """
        command, commit = self.typed(), self.commit()
        if not command and not commit:
            raise UsageError("there is no smallest failing command to write.", "Search until a cause is found.")
        told = str((self.finding or {}).get("summary", "")).splitlines()
        told += [] if command else [f"The first commit that fails: {commit}"]  # its subject is anybody's text
        notes = "".join(f"# {comment(line, 600)}\n" for line in told)
        write_whole(path, f"#!/bin/sh\n{notes}{command}\n")

    def remove_log(self) -> None:
        """Remove the log: the search is over."""
        if self.path is not None:
            with suppress(FileNotFoundError):
                os.unlink(self.path)

    def commit(self) -> str:
        """The first commit that fails, in one line; empty if no commit was found."""
        result, repository = self.result, self._prober.repository
        if result is None or result.first_bad is None or repository is None:
            return ""
        return repository.subject(str(result.first_bad))

    def _answer(
        self,
        probe: Probe,
        answer: Answer,
        code: str | None,
        seconds: float,
        reason: str,
        finding: dict[str, Any] | None,
    ) -> None:
        self.search.answer(probe, answer, code, seconds, reason)
        self._findings.append(finding)
        self.save()

    def _judge(self, probe: Probe, ran: Ran) -> Answer:
        if self.original is None:  # the first failure is the one that is searched for
            if probe == self.search.space.start and ran.failures:
                if ran.failures[0].refused:
                    raise UsageError(ran.reason, "Give the command that fails as it is, and values that it takes.")
                self.original = ran.failures[0]
            elif probe == self.search.space.start and not ran.ran:
                raise UsageError(f"the failing configuration cannot run: {ran.reason}", "Run it with ddpnb run first.")
        if not ran.ran:
            return "other"
        if isinstance(self.space, PrefixSpace):  # how a beginning fails depends on what comes after it
            return "bad" if ran.failures else "good"
        if self.original is None:
            return "other" if ran.failures else "good"
        return judge(self.original, list(ran.failures), moved=self.space.kind == "git")

    # -- results and the log

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
        done = self.result is not None
        smallest = self.typed() or self.commit()
        shown = guide.Shown(
            self.title,
            self.search,
            self.result,
            self.conclusion(),
            left=self.left,
            smallest=smallest,
            finding=self.card if done else None,
        )
        return markup.standalone(guide.still(shown), "bisection")

    def __repr__(self) -> str:
        step = self.search.step
        if step.result is not None:
            return f"{self.conclusion()}\n{self.typed() or self.commit()}".rstrip()
        assert step.probe is not None
        return f"{len(self.trials)} probes done, about {step.expected} to go; next: {render.named(step.probe, self.search)}"

    def to_json(self) -> dict[str, Any]:
        """The result as JSON, schema 1."""
        result = self.result
        return {
            "schema": SCHEMA,
            "kind": self.space.kind,
            "outcome": result.outcome if result is not None else "unfinished",
            "minimal": self.minimal,
            "also": [self.space.minimal(cause) for cause in result.causes[1:]] if result is not None else [],
            "first_bad": result.first_bad if result is not None else None,
            "last_good": result.last_good if result is not None else None,
            "candidates": list(result.candidates if result is not None else self.search.step.candidates),
            "finding": self.finding,
            "pair": self.pair,
            "probes": [trial.to_json() for trial in self.search.trials],
            "expected_probes": self.expected,
            "confidence": round(self.search.stated_confidence, 4),
        }

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
                "original": None if self.original is None else self.original.to_json(),
                "findings": self._findings,
                "seconds": round(self.seconds, 3),
                "search": self.search.to_json(),
            }
            write_whole(self.path, json.dumps(log, indent=1) + "\n")

    def resume(self, log: Any) -> None:
        """Continue a log.

        Args:
            log: from ``read_log``.

        Raises:
            UsageError: it is of another version, or of another search.
        """
        try:
            resumed, original, findings = Search.from_json(log["search"]), log["original"], list(log["findings"])
            seconds = float(log["seconds"])
            if len(findings) != len(resumed.trials):
                raise ValueError("a finding for each trial")
            for finding in findings:
                if finding is not None:
                    Finding.from_json(finding)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, UsageError):
                raise
            raise UsageError("this is not the log of a search.", "Give the file that a search has written.") from None
        if resumed.space.to_json() != self.search.space.to_json():
            raise UsageError(
                "the log is of another search: it varies something else.", "Resume with the options it was begun with."
            )
        self.search, self.seconds = resumed, seconds
        self.original = None if original is None else Failure.from_json(original)
        self._findings = findings
