"""The doctor checks a setup without training code: the machine, each start-up step on all ranks, and how long collectives take."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddpnb.recording import phrases
from ddpnb.recording.checks import Check, CollectiveTime
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.files import write_whole
from ddpnb.recording.findings import Finding
from ddpnb.recording.secrets import Secrets
from ddpnb.recording.split import by_value
from ddpnb.recording.startup import STEPS, StartupState
from ddpnb.render import as_text, card, checkup
from ddpnb.render import startup as startup_table
from ddpnb.render.document import Block, Paragraph
from ddpnb.render.explanation import explain
from ddpnb.render.identities import Identities
from ddpnb.render.shown import Shown
from ddpnb.render.views import startup_waits
from ddpnb.rules import engine
from ddpnb.rules.environment.variables import DEPRECATED_VARIABLE
from ddpnb.rules.finding_types import type_of
from ddpnb.rules.hangs.startup import WORLD_INCOMPLETE
from ddpnb.world import measurements
from ddpnb.world.groups import Groups
from ddpnb.world.host import host
from ddpnb.world.host.identities import names
from ddpnb.world.ranks import OwnRanks
from ddpnb.world.release import Releasing

_NOTES = ("DDP207",)  # what is slow, but not wrong


@dataclass(frozen=True, slots=True, repr=False)
class Checkup(Shown):
    """The result of ``doctor``: the machine, how far each rank got, and how long collectives took.

    ``outcome``: ``ok``, ``hang`` or ``crash``. ``report()`` has all details.
    """

    _label = "doctor"

    checks: tuple[Check, ...]
    state: StartupState
    findings: tuple[Finding, ...] = ()
    logs: Mapping[int, str] = field(default_factory=dict[int, str])
    timing: Mapping[str, float] = field(default_factory=dict[str, float])
    collectives: tuple[CollectiveTime, ...] = ()
    description: str = ""

    @property
    def outcome(self) -> str:
        if self.state.done:
            return "ok"
        step = self.state.stopped_at
        failed = (
            any(self.state.at(rank, step).state == "failed" for rank in range(self.state.world_size)) if step else False
        )
        return "crash" if failed or self.state.dead else "hang"

    @property
    def exit_status(self) -> int:
        """0: every step succeeded; 1: a step failed; 3: ranks are blocked."""
        return {"ok": 0, "crash": 1, "hang": 3}[self.outcome]

    @property
    def headline(self) -> str:
        size = self.state.world_size
        step = self.state.stopped_at
        if step is None:
            return f"OK: all {len(STEPS)} start-up steps succeeded on {size} rank{'s' * (size > 1)}"
        at = {rank: self.state.at(rank, step).state for rank in range(size)}
        failed = [rank for rank in at if at[rank] == "failed" or rank in self.state.dead]
        stopped = failed or [rank for rank in at if at[rank] == "running"]
        place = STEPS.index(step)
        if place < STEPS.index("store"):
            where = "before init: check the environment variables and the device"
        elif place <= STEPS.index("process group"):
            where = "during init: check addresses, network interfaces and missing ranks"
        else:
            where = "after init: check the backend and the devices"
        return f"stopped at {step} on {phrases.ranks(stopped)} ({where})"

    def report(self) -> str:
        """The text with the details of each check, as ``ddpnb doctor --verbose`` prints it."""
        return as_text.text(*self._document(verbose=True))

    def _document(self, *, verbose: bool = False) -> list[Block]:
        started = startup_table.document(self.state)
        shown = checkup.document(
            self.headline, self.checks, started, self.collectives, self.description, verbose=verbose
        )
        more = [one for one in self.findings if one.severity == "error" or not self._has_line(one)]
        return [*shown, *(block for one in more for block in (Paragraph(), card.document(one)))]

    def _has_line(self, finding: Finding) -> bool:
        """Whether the line of a check says the same."""
        lines = [one for one in self.checks if one.state == "warning" and one.code == finding.code]
        if finding.code == DEPRECATED_VARIABLE.code:  # one finding for each variable
            return any(finding.summary.startswith(f"{one.name}=") for one in lines)
        return bool(lines)

    def to_json(self) -> dict[str, Any]:
        """The result as JSON, with the start-up steps, the checks of the machine and the times of collectives."""
        return {
            "schema": 1,
            "outcome": self.outcome,
            "world_size": self.state.world_size,
            "stopped_at": self.state.stopped_at,
            "steps": self.state.to_json(),
            "ranks": {str(rank): startup_waits.sentence(self.state, rank) for rank in range(self.state.world_size)},
            "host": [dataclasses.asdict(one) for one in self.checks],
            "findings": [one.to_json() for one in self.findings],
            "timing": {name: round(value, 4) for name, value in self.timing.items()},
            "collectives": [one.to_json() for one in self.collectives],
            "description": self.description,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``to_json()`` to a file, atomically.

        Raises:
            CannotWrite: the disk is full, or the folder does not exist.
        """
        write_whole(path, json.dumps(self.to_json(), indent=1) + "\n")

    def bundle(self, path: str | os.PathLike[str]) -> None:
        """Write a zip file for bug reports: the report, its JSON, and the output of each rank.

        Text that looks like a secret is masked; names of machines and users, homes and addresses get placeholders.

        Raises:
            CannotWrite: the disk is full, or the folder does not exist.
        """
        secrets, identities = Secrets(os.environ), Identities(*names(os.environ))
        report = secrets.masked(self.to_json())
        for text in (json.dumps(report), *self.logs.values()):
            identities.learn(text)  # a later text may be the only one that shows that a word is a name

        def mask(text: str) -> str:
            return identities.mask(secrets.mask(text))

        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
            report = identities.masked(report)
            file.writestr("doctor.json", json.dumps(report, indent=1) + "\n")
            # what is wrapped is masked before: a value with blanks is not found over the end of a line
            checks = tuple(Check(**one) for one in report["host"])
            masked = dataclasses.replace(
                self, checks=checks, findings=tuple(_masked(one, mask) for one in self.findings)
            )
            file.writestr("report.txt", mask(masked.report()) + "\n")
            for rank, log in self.logs.items():
                file.writestr(f"rank{rank}.log", mask(log))
        write_whole(path, content.getvalue())


