"""Replicas: the tensors of a wrapped model, and digests of its state during training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ddpnb.model.calls import NO_SITE, Site

# Models without a wrapper are numbered from here on: a rank may have more of these than the others, and
# those with one have the same numbers everywhere.
UNWRAPPED = 1000
MAX_ELEMENTS = 1 << 37  # of one model on one rank: a reader makes a name for every 16,384 of them


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A parameter or buffer, apart from its values."""

    name: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    device: str = "cpu"
    trains: bool = True  # requires_grad
    buffer: bool = False
    kind: str = ""  # class of the module that holds it
    ignored: bool = False  # excluded from the wrapper

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TensorSpec:
        return cls(
            str(value.get("name", "?"))[:400],
            tuple(int(size) for size in value.get("shape", ())),
            str(value.get("dtype", "")),
            str(value.get("device", "cpu")),
            bool(value.get("trains", True)),
            bool(value.get("buffer", False)),
            str(value.get("kind", "")),
            bool(value.get("ignored", False)),
        )


@dataclass(frozen=True, slots=True)
class Model:
    """A model as it was wrapped: the ``number``-th of the rank, on a group, by a wrapper with options."""

    number: int
    wrapper: str = ""
    module: str = ""
    group: str = ""  # key of the group
    ranks: tuple[int, ...] = ()
    tensors: tuple[TensorSpec, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    site: Site = NO_SITE
    hash: str = ""  # the kind of its digests: only those of one kind can be compared

    @property
    def parameters(self) -> tuple[TensorSpec, ...]:
        return tuple(tensor for tensor in self.tensors if not tensor.buffer)

    @property
    def buffers(self) -> tuple[TensorSpec, ...]:
        return tuple(tensor for tensor in self.tensors if tensor.buffer)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Model:
        """Decode a model.

        Raises:
            ValueError: it has more elements than a rank can hold.
            Exception: it is invalid otherwise (``names.UNDECODABLE``).
        """
        tensors = tuple(TensorSpec.from_json(tensor) for tensor in value.get("tensors", ()))
        if sum(abs(math.prod(tensor.shape)) for tensor in tensors) > MAX_ELEMENTS:
            raise ValueError("too many elements")
        return cls(
            int(value.get("number", 0)),
            str(value.get("wrapper", "")),
            str(value.get("module", "")),
            str(value.get("group", "")),
            tuple(int(rank) for rank in value.get("ranks", ())),
            tensors,
            dict(value.get("options", {})),
            Site.from_json(dict(value.get("site", {}))),
            str(value.get("hash", "")),
        )


@dataclass(frozen=True, slots=True)
class Digest:
    """A tensor (or a part of one) at one moment: ``hash`` of its bytes, and its Euclidean ``norm`` if known."""

    hash: int
    norm: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """Digests of one model on one rank at one moment.

    ``kind``: ``forward`` (parameters and buffers as the module sees them, and its inputs),
    ``gradients`` (just before the optimizer's step), ``updated`` (parameters just after it),
    ``backward`` (the loss), ``loss`` (one on a GPU, which was read later; with the turn of its backward), ``clip`` and ``scale`` (of gradients); where it was asked for, ``outputs`` of modules in the first
    forward and ``local`` gradients in the first backward, whose facts are digests; ``earlier`` (parameters when an earlier
    run in the same processes ended, with its number as the turn and its name as the fact ``run``).
    ``turn`` counts the samples of this kind and model from 1, sampled or not; ``step`` the optimizer
    steps before it. ``digests`` may hold a part of the tensors: all ranks choose the same parts in the
    same turn.
    """

    model: int
    kind: str
    turn: int
    step: int = 0
    at_ns: int = 0
    site: Site = NO_SITE
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    digests: Mapping[str, Digest] = field(default_factory=dict[str, Digest])

    def number(self, name: str) -> float | None:
        """A fact that is a number; None where it is missing or no number."""
        value = self.facts.get(name)
        try:
            return float(value) if isinstance(value, (int, float)) else None
        except OverflowError:
            return None

    def numbers(self, prefix: str) -> tuple[float, ...]:
        """The facts with this prefix that are numbers, in their order."""
        found = (self.number(name) for name in self.facts if name.startswith(prefix))
        return tuple(value for value in found if value is not None)
