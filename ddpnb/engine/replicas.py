"""The replica watch: digests of every wrapped model as training goes on, for comparison off the ranks.

At each forward of a DDP module: its parameters and buffers as the forward sees them, and its inputs;
before each optimizer step: gradients and hyper-parameters; after it: parameters. Nothing is
communicated: each rank writes its digests to shared memory and the launcher compares. The work
adapts so that it stays within 1 % of a step (or 0.1 ms, whichever is more): a large model is digested
in slices, the same ones on all ranks at the same step.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from struct import pack
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.modules import module as nn_module
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ddpnb.engine.blackbox import BlackBox
from ddpnb.engine.digests import Digester, exact
from ddpnb.engine.door import Door
from ddpnb.engine.hooks import Hooks, place
from ddpnb.engine.inputs import all_finite, describe, finite, tensors_in
from ddpnb.engine.losses import loss_facts, unused
from ddpnb.engine.samples import SampleFile
from ddpnb.engine.sites import calling_frame, is_user_file
from ddpnb.engine.tracing import Tracing
from ddpnb.model.replicas import UNWRAPPED, TensorSpec

SHARE, FLOOR_S = 0.008, 90e-6  # of a step, and never less than this: what all digests of a step may take
_KINDS_PER_STEP = 3
_MAX_LOG2 = 12
_LEAST_S = 20e-6
_MAX_TENSORS = 20_000


class Pace:
    """In how many slices a model is digested, so that a digest costs what it may. Powers of two.

    Args:
        parts, size: how many parts and bytes all of it has; a slice is never cut so small that what
            a digest costs anyway would be most of it.
    """

    def __init__(self, parts: int = 0, size: int = 0) -> None:
        self.log2 = 0
        cost = parts * 0.5e-6 + size / 3e9
        self._most = min(_MAX_LOG2, max(0, int(math.log2(max(1.0, cost / _LEAST_S)))))
        self._last = 0.0
        self._interval = 0.0
        self._dear = 0

    def spent(self, seconds: float, now: float) -> None:
        """A digest took this long; the next ones may be smaller or larger."""
        if self._last:
            since = now - self._last
            self._interval = since if not self._interval else 0.8 * self._interval + 0.2 * since
        self._last = now
        allowed = max(SHARE * self._interval, FLOOR_S) / _KINDS_PER_STEP
        # Plans are made when slices are new, and another process may have had the core: twice counts.
        self._dear = self._dear + 1 if seconds > allowed else 0
        if self._dear >= 3 and self.log2 < self._most:
            self.log2, self._dear = self.log2 + 1, 0
        elif seconds < allowed / 4 and self.log2:
            self.log2 -= 1


class Watched:
    """A model that is followed: its tensors, and how often it was used."""

    def __init__(self, number: int, names: Sequence[str], parameters: Sequence[Any], buffers: Sequence[Any]) -> None:
        self.number = number
        self.names = list(names)
        self.parameters = list(parameters)
        self.buffers = list(buffers)
        self.ids = {id(parameter) for parameter in self.parameters}
        self.digester: Digester | None = None
        sizes = [t.numel() * t.element_size() for t in (*self.parameters, *self.buffers)]
        count = len(self.parameters)
        self.paces: dict[str, Pace] = {
            "forward": Pace(len(sizes), sum(sizes)),
            "gradients": Pace(count, sum(sizes[:count])),
            "updated": Pace(count, sum(sizes[:count])),
        }
        self.turns: dict[str, int] = dict.fromkeys(("forward", "gradients", "updated", "backward", "clip", "scale"), 0)
        self.steps = 0
        self.forwards = self.synced = self.backwards = 0  # since the last optimizer step
        self.bypass_site = 0
        self.on_cpu = all(parameter.device.type == "cpu" for parameter in self.parameters)
        self.arrived_finite = 1.0  # the gradients at the outputs since the last optimizer step
        self.inputs: list[Any] = []
        self.may_skip = False  # find_unused_parameters=True: nothing complains when ranks use different ones
        self.search_s = 0.0  # what the last search for unused parameters took


class Replicas(Hooks):
    """Follows every model that is wrapped with DDP, or else the parameters of an optimizer."""

    def __init__(self, box: BlackBox, door: Door, folder: str, rank: int) -> None:
        super().__init__(box)
        self._door = door
        self._folder = folder
        self._rank = rank
        self._run = 0
        self._count = 0
        self._adopted = 0
        self._file = SampleFile(os.path.join(folder, f"rank{rank}.samples"))
        self._watched: weakref.WeakKeyDictionary[Any, Watched] = weakref.WeakKeyDictionary()
        self._of_optimizer: weakref.WeakKeyDictionary[Any, tuple[int, list[Watched]]] = weakref.WeakKeyDictionary()
        self._last: Watched | None = None
        self._stepping: weakref.ref[Any] | None = None  # the optimizer whose step goes on
        self._names: dict[Any, int] = {}
        self._sites: dict[tuple[int, int], tuple[int, Any]] = {}
        self._bypass: Any = None
        self.tracing = Tracing(box)

    # -- life

    def install(self) -> None:
        self.before(DistributedDataParallel, "__init__", self._wrapping)
        self.after(DistributedDataParallel, "__init__", self._wrapped)
        self.replace(DistributedDataParallel, "_pre_forward", self._forward)
        self.after(DistributedDataParallel, "_post_forward", self._look_output)
        self.before(torch.autograd, "backward", self._backward)
        self.on_removal(register_optimizer_step_pre_hook(self.guarded(self._before_step)).remove)
        self.on_removal(register_optimizer_step_post_hook(self.guarded(self._after_step)).remove)
        for module in (torch.nn.utils, torch.nn.utils.clip_grad):
            self.after(module, "clip_grad_norm_", self._clipped)
        self.after(torch.amp.GradScaler, "update", self._scaled)
        self.on_removal(self._watch_bypass_no_more)
        self.on_removal(self.tracing.remove)

    def new_run(self) -> None:
        super().new_run()
        self._watch_bypass_no_more()
        self.tracing.new_run()
        self._watched.clear()
        self._of_optimizer.clear()
        self._last = None
        self._count = 0
        self._adopted = 0

    def begin(self, run: int) -> None:
        """Digests belong to this run from here on."""
        self._run = run
        self._file.new_run(run)

    def exact(self) -> list[dict[str, Any]]:
        """The exact digests and norms of every model that lives."""
        return [_exact(watched) for watched in list(self._watched.values())]

    def values(self, model: int, name: str, most: int) -> bytes:
        """The first ``most`` elements of a tensor of a model that lives, as float32; empty if there is none."""
        for watched in list(self._watched.values()):
            if watched.number == model and name in watched.names:
                tensor = [*watched.parameters, *watched.buffers][watched.names.index(name)]
                flat = tensor.detach().reshape(-1)[:most].to("cpu", torch.float32)
                return flat.contiguous().view(torch.uint8).numpy().tobytes()
        return b""

    # -- models

    def _wrapping(self, _ddp: Any, module: Any = None, *args: Any, **kwargs: Any) -> None:
        """A model is about to be wrapped: what it is made of, also if the ranks will not agree on it."""
        if not isinstance(module, torch.nn.Module):
            return
        group = kwargs.get("process_group") or (args[5] if len(args) > 5 else None) or dist.group.WORLD
        named = {
            "device_ids": args[0] if args else kwargs.get("device_ids"),
            "broadcast_buffers": args[3] if len(args) > 3 else kwargs.get("broadcast_buffers", True),
        }
        for name in ("find_unused_parameters", "static_graph", "gradient_as_bucket_view", "bucket_cap_mb", "init_sync"):
            if name in kwargs:
                named[name] = kwargs[name]
        self._write_model("DistributedDataParallel", module, group, named)

    def _wrapped(self, _none: Any, ddp: Any, *_args: Any, **_kwargs: Any) -> None:
        if isinstance(getattr(ddp, "module", None), torch.nn.Module):
            watched = self._watched[ddp] = self._follow(self._count - 1, _named(ddp.module))
            # Only now is it known: two arguments, both of which may be left out, say so.
            self.event(
                "buffers synced", {"model": watched.number, "synced": bool(getattr(ddp, "forward_sync_buffers", True))}
            )
            watched.may_skip = bool(getattr(ddp, "find_unused_parameters", False))
            # The wrapper has just made all ranks equal: what differs later came later.
            self._digest(watched, "updated", watched.parameters, 0, b"")
            self._watch_bypass()

    def _follow(self, number: int, named: tuple[list[tuple[str, Any]], list[tuple[str, Any]]]) -> Watched:
        parameters, buffers = named
        watched = Watched(
            number, [n for n, _ in (*parameters, *buffers)], [p for _, p in parameters], [b for _, b in buffers]
        )
        watched.digester = Digester(_specs(parameters, buffers))
        return watched

    def _write_model(self, wrapper: str, module: Any, group: Any, options: dict[str, Any]) -> None:
        parameters, buffers = _named(module)
        number, self._count = self._count, self._count + 1
        known = self._door.group(group) if group is not None else None
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        kinds = {name: type(part).__name__ for name, part in module.named_modules()}
        tensors = [
            {
                "name": spec.name,
                "shape": list(spec.shape),
                "dtype": spec.dtype,
                "device": spec.device,
                "trains": spec.trains,
                "buffer": spec.buffer,
                "kind": kinds.get(spec.name.rpartition(".")[0], ""),
                "ignored": spec.name in ignored,
            }
            for spec in _specs(parameters, buffers)
        ]
        self._save_model(number, wrapper, type(module).__name__, known, tensors, options)

    def _save_model(
        self, number: int, wrapper: str, module: str, known: Any, tensors: list[dict[str, Any]], options: dict[str, Any]
    ) -> None:
        told = {
            "number": number,
            "wrapper": wrapper,
            "module": module,
            "group": known.key if known is not None else "",
            "ranks": list(known.ranks) if known is not None else [],
            "tensors": tensors[:_MAX_TENSORS],
            "options": options,
            "site": place(4),
        }
        path = os.path.join(self._folder, f"rank{self._rank}-run{self._run}-model{number}.json")
        with open(path + ".part", "w") as file:
            json.dump(told, file, default=str)
        os.replace(path + ".part", path)

    # -- forward

    def _forward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        look, silent = self.guarded(self._look_forward), self.box.silent

        def _pre_forward(ddp: Any, *inputs: Any, **kwargs: Any) -> Any:
            if silent or not torch.is_grad_enabled() or torch.compiler.is_compiling():
                return original(ddp, *inputs, **kwargs)
            synced = ddp.will_sync_module_buffers()
            result = original(ddp, *inputs, **kwargs)
            look(ddp, synced, inputs, kwargs)
            return result

        return _pre_forward

    def _look_forward(self, ddp: Any, synced: bool, inputs: Any, kwargs: Any) -> None:
        watched = self._watched.get(ddp)
        if watched is None:
            return
        self._watch_bypass_no_more()
        self._last = watched
        watched.forwards += 1
        watched.synced += bool(ddp.require_backward_grad_sync)
        turn = watched.turns["forward"] + 1
        if turn & (turn - 1) == 0 and turn > 1:  # the 2nd, 4th, 8th ...: does it still hold what was wrapped?
            self._check_members(watched, ddp)
        text, hash_, finite, tensors = describe(inputs, kwargs)
        watched.inputs = tensors
        names = self._name(("forward", text), lambda: {"names": _FORWARD, "inputs": text})
        values = pack("6d", ddp.require_backward_grad_sync, ddp.training, synced, hash_, finite, watched.forwards)
        self._digest(watched, "forward", [*watched.parameters, *watched.buffers], names, values)
        self.tracing.begin(watched.number, turn, ddp.module, lambda: _exact(watched))

    def _look_output(self, result: Any, ddp: Any, *_: Any) -> None:
        """Is the gradient that comes back to the output finite? Once it is averaged nobody can tell whose was not."""
        watched = self._watched.get(ddp)
        if watched is None or not torch.is_grad_enabled():
            return

        def look(gradient: Any) -> None:
            if watched.arrived_finite and not all_finite(gradient):
                watched.arrived_finite = 0.0

        for tensor in tensors_in(result):
            if tensor.requires_grad and tensor.grad_fn is not None:
                tensor.register_hook(self.guarded(look))

    def _check_members(self, watched: Watched, ddp: Any) -> None:
        """Parameters that were put in place of those that were wrapped: DDP does not know of them."""
        fresh, _ = _named(ddp.module)
        strangers = [name for name, parameter in fresh if id(parameter) not in watched.ids]
        if strangers:
            self.event("parameters replaced", {"model": watched.number, "names": strangers[:20]})

    # -- a wrapped model that is called without its wrapper

    def _watch_bypass(self) -> None:
        """Until the wrapper is used: who calls the module behind its back?"""
        if self._bypass is None:
            self._bypass = nn_module.register_module_forward_pre_hook(self._on_any_forward)

    def _watch_bypass_no_more(self) -> None:
        if self._bypass is not None:
            self._bypass.remove()
            self._bypass = None

    def _on_any_forward(self, module: Any, _inputs: Any) -> None:
        try:
            if (
                self.box.silent
                or not torch.is_grad_enabled()
                or DistributedDataParallel._active_ddp_module is not None
                or not module.training
            ):
                return
            for ddp, watched in list(self._watched.items()):
                if getattr(ddp, "module", None) is module and not watched.bypass_site:
                    watched.bypass_site = self._site()
                    self._watch_bypass_no_more()
        except Exception:
            self.fail()

    # -- backward, gradients, optimizer

    def _backward(self, tensors: Any, *_args: Any, **_kwargs: Any) -> None:
        watched = self._last
        for one in self._watched.values():
            one.backwards += 1
        loss = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
        if watched is None or not isinstance(loss, torch.Tensor):
            return
        text, values = loss_facts(loss)
        clean = 1.0
        if values and not math.isfinite(values[0]):
            clean = float(all(finite(t) for t in (ref() for ref in watched.inputs) if t is not None))
        told: dict[str, Any] = {"names": _LOSS[: 1 + len(values)], "graph": text}
        turn = watched.turns["backward"] + 1
        if watched.may_skip and (watched.search_s < FLOOR_S or turn & (turn - 1) == 0 or turn % 64 == 0):
            began = time.perf_counter()
            told["unused"] = unused(loss, watched.names, watched.parameters)
            watched.search_s = time.perf_counter() - began
        names = self._name(("backward", text, len(values), str(told.get("unused"))), lambda: told)
        self._write(watched, "backward", names, pack(f"{1 + len(values)}d", clean, *values))

    def _inside_another(self, optimizer: Any) -> bool:
        """Whether an optimizer is stepped by another one, which is not done yet: a shard of it (ZeroRedundancyOptimizer)."""
        outer = self._stepping() if self._stepping is not None else None
        if outer is None or outer is optimizer:
            return False
        frame = sys._getframe(2)
        for _ in range(40):
            if frame is None:
                break
            if frame.f_code.co_name == "step" and frame.f_locals.get("self") is outer:
                return True
            frame = frame.f_back
        return False  # its step has failed

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        if self._inside_another(optimizer):
            return
        self._stepping = weakref.ref(optimizer)
        for watched in self._models_of(optimizer):
            if watched.backwards and not watched.forwards and not watched.bypass_site:
                self._watch_bypass()  # it was trained without its wrapper: where, the next time?
            names, values = self._hyper(optimizer)
            facts = (
                watched.forwards, watched.synced, watched.backwards, watched.bypass_site, self._door.outstanding,
                watched.arrived_finite,
            )  # fmt: skip
            gradients = [parameter.grad for parameter in watched.parameters]
            self._digest(watched, "gradients", gradients, names, pack(f"{len(facts) + len(values)}d", *facts, *values))
            watched.forwards = watched.synced = watched.backwards = 0
            watched.arrived_finite = 1.0

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        if self._inside_another(optimizer):
            return
        self._stepping = None
        for watched in self._models_of(optimizer):
            watched.steps += 1
            self._digest(watched, "updated", watched.parameters, 0, b"")

    def _models_of(self, optimizer: Any) -> list[Watched]:
        """The models whose parameters this optimizer holds."""
        count = sum(len(group["params"]) for group in optimizer.param_groups)
        known = self._of_optimizer.get(optimizer)
        if known is None or known[0] != count:
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            held = {id(parameter) for parameter in parameters}
            models = [watched for watched in self._watched.values() if watched.ids & held]
            if not models and not self._watched:
                models = self._adopt(optimizer, parameters)
            known = self._of_optimizer[optimizer] = (count, models)
            self._describe_optimizer(optimizer, parameters, held, models)
        return known[1]

    def _adopt(self, optimizer: Any, parameters: list[Any]) -> list[Watched]:
        """Without a wrapper the optimizer's parameters are followed: somebody may average gradients by hand."""
        sharded = any(hasattr(p, "device_mesh") for p in parameters)
        parameters = [p for p in parameters if not hasattr(p, "device_mesh")]
        if not dist.is_initialized() or dist.get_world_size() < 2 or not parameters:
            return []
        names = _names_from_frames(parameters)
        named = [(names.get(id(p), f"parameter {number}"), p) for number, p in enumerate(parameters)]
        known = self._door.group(dist.group.WORLD)
        number, self._adopted = UNWRAPPED + self._adopted, self._adopted + 1
        tensors = [
            {"name": s.name, "shape": list(s.shape), "dtype": s.dtype, "device": s.device, "trains": s.trains}
            for s in _specs(named, [])
        ]
        self._save_model(number, "", type(optimizer).__name__, known, tensors, {"sharded": sharded})
        watched = self._watched[optimizer] = self._follow(number, (named, []))
        self._last = self._last or watched
        return [watched]

    def _describe_optimizer(self, optimizer: Any, parameters: list[Any], held: set[int], models: list[Watched]) -> None:
        """Once for each optimizer: does it hold what is trained?"""
        for watched in models or self._watched.values():
            trained = [(n, p) for n, p in zip(watched.names, watched.parameters, strict=False) if p.requires_grad]
            missing = [name for name, parameter in trained if id(parameter) not in held]
            strangers = sum(id(p) not in watched.ids for p in parameters)
            shapes = sorted(tuple(p.shape) for p in parameters)
            self.event(
                "optimizer",
                {
                    "optimizer": type(optimizer).__name__,
                    "model": watched.number,
                    "parameters": len(parameters),
                    "strangers": strangers,
                    "missing": missing[:20],
                    "copies": not models and shapes == sorted(tuple(p.shape) for _, p in trained),
                },
            )

    def _hyper(self, optimizer: Any) -> tuple[int, list[float]]:
        names: list[str] = []
        values: list[float] = []
        for number, group in enumerate(optimizer.param_groups[:8]):
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
        kind = type(optimizer).__name__
        return self._name((kind, *names), lambda: {"names": [*_STEP, *names], "optimizer": kind}), values

    def _clipped(self, norm: Any, _parameters: Any, max_norm: Any = 0.0, *_args: Any, **_kwargs: Any) -> None:
        watched = self._last
        if watched is not None and isinstance(norm, torch.Tensor) and norm.device.type == "cpu":
            names = self._name("clip", lambda: {"names": ["norm", "max_norm"]})
            self._write(watched, "clip", names, pack("2d", float(norm), float(max_norm)))

    def _scaled(self, _none: Any, scaler: Any, *_args: Any, **_kwargs: Any) -> None:
        scale = getattr(scaler, "_scale", None)
        if self._last is not None and isinstance(scale, torch.Tensor) and scale.device.type == "cpu":
            self._write(self._last, "scale", self._name("scale", lambda: {"names": ["scale"]}), pack("d", float(scale)))

    # -- writing

    def _digest(self, watched: Watched, kind: str, tensors: Sequence[Any], names: int, values: bytes) -> None:
        pace = watched.paces[kind]
        began = time.perf_counter()
        log2, hashes, norms = pace.log2, b"", b""
        turn = watched.turns[kind] + 1
        # Off the CPU a digest waits for the device: rarely, then, and never at the start.
        if watched.digester is not None and (watched.on_cpu or turn % 64 == 0):
            hashes, norms = watched.digester.digest(tensors, log2, watched.steps)
        self._write(watched, kind, names, values, log2, hashes, norms)
        now = time.perf_counter()
        pace.spent(now - began, now)

    def _write(
        self,
        watched: Watched,
        kind: str,
        names: int,
        values: bytes,
        log2: int = 0,
        hashes: bytes = b"",
        norms: bytes = b"",
    ) -> None:
        turn = watched.turns[kind] = watched.turns[kind] + 1
        self._file.write(watched.number, kind, turn, watched.steps, self._site(), names, values, log2, hashes, norms)

    def _name(self, key: Any, make: Callable[[], dict[str, Any]]) -> int:
        number = self._names.get(key)
        if number is None:
            number = self.box.intern(make())
            if len(self._names) < 5000:
                self._names[key] = number
        return number

    def _site(self) -> int:
        frame = calling_frame(2)
        if frame is None:
            return 0
        known = self._sites.get((id(frame.f_code), frame.f_lasti))
        if known is None:
            code = frame.f_code
            told = {"file": code.co_filename, "line": frame.f_lineno, "function": code.co_name}
            known = (self.box.intern(told), code)
            if len(self._sites) < 5000:
                self._sites[id(code), frame.f_lasti] = known
        return known[0]


