"""Faults in the model and its optimizer."""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook

from ddpnb.recorder.faults.armed import Armed
from ddpnb.recorder.faults.torch_hooks import FaultHooks
from ddpnb.recorder.faults.wrapping import CHANGES
from ddpnb.recorder.files.blackbox import BlackBox


class InModel(FaultHooks):
    """The faults of a wrapped model, its loss and its optimizer."""

    def __init__(self, box: BlackBox, rank: int) -> None:
        super().__init__(box, rank)
        self._forward_before: tuple[weakref.ref[Any], Any, Any] | None = None  # of which model, with what
        self._inside: list[bool] = []  # checkpointing runs one backward pass inside another

    def install(self) -> None:
        self.before(DistributedDataParallel, "__init__", self._before_wrapping)
        self.after(DistributedDataParallel, "__init__", self._after_wrapping)
        self.replace(DistributedDataParallel, "forward", self._forward)
        self.before(DistributedDataParallel, "forward", self._before_forward)
        self.replace(torch.autograd, "backward", self._backward)
        self.on_removal(register_optimizer_step_post_hook(self._after_step).remove)
        self.on_removal(self._forget)

    def _forget(self) -> None:
        self._forward_before = None

    # -- wrapping

    def _before_wrapping(self, _ddp: Any, module: Any = None, *_args: object, **_kwargs: object) -> None:
        if isinstance(module, torch.nn.Module):
            for armed in self.due(*CHANGES):
                CHANGES[armed.fault.kind](armed, module)

    def _after_wrapping(self, _none: None, ddp: DistributedDataParallel, *_args: object, **_kwargs: object) -> None:
        for _ in self.due("other hook"):
            from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

            ddp.register_comm_hook(None, fp16_compress_hook)

    # -- forward

    def _before_forward(self, ddp: DistributedDataParallel, *inputs: Any, **kwargs: Any) -> None:
        for armed in self.due("perturb parameter"):
            _add(next(ddp.module.parameters()), armed)
        if self.wanted("perturb buffer"):
            self._perturb_buffer(ddp)
        if not torch.is_grad_enabled():
            return
        if self.wanted("frozen parameter"):
            self._switch("frozen parameter", ddp, trains=False)
        if self.wanted("thawed parameter"):
            self._switch("thawed parameter", ddp, trains=True)
        if self.wanted("lone forward"):
            self._forward_before = weakref.ref(ddp), inputs, kwargs

    def _perturb_buffer(self, ddp: DistributedDataParallel) -> None:
        buffers = [buffer for buffer in ddp.module.buffers() if buffer.is_floating_point() and buffer.numel()]
        if not buffers:
            self.unable("perturb buffer", "the model has no floating-point buffer")
        elif ddp.will_sync_module_buffers():
            self.unable("perturb buffer", "the wrapper broadcasts rank 0's buffers before each forward")
        else:
            for armed in self.due("perturb buffer"):
                _add(buffers[0], armed)

    def _switch(self, kind: str, ddp: DistributedDataParallel, *, trains: bool) -> None:
        """Let the last parameter of the model train, or not."""
        parameters = [
            parameter
            for parameter in ddp.module.parameters()
            if parameter.requires_grad is not trains and parameter.is_floating_point()
        ]
        if len(parameters) < (1 if trains else 2):
            self.unable(kind, "no parameter is frozen" if trains else "no trainable parameter would be left")
            return
        for armed in self.due_once(kind, ddp):
            parameters[-1].requires_grad_(trains)
            self.on_heal(armed, parameters[-1], lambda parameter: parameter.requires_grad_(not trains))

    def _forward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(ddp: DistributedDataParallel, *inputs: Any, **kwargs: Any) -> Any:
            if not torch.is_grad_enabled():
                return original(ddp, *inputs, **kwargs)
            if self.due("bypassed forward"):
                return ddp.module(*inputs, **kwargs)
            with self._unused(ddp), ddp.no_sync() if self.due("skipped synchronisation") else contextlib.nullcontext():
                return original(ddp, *inputs, **kwargs)

        return forward

    @contextlib.contextmanager
    def _unused(self, ddp: DistributedDataParallel) -> Iterator[None]:
        """Leave the last parameter out of the graph of what is computed inside."""
        parameters = [parameter for parameter in ddp.module.parameters() if parameter.requires_grad]
        if len(parameters) < 2:
            self.unable("unused parameter", "the loss would not require a gradient")
        unused = parameters[-1:] if len(parameters) > 1 and self.due("unused parameter") else []
        for parameter in unused:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in unused:
                parameter.requires_grad_(True)

    # -- backward and optimizer

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside or self.box.silent:
                return original(tensors, *args, **kwargs)
            for armed in self.due_since("scaled gradient"):
                tensors = _times(tensors, float(armed.fault.value("factor")))
            for _ in self.due("nan loss"):
                tensors = _times(tensors, math.nan)
            self._inside.append(True)
            try:
                return original(tensors, *args, **kwargs)
            finally:
                self._inside.clear()

        return backward

    def _after_step(self, optimizer: Any, *_: object) -> None:
        for armed in self.due_once("other learning rate", optimizer):
            factor = float(armed.fault.value("factor"))
            rates = [(group["lr"], group["lr"] * factor) for group in optimizer.param_groups]
            for group, (_, rate) in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate
            self.on_heal(armed, optimizer, lambda one, rates=rates, factor=factor: _rates_back(one, rates, factor))
        before, self._forward_before = self._forward_before, None
        ddp = before[0]() if before is not None else None
        if before is not None and ddp is not None:
            self._alone(ddp, before[1], before[2])

    def _alone(self, ddp: DistributedDataParallel, inputs: Any, kwargs: Any) -> None:
        # Here the line is that of the optimizer's step: an own one, as that of an evaluation would be.
        if not ddp.will_sync_module_buffers():
            self.unable(
                "lone forward", "a forward of this model issues no collective: an extra one has no effect on the others"
            )
            return
        for _ in self.due("lone forward"):
            with torch.no_grad():
                ddp(*inputs, **kwargs)


def _add(tensor: torch.Tensor, armed: Armed) -> None:
    with torch.no_grad():
        tensor.view(-1)[0] += float(armed.fault.value("amount"))


def _times(tensors: Any, factor: float) -> Any:
    if isinstance(tensors, torch.Tensor):
        return tensors * factor
    return [tensor * factor for tensor in tensors] if isinstance(tensors, (list, tuple)) else tensors


def _rates_back(optimizer: Any, rates: list[tuple[Any, Any]], factor: float) -> None:
    for group, (own, other) in zip(optimizer.param_groups, rates, strict=False):
        # A scheduler has multiplied it since, as most do.
        group["lr"] = own if bool(group["lr"] == other) else group["lr"] / factor
