"""Which lines of a script each rank really executed: the ground truth for the lines that findings name.

Ranks that are launched inside ``recording()`` trace the scripts that they run (``hook/sitecustomize.py``, found
through PYTHONPATH) and write each line to a file when they first execute it, so that the lines of a rank that hangs
or is killed are known too.
"""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ddpnb.recording.findings import Diagnosis

HOOK = Path(__file__).parent / "hook"
FOLDER = "DDPNB_EXECUTED_LINES"

Place = tuple[int, str, int]


class Executed:
    """The executed lines of the latest run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def clear(self) -> None:
        """Forget the lines of earlier runs: call it before each run."""
        for path in self._folder.glob("*.lines"):
            path.unlink()

    def lines(self) -> dict[int, set[tuple[str, int]]]:
        """For each rank the (file, line) pairs that it executed since ``clear()``."""
        found: dict[int, set[tuple[str, int]]] = defaultdict(set)
        for path in self._folder.glob("*.lines"):
            rank = int(path.name.partition("-")[0])
            for text in path.read_text(errors="replace").splitlines():
                number, _, file = text.partition(" ")
                if file and number.isdigit():
                    found[rank].add((os.path.realpath(file), int(number)))
        return dict(found)

    def check(self, diagnosis: Diagnosis) -> tuple[int, list[Place]]:
        """(how many lines the findings name, those that the named rank did not execute)."""
        ran = self.lines()
        named = {
            (rank, site.file, site.line)
            for finding in diagnosis.findings
            for rank, site in finding.where
            if not Path(site.file).is_relative_to(HOOK)  # the tracer itself, which a signal may interrupt
        }
        wrong = [
            (rank, file, line) for rank, file, line in named if (os.path.realpath(file), line) not in ran.get(rank, ())
        ]
        return len(named), sorted(wrong)


@contextmanager
def recording() -> Iterator[Executed]:
    """Inside, the ranks of every world that is launched record the lines that they execute."""
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", FOLDER)}
    with tempfile.TemporaryDirectory(prefix="executed-") as folder:
        paths = [str(HOOK), *filter(None, [before["PYTHONPATH"]])]
        os.environ.update({"PYTHONPATH": os.pathsep.join(paths), FOLDER: folder})
        try:
            yield Executed(Path(folder))
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