def _exact(watched: Watched) -> dict[str, Any]:
    tensors = [*watched.parameters, *watched.buffers]
    named = zip(watched.names[:_MAX_TENSORS], tensors, strict=False)
    return {
        "model": watched.number,
        "step": watched.steps,
        "forwards": watched.turns["forward"],
        "buffers": watched.names[len(watched.parameters) : _MAX_TENSORS],
        "tensors": [[name, exact(tensor), _norm(tensor)] for name, tensor in named],
    }


_FORWARD = ["sync", "training", "buffers_synced", "inputs_hash", "inputs_finite", "forwards"]
_STEP = ["forwards", "synced", "backwards", "bypass", "outstanding", "arrived_finite"]
_LOSS = ["inputs_finite", "loss", "factor 1", "factor 2", "factor 3"]


def _named(module: Any) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
    """Parameters and buffers of a module, by name."""
    return list(module.named_parameters()), list(module.named_buffers())


def _specs(parameters: Iterable[tuple[str, Any]], buffers: Iterable[tuple[str, Any]]) -> list[TensorSpec]:
    def spec(name: str, tensor: Any, buffer: bool) -> TensorSpec:
        dtype = str(tensor.dtype).removeprefix("torch.")
        return TensorSpec(name, tuple(tensor.shape), dtype, str(tensor.device), tensor.requires_grad, buffer)

    return [spec(n, p, False) for n, p in parameters] + [spec(n, b, True) for n, b in buffers]


