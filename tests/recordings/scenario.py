"""The fixture ``scenario``: a run as a test sees it, of real ranks or of a recording of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import pytest

import ddpnb
from benchmarks.executed import Executed
from ddpnb import pitfalls
from ddpnb.recording import protocol, recording_file
from ddpnb.recording.ending import Ending
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Recording
from ddpnb.rules.diagnose import diagnose
from ddpnb.world.run import Run
from ddpnb.world.world import World
from tests.recordings.portable import ROOT, portable, without_tracer
from tests.recordings.text import kinds

FOLDER = Path(__file__).parent
# One scenario of each family, which also `make test` runs on real ranks.
LIVE = frozenset(
    {
        "victims/missing-early_return", "victims/mismatch-shape", "victims/groups-crossed", "victims/p2p-never_sent",
        "victims/training-killed", "pitfalls/no-distributed-sampler-fixed", "faults/skip collectives all_reduce 7",
        "healthy/slow_rank", "data/no_sampler", "before_init/file_lock",
    }
)  # fmt: skip
_RELEASE_S = 5.0  # a new process costs more than to wait for a rank that is slow


@dataclass(frozen=True)
class Scenario:
    """What a test asks of a run. ``executed``: the lines that the ranks really ran; None for a recording."""

    recording: Recording
    patience: float
    run: Run | None = None
    executed: Executed | None = None

    @cached_property
    def diagnosis(self) -> Diagnosis:
        return diagnosed(self.recording, self.patience)

    @property
    def outcome(self) -> str:
        return self.diagnosis.outcome

    @property
    def endings(self) -> dict[int, Ending | None]:
        return {rank: record.ending for rank, record in self.recording.ranks.items()}

    @property
    def exit_status(self) -> int:
        return Run.exit_status.fget(self)  # type: ignore[misc]

    @property
    def has_lines(self) -> bool:
        """Whether the ranks recorded the lines that they ran, as Python 3.12 and later can."""
        return any(record.lines is not None or record.path is not None for record in self.recording.ranks.values())

    def log(self, rank: int) -> str:
        """What the rank wrote, or the end of it."""
        return self.run.log(rank) if self.run is not None else self.recording.ranks[rank].output

    def check_lines(self, least: int = 0) -> None:
        """Findings must name at least so many lines, and on real ranks each was executed by the rank that it names."""
        named = {(rank, site.file, site.line) for finding in self.diagnosis.findings for rank, site in finding.where}
        assert len(named) >= least, f"no line is named\n{self.diagnosis}"
        if self.executed is not None:
            wrong = self.executed.check(self.diagnosis)[1]
            assert wrong == [], f"lines that the named rank did not execute\n{self.diagnosis}"

    def __str__(self) -> str:
        logs = "\n".join(self.log(rank)[-1500:] for rank in self.recording.ranks)
        return f"{self.diagnosis}\n{logs}"


def diagnosed(recording: Recording, patience: float) -> Diagnosis:
    """As a World with ``end_after_patience`` does it."""
    return diagnose(recording, patience, end_after_patience=True)


class Scenarios:
    """Runs scenarios, or reads their recordings."""

    _played: ClassVar[dict[str, Scenario]] = {}  # on real ranks: what several tests ask for is run once

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request
        self._writes = request.config.getoption("--full")

    def __call__(
        self, name: str, play: Callable[[World], Run | Recording], *, world: str = "traced_world", patience: float = 3.0
    ) -> Scenario:
        """A run of a scenario.

        Args:
            name: of its recording, with its folder.
            play: makes the run in a World whose ranks are free, and waits for its end or hang.
            world: the fixture with the World.
            patience: that the World, or the run, has.
        """
        if not self._writes and name not in LIVE:
            return self._recorded(name, patience)
        if name in self._played:
            return self._played[name]
        ranks: World = self._request.getfixturevalue(world)
        free(ranks)
        executed: Executed | None = self._request.getfixturevalue("ran") if world == "traced_world" else None
        if executed is not None:
            executed.clear()
        played = play(ranks)
        recording = played if isinstance(played, Recording) else played.recording
        assert recording is not None, "no verdict"
        recording = without_tracer(recording)
        scenario = Scenario(recording, patience, None if isinstance(played, Recording) else played, executed)
        moved = portable(recording, self._request.getfixturevalue("tmp_path"))
        assert _facts(diagnosed(moved, patience)) == _facts(scenario.diagnosis), "another diagnosis of its recording"
        if self._writes and (scenario.has_lines or sys.version_info >= (3, 12)):
            _write(name, moved, patience)
        self._played[name] = scenario
        return scenario

    def _recorded(self, name: str, patience: float) -> Scenario:
        path = FOLDER / f"{name}.ddpnb"
        assert path.exists(), f"{path} does not exist: run this test with --full"
        recording = recording_file.load(path)
        for file, source in _own(recording).items():
            assert _now(file) == source, f"{file} has changed: run this test with --full"
        recording = without_tracer(recording)
        scenario = Scenario(recording, patience)
        expected = path.with_suffix(".json")
        if self._request.config.getoption("--accept"):
            expected.write_text(_json(scenario.diagnosis))
        assert json.loads(_json(scenario.diagnosis)) == json.loads(expected.read_text())
        return scenario


@contextmanager
def launched(*args: Any, **terms: Any) -> Generator[World]:
    """A World that ends runs after its patience, and whose ranks look at every step: else fewer, the busier the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(protocol.LOOKS, "0..9999")
        with ddpnb.launch(*args, **terms, end_after_patience=True, quiet=True) as world:
            yield world


def free(world: World) -> None:
    """Free the ranks from the run before, replace those that died, and take faults and holds away."""
    left = world.release(_RELEASE_S).left
    dead = [rank for rank in range(world.size) if not world._ranks.processes.alive(rank)]
    if left or dead:
        world.restart([*left, *dead])
    world.heal()


def _facts(diagnosis: Diagnosis) -> list[Any]:
    return [
        (finding.code, finding.severity, finding.certainty, finding.culprits, finding.sides, finding.waiting,
         [(rank, site.line) for rank, site in finding.where])
        for finding in diagnosis.findings
    ]  # fmt: skip


def _own(recording: Recording) -> dict[str, str]:
    """The text of the project's files that the ranks ran."""
    return {file: source for file, source in recording.sources.items() if file.startswith("/project/")}


def _now(file: str) -> str:
    """The text that a file of the project now has; of the fixed script of a pitfall, which its ``fix.patch`` makes."""
    path = ROOT / file.removeprefix("/project/")
    if path.name == "fixed.py" and path.parent.name in pitfalls.names():
        path = pitfalls.get(path.parent.name).fixed
    return path.read_text() if path.exists() else ""


def _told(recording: Recording, patience: float) -> tuple[str, list[Any]]:
    diagnosis = diagnosed(recording, patience)
    return diagnosis.outcome, _facts(diagnosis)


def _json(diagnosis: Diagnosis) -> str:
    told = diagnosis.to_json()
    del told["timing"]
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"


def _write(name: str, recording: Recording, patience: float) -> None:
    """Write a recording and its diagnosis, where they tell something new: not for other times, counts or orders."""
    path = FOLDER / f"{name}.ddpnb"
    expected = path.with_suffix(".json")
    if path.exists() and expected.exists():
        kept = without_tracer(recording_file.load(path))
        if (
            _own(kept) == _own(recording)
            and kinds(kept) == kinds(recording)
            and _told(kept, patience) == _told(recording, patience)
        ):
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    recording.save(path)
    expected.write_text(_json(diagnosed(recording_file.load(path), patience)))
