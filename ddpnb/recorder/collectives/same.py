"""``ddpnb.same``: a script says which values are the same on all ranks.

Standard library only: a script calls it before it imports torch, and where nothing is recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

#: set by the recorder: notes a value, its name, and the frame that says it
noted: list[Callable[[Any, str, FrameType], None]] = []


def same(value: Any, name: str) -> None:
    """Say that a value is the same on all ranks: with ddpnb, the next collective of this rank checks it.

    The value is announced with the next collective, as a digest and a short text, and compared with what the other ranks of its
    group have announced there. Where two differ, the later rank raises ``ddpnb.errors.ValuesDiffer`` in place of the
    collective, and names the value, the ranks and what each has; with ``fence="warn"`` it prints that, and with
    ``fence="off"`` nothing is compared. A value that is said again before a collective replaces the earlier one. Ranks on
    other hosts are not compared, and nor are ranks that did not say it.

    Without ddpnb (``torchrun train.py``, ``python train.py``) it does nothing.

    Args:
        value: None, a number, a text, a tensor, or a container of these. A tensor is read once, one on a GPU after it is computed.
        name: what the message calls it.

    Raises:
        UsageError: with ddpnb, another kind of value.

    Example:
        >>> ddpnb.same(len(loader), "batches")
        >>> dist.all_reduce(loss)
        ValuesDiffer: batches is 31 here (rank 1), 32 on ranks 0, 2 and 3 (ddpnb.same at train.py:40).
    """
    for note in noted:
        note(value, name, sys._getframe(1))


same._torchdynamo_disable = True  # type: ignore[attr-defined]  # torch.compile does not look inside
