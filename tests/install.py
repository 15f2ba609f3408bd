"""Run pip for the Makefile and say what it does: ``python tests/install.py .venv/bin/pip install ...``.

pip prints hundreds of lines, or with ``-q`` none for minutes. This prints the large downloads, the steps, and every ten
seconds which one is still going on. Standard library only: it runs before anything is installed.

Where pip fails, as without a network, and all that the project needs is there already, that is enough.
"""

from __future__ import annotations

import queue
import re
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

STILL_S = 10.0  # without a line, what is going on is said again
LARGE_MB = 5.0
COMPILE = ["-m", "compileall", "-qq", "-j", "0"]
PROJECT = Path(__file__).parents[1] / "pyproject.toml"
_DOWNLOAD = re.compile(
    r"\s+Downloading (?:\S*/)?(\S+?)(?:-py[23]\S*|-cp\d\S*|-none\S*)?(?:\.whl|\.tar\.gz)\S* \(([\d.]+) (kB|MB|GB)\)"
)
_MB = {"kB": 0.001, "MB": 1.0, "GB": 1000.0}


class Steps:
    """Reads the lines of pip; ``step`` is what goes on."""

    def __init__(self) -> None:
        self.step = "starting pip"
        self._packages = 0

    def read(self, line: str) -> str | None:
        """What to print for this line, if anything."""
        before, told = self.step, None  # empty: nothing
        if line.startswith("Collecting "):
            self._packages += 1
            self.step = f"resolving and downloading packages ({self._packages} so far)"
            told = "resolving and downloading packages" if self._packages == 1 else ""
        elif download := _DOWNLOAD.match(line):
            name, size, unit = download.groups()
            large = float(size) * _MB[unit] >= LARGE_MB
            told = f"downloading {name} ({size} {unit})" if large else ""
            self.step = told or self.step
        elif line.startswith("Installing collected packages:"):
            self.step = f"installing {line.count(',') + 1} packages"
        elif line.startswith("Successfully installed"):
            self.step = "installed"
        if told is None and self.step != before:
            told = self.step
        return told or None


def main(command: list[str]) -> int:
    """Run pip; returns its exit status. What it writes to standard error is shown if it fails."""
    began = time.monotonic()
    # In a terminal one line, which is written again.
    before, end = ("\r\033[K", "") if sys.stdout.isatty() else ("", "\n")

    def say(text: str) -> None:
        print(f"{before}{time.monotonic() - began:5.0f} s  {text}", end=end, flush=True)

    steps = Steps()
    try:
        status = _run([*command, "--progress-bar", "off"], steps, say)
        if not status and steps.step == "installed":
            # Several processes at once, after pip, which would compile in one: a third of its time. Templates do not compile.
            steps.step = "compiling what was installed"
            say(steps.step)
            _run([sys.executable, "-W", "ignore", *COMPILE, sysconfig.get_path("purelib")], steps, say)
    except KeyboardInterrupt:  # the processes have it too, from the terminal
        return 130
    finally:
        print(end="" if end else "\n", flush=True)
    extras = [extra for group in re.findall(r"\[(.*?)\]", command[-1]) for extra in group.split(",")]
    if status and not lacking(PROJECT, extras):
        say("pip failed (above), but the packages that are there are those that are needed: going on with them")
        return 0
    return status


def _run(command: list[str], steps: Steps, say: Callable[[str], None]) -> int:
    """Run it and say its steps; what it writes to standard error is shown if it fails. Returns its exit status."""
    with (
        tempfile.TemporaryFile("w+", errors="replace") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace") as process,
    ):
        said = time.monotonic()
        try:
            for line in _lines(process):
                told = steps.read(line) if line is not None else None
                if told is None and time.monotonic() - said >= STILL_S:
                    told = f"still {steps.step}"
                if told is not None:
                    say(told)
                    said = time.monotonic()
        finally:
            status = process.wait()
        errors.seek(0)
        if status and (text := errors.read()):
            print("\n" + text, end="", file=sys.stderr, flush=True)
        return status


def lacking(project: Path, extras: list[str]) -> list[str]:
    """What of the project's requirements is not installed in this environment."""
    try:
        from packaging.requirements import Requirement
    except ImportError:
        return ["packaging"]
    declared = tomllib.loads(project.read_text())["project"]
    texts = [declared["name"], *declared["dependencies"]]
    for extra in extras:
        texts += declared["optional-dependencies"][extra]
    return [text for text in texts if not _installed(Requirement(text))]


def _installed(needed: Any) -> bool:
    if needed.marker is not None and not needed.marker.evaluate():
        return True
    try:
        return needed.specifier.contains(version(needed.name), prereleases=True)
    except PackageNotFoundError:
        return False


def _lines(process: subprocess.Popen[str]) -> Iterator[str | None]:
    """The lines of its output, and None several times in each time after which something is said again."""
    read: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def pump() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            read.put(line)
        read.put(None)

    threading.Thread(target=pump, daemon=True).start()
    while True:
        try:
            line = read.get(timeout=STILL_S / 10)
        except queue.Empty:
            yield None
            continue
        if line is None:
            return
        yield line


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
