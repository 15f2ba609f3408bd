"""The calls that TORCH_DISTRIBUTED_DEBUG=DETAIL compares: what a rank calls, as torch writes it."""

from __future__ import annotations

import re
from dataclasses import dataclass

MISMATCH = "Detected mismatch between collectives on ranks"
#: the operation of a fingerprint that torch misreads
ANOTHER = "another call"

_BLANK = re.compile(r"\s+")
_RANK_IN = re.compile(r"Rank(\d{1,9})isrunning(?:inconsistent)?collective:")
_OP = re.compile(r"OpType=(\w{1,60})")
_SEQ = re.compile(r"SequenceNumber=(\d{1,19})")
_SHAPE = re.compile(r"TensorShape=\[([^\]]{0,2000})\]")
_DTYPE = re.compile(r"TensorDtypes=([\w,]{1,500}?)(?:,TensorDevice|\)|$)")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a rank calls."""

    rank: int
    op: str
    seq: int | None
    shape: str
    dtype: str

    def __str__(self) -> str:
        tensor = f" of {self.dtype} [{self.shape}]".replace("  ", " ") if self.shape or self.dtype else ""
        number = f" #{self.seq}" if self.seq is not None else ""
        return f"{self.op}{number}{tensor}"


def sides(text: str) -> list[Fingerprint]:
    """The fingerprints of the two ranks that a message compares, also where a terminal has wrapped it; fewer where it is cut."""
    text = _BLANK.sub("", text)
    parts = list(_RANK_IN.finditer(text))[:2]
    ends = [part.start() for part in parts[1:]] + [len(text)]
    calls = (_read(int(part[1]), text[part.end() : end][:5000]) for part, end in zip(parts, ends, strict=False))
    return [one for one in calls if one is not None]


def _read(rank: int, text: str) -> Fingerprint | None:
    op, seq, shape, dtype = (pattern.search(text) for pattern in (_OP, _SEQ, _SHAPE, _DTYPE))
    bare = re.match(r"(\w{1,60})", text)
    if op is None and text.startswith("Coll"):
        return None  # cut
    name = op[1] if op else bare[1] if bare else "?"
    if op and shape is None and name != "BARRIER":
        # torch misreads the fingerprint of a call whose layout differs from its own,
        # and names a wrong operation (seen: REDUCE for a barrier).
        name, seq = ANOTHER, None  # and a wrong number
    return Fingerprint(rank, name.lower(), int(seq[1]) if seq else None, _listed(shape), _listed(dtype).lower())


def _listed(match: re.Match[str] | None) -> str:
    return match[1].replace(",", ", ") if match else ""
