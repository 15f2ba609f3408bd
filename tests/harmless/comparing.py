"""The same program by torchrun and under ddpnb: its status, what each rank printed, and what was found."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--redirects", "3"]
DDPNB = [sys.executable, "-m", "ddpnb", "run", "--json", "verdict.json"]
LIMIT_S = 240.0
_OF_THE_RUN = [
    (re.compile(r"0x[0-9a-f]{6,}"), "0x"),
    (re.compile(r"\b[WEI]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ "), "W "),  # torch's log: time, process
    (re.compile(r"\d\d:\d\d:\d\d\.\d+"), "time"),
    (re.compile(r"\bpid=\d+"), "pid"),
    (re.compile(r"^\d+\.\d\ds - ", re.MULTILINE), "time - "),  # debugpy's log
]


@dataclass(frozen=True)
class Outcome:
    """What is compared: the exit status, and for each rank how often it printed which line (workers' lines have no order)."""

    status: int | None
    lines: dict[str, Counter[str]]


class Program:
    """A program on two ranks in a folder of its own.

    Args:
        folder: where it runs.
        arguments: script and arguments, or options of Python before them (which only ``torchrun`` can give it).
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder, self._arguments, self._runs = folder, arguments, 0
        self.said = ""  # by the last launcher
        self.errors: list[str] = []  # that the last ``ddpnb run`` found

    def by_torchrun(self) -> Outcome:
        return self._run(self._torchrun())

    def under_prefix(self) -> Outcome:
        """By torchrun again, which ``ddpnb run --`` starts."""
        return self._checked([*DDPNB, "--", *self._torchrun()])

    def under_run(self) -> Outcome:
        """By ``ddpnb run -n 2``."""
        return self._checked([*DDPNB, "--log-dir", f"logs{self._runs + 1}", "-n", "2", *self._arguments])

    def _torchrun(self) -> list[str]:
        options = ["--log-dir", f"logs{self._runs + 1}"]
        if self._arguments[0].startswith("-"):  # the program begins with the interpreter
            return [sys.executable, *TORCHRUN, *options, "--no-python", sys.executable, *self._arguments]
        return [sys.executable, *TORCHRUN, *options, *self._arguments]

    def _checked(self, command: Sequence[str]) -> Outcome:
        file = self.folder / "verdict.json"
        file.unlink(missing_ok=True)
        outcome = self._run(command)
        verdict = json.loads(file.read_text())
        self.errors = [one["summary"] for one in verdict["findings"] if one["severity"] == "error"]
        return outcome

    def _run(self, command: Sequence[str]) -> Outcome:
        self._runs += 1
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "RPC_PORT": str(free_port()),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        process = subprocess.Popen(
            command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True, encoding="utf-8", errors="replace",
        )  # fmt: skip
        try:
            self.said, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=240)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return Outcome(process.returncode, lines(self.folder / f"logs{self._runs}"))


def difference(plain: Outcome, outcome: Outcome) -> str:
    """What is not the same, in lines; empty if all is."""
    found = [] if plain.status == outcome.status else [f"status {outcome.status}, by torchrun {plain.status}"]
    for rank in sorted(plain.lines | outcome.lines):
        before, now = plain.lines.get(rank, Counter()), outcome.lines.get(rank, Counter())
        found += [f"rank {rank} only under ddpnb: {line}" for line in now - before]
        found += [f"rank {rank} only by torchrun: {line}" for line in before - now]
    return "\n".join(found)


def lines(folder: Path) -> dict[str, Counter[str]]:
    """By rank, from torchrun's logs (``ID/attempt_0/1/stdout.log``) or those of ``ddpnb run`` (``rank1.log``)."""
    found: dict[str, Counter[str]] = {}
    for path in sorted(folder.rglob("*.log")):
        rank = path.parent.name if path.stem in ("stdout", "stderr") else path.stem.removeprefix("rank")
        text = path.read_bytes().decode(errors="backslashreplace")
        for pattern, instead in _OF_THE_RUN:
            text = pattern.sub(instead, text)
        found.setdefault(rank, Counter()).update(text.splitlines())
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
