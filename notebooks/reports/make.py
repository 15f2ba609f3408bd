"""Make the reports in this folder again: run the scripts by torchrun until they hang, and collect what a user would have.

usage: python make.py [FOLDER]

The time-outs are of seconds, not of half an hour. What names the machine is replaced: the folder of the scripts by
/home/user/project, that of the environment by /home/user/env, the host by node0.
"""

from __future__ import annotations

import math
import os
import pickletools
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

HERE = Path(__file__).parent
LIMIT_S = 60
DUMPS = "trace_rank_*.pickle"


def flight_recorder(folder: Path) -> None:
    """One flight-recorder dump per rank of ``multitask.py``, in ``folder/flight-recorder``."""
    into = new_folder(folder / "flight-recorder")
    with project("multitask.py") as at, torchrun(at, 4, "multitask.py", "--stuck-after", "2"):
        wait_until(lambda: len(list(at.glob(DUMPS))) == 4)
        time.sleep(0.5)  # they are written now
        for dump in at.glob(DUMPS):
            (into / dump.name).write_bytes(neutral_dump(dump.read_bytes(), at))


def torchrun_log(folder: Path) -> None:
    """The output of torchrun of ``finetune.py``, in ``folder/torchrun.log``."""
    with project("finetune.py") as at:
        for rank, count in enumerate((200, 180, 200, 197)):
            numbers = (3 * math.sin(number + rank) for number in range(count))
            (at / f"part-{rank}.txt").write_text("".join(f"{number:.2f}\n" for number in numbers))
        with torchrun(at, 4, "finetune.py", ".", "--timeout", "5") as job:
            job.wait(LIMIT_S)
        (folder / "torchrun.log").write_text(neutral((at / "job.log").read_text(), at))


def stacks(folder: Path) -> None:
    """The output of ``count_words.py`` and the stacks of its ranks by py-spy, in ``folder/stacks``."""
    into = new_folder(folder / "stacks")
    with project("count_words.py") as at:
        (at / "text.txt").write_text("the cat saw the dog and the dog saw the cat\n")
        with torchrun(at, 3, "count_words.py", ".") as job:
            wait_until(lambda: (at / "job.log").read_text().count("CHECKPOINT 2") == 3)
            time.sleep(2)
            ranks = sorted(child.pid for child in psutil.Process(job.pid).children())
            text = "".join(run("py-spy", "dump", "--pid", str(pid)) for pid in ranks)
        (into / "py-spy.txt").write_text(neutral(text, at))
        (into / "job.log").write_text(neutral((at / "job.log").read_text(), at))


REPORTS = {"flight-recorder": flight_recorder, "torchrun.log": torchrun_log, "stacks": stacks}


# -- jobs


@contextmanager
def project(script: str) -> Iterator[Path]:
    """An empty folder with this script."""
    with tempfile.TemporaryDirectory() as name:
        at = Path(name).resolve()
        shutil.copy(HERE / script, at)
        yield at


@contextmanager
def torchrun(at: Path, ranks: int, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A job that writes its output into ``job.log``; it is ended as Ctrl-C would."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    launcher += ["--monitor-interval", "2"]  # it stops the others only when all that time out have written why
    with open(at / "job.log", "wb") as log:
        started = {"cwd": at, "env": environment(), "start_new_session": True}
        job = subprocess.Popen([*launcher, *command], stdout=log, stderr=subprocess.STDOUT, **started)
        try:
            yield job
        finally:
            if job.poll() is None:
                job.terminate()
            job.wait(LIMIT_S)


def environment() -> dict[str, str]:
    """The environment without variables of ddpnb."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("DDPNB")}
    return {**plain, "OMP_NUM_THREADS": "1"}  # torchrun sets it too, with a warning


def wait_until(condition) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the job has not hung as it should.")
        time.sleep(0.1)


def run(*command: str) -> str:
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", "")))
    return subprocess.run(
        command, env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=True
    ).stdout


def new_folder(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


# -- what names the machine


def neutral(text: str, at: Path) -> str:
    names = {
        str(at): "/home/user/project",
        sys.prefix: "/home/user/env",
        sys.base_prefix: "/usr",
        socket.getfqdn(): "node0",
        socket.gethostname(): "node0",
    }
    for name in sorted(names, key=len, reverse=True):
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", names[name], text)
    return text


def neutral_dump(dump: bytes, at: Path) -> bytes:
    """A pickle with other strings; everything else in it stays as torch has written it."""
    parts, copied = [], 0
    for opcode, text, position in pickletools.genops(dump):
        if opcode.name == "BINUNICODE":
            assert isinstance(text, str)
            assert position is not None
            changed = neutral(text, at).encode()
            parts += [dump[copied:position], opcode.code.encode(), struct.pack("<I", len(changed)), changed]
            copied = position + 5 + len(text.encode())
    return b"".join([*parts, dump[copied:]])


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    for make in REPORTS.values():
        make(target)
