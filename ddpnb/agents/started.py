"""Commands of ddpnb that a server starts in the background; they end with it, even if it is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psutil

from ddpnb.errors import UsageError
from ddpnb.ranks.jobs.search import recorded_below
from ddpnb.recording import recording_file
from ddpnb.recording.arguments import short
from ddpnb.recording.recording import Recording

_END_S, _KILL_S = 0.5, 8.0  # after the first signal its ranks may end by themselves, after the second they are ended
_TAIL = 6000  # bytes of the output that are shown
_TICK_S = 0.1
RECORDING, _FILE = "{recording of this run}", "run.ddpnb"
# It asks for a signal when the server dies, and becomes the command. The server's number tells whether it is dead already.
_BIND = (
    "import ctypes, os, signal, sys\n"
    "if sys.platform == 'linux':\n"
    "    ctypes.CDLL(None).prctl(1, ctypes.c_ulong(signal.SIGTERM), 0, 0, 0)\n"
    "if os.getppid() == int(sys.argv[1]):\n"
    "    os.execv(sys.executable, [sys.executable, '-m', 'ddpnb', *sys.argv[2:]])\n"
)


class StartedCommand:
    """One ``ddpnb`` command in the background, with its output and its results in a folder of its own.

    Args:
        name: by which tools call it.
        arguments: after ``ddpnb``.
        folder: for its files.
        directory: in which it runs; empty: that of the server.
        starter: its one thread outlives all commands: a command is signalled when the thread that has started it ends.
    """

    def __init__(
        self, name: str, arguments: Sequence[str], folder: str, directory: str, starter: ThreadPoolExecutor
    ) -> None:
        self.name, self.folder = name, folder
        command = [sys.executable, "-c", _BIND, str(os.getpid()), *arguments]
        try:
            with open(self._output, "wb") as output:
                self.process = starter.submit(
                    subprocess.Popen, command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                    cwd=directory or None, start_new_session=True,
                ).result()  # fmt: skip
        except OSError as error:
            raise UsageError(f"the command cannot start: {error.strerror}.", "Check cwd.") from None

    @property
    def _output(self) -> str:
        return os.path.join(self.folder, "output.log")

    @property
    def recording_path(self) -> str:
        return os.path.join(self.folder, _FILE)

    @property
    def exit_status(self) -> int | None:
        """Of the command; None: it still runs."""
        return self.process.poll()

    @property
    def state(self) -> str:
        """``starting``, ``running``, ``kept`` (its outcome is known, as a hang is, and its ranks live), ``ending`` or ``ended``."""
        if self.exit_status is not None:
            return "ended"
        lives, known = self.target is not None, os.path.exists(self.recording_path)
        return ("kept" if lives else "ending") if known else ("running" if lives else "starting")

    @property
    def target(self) -> str | None:
        """The folder of its ranks; None: no process group lives."""
        with suppress(psutil.Error):
            found = recorded_below(psutil.Process(self.process.pid))
            return found[0].target if len(found) == 1 else None
        return None

    def recording(self) -> Recording | None:
        """What it has recorded, once its outcome is known."""
        return recording_file.load(self.recording_path) if os.path.exists(self.recording_path) else None

    def output(self) -> str:
        """The end of what it has printed."""
        with open(self._output, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            return file.read().decode("utf-8", "replace")

    def wait(self, seconds: float, *states: str) -> str:
        """Wait until it is in one of these states, or has ended; returns the state."""
        deadline = time.monotonic() + seconds
        while (state := self.state) not in (*states, "ended") and time.monotonic() < deadline:
            time.sleep(_TICK_S)
        return state

    def end(self) -> None:
        """End it and its ranks."""
        for number, seconds in ((signal.SIGTERM, _END_S), (signal.SIGINT, _KILL_S), (signal.SIGKILL, _KILL_S)):
            if self.process.poll() is not None:
                break
            self.process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)


class StartedCommands:
    """All commands that one server has started."""

    def __init__(self) -> None:
        self._starter = ThreadPoolExecutor(1, "ddpnb starter")
        self._folder = ""
        self._by_name: dict[str, StartedCommand] = {}

    def start(self, kind: str, arguments: Sequence[str], directory: str) -> StartedCommand:
        """Start a command; ``RECORDING`` among the arguments is the path of its recording."""
        if directory and not os.path.isdir(directory):
            raise UsageError(f"{short(directory)} is not a folder.", "cwd is where the command runs.")
        self._folder = self._folder or tempfile.mkdtemp(prefix="ddpnb-mcp-")
        name = f"{kind}{1 + sum(one.startswith(kind) for one in self._by_name)}"
        folder = os.path.join(self._folder, name)
        os.mkdir(folder, 0o700)
        given = [os.path.join(folder, _FILE) if one == RECORDING else one for one in arguments]
        self._by_name[name] = StartedCommand(name, given, folder, directory, self._starter)
        return self._by_name[name]

    def get(self, name: str) -> StartedCommand | None:
        return self._by_name.get(name)

    @property
    def names(self) -> list[str]:
        return list(self._by_name)

    def close(self) -> None:
        """End all of them, and remove their files."""
        for one in self._by_name.values():
            if one.exit_status is None:
                one.process.send_signal(signal.SIGTERM)
        for one in self._by_name.values():
            one.end()
        self._starter.shutdown()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
