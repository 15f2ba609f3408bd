"""Replicas: the tensors of a wrapped model, and digests of its state during training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, Self, TypeVar, cast, overload

from ddpnb.recording.calls import NO_SITE, Site
from ddpnb.recording.codec import JSON

T = TypeVar("T")

# Models without a wrapper are numbered from here on: a rank may have more of these than the others, and
# those with one have the same numbers everywhere.
UNWRAPPED = 1000
MAX_ELEMENTS = 1 << 37  # of one model on one rank: a reader makes a name for every 16,384 of them


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A parameter or buffer, apart from its values."""

    name: str = "?"
    shape: tuple[int, ...] = ()
    dtype: str = ""
    device: str = "cpu"
    trains: bool = True  # requires_grad
    buffer: bool = False
    kind: str = ""  # class of the module that holds it
    ignored: bool = False  # excluded from the wrapper


@dataclass(frozen=True, slots=True)
class Model:
    """A model as it was wrapped: the ``number``-th of the rank, on a group, by a wrapper with options."""

    number: int = 0
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


def model_of(value: Any) -> Model:
    """The model in a rank's description, which may be anything.

    Raises:
        ValueError: it has more elements than a rank can hold.
        Exception: it is invalid otherwise (``names.UNDECODABLE``).
    """
    model: Model = JSON.read(Model, value)
    if sum(abs(math.prod(tensor.shape)) for tensor in model.tensors) > MAX_ELEMENTS:
        raise ValueError("too many elements")
    return model


@dataclass(frozen=True, slots=True)
class Digest:
    """A tensor (or a part of one) at one moment: ``hash`` of its bytes, and its Euclidean ``norm`` if known."""

    hash: int
    norm: float | None = None


class Fact(Generic[T]):
    """A fact of a Sample under the name of the attribute, as ``read`` takes it. ``of_step``: a rank writes it beside the settings of an optimizer."""

    def __init__(self, read: Callable[[object], T], *, of_step: bool = False) -> None:
        self._read, self.of_step = read, of_step

    def __set_name__(self, owner: type[object], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, sample: None, owner: type[object]) -> Self: ...
    @overload
    def __get__(self, sample: Sample, owner: type[object]) -> T: ...
    def __get__(self, sample: Sample | None, owner: type[object]) -> Self | T:
        return self if sample is None else self._read(sample.facts.get(self._name))


_TEXT, _LONGEST, _MOST = 4000, 400, 10_000  # characters of a text, and of a name; names in a list


def _number(value: object) -> float | None:
    """A number; None where it is missing or no number."""
    try:
        return float(value) if isinstance(value, (int, float)) else None
    except OverflowError:
        return None


def _text(value: object) -> str:
    """A text; empty where it is missing."""
    return str(value or "")[:_TEXT]


def _place(value: object) -> Site:
    """A place in the source; ``NO_SITE`` where it is missing or none."""
    return Site.from_json(cast("dict[str, Any]", value)) if isinstance(value, dict) else NO_SITE


def _names(value: object) -> tuple[str, ...] | None:
    """A list of names; None where it is missing or no list."""
    if not isinstance(value, (list, tuple)):
        return None
    return tuple(str(name)[:_LONGEST] for name in islice(cast("Iterable[object]", value), _MOST))


@dataclass(frozen=True, slots=True)
class Sample:
    """Digests of one model on one rank at one moment.

    ``kind``: ``forward`` (parameters and buffers as the module sees them, and its inputs),
    ``gradients`` (just before the optimizer's step), ``updated`` (parameters just after it),
    ``backward`` (the loss), ``loss`` (one on a GPU, which was read later; with the turn of its backward), ``clip`` and ``scale`` (of gradients); where it was asked for, ``outputs`` of modules in the first
    forward and ``local`` gradients in the first backward, whose facts are digests; ``earlier`` (parameters when an earlier
    run in the same processes ended, with its number as the turn and its name as the fact ``run``); ``start`` (parameters
    that no wrapper holds, before the first step of their optimizer); ``sent`` (the norms of all gradients that no wrapper
    averages, after a backward and at the first collective after it; its turn is that of the optimizer's step).
    ``turn`` counts the samples of this kind and model from 1, sampled or not; ``step`` the optimizer
    steps before it. ``digests`` may hold a part of the tensors: all ranks choose the same parts in the
    same turn. ``facts`` are as a rank wrote them: what reads them asks the attributes below, which are bounded.
    """

    model: int
    kind: str
    turn: int
    step: int = 0
    at_ns: int = 0
    site: Site = NO_SITE
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    digests: Mapping[str, Digest] = field(default_factory=dict[str, Digest])

    # forward
    sync = Fact(_number)  # 1: the backward pass after it synchronises
    training = Fact(_number)
    local = Fact(_number)  # the norm of gradients after a backward
    sent = Fact(_number)  # and at the first collective after it
    buffers_synced = Fact(_number)  # 1: it gave all ranks the buffers of rank 0
    inputs_hash = Fact(_number)
    inputs_finite = Fact(_number)  # of a backward pass too, whose loss is not finite
    inputs = Fact(_text)  # their structure: types, keys, dimensions
    # gradients: since the optimizer step before
    forwards = Fact(_number, of_step=True)
    synced = Fact(_number, of_step=True)  # of these forwards
    backwards = Fact(_number, of_step=True)
    bypass = Fact(_number, of_step=True)
    bypass_site = Fact(_place, of_step=True)  # where the module was called without its wrapper
    outstanding = Fact(_number, of_step=True)  # calls that nothing has waited for
    arrived_finite = Fact(_number, of_step=True)  # the gradient that came back to the model
    scheduled = Fact(_number, of_step=True)  # steps of its schedulers
    as_reduced = Fact(_number, of_step=True)  # 1: what the synchronisation made of them; 0: it is not; -1: not known
    as_left = Fact(_number, of_step=True)  # the same of what torch made of them since
    made = Fact(_number, of_step=True)  # the number of the optimizer, or of a scaler
    edited = Fact(_names, of_step=True)  # settings that something other than torch has changed
    # backward
    loss = Fact(_number)
    graph = Fact(_text)  # the last operations that made the loss
    unused = Fact(_names)  # parameters that it does not reach
    # clip, scale
    norm = Fact(_number)
    max_norm = Fact(_number)
    scale = Fact(_number)
    # earlier
    run = Fact(_text)
    steps = Fact(_number)

    @property
    def factors(self) -> tuple[float, ...]:
        """The numbers by which the loss of a backward pass was multiplied, the last first."""
        found = (_number(value) for name, value in self.facts.items() if name.startswith("factor"))
        return tuple(value for value in found if value is not None)

    @property
    def settings(self) -> Mapping[str, float | str]:
        """The settings of the optimizer at ``gradients``, with its class as ``optimizer``."""
        given = self.facts.items() if self.kind == "gradients" else ()
        checked = ((name, _setting(value)) for name, value in given if name not in _NO_SETTINGS)
        return {name[:_LONGEST]: value for name, value in islice(checked, _MOST) if value is not None}

    @property
    def values(self) -> Mapping[str, float]:
        """All facts that are numbers: the digests of ``outputs`` and ``local``, by the name of a module or tensor."""
        checked = ((name, _number(value)) for name, value in self.facts.items())
        return {name[:_LONGEST]: value for name, value in islice(checked, _MOST) if value is not None}


_NO_SETTINGS = frozenset(name for name, one in vars(Sample).items() if isinstance(one, Fact) and one.of_step)


def _setting(value: object) -> float | str | None:
    return value[:_LONGEST] if isinstance(value, str) else _number(value)
