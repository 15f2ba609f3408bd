"""Values that are to be the same on all ranks: each announces its own, and of two that differ the later rank sees it.

They go through a file that the members of a group share (``boards.Places``), as digest and text: nothing is communicated, and a
rank waits for nobody. Ranks on other hosts are not compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from ddpnb.errors import UsageError
from ddpnb.recorder.files.boards import PLACE
from ddpnb.recorder.stacks import digests
from ddpnb.recorder.stacks.values import describe
from ddpnb.recording import rank_words
from ddpnb.recording.names import one_line

if TYPE_CHECKING:
    from ddpnb.recorder.files.boards import Places

_DIGEST = 8  # bytes
_TEXT = 80  # characters of a value that are shown
_ITEMS, _DEEPEST = 10_000, 8  # of containers
_SHOWN = 6  # values in a sentence
_SHOWN_WHOLE = 1000  # elements of a tensor (``values.describe``)


def announced(value: Any, name: str = "") -> bytes:
    """A value as it is announced: its digest, and a text of it with its name.

    Raises:
        UsageError: it is neither a number, a text, a tensor nor a container of these.
    """
    digest = blake2b(digest_size=_DIGEST)
    for part in _parts(value, 0):
        digest.update(len(part).to_bytes(8, "little") + part)
    shown = one_line(describe(value, _TEXT))
    if isinstance(value, torch.Tensor) and (value.numel() > _SHOWN_WHOLE or shown.endswith("…")):
        shown = f"{shown} with digest {digest.hexdigest()[:8]}"
    text = f"{one_line(name[:_TEXT])}\n{shown}"
    return digest.digest() + text.encode("utf-8", "replace")[: PLACE - _DIGEST]


def read(data: bytes) -> tuple[str, str]:
    """The name and the text of a value that a rank has announced."""
    name, _, text = data[_DIGEST:].rstrip(b"\0").decode("utf-8", "replace").partition("\n")
    return one_line(name), one_line(text)


def differing(places: Places, seq: int, mine: bytes, members: Sequence[int]) -> dict[int, bytes]:
    """Announce a value under a number; returns what others announced that differs, by rank."""
    return {members[member]: data for member, data in places.announce(seq, mine) if member < len(members)}


def sentence(what: str, mine: bytes, others: Mapping[int, bytes]) -> str:
    """``loss is 0.25 here, 0.31 on rank 2``."""
    sides: dict[str, list[int]] = {}
    for rank, data in sorted(others.items()):
        sides.setdefault(read(data)[1], []).append(rank)
    parts = [f"{text} on {rank_words.ranks(ranks)}" for text, ranks in islice(sides.items(), _SHOWN)]
    return f"{what} is {read(mine)[1]} here, {', '.join(parts)}"


def _parts(value: Any, depth: int) -> Iterable[bytes]:
    """The bytes by which two values are compared."""
    kind = type(value)
    if value is None or kind in (bool, int, str, complex):
        yield f"{kind.__name__} {value!r}".encode("utf-8", "surrogatepass")
    elif kind is float:
        yield b"float nan" if math.isnan(value) else f"float {value!r}".encode()
    elif kind in (bytes, bytearray):
        yield b"bytes"
        yield bytes(value)
    elif isinstance(value, torch.Tensor):
        yield f"{tuple(value.shape)} {value.dtype} {digests.exact(value)}".encode()
    elif kind in (list, tuple, dict, set, frozenset, torch.Size) and depth < _DEEPEST and len(value) <= _ITEMS:
        yield f"{kind.__name__} of {len(value)}".encode()
        items: Iterable[Any] = value.items() if kind is dict else value
        if kind in (set, frozenset):  # their order is not the same in two processes
            yield from sorted(b"".join(_parts(one, depth + 1)) for one in items)
        else:
            for one in items:
                yield from _parts(one, depth + 1)
    elif kind in (torch.dtype, torch.device):
        yield str(value).encode()
    else:
        raise UsageError(
            f"A {kind.__name__[:80]} cannot be compared between ranks.",
            "Compare a number, a text, a tensor, or a container of these: len(batch), batch.sum().",
        )
