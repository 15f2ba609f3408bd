"""DDP401, 415: gradients that are missing, come twice, or come after something has changed."""

from __future__ import annotations

import re

from ddpnb.model.findings import Hint
from ddpnb.rules.messages import unused
from ddpnb.rules.messages.explained import Explained, Raised, count, listing, numbers

_PRIOR = "Expected to have finished reduction in the prior iteration before starting a new one"
_INDICES = re.compile(r"Parameter indices which did not receive grad for rank (\d{1,9}): ([\d ]{1,150000})")
_NAMED = re.compile(r"Parameters which did not receive grad for rank (\d{1,9}): ([^\n]{1,150000})")
_FROZEN = re.compile(
    r"DistributedDataParallel is not needed when a module doesn't have any parameters? that requires? a gradient"
)


def unused_parameters(raised: Raised) -> Explained | None:
    text = raised.text
    if _FROZEN.search(text):
        return Explained(
            "DDP401",
            "No parameter of the wrapped model requires a gradient.",
            "Wrap the part that is trained, or unfreeze it before wrapping (requires_grad_(True)); a frozen model needs no wrapper.",
        )
    if _PRIOR not in text:
        return None
    indices, named = _INDICES.search(text), _NAMED.search(text)
    places = numbers(indices[2]) if indices else ()
    rank = indices or named
    culprits = (int(rank[1]),) if rank else None
    tensors = _names(raised, places, named[2] if named else "")
    if "static_graph set to True" in text:
        return _graph_changed(tensors, culprits, "used in the first iteration, but not in a later one")
    evidence: list[str] = []
    if places and not tensors:
        evidence.append("The numbers are indices into model.named_parameters(), without the frozen ones.")
    lines = unused.frozen_after_wrapping(tensors, raised.sources)
    froze = Hint(*lines[0], "this line may have frozen them") if len(lines) == 1 else None
    # A recording names some of very many.
    if tensors and raised.frozen and (set(tensors) <= set(raised.frozen) or set(raised.frozen) <= set(tensors)):
        return Explained(
            "DDP415",
            f"Parameters were frozen after the model was wrapped, but DDP still waits for their gradients: {_parameters(tensors, places)}.",
            "Freeze before wrapping (requires_grad_(False)), or wrap again afterwards.",
            ("They no longer required a gradient when the forward pass failed.",),
            culprits,
            tensors=tensors,
            hint=froze,
        )
    hint = froze or unused.use(tensors, raised.sources)
    if "find_unused_parameters=True` is enabled" in text:
        return Explained(
            "DDP401",
            f"The loss of the previous step did not use all outputs of forward: {_parameters(tensors, places)} got no gradient.",
            "find_unused_parameters=True searches from the outputs of forward: all of them must reach the loss. Return only "
            "what the loss uses, or add the rest with weight 0.",
            tuple(evidence),
            culprits,
            tensors=tensors,
            hint=hint,
        )
    return Explained(
        "DDP401",
        f"{_parameters(tensors, places)} got no gradient in the previous step{'' if froze else ': not used in its loss'}.",
        "Use every parameter in the loss of every step; or wrap with DistributedDataParallel(model, "
        "find_unused_parameters=True), if some steps do not use all; or freeze what is never used "
        "(requires_grad_(False)) before wrapping. A term of weight 0, loss + 0 * unused_output.sum(), keeps a branch in the graph.",
        tuple(evidence),
        culprits,
        tensors=tensors,
        hint=hint,
    )


def _names(raised: Raised, places: tuple[int, ...], named: str) -> tuple[str, ...]:
    names = tuple(name.strip().removeprefix("module.") for name in named.split(",") if name.strip())[:10_000]
    if names:
        order = {name: i for i, name in enumerate(raised.names)}
        return tuple(sorted(names, key=lambda name: order.get(name, len(order)))) if order else names[::-1]
    if places and places[-1] < len(raised.names):
        return tuple(str(raised.names[place]).removeprefix("module.") for place in places)
    return ()


