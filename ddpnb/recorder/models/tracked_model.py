"""A model that is followed: its tensors by name, where their digests stand, and how often it was used."""

from __future__ import annotations

import copy
import math
import sys
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import torch

from ddpnb.recorder.files.clock import now_ns
from ddpnb.recorder.models.device_copies import in_order, to_host
from ddpnb.recorder.models.sampling import Pace, slices_of
from ddpnb.recorder.stacks.digests import HASH, Digester, exact
from ddpnb.recorder.stacks.user_frames import calling_frame, is_user_file
from ddpnb.recording.replicas import TensorSpec
from ddpnb.recording.samples import KINDS

MAX_TENSORS = 20_000
_IN_ORDER_S = 2.0  # for a device to do what is queued: one that hangs never does
Named = tuple[list[tuple[str, Any]], list[tuple[str, Any]]]
_ENDS = 8  # of runs that are remembered: the first ones, and as many last ones


@dataclass(frozen=True, slots=True)
class EndOfRun:
    """What a model held when a run ended, and how many optimizer steps it had made in it."""

    run: int
    name: str
    place: dict[str, Any]
    at_ns: int
    steps: int
    log2: int
    hashes: bytes
    norms: bytes


class Watched:
    """A model that is followed. Its tensors are not kept: they go when the program has no use for them any more."""

    def __init__(self, number: int, named: Named) -> None:
        parameters, buffers = named
        tensors = [tensor for _, tensor in (*parameters, *buffers)]
        self.names = [name for name, _ in (*parameters, *buffers)]
        self.trained = [parameter.requires_grad for _, parameter in parameters]  # when it was wrapped
        self._tensors: list[Callable[[], Any]] = [weakref.ref(tensor) for tensor in tensors]
        self._many = len(parameters)
        self.digester = Digester(specs(parameters, buffers))
        self.log2 = slices_of(sum(tensor.numel() * tensor.element_size() for tensor in tensors))
        self.on_cpu = all(parameter.device.type == "cpu" for _, parameter in parameters)
        self.may_skip = False  # find_unused_parameters=True: nothing complains when ranks use different ones
        self.ends: list[EndOfRun] = []  # of the runs that changed it
        self.told: dict[str, Any] = {}  # what is written of it
        self._begin(number)

    def _begin(self, number: int) -> None:
        """A run begins in which it has this number."""
        self.number = number
        self.pace = Pace()
        self.turns: dict[str, int] = dict.fromkeys(KINDS, 0)
        self.steps = 0
        self.forwards = self.synced = self.backwards = 0  # since the last optimizer step
        # Hashes of the gradients, in a step that is looked at: as a synchronising backward left them, and after what torch
        # did to them since (clipping, unscaling).
        self.reduced: bytes | None = None
        self.left: bytes | None = None
        self.synchronises = False  # the backward after the last forward
        self.averaged = False  # the gradients of the last step were
        # versions after the last step, if it was of such gradients and is not looked at
        self.stepped: tuple[int, ...] = ()
        self.step_site = 0  # of the last step that was looked at
        self.bypass_site = 0
        self.arrived_finite = 1.0  # the gradients at the outputs since the last optimizer step
        self.inputs: list[Any] = []
        self.search_s = 0.0  # duration of the last search for unused parameters
        self.unsound = 0  # losses that were not finite, one after another

    def again(self, number: int) -> Watched:
        """The same model in another run, from its beginning."""
        fresh = copy.copy(self)
        fresh._begin(number)
        return fresh

    @property
    def tensors(self) -> list[Any]:
        """Parameters and buffers, as they are named; None in the place of one that has gone."""
        return [living(reference) for reference in self._tensors]

    @property
    def parameters(self) -> list[Any]:
        return [living(reference) for reference in self._tensors[: self._many]]

    @property
    def ids(self) -> set[int]:
        """Those of its parameters. One that has gone has none: another object may have it by now."""
        return {id(parameter) for parameter in self.parameters if parameter is not None}

    def versions(self) -> tuple[int, ...]:
        """How often its first and its last parameter were changed so far; none where that is not counted."""
        ends = [living(reference) for reference in (self._tensors[:1] + self._tensors[self._many - 1 : self._many])]
        return tuple(one._version for one in ends if one is not None and not one.is_inference())

    def let_go(self, tensors: Iterable[Any]) -> list[Callable[[], None]]:
        """Hold no weak references to these tensors either; returns what takes them up again."""
        self.inputs = []
        found = [(at, one) for at, held in enumerate(self._tensors) for one in tensors if held() is one]
        for at, _ in found:
            self._tensors[at] = _gone
        return [partial(self._take_up, at, one) for at, one in found]

    def _take_up(self, at: int, tensor: Any) -> None:
        self._tensors[at] = weakref.ref(tensor)

    def is_readable(self) -> bool:
        """Whether its parameters can be read now: they are in this process's memory, or the device answers."""
        return self.on_cpu or in_order([one for one in self.parameters if one is not None], _IN_ORDER_S)

    def end_of_run(self, run: int, name: str, place: dict[str, Any], steps: int) -> None:
        """Note what it holds when a run ends, if that has changed."""
        if not self.is_readable():
            return
        # The step is that of the beginning of the next run, so that the same parts can be compared.
        hashes, norms = self.digester.digest(self.parameters, self.log2, 0)
        if not self.ends or steps or self.ends[-1].hashes != hashes:
            self.ends.append(EndOfRun(run, name, place, now_ns(), steps, self.log2, hashes, norms))
            del self.ends[_ENDS:-_ENDS]

    def exact(self) -> dict[str, Any]:
        """The exact digests and norms of all its tensors, now."""
        tensors = self.tensors
        named = zip(self.names[:MAX_TENSORS], tensors, strict=False)
        there = in_order([tensor for tensor in tensors if tensor is not None], _IN_ORDER_S)
        copies = ((name, _copied(tensor, there)) for name, tensor in named if tensor is not None)
        return {
            "model": self.number,
            "hash": HASH,
            "step": self.steps,
            "forwards": self.turns["forward"],
            "buffers": self.names[self._many : MAX_TENSORS],
            "tensors": [[name, exact(tensor), _norm(tensor)] for name, tensor in copies],
        }


