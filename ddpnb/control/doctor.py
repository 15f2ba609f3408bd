"""The doctor checks a setup without training code: the machine, then each start-up step on all ranks."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from ddpnb.control.groups import Groups
from ddpnb.control.ranks import OwnRanks
from ddpnb.control.release import Releasing
from ddpnb.diagnosis import rules
from ddpnb.diagnosis.hangs.startup import WORLD_INCOMPLETE
from ddpnb.explanation import explain
from ddpnb.files import write_whole
from ddpnb.model import phrases
from ddpnb.model.findings import Finding
from ddpnb.model.startup import STEPS, StartupState
from ddpnb.processes import checks
from ddpnb.processes.checks import Check
from ddpnb.render import card, markup
from ddpnb.render.secrets import Secrets
from ddpnb.render.terminal import output, table
from ddpnb.render.text import printable
from ddpnb.views import startup_waits


@dataclass(frozen=True, slots=True)
class Checkup:
    """The result of ``doctor``: the machine, and how far each rank got. ``outcome``: ``ok``, ``hang`` or ``crash``."""

    checks: tuple[Check, ...]
    state: StartupState
    shown: str
    findings: tuple[Finding, ...] = ()
    logs: Mapping[int, str] = field(default_factory=dict[int, str])
    timing: Mapping[str, float] = field(default_factory=dict[str, float])

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

    def __str__(self) -> str:
        rows = [
            [_MARKS[one.state], one.name, one.told + (f"  [{one.code}]" if one.code else "")] for one in self.checks
        ]
        parts = [printable("\n\n".join([f"ddpnb: {self.headline}", table(rows), self.shown]))]
        return "\n\n".join(parts + [output(*card.paragraphs(one)) for one in self.findings])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cards = "".join(map(card.finding_html, self.findings))
        return markup.standalone(f"<pre>{escape(str(dataclasses.replace(self, findings=())))}</pre>{cards}", "doctor")

    def to_json(self) -> dict[str, Any]:
        """The result as JSON, with the start-up steps and the checks of the machine."""
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
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``to_json()`` to a file, atomically.

        Raises:
            CannotWrite: the disk is full, or the folder does not exist.
        """
        write_whole(path, json.dumps(self.to_json(), indent=1) + "\n")

    def bundle(self, path: str | os.PathLike[str]) -> None:
        """Write a zip file for bug reports: the report, its JSON, and the output of each rank.

        Text that looks like a secret is masked.

        Raises:
            CannotWrite: the disk is full, or the folder does not exist.
        """
        secrets = Secrets(os.environ)
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("report.txt", secrets.mask(str(self)) + "\n")
            file.writestr("doctor.json", json.dumps(secrets.masked(self.to_json()), indent=1) + "\n")
            for rank, log in self.logs.items():
                file.writestr(f"rank{rank}.log", secrets.mask(log))
        write_whole(path, content.getvalue())


_MARKS = {"ok": "✓", "warning": "!", "unknown": "?"}


def examine(ranks: OwnRanks, groups: Groups, releasing: Releasing, timeout: float) -> Checkup:
    """Check the machine, and make every start-up step on ranks that are in no run; ``timeout``: seconds for a step."""
    began = time.monotonic()
    machine = tuple(checks.host(ranks.size))
    startup = groups.init(timeout * len(STEPS))
    for step in STEPS:
        if startup.run(step, timeout).state.stopped_at == step:
            break
    state, shown = startup.state, str(startup)
    logs = {rank: startup.log(rank) for rank in range(ranks.size)}
    findings = [*(_of_errors(state) or _of_waits(state)), *rules.environment(groups.startup_recording())]
    first = {finding.code: finding for finding in reversed(findings)}
    timing = {"launch_s": ranks.launch_s, "run_s": time.monotonic() - began}
    releasing.release()
    return Checkup(machine, state, shown, tuple(reversed(first.values())), logs, timing)


def _of_errors(state: StartupState) -> list[Finding]:
    """Findings for steps that failed."""
    by_error: dict[str, list[int]] = {}
    for rank in range(state.world_size):
        for step in STEPS:
            if error := state.at(rank, step).error:
                by_error.setdefault(error, []).append(rank)
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
