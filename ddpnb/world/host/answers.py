"""What a command of the system answers. Such a command may hang: that of a driver does when the driver hangs."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from typing import IO

from ddpnb.ranks import descendants

ANSWER_S = 10.0
_END_S = 1.0  # that a killed command may take to end; one that waits in the kernel does not end
_LONGEST = 32 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """The output of a command; ``trouble``: why it is not to be used. ``absent``: there is no such command."""

    text: str = ""
    trouble: str = ""
    absent: bool = False


def answer(*command: str, timeout: float = ANSWER_S, name: str = "") -> Answer:
    """Run a command, which is called ``name``, for at most this many seconds. Its output goes to files: no child of it can keep this process waiting."""
    name = name or command[0]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C"},
            )
        except FileNotFoundError:
            return Answer(trouble=f"there is no {name}", absent=True)
        except OSError as error:
            return Answer(trouble=f"{name} cannot be run: {error.strerror}")
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            return Answer(trouble=f"{name} did not answer within {timeout:g} s")
        finally:
            if process.poll() is None:
                descendants.end_child(process, _END_S)
        text, said = _read(out), _read(err)
    if status:
        lines = [*text.strip().splitlines()[:1], *said.strip().splitlines()[:1]]
        return Answer(text, f"{name} failed with status {status}: {'; '.join(lines)[:300]}")
    return Answer(text)


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_LONGEST).decode("utf-8", "replace")
