"""What an optimizer holds and is set to, as facts that can be compared between ranks."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim import Optimizer, lr_scheduler

from ddpnb.recorder.events.hooks import Hooks
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.models.tracked_model import Watched
from ddpnb.recorder.stacks.user_frames import calling_frame
from ddpnb.recording.events.models import OptimizerMade, OptimizerSeen, ScalerMade, SchedulerMade, SchedulerStepped

_GROUPS = 8
_EVENTS = 32  # of each kind in a run: a script may make optimizers in a loop
# Schedulers with a constructor, and with a step of their own.
_MADE = "LRScheduler", "SequentialLR", "ChainedScheduler", "ReduceLROnPlateau"
_STEPPED = (*_MADE, "CosineAnnealingWarmRestarts")


class Known:
    """What torch itself has set an optimizer to: when it was made, and by its schedulers since then."""

    def __init__(self, number: int = -1) -> None:
        self.number = number
        self.scheduled = 0  # steps of its schedulers
        self._groups: list[dict[str, Any]] = []

    def is_set(self, optimizer: Any) -> None:
        """torch has set it; what that is is worked out when it is asked for, as schedulers may step very often."""
        self._groups = [{**group, "params": ()} for group in optimizer.param_groups]  # they are the program's

    @property
    def settings(self) -> dict[str, float]:
        return dict(zip(*hyper_parameters(self._groups), strict=True))

    def edited(self, names: Sequence[str], values: Sequence[float]) -> tuple[str, ...]:
        """The settings that something else has changed."""
        usual = self.settings
        return tuple(name for name, value in zip(names, values, strict=True) if usual.get(name, value) != value)


class Optimizers(Hooks):
    """Where optimizers and schedulers are made, what they are set to then, and who steps schedulers."""

    def __init__(self, box: BlackBox) -> None:
        super().__init__(box)
        self._of: weakref.WeakKeyDictionary[Any, Known] = weakref.WeakKeyDictionary()
        self._unknown = Known()  # an optimizer of which torch's own constructor was not seen
        self._scalers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._numbered = self._made = self._schedulers = 0
        self._lines: set[tuple[int, int, int]] = set()
        self._inside: list[bool] = []  # schedulers step others

    def install(self) -> None:
        self.after(Optimizer, "__init__", self._optimizer_made)
        for name in _MADE:
            self.after(getattr(lr_scheduler, name), "__init__", self._scheduler_made)
        self.after(torch.amp.GradScaler, "__init__", self._scaler_made)
        for name in _STEPPED:
            self.replace(getattr(lr_scheduler, name), "step", self._step)

    def new_run(self) -> None:
        super().new_run()
        self._made = self._schedulers = 0
        self._lines.clear()

    def of(self, optimizer: Any) -> Known:
        """What is known of an optimizer."""
        return self._of.get(optimizer, self._unknown) if isinstance(optimizer, Optimizer) else self._unknown

    def number(self, optimizer: Any) -> int:
        """The number of an optimizer; -1: it was not seen when it was made."""
        return self.of(optimizer).number

    def _optimizer_made(self, _none: Any, optimizer: Any, *_: Any, **__: Any) -> None:
        known = self._of[optimizer] = Known(self._numbered)
        known.is_set(optimizer)
        self._numbered += 1  # one that an earlier cell has made keeps its number
        self._made += 1
        if self._made <= _EVENTS:
            made = OptimizerMade(number=known.number, class_name=type(optimizer).__name__, settings=known.settings)
            self.emit(made)

    def scaler(self, scaler: Any) -> int:
        """The number of a GradScaler; -1: it was not seen when it was made."""
        return self._scalers.get(scaler, -1)

    def _scaler_made(self, _none: Any, scaler: Any, *_: Any, **__: Any) -> None:
        number = self._scalers[scaler] = self._numbered
        self._numbered += 1
        self._made += 1
        if self._made <= _EVENTS:
            scale = float(getattr(scaler, "_init_scale", 0.0)) if getattr(scaler, "_enabled", True) else 0.0
            self.emit(ScalerMade(number=number, init_scale=scale))

    def _set_by(self, scheduler: Any) -> Known | None:
        """The optimizer that a scheduler has set; None: it is not known."""
        known = self.of(getattr(scheduler, "optimizer", None))
        if known is self._unknown:
            return None
        known.is_set(scheduler.optimizer)
        return known

    def _scheduler_made(self, _none: Any, scheduler: Any, *_: Any, **__: Any) -> None:
        known = self._set_by(scheduler)
        self._schedulers += known is not None
        if known is not None and self._schedulers <= _EVENTS:
            self.emit(SchedulerMade(class_name=type(scheduler).__name__, optimizer=known.number))

    def _step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        inside, stepped = self._inside, self.guarded(self._stepped)

        def step(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            if inside:
                return original(scheduler, *args, **kwargs)
            inside.append(True)
            try:
                result = original(scheduler, *args, **kwargs)
            finally:
                inside.clear()
            stepped(scheduler)
            return result

        return step

    def _stepped(self, scheduler: Any) -> None:
        known = self._set_by(scheduler)
        if known is None or getattr(scheduler, "_is_initial", False):  # by its own constructor
            return
        known.scheduled += 1
        frame = calling_frame()
        line = (known.number, id(frame.f_code), frame.f_lineno) if frame is not None else (known.number, 0, 0)
        if line not in self._lines and len(self._lines) < _EVENTS:
            self._lines.add(line)
            self.emit(SchedulerStepped(class_name=type(scheduler).__name__, optimizer=known.number))


def hyper_parameters(groups: Sequence[dict[str, Any]]) -> tuple[list[str], list[float]]:
    """Names and values of all settings that are numbers, group by group."""
    names: list[str] = []
    values: list[float] = []
    for number, group in enumerate(groups[:_GROUPS]):
        prefix = f"group {number}: " if number else ""
        for name, value in group.items():
            if isinstance(value, (int, float)):
                names.append(prefix + name)
                values.append(float(value))
            elif name == "betas" and isinstance(value, tuple):
                names += [f"{prefix}beta {i}" for i in range(len(value))]
                values += map(float, value)
            elif isinstance(value, torch.Tensor) and value.numel() == 1 and value.device.type == "cpu":
                names.append(prefix + name)
                values.append(float(value))
    return names, values


def held_by(
    optimizer: Any, parameters: list[Any], held: set[int], watched: Watched, *, followed: bool, number: int
) -> OptimizerSeen:
    """How the optimizer's parameters and those that the model trains cover each other, when it steps.

    ``followed``: some of them are the same. ``number``: of the optimizer.
    """
    known = [(n, p) for n, p in zip(watched.names, watched.parameters, strict=False) if p is not None]
    trained, ids = [(n, p) for n, p in known if p.requires_grad], {id(p) for _, p in known}
    strangers = [p for p in parameters if id(p) not in ids]
    shapes = sorted(tuple(p.shape) for p in parameters)
    return OptimizerSeen(
        optimizer=type(optimizer).__name__,
        model=watched.number,
        parameters=len(parameters),
        strangers=len(strangers),
        missing=tuple(name for name, parameter in trained if id(parameter) not in held)[:20],
        copies=not followed and shapes == sorted(tuple(p.shape) for _, p in trained),
        idle=sum(map(_is_idle, strangers)),
        number=number,
    )


def _is_idle(parameter: torch.Tensor) -> bool:
    """Whether it has no gradient. One of zeros is none: torch makes it to let an optimizer make its state."""
    gradient = parameter.grad
    if gradient is None:
        return True
    return type(gradient) is torch.Tensor and gradient.is_cpu and not gradient.is_sparse and not gradient.any().item()