def living(reference: Callable[[], Any]) -> Any:
    """The tensor of a weak reference; None if it has gone."""
    tensor = reference()
    if tensor is not None:
        torch.Tensor._fix_weakref(tensor)  # type: ignore[attr-defined] # it may be held in C++ alone
    return tensor


def _gone() -> None:
    """Stands for a weak reference to what is no more."""


def _copied(tensor: Any, there: bool) -> Any:
    """A tensor of a GPU in host memory, in order or as it lies there now; others, and what cannot be copied, as they are."""
    if (
        type(tensor) not in (torch.Tensor, torch.nn.Parameter)
        or tensor.device.type != "cuda"
        or tensor.layout is not torch.strided
    ):
        return tensor
    with torch.no_grad():
        try:
            return tensor.detach().to("cpu") if there else to_host(tensor.detach())
        except ValueError:  # it lies in too many parts
            return tensor.detach().to("meta")


def named_tensors(module: Any) -> Named:
    """Parameters and buffers of a module, by name."""
    return list(module.named_parameters()), list(module.named_buffers())


def specs(parameters: Iterable[tuple[str, Any]], buffers: Iterable[tuple[str, Any]]) -> list[TensorSpec]:
    def spec(name: str, tensor: Any, buffer: bool) -> TensorSpec:
        dtype = str(tensor.dtype).removeprefix("torch.")
        return TensorSpec(name, tuple(tensor.shape), dtype, str(tensor.device), tensor.requires_grad, buffer)

    return [spec(n, p, False) for n, p in parameters] + [spec(n, b, True) for n, b in buffers]


def tensors_of(module: Any) -> list[dict[str, Any]]:
    """All parameters and buffers of a module that is wrapped, as facts."""
    ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
    kinds = {name: type(part).__name__ for name, part in module.named_modules()}
    return [
        {**facts, "kind": kinds.get(facts["name"].rpartition(".")[0], ""), "ignored": facts["name"] in ignored}
        for facts in facts_of(specs(*named_tensors(module)))
    ]


def facts_of(specs: list[TensorSpec]) -> list[dict[str, Any]]:
    return [
        {
            "name": spec.name,
            "shape": list(spec.shape),
            "dtype": spec.dtype,
            "device": spec.device,
            "trains": spec.trains,
            "buffer": spec.buffer,
        }
        for spec in specs
    ]


def names_from_frames(parameters: list[Any]) -> dict[int, str]:
    """Names of parameters from the calling functions: of their modules, else of the variables and attributes that are parameters."""
    wanted = {id(parameter) for parameter in parameters}
    names: dict[int, str] = {}
    variables: dict[int, str] = {}
    frame = calling_frame(2)
    while frame is not None and len(names) < len(wanted):
        for variable, value in list(frame.f_locals.items()):
            kind = type(value)  # isinstance() would run code of odd objects
            if issubclass(kind, (ModuleType, type)):
                continue
            parts = {variable: value}
            if is_user_class(kind):
                parts |= dict(list(getattr(value, "__dict__", {}).items())[:200])
            for name, part in parts.items():
                if id(part) in wanted:
                    variables.setdefault(id(part), str(name))
                elif issubclass(type(part), torch.nn.Module):
                    named = part.named_parameters()
                    names.update((id(p), name) for name, p in named if id(p) in wanted and id(p) not in names)
        frame = frame.f_back
    return variables | names


def is_user_class(kind: type) -> bool:
    """Whether a class is the user's own: looking into its instances runs nothing."""
    module = sys.modules.get(kind.__module__)
    return is_user_file(str(getattr(module, "__file__", "") or "<frozen")) or kind.__module__ == "__main__"


def _norm(tensor: torch.Tensor) -> float | None:
    if not tensor.is_floating_point() or tensor.device.type == "meta":
        return None
    value = float(torch.linalg.vector_norm(tensor.detach().float()))
    return value if math.isfinite(value) else None