def examine(ranks: OwnRanks, groups: Groups, releasing: Releasing, timeout: float) -> Checkup:
    """Check the machine, make every start-up step on ranks that are in no run, and measure; ``timeout``: seconds for a step."""
    began = time.monotonic()
    checks = host.checks(ranks.size)
    startup = groups.init(timeout * len(STEPS))
    for step in STEPS:
        if startup.run(step, timeout).state.stopped_at == step:
            break
    state = startup.state
    collectives: tuple[CollectiveTime, ...] = ()
    if state.done:
        more, collectives = measurements.take(ranks, startup, checks)
        checks = [*more, *checks]
    logs = {rank: startup.log(rank) for rank in range(ranks.size)}
    of_environment = engine.ask(Snapshot(groups.startup_recording()), engine.of_package("environment"))
    findings = [*(_of_errors(state) or _of_waits(state)), *of_environment]
    timing = {"launch_s": ranks.launch_s, "run_s": time.monotonic() - began}
    releasing.release()
    found = (*_once(findings), *_of_checks(checks, findings))
    return Checkup(tuple(checks), state, found, logs, timing, collectives, ranks.plan.description)


def _masked(finding: Finding, mask: Callable[[str], str]) -> Finding:
    evidence = tuple(map(mask, finding.evidence))
    return dataclasses.replace(finding, summary=mask(finding.summary), evidence=evidence, remedy=mask(finding.remedy))


def _once(findings: Sequence[Finding]) -> list[Finding]:
    """Each error once by its code, other findings once by what they say."""
    first = {(one.code, "" if one.severity == "error" else one.summary): one for one in reversed(findings)}
    return list(reversed(first.values()))


def _of_checks(checks: Sequence[Check], known: Sequence[Finding]) -> list[Finding]:
    """Findings for checks of the machine that no rank has given."""
    codes = {one.code for one in known}
    return [
        Finding(
            type_of(one.code),
            phrases.sentence(f"{one.name}: {one.told}"),
            remedy=one.todo,
            severity="note" if one.code in _NOTES else "warning",
        )
        for one in checks
        if one.state == "warning" and one.code and one.code not in codes
    ]


def _of_errors(state: StartupState) -> list[Finding]:
    """Findings for steps that failed."""
    steps = ((rank, state.at(rank, step).error) for rank in range(state.world_size) for step in STEPS)
    by_error = by_value((rank, error) for rank, error in steps if error)
    found: list[Finding] = []
    for error, ranks in by_error.items():
        explained = explain(error).findings
        found += [
            dataclasses.replace(
                one, culprits=tuple(ranks), evidence=(f"{phrases.ranks(ranks, True)}: {error}", *one.evidence)
            )
            for one in explained[:1]
        ]
    return found


def _of_waits(state: StartupState) -> list[Finding]:
    """A finding for ranks that wait for others."""
    waiting = [rank for rank in range(state.world_size) if state.running_of(rank) is not None]
    absent = sorted({other for rank in waiting for other in startup_waits.needs(state, rank)})
    if not waiting or not absent:
        return []
    return [
        Finding(
            WORLD_INCOMPLETE,
            f"{phrases.ranks(absent, True)} did not reach {state.running_of(waiting[0])}; {phrases.ranks(waiting)} "
            f"{phrases.verb(waiting, 'is', 'are')} blocked in it.",
            tuple(absent),
            tuple(waiting),
            evidence=tuple(f"Rank {rank} {startup_waits.sentence(state, rank)}." for rank in [*absent, *waiting][:8]),
            remedy="Find out why these ranks stopped: see their lines above.",
            certainty="timed",
        )
    ]
