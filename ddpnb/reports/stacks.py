"""Which call of torch.distributed a stack is in."""

from __future__ import annotations

from collections.abc import Sequence

from ddpnb.model.calls import NO_SITE, OPERATIONS, Signature
from ddpnb.model.stacks import Frame, Stack
from ddpnb.reports.facts import CallSeen, GroupName, Speaker
from ddpnb.reports.operations import operation

_C10D = ("distributed_c10d.py", "torch/distributed/_functional_collectives.py")
_ALSO = {"isend": "send", "irecv": "recv", "batch_isend_irecv": "send"}


def call_in(speaker: Speaker, frames: Sequence[Frame]) -> CallSeen | None:
    """The collective that a stack is in, by the innermost function of torch.distributed that has the name of one.

    Args:
        speaker: whose stack it is.
        frames: outermost first.

    Returns:
        The call, waiting, without group and number; None if the stack is in no such function.

    Example:
        >>> frames = [Frame("train.py", 7, "main"), Frame("/x/torch/distributed/distributed_c10d.py", 1, "all_reduce")]
        >>> call_in(Speaker(0), frames).signature.op
        'all_reduce'
    """
    for index in range(len(frames) - 1, -1, -1):
        frame = frames[index]
        name = _ALSO.get(frame.function, frame.function)
        if frame.file.replace("\\", "/").endswith(_C10D) and operation(name) in OPERATIONS:
            user = next((outer for outer in reversed(frames[:index]) if outer.user), None)
            site = user.site if user is not None else NO_SITE
            stack = Stack("MainThread", tuple(frames), main=True)
            return CallSeen(speaker, GroupName(), signature=Signature(operation(name)), site=site, stack=stack)
    return None
