"""The recorder in a process that runs nothing but the user's program, whatever has started it."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from typing import Any

import torch.distributed as dist

from ddpnb.recorder.channel.heartbeat import Heartbeat
from ddpnb.recorder.channel.socket_channel import SocketChannel
from ddpnb.recorder.collectives import phases
from ddpnb.recorder.events import checkpoints
from ddpnb.recorder.files.boards import remove_boards
from ddpnb.recorder.files.clock import now_ns
from ddpnb.recorder.files.left_connections import leave_connections
from ddpnb.recorder.process.endings import Endings
from ddpnb.recorder.recorder import Recorder
from ddpnb.recording import protocol
from ddpnb.recording.blackbox import RUN_ACTIVE, RUN_ENDED, BoxReader
from ddpnb.recording.files import write_private
from ddpnb.recording.shared import FileBytes

_LET_GO_S = 0.02

current: Recorder | None = None


def start(folder: str, rank: int, size: int, address: str, endings: Endings, *, ours: bool) -> None:
    """Make this process a rank of a job.

    Args:
        folder: of the ranks of its process group.
        rank, size: of this process, and of the world.
        address: of the store.
        endings: records how the process ends.
        ours: ddpnb has started it.

    Raises:
        OSError: there is no room for its files.
    """
    global current
    with suppress(OSError, ValueError):  # of a program that this one has replaced (exec)
        if BoxReader(FileBytes(os.path.join(folder, f"rank{rank}.box"))).status.calls:
            remove_boards(folder)
    recorder = Recorder(folder, rank)
    if ours:
        recorder.watch_own_ranks()
    recorder.begin_run(1, os.environ.get(protocol.FENCE, "raise"))
    recorder.door.release.always_inside()
    recorder.arm(1, (), (), unhurried=False)
    recorder.box.set_run(1, RUN_ACTIVE)
    checkpoints.record_in(recorder.box)
    recorder.phases.environment()
    endings.describe = lambda error: _described(recorder, error)
    endings.at_end = lambda ending: _ended(recorder, ending)
    if os.environ.get(protocol.RECORD):
        with suppress(OSError):  # not every file system of a cluster has sockets: then stacks are read from outside
            SocketChannel(folder, rank, recorder.control.answer)
        Heartbeat(recorder.box, recorder.control.obey, os.path.join(folder, f"rank{rank}.stacks.json")).start()
    else:
        job = folder if ours else os.path.dirname(folder)
        endings.leaves = lambda: _leave(job, folder, rank)
        if os.environ.get(protocol.HOSTS) and os.environ[protocol.JOB] != os.environ[protocol.FOLDER]:
            sent = os.path.join(folder, f"rank{rank}.sent")
            endings.is_known = lambda: os.path.exists(sent) or not os.path.isdir(folder)
        SocketChannel(folder, rank, recorder.control.answer)
    current = recorder
    _introduce(folder, rank, size, address)


def _introduce(folder: str, rank: int, size: int, address: str) -> None:
    """Write who this rank is: from now on it can be found."""
    who = {
        "pid": os.getpid(),
        "started": protocol.started(os.getpid()),
        "parent": [os.getppid(), protocol.started(os.getppid())],
        "host": protocol.host()[:200],
        "place": protocol.place()[:400],
        "start": os.path.basename(folder),
        "clock": [now_ns(), time.time_ns()],
        "rank": rank,
        "size": size,
        "local_size": int(os.environ.get("LOCAL_WORLD_SIZE") or 0),
        "device": phases.device(),
        "visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES", "")[:1000],
        "address": address[:200],
        "directory": os.getcwd(),
        "command": [str(part)[:200] for part in sys.orig_argv[:20]],
    }
    write_private(os.path.join(folder, f"rank{rank}.json"), json.dumps(who))


def _described(recorder: Recorder, error: BaseException) -> dict[str, Any]:
    from ddpnb.recorder.process.script import described

    return described(error, recorder.door.release)


def _ended(recorder: Recorder, ending: dict[str, Any]) -> None:
    """The program is over: end what is recorded of it."""
    if recorder.box.silent:
        return
    if dist.is_initialized():
        # Gloo's threads let go of the last tensors a moment after the call, and need the interpreter for it. One that
        # is being finalised ends such a thread, and that aborts the process (torch 2.13; seen in 1 of 12 plain runs).
        time.sleep(_LET_GO_S)
    recorder.finish(raised=ending["how"] == "raised")
    recorder.ended(ending)
    recorder.box.set_run(1, RUN_ENDED)


def _leave(job: str, folder: str, rank: int) -> None:
    """Leave the connections to the launcher if the process group still exists here.

    With the process, they would end: gloo fails then on the ranks that wait for this one, and what they wait for is lost.
    """
    if dist.is_initialized():
        leave_connections(job, os.path.basename(folder) if folder != job else "", rank)
