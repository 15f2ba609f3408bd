"""The names that dumps and logs give to operations, and what the ranks of one collective must have alike."""

from __future__ import annotations

import re

from ddpnb.model.calls import OPERATIONS, UNNAMED, Signature

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


def agreed(signature: Signature, *, sizes: bool = True) -> str:
    """What the ranks of one collective must have alike, as far as a report says it: reduce operations are not in any.

    Args:
        signature: with its operation, shapes, dtypes and, where known, root.
        sizes: whether to compare the sizes and dtypes: not where one of the ranks' reports does not give them.

    Example:
        >>> agreed(Signature("all_reduce", ((4, 2),), ("float32",)))
        'all_reduce|float32|8'
    """
    facts = [signature.op]
    if sizes and signature.op not in _SIZES_MAY_DIFFER:
        facts += [",".join(signature.dtypes), ",".join(map(str, signature.elements))]
    if signature.root is not None:
        facts.append(f"root {signature.root}")
    return "|".join(facts)