def _parameters(tensors: tuple[str, ...], places: tuple[int, ...]) -> str:
    if tensors and len(tensors) > 4:
        return f"{count(len(tensors), 'parameter')} (of {listing(unused.modules(tensors), 4)})"
    if tensors:
        return listing(tensors)
    return f"{count(len(places), 'parameter')} ({_range(places)})" if places else "Parameters of the model"


def _range(places: tuple[int, ...]) -> str:
    if len(places) > 2 and places[-1] - places[0] == len(places) - 1:
        return f"number {places[0]}-{places[-1]}"
    return f"number {listing(places)}"


_TWICE = re.compile(r"Parameter at index (\d{1,9})(?: with name ([\w.]{1,300}))? has been marked as ready twice")
_INPLACE = re.compile(
    r"one of the variables needed for gradient computation has been modified by an inplace operation: "
    r"\[([\w.]{1,60}) \[([\d, ]{0,200})\]\] is at version \d"
)


def graph(raised: Raised) -> Explained | None:
    text = raised.text
    if "Expected to mark a variable ready only once" in text:
        match = _TWICE.search(text)
        names = raised.names
        name = (match[2] or (names[int(match[1])] if int(match[1]) < len(names) else "")) if match else ""
        who = str(name).removeprefix("module.") or (f"Parameter number {match[1]}" if match else "A parameter")
        return Explained(
            "DDP415",
            f"{who} got its gradient twice in one backward pass.",
            "checkpoint(..., use_reentrant=False); or DistributedDataParallel(model, static_graph=True), if every step uses "
            "the same parameters the same number of times. Train through the wrapper, never through model.module.",
            ("Possible causes: reentrant checkpointing, a layer used outside of forward, or in two forward passes.",),
            tensors=(str(name).removeprefix("module."),) if name else (),
        )
    if "Your training graph has changed in this iteration" in text:
        return _graph_changed((), None, "unused in the first iteration, but used in a later one")
    if "set_static_graph() should be called before training loop starts" in text:
        return Explained(
            "DDP415",
            "The static graph was requested after training had started.",
            "DistributedDataParallel(model, static_graph=True).",
        )
    if match := _INPLACE.search(text):
        # A tensor without a grad_fn is a buffer or a parameter: DDP copies rank 0's
        # buffers into those of every rank before each forward (and torch before 2.12 counts that).
        return Explained(
            "DDP415",
            f"A buffer or parameter of size [{match[2]}] was written between the forward pass and its backward pass.",
            "DistributedDataParallel(model, broadcast_buffers=False), or SyncBatchNorm; or one forward pass of both batches "
            "(torch.cat). Another cause: an optimizer step between forward and backward.",
            (
                "Possible cause: two forward passes before one backward. DDP broadcasts the buffers (BatchNorm statistics) in each.",
            ),
        )
    if "not the expected DDP bucket view with gradient_as_bucket_view=True" in text or (
        "Can't detach views in-place" in text and "gradient_as_bucket_view" in text
    ):
        return Explained(
            "DDP415",
            "A gradient was replaced or detached, but gradient_as_bucket_view=True keeps gradients in DDP's buckets.",
            "optimizer.zero_grad(set_to_none=True) instead of detach_() or assigning to .grad; or gradient_as_bucket_view=False.",
        )
    return None


def _graph_changed(tensors: tuple[str, ...], culprits: tuple[int, ...] | None, how: str) -> Explained:
    who = f" ({listing(tensors)})" if tensors else ""
    return Explained(
        "DDP415",
        f"static_graph=True requires the same graph in every step, but parameters{who} were {how}.",
        "Remove static_graph=True, and use find_unused_parameters=True if some steps do not use all parameters.",
        culprits=culprits,
        tensors=tensors,
    )


RULES = (unused_parameters, graph)
