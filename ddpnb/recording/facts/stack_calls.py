"""What a stack alone shows: the function of torch in which a rank waits for other ranks."""

from __future__ import annotations

import re

from ddpnb.recording.stacks import Frame, Stack

BACKWARD, CONSTRUCTION, FORWARD = (
    "backward",
    "the construction of DistributedDataParallel",
    "forward of DistributedDataParallel",
)
START = "init_process_group"
POINT_TO_POINT = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"})  # fmt: skip

_DISTRIBUTED, _DDP, _AUTOGRAD = "/torch/distributed/", "/torch/nn/parallel/distributed.py", "/torch/autograd/graph.py"
_LAUNCHING = ("/torch/distributed/elastic/", "/torch/distributed/launcher/", "/torch/distributed/run.py")
_COLLECTIVES = "/torch/distributed/distributed_c10d.py"
WORK = "wait() of a Work"
_WAITS = re.compile(r"\.wait\(")


def call_in(stack: Stack | None) -> str:
    """The function of torch that waits for other ranks, by the name under which it was called; empty: there is none.

    It counts only if it is innermost: a forward that DistributedDataParallel runs is none.
    """
    above = _above_user(stack)
    if not above or not _may_wait(above[-1].file):
        return ""
    for frame in above:
        name = _name(frame)
        if frame.file.endswith(_COLLECTIVES) and not name.startswith("_") and name != "wrapper":
            return name
    if above[-1].file.endswith(_AUTOGRAD):
        return BACKWARD
    ddp = [_name(frame) for frame in above if frame.file.endswith(_DDP)]
    if ddp:
        return CONSTRUCTION if "__init__" in ddp else FORWARD
    inside = [frame for frame in above if _DISTRIBUTED in frame.file]
    named = next((frame for frame in inside if not _name(frame).startswith(("_", "<", "wrapper"))), inside[0])
    return f"{_name(named).lstrip('_')} ({named.file[named.file.index(_DISTRIBUTED) + 1 :]})"


def may_wait_for_work(stack: Stack | None, text: str) -> bool:
    """Whether a rank may wait for the Work of a collective: the line of the user's code, of this text, calls a ``wait``.

    That of a Work is written in C++ and leaves no frame.
    """
    return stack is not None and bool(stack.frames) and stack.frames[-1].user and bool(_WAITS.search(text))


def _above_user(stack: Stack | None) -> tuple[Frame, ...]:
    frames = stack.frames if stack is not None else ()
    users = [place for place, frame in enumerate(frames) if frame.user]
    return frames[users[-1] + 1 :] if users else frames


def _may_wait(file: str) -> bool:
    if any(part in file for part in _LAUNCHING):
        return False
    return _DISTRIBUTED in file or file.endswith((_DDP, _AUTOGRAD))


def _name(frame: Frame) -> str:
    return frame.function.rpartition(".")[2]
