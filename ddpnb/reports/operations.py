"""The names that dumps and logs give to operations, and what the ranks of one collective must have alike."""

from __future__ import annotations

import re

from ddpnb.recording.calls import OPERATIONS, UNNAMED, Signature

_KNOWN = {name.replace("_", ""): name for name in OPERATIONS} | {
    "allgatherbase": "all_gather_into_tensor",
    "reducescatterbase": "reduce_scatter_tensor",
    "alltoallbase": "all_to_all_single",
    "allreducebarrier": "barrier",
    "allgathersingle": "all_gather_into_tensor",
    "allgatherv": "all_gather",
    "reducescattersingle": "reduce_scatter_tensor",
    "reducescatterv": "reduce_scatter",
    "alltoallvsingle": "all_to_all_single",
    "broadcastoop": "broadcast",
    "reduceoop": "reduce",
    "recvanysource": "recv_any_source",
    "allgatherintotensorcoalesced": "all_gather_into_tensor_coalesced",
    "reducescattertensorcoalesced": "reduce_scatter_tensor_coalesced",
}
_LONGEST = 60

# Their tensors are legally of other sizes on each rank, or exist on the root alone.
_SIZES_MAY_DIFFER = frozenset(
    {"all_to_all", "all_to_all_single", "gather", "scatter", "all_gather", "reduce_scatter", "barrier"}
)


def operation(name: str) -> str:
    """ddpnb's name of an operation.

    Args:
        name: as torch or NCCL writes it: ``"nccl:_all_gather_base"``, ``"ALLREDUCE"``, ``"AllReduce"``, ``"gloo:broadcast"``,
            ``"nccl:send 0->1"``.

    Returns:
        One of ``model.calls.OPERATIONS``; of an unknown operation its own name, in small letters; ``UNNAMED`` where there
        is none.

    Example:
        >>> operation("nccl:_reduce_scatter_base")
        'reduce_scatter_tensor'
    """
    words = name.rpartition(":")[2].strip()[:_LONGEST].split()
    plain = re.sub(r"[^a-z0-9]", "", words[0].lower()) if words else ""
    return _KNOWN.get(plain) or re.sub(r"\W", "_", words[0].lower() if words else "").strip("_") or UNNAMED


KNOWN = frozenset({"sizes", "dtypes", "reduce_op", "root"})


def known_of(signature: Signature) -> frozenset[str]:
    """What a report says of a call, besides its operation."""
    said = {
        "sizes": bool(signature.shapes),
        "dtypes": bool(signature.dtypes),
        "reduce_op": signature.reduce_op is not None,
        "root": signature.root is not None,
    }
    return frozenset(name for name, known in said.items() if known)


def agreed(signature: Signature, compared: frozenset[str] = KNOWN) -> str:
    """What the ranks of one collective must have alike, as far as a report says it.

    Args:
        signature: of a call.
        compared: what is known of the calls of all ranks, see ``known_of``.

    Example:
        >>> agreed(Signature("all_reduce", ((4, 2),), ("float32",)))
        'all_reduce|float32|8'
    """
    facts = [signature.op]
    if signature.op not in _SIZES_MAY_DIFFER:
        facts += [",".join(signature.dtypes)] if "dtypes" in compared else []
        facts += [",".join(map(str, signature.elements))] if "sizes" in compared else []
    if signature.reduce_op is not None and "reduce_op" in compared:
        facts.append(signature.reduce_op)
    if signature.root is not None and "root" in compared:
        facts.append(f"root {signature.root}")
    return "|".join(facts)