def _names_from_frames(parameters: list[Any]) -> dict[int, str]:
    """Names of parameters from the modules that the calling functions hold in their variables."""
    wanted = {id(parameter) for parameter in parameters}
    found: dict[int, str] = {}
    frame = calling_frame(2)
    while frame is not None and len(found) < len(wanted):
        for value in list(frame.f_locals.values()):
            kind = type(value)  # isinstance() would run code of odd objects
            if issubclass(kind, (ModuleType, type)):
                continue
            parts = [value, *list(getattr(value, "__dict__", {}).values())[:200]] if is_user_class(kind) else [value]
            for module in parts:
                if issubclass(type(module), torch.nn.Module):
                    named = module.named_parameters()
                    found.update((id(p), name) for name, p in named if id(p) in wanted and id(p) not in found)
        frame = frame.f_back
    return found


def is_user_class(kind: type) -> bool:
    """Whether a class is the user's own: looking into its instances runs nothing."""
    module = sys.modules.get(kind.__module__)
    return is_user_file(str(getattr(module, "__file__", "") or "<frozen")) or kind.__module__ == "__main__"


def _norm(tensor: torch.Tensor) -> float | None:
    if not tensor.is_floating_point() or tensor.device.type == "meta":
        return None
    value = float(torch.linalg.vector_norm(tensor.detach().float()))
    return value if math.isfinite(value) else None
