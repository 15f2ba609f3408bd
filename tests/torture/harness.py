"""A ``ddpnb`` command whose processes and folders can all be found again, whatever happens to it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import ddpnb
from tests.conftest import alive

ROOT = Path(ddpnb.__file__).parents[1]
MARK = "DDPNB_TORTURE"  # an environment variable: every process of a case inherits it
DEADLINE_S = 90.0  # for one step of a case, on a busy machine
_OURS = re.compile(rf'^Traceback|File "{re.escape(str(ROOT))}/ddpnb/(?!pitfalls/)', re.MULTILINE)
_FATAL = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]


def read(pid: int, name: str) -> list[str]:
    """A file of /proc whose entries end with a zero byte."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def marked(mark: str) -> list[int]:
    """The living processes that carry this mark."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in pids if f"{MARK}={mark}" in read(pid, "environ") and alive(pid)]


def parent(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def roles(mark: str, launcher: int) -> dict[str, int]:
    """The processes of a world by what they are: launcher, controller, rank0 ..., worker."""
    found = {"launcher": launcher} if alive(launcher) else {}
    others: list[int] = []
    for pid in marked(mark):
        arguments = read(pid, "cmdline")
        own = dict(entry.partition("=")[::2] for entry in read(pid, "environ"))
        engine = any(argument.endswith("engines/child.py") for argument in arguments)
        if parent(pid) == launcher and (engine or own.get("RANK")):
            found["controller" if "controller" in arguments else f"rank{own.get('RANK')}"] = pid
        else:
            others.append(pid)
    names = {pid: name for name, pid in found.items()}
    for pid in others:
        if names.get(parent(pid)) == "rank1":
            found["worker"] = pid
    return found


def folders(mark: str) -> set[str]:
    """The folders of the worlds whose ranks carry this mark."""
    own = (entry for pid in marked(mark) for entry in read(pid, "environ"))
    return {entry.partition("=")[2] for entry in own if entry.startswith("DDPNB_FOLDER=")}


def until(what: str, condition: Callable[[], object], seconds: float = DEADLINE_S) -> None:
    """Wait for a condition; fails with ``what`` after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)


def stop_all(mark: str) -> None:
    for pid in marked(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def shows_ours(text: str) -> bool:
    """Whether a text shows a traceback through ddpnb's own files, or one that no rank wrote."""
    if "Fatal Python error" in text:  # with the stacks of all threads of a rank, as Python itself writes them
        text = "\n".join(line for line in text.splitlines() if not line.startswith("[rank "))
    return _OURS.search(text) is not None


def is_left(folder: str) -> bool:
    """Whether a world's folder is still there: a sweep may leave an empty one."""
    return any(files for _, _, files in os.walk(folder))


class Command:
    """One ``ddpnb`` command, as a user starts it.

    Args:
        folder: of the case: working directory, and TMPDIR within.
        arguments: after ``ddpnb``.
        prepare: called in the child before ``ddpnb`` is executed.
        variables: environment variables.
    """

    def __init__(
        self, folder: Path, arguments: tuple[object, ...], prepare: Callable[[], object] | None = None, **variables: str
    ) -> None:
        self.mark = uuid.uuid4().hex
        self.folder = folder
        self.folders: set[str] = set()
        temporary = folder / "tmp"
        temporary.mkdir(exist_ok=True)
        self._out, self._err = (open(folder / name, "w+", errors="replace") for name in ("stdout", "stderr"))

        def prepare_child() -> None:
            for number in _FATAL:  # these tests may have been started with some of them ignored
                signal.signal(number, signal.SIG_DFL)
            if prepare is not None:
                prepare()

        self.process = subprocess.Popen(
            [sys.executable, "-m", "ddpnb", *map(str, arguments)], cwd=folder, stdin=subprocess.DEVNULL,
            stdout=self._out, stderr=self._err, preexec_fn=prepare_child, start_new_session=True,  # noqa: PLW1509
            env={**os.environ, MARK: self.mark, "TMPDIR": str(temporary), **variables},
        )  # fmt: skip

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._out.close()
        self._err.close()

    @property
    def roles(self) -> dict[str, int]:
        self.folders |= folders(self.mark)
        return roles(self.mark, self.process.pid)

    def role(self, name: str) -> int:
        """The process that is this; waits until it is there."""
        until(f"{name} is there: {self.said}", lambda: name in self.roles or self.process.poll() is not None)
        return self.roles[name]

    def ready(self, *ranks: int) -> None:
        """Wait until the program has said on these ranks that it has come to where it stays."""
        files = [self.folder / f"ready{rank}" for rank in ranks]
        until(
            "the program is ready",
            lambda: all(map(os.path.exists, files)) or self.process.poll() is not None,
        )
        assert self.process.poll() is None, self.said
        self.folders |= folders(self.mark)

    @property
    def said(self) -> str:
        """What it has written until now."""
        return "".join((self.folder / name).read_text(errors="replace")[-20_000:] for name in ("stdout", "stderr"))

    def end(self, seconds: float = DEADLINE_S) -> int:
        """Wait for its end; its exit status."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end within {seconds:g} s: {self.said[-3000:]}") from None

    def left_nothing(self, *, swept: bool = False) -> None:
        """Check that no process and no folder is left, and that no traceback of ddpnb was shown.

        Args:
            swept: the launcher could not remove its folder: the next launch does.
        """
        until(f"all processes end, {[read(pid, 'cmdline') for pid in marked(self.mark)]}", lambda: not marked(self.mark), 15)  # fmt: skip
        said = self.said
        assert not shows_ours(said), said
        if swept:
            (self.folder / "empty.py").write_text("")
            again = Command(self.folder, ("run", "-n", "1", "empty.py"))
            try:
                assert again.end() == 0, again.said
            finally:
                again.close()
        assert [one for one in self.folders if is_left(one)] == []
        # Those of a launch that failed before its ranks could tell; logs that a message names are kept on purpose.
        temporary = self.folder / "tmp"
        assert [path for path in temporary.glob("ddpnb-*") if is_left(str(path)) and str(path) not in said] == []
        assert list(self.folder.glob("**/*.part")) == []
