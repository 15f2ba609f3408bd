"""The replica watch: digests of every wrapped model during training, compared in the launcher.

At each forward of a DDP module: its parameters and buffers as the forward sees them, and its inputs;
before each optimizer step: gradients and hyper-parameters; after it: parameters. Nothing is
communicated: each rank writes its digests to shared memory and the launcher compares. The cost decides
which steps are sampled (``recorder.models.sampling``); of other steps only the number is recorded, and whether
the loss was not finite.
"""

from __future__ import annotations

import math
import os
import sys
import time
import weakref
from array import array
from collections.abc import Callable
from struct import pack
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ddpnb.recorder.collectives.door import Door
from ddpnb.recorder.events.hooks import Hooks
from ddpnb.recorder.events.inputs import all_finite, describe, finite, tensors_in
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.models.bypass import Bypass
from ddpnb.recorder.models.device_losses import DeviceLosses
from ddpnb.recorder.models.losses import loss_facts, sound, unused
from ddpnb.recorder.models.optimizers import Optimizers, hyper_parameters
from ddpnb.recorder.models.samples import SampleFile, Samples, digests
from ddpnb.recorder.models.sampling import Meter
from ddpnb.recorder.models.tracing import Tracing
from ddpnb.recorder.models.tracked_model import Watched, living, named_tensors, tensors_of
from ddpnb.recorder.models.tracked_models import Followed
from ddpnb.recorder.stacks.user_frames import calling_frame
from ddpnb.recording.events.models import (
    BuffersSynced,
    LossNotFinite,
    NoSyncEntered,
    ParametersFrozen,
    ParametersReplaced,
)
from ddpnb.recording.replicas import UNWRAPPED

_UNSTEPPED = 64  # forwards without a step of the optimizer: from then on one of as many is looked at
_LINES = 32  # that enter no_sync
_NAMED = 64  # parameters that an event names
_SEARCH_S = 90e-6  # a search for unused parameters that takes longer is not made in every backward


class Replicas(Hooks):
    """Follows every model that is wrapped with DDP, and the parameters of optimizers that no wrapper holds."""

    def __init__(self, box: BlackBox, door: Door, folder: str, rank: int) -> None:
        super().__init__(box)
        self._flight = door.flight
        self._groups = door.groups
        self._optimizers = Optimizers(box)
        self._unsent: list[
            tuple[Watched, float]
        ] = []  # models that no wrapper averages, and the norms of their gradients
        door.on_call.append(self.guarded(self._send))
        self.models = Followed(door.groups, folder, rank, self.emit, self._resumed, self._optimizers.number)
        self._watched = self.models.watched
        # The optimizer in its step, and its models.
        self._stepping: tuple[weakref.ref[Any], list[Watched]] | None = None
        self._file = SampleFile(os.path.join(folder, f"rank{rank}.samples"))
        self._samples = Samples(self._file, box)
        self._losses = DeviceLosses()
        self._unsynced: set[tuple[int, int, int]] = set()
        self._others, self._unsound = (
            0,
            False,
        )  # backward passes of models that are not known, and whether a loss was not finite
        self._bypass = Bypass(box, self.models, self._samples, self.fail)
        #: called with a wrapper of an earlier run that is used again
        self.on_resumed: list[Callable[[Any], None]] = []
        self.tracing = Tracing(box)

    # -- life

    def install(self) -> None:
        self.before(DistributedDataParallel, "__init__", self._wrapping)
        self.after(DistributedDataParallel, "__init__", self._wrapped)
        self.replace(DistributedDataParallel, "_pre_forward", self._forward)
        self.after(DistributedDataParallel, "_post_forward", self._look_output)
        self.before(torch.autograd, "backward", self._backward)
        self.after(torch.autograd, "backward", self._reduced)
        self.after(DistributedDataParallel, "no_sync", self._no_sync)
        self.on_removal(register_optimizer_step_pre_hook(self.guarded(self._before_step)).remove)
        self.on_removal(register_optimizer_step_post_hook(self.guarded(self._after_step)).remove)
        self.after(torch.nn.utils.clip_grad, "clip_grad_norm_", self._clipped)
        self.replace(torch.utils, "swap_tensors", self._swap)
        self.after(torch.amp.GradScaler, "unscale_", self._left)
        self.after(torch.amp.GradScaler, "update", self._scaled)
        self._optimizers.install()
        self.on_removal(self._optimizers.remove)
        self.before(torch, "compile", self._bypass.compiles)
        self.on_removal(self._bypass.end)
        self.on_removal(self.tracing.remove)

    def new_run(self) -> None:
        super().new_run()
        self._optimizers.new_run()
        self._unsynced.clear()
        self._unsent = []
        self._others, self._unsound, self._said_unsound = 0, 0, False
        self._losses.forget()
        self._bypass.end()
        self.tracing.new_run()
        self.models.new_run()

    def finish(self, name: str = "", place: dict[str, Any] | None = None) -> None:
        """The run is over: its last losses may have come from the device. ``name``: of one whose state another may share."""
        self.guarded(self._losses.poll)()
        self.last_look()
        if name:
            self.guarded(self.models.end_of_run)(name, place or {})

    def last_look(self, *_: Any) -> None:
        """A group is made or destroyed, or the run is over: no step may follow, so the last one is looked at."""
        self.guarded(self._look_last)()

    def _look_last(self) -> None:
        for ddp, watched in list(self._watched.items()):
            whole = watched.stepped and watched.stepped == watched.versions()  # nothing has changed it since that step
            if whole and not getattr(ddp, "_comm_hooks", None) and watched.is_readable():
                held = watched.digester.digest(watched.parameters, watched.log2, watched.steps)
                self._samples.write(watched, "updated", 0, b"", watched.log2, *held, site=watched.step_site)
            watched.stepped = ()

    def begin(self, run: int) -> None:
        """Assign digests to this run from now on."""
        self.models.begin(run)
        self._file.new_run(run)

    # -- models

    def _wrapping(self, _ddp: Any, module: Any = None, *args: Any, **kwargs: Any) -> None:
        """A model is about to be wrapped: record its tensors, also if they differ between ranks."""
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
        number = self.models.next_number()
        known = self._groups.get(group) if group is not None else None
        tensors = tensors_of(module)
        self.models.save(number, "DistributedDataParallel", type(module).__name__, known, tensors, named)

    def _wrapped(self, _none: Any, ddp: Any, *_args: Any, **_kwargs: Any) -> None:
        self._flight.tidy()  # of the broadcasts, which hold copies of the parameters
        if isinstance(getattr(ddp, "module", None), torch.nn.Module):
            watched = self.models.wrapped(ddp)
            # Only now is it known: two arguments, both of which may be left out, say so.
            self.emit(BuffersSynced(model=watched.number, synced=_syncs_buffers(ddp)))
            watched.may_skip = bool(getattr(ddp, "find_unused_parameters", False))
            # The wrapper has just made all ranks equal: what differs later came later.
            watched.turns["updated"] += 1
            self._samples.digest(watched, "updated", watched.parameters, 0, b"")
            self._bypass.begin()

    def _resumed(self, owner: Any, watched: Watched) -> None:
        """A model of an earlier run is used again: what it held then, and holds now, and what else is known of it."""
        for end in watched.ends:
            self._samples.earlier(watched, end)
        if isinstance(owner, DistributedDataParallel):
            self.emit(BuffersSynced(model=watched.number, synced=_syncs_buffers(owner)))
            watched.turns["updated"] += 1
            if watched.is_readable():
                digests = watched.digester.digest(watched.parameters, watched.log2, 0)
                self._samples.write(watched, "updated", 0, b"", watched.log2, *digests)
            for look in self.on_resumed:
                look(owner)

    def _follow(self, owner: Any) -> Watched | None:
        try:
            return self.models.follow(owner)
        except Exception:
            self.fail()
            return None

    def _swap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """torch refuses to swap a tensor that has weak references."""
        let_go = self.guarded(self.models.let_go)

        def swap_tensors(*args: Any, **kwargs: Any) -> Any:
            held: list[Callable[[], None]] = []
            let_go([*args, *kwargs.values()], held)
            try:
                return original(*args, **kwargs)
            finally:
                for take_up in held:
                    take_up()

        return swap_tensors

    # -- forward

    def _forward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        look, passing, silent = self.guarded(self._look_forward), self.guarded(self._pass_forward), self.box.silent
        of, compiling, failed = self._follow, torch.compiler.is_compiling, self.guarded(self._failed_forward)

        def _pre_forward(ddp: Any, *inputs: Any, **kwargs: Any) -> Any:
            if silent or not torch.is_grad_enabled() or compiling() or (watched := of(ddp)) is None:
                return original(ddp, *inputs, **kwargs)
            synced = watched.pace.looking and ddp.will_sync_module_buffers()
            try:
                result = original(ddp, *inputs, **kwargs)
            except RuntimeError:
                failed(watched, ddp)
                raise
            passing(watched, ddp)
            if watched.pace.looking:
                look(watched, ddp, synced, inputs, kwargs)
            return result

        return _pre_forward

    def unsynced(self, ddp: Any) -> None:
        """The program itself turns the synchronisation of a wrapped model off."""
        self._no_sync(None, ddp, "require_backward_grad_sync = False")

    def _no_sync(self, _manager: Any, ddp: Any, way: str = "no_sync()") -> None:
        """Called in every micro-step: recorded once for each line."""
        frame, watched = calling_frame(), self._follow(ddp)
        if frame is None or watched is None:
            return
        line = watched.number, id(frame.f_code), frame.f_lineno
        if line not in self._unsynced and len(self._unsynced) < _LINES:
            self._unsynced.add(line)
            self.emit(NoSyncEntered(model=watched.number, way=way))

    def _failed_forward(self, watched: Watched, ddp: Any) -> None:
        """Parameters that no longer require a gradient, or were replaced: DDP still waits for their gradients, and raises in the next forward."""
        self._check_members(watched, ddp)
        known = zip(watched.names, watched.parameters, watched.trained, strict=False)
        frozen = [
            name
            for name, parameter, trained in known
            if trained and parameter is not None and not parameter.requires_grad
        ]
        if frozen:
            names = tuple(frozen[:_NAMED])
            self.emit(ParametersFrozen(model=watched.number, names=names, count=len(frozen)))

    def _pass_forward(self, watched: Watched, ddp: Any) -> None:
        if self._bypass.hook is not None:
            self._bypass.end()
        self.models.last = watched
        watched.forwards += 1
        watched.synchronises = bool(ddp.require_backward_grad_sync)
        watched.synced += watched.synchronises
        watched.reduced = watched.left = None
        turn = watched.turns["forward"] = watched.turns["forward"] + 1
        self.box.forward()
        before = turn - 1  # 1, 2, 3, 4, 7, 8, 15, 16, ...: the same ones on all ranks
        if before and not (before & (before - 1) and before & (before + 1)):
            with Meter(watched.pace):
                self._check_members(watched, ddp)  # does it still hold what was wrapped?
        watched.inputs = []
        if watched.forwards > _UNSTEPPED:  # no optimizer steps with it, or hardly ever
            watched.pace.looking, watched.pace.cost = not turn % _UNSTEPPED, 0.0
        if self.tracing.wanted:
            self.tracing.begin(watched.number, turn, ddp.module, watched.exact)

    def _look_forward(self, watched: Watched, ddp: Any, synced: bool, inputs: Any, kwargs: Any) -> None:
        with Meter(watched.pace):
            text, hash_, finite, watched.inputs = describe(inputs, kwargs)
            names = self._samples.name(("forward", text), lambda: {"names": _FORWARD, "inputs": text})
            values = pack("6d", ddp.require_backward_grad_sync, ddp.training, synced, hash_, finite, watched.forwards)
            self._samples.digest(watched, "forward", watched.tensors, names, values)

    def _look_output(self, result: Any, ddp: Any, *_: Any, **__: Any) -> None:
        """Check that the gradient of the output is finite: after averaging the rank is not known."""
        last = self.models.last  # it has just run forward
        if last is None or not last.pace.looking or not torch.is_grad_enabled() or self._watched.get(ddp) is not last:
            return
        watched = last

        def look(gradient: Any) -> None:
            with Meter(watched.pace):
                # None: the function ignores this output, and torch computed no zeros for it.
                if gradient is not None and watched.arrived_finite and not all_finite(gradient):
                    watched.arrived_finite = 0.0

        with Meter(watched.pace):
            for tensor in tensors_in(result):
                if tensor.requires_grad and tensor.grad_fn is not None:
                    tensor.register_hook(self.guarded(look))

    def _check_members(self, watched: Watched, ddp: Any) -> None:
        """Parameters that were put in place of those that were wrapped: DDP does not know of them."""
        fresh, _ = named_tensors(ddp.module)
        ids = watched.ids
        strangers = [name for name, parameter in fresh if id(parameter) not in ids]
        if strangers:
            self.emit(ParametersReplaced(model=watched.number, names=tuple(strangers[:20])))

    # -- backward, gradients, optimizer

    def _backward(self, tensors: Any, *_args: Any, **_kwargs: Any) -> None:
        watched = self.models.last
        for one in list(self._watched.data.values()):  # pyright: ignore[reportAttributeAccessIssue]
            one.backwards += 1
        if watched is None or self._unsound:
            self._of_unknown_model(tensors)
        if watched is None:
            return
        watched.turns["backward"] += 1
        self._losses.poll()
        loss = tensors[0] if type(tensors) in (list, tuple) and tensors else tensors
        # Averaged with the others' gradients, a loss that is not finite here is soon seen everywhere: the first one counts.
        watched.unsound = 0 if sound(loss) else watched.unsound + 1
        first = watched.unsound and not watched.unsound & (watched.unsound - 1)
        if isinstance(loss, torch.Tensor) and (watched.pace.looking or first):
            with Meter(watched.pace):
                self._look_backward(watched, loss)

    def _of_unknown_model(self, tensors: Any) -> None:
        loss = tensors[0] if type(tensors) in (list, tuple) and tensors else tensors
        self._others += 1
        if self._said_unsound:
            return
        if sound(loss):  # a single one may have been left out on all ranks
            self._unsound = 0
        elif self._unsound:
            self._said_unsound = True
            self.emit(LossNotFinite(loss=str(loss.item()), backward=self._unsound), depth=3)
        else:
            self._unsound = self._others

    def _look_backward(self, watched: Watched, loss: torch.Tensor) -> None:
        text, values = loss_facts(loss)
        clean = 1.0
        if values and not math.isfinite(values[0]):
            clean = float(all(finite(t) for t in map(living, watched.inputs) if t is not None))
        told: dict[str, Any] = {"names": _LOSS[: 1 + len(values)], "graph": text}
        turn = watched.turns["backward"]
        if watched.may_skip and (watched.search_s < _SEARCH_S or turn & (turn - 1) == 0 or turn % 64 == 0):
            began = time.perf_counter()
            told["unused"] = unused(loss, watched.names, watched.parameters)
            watched.search_s = time.perf_counter() - began
        names = self._samples.name(("backward", text, len(values), str(told.get("unused"))), lambda: told)
        self._samples.write(watched, "backward", names, pack(f"{1 + len(values)}d", clean, *values))
        if loss.device.type == self._losses.kind:
            write = self._samples.later(
                watched, "loss", "backward", self._samples.name("loss", lambda: {"names": ["loss"]})
            )
            self._losses.take(loss, lambda value: write(pack("d", value)))

    def _reduced(self, *_: Any, **__: Any) -> None:
        """A backward pass is over: where it synchronised, all ranks hold the same gradients."""
        self._flight.tidy()  # nobody in Python waits for DDP's calls, which hold its buckets
        for watched in list(self._watched.data.values()):  # pyright: ignore[reportAttributeAccessIssue]
            if watched.pace.looking and watched.synchronises:
                with Meter(watched.pace):
                    watched.reduced = watched.left = digests(watched, _gradients(watched))[1]
        self._unsent = [(watched, norm) for watched in self.models.unwrapped() if (norm := _norm(watched)) > 0]

    def _send(self, *_: Any) -> None:
        """The first collective after a backward: what each rank has made of its gradients before it averages them."""
        if not self._unsent:
            return
        unsent, self._unsent = self._unsent, []
        names = self._samples.name("sent", lambda: {"names": ["local", "sent"]})
        for watched, local in unsent:
            watched.turns["sent"] = watched.steps + 1
            self._samples.write(watched, "sent", names, pack("2d", local, _norm(watched)))

    def _left(self, *_: Any, **__: Any) -> None:
        """torch has changed gradients itself: what differs from them later was changed by the script."""
        for watched in list(self._watched.data.values()):  # pyright: ignore[reportAttributeAccessIssue]
            if watched.pace.looking and watched.left:
                with Meter(watched.pace):
                    watched.left = digests(watched, _gradients(watched))[1]

    def _inside_another(self, optimizer: Any) -> bool:
        """Whether an optimizer is stepped by another one, which is not done yet: a shard of it (ZeroRedundancyOptimizer)."""
        outer = self._stepping[0]() if self._stepping is not None else None
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
        models = self.models.of(optimizer)
        self._stepping = weakref.ref(optimizer), models
        self._losses.poll()
        self._flight.tidy()
        for watched in models:
            if watched.number >= UNWRAPPED:
                if not watched.turns["gradients"]:
                    watched.turns["start"] += 1
                    self._samples.digest(watched, "start", watched.parameters, 0, b"")
            elif watched.backwards and not watched.forwards and not watched.bypass_site:
                self._bypass.begin()  # it was trained without its wrapper: where, the next time?
            watched.turns["gradients"] += 1
            if watched.forwards > _UNSTEPPED:
                watched.pace.next_step(watched.steps)  # many were accumulated: it is this step that counts
            if watched.pace.looking:
                with Meter(watched.pace):
                    self._look_gradients(watched, optimizer)
            self._unsent = []
            watched.averaged = watched.number < UNWRAPPED and watched.synced > 0
            watched.forwards = watched.synced = watched.backwards = 0
            watched.synchronises, watched.reduced, watched.left = False, None, None
            watched.arrived_finite = 1.0

    def _look_gradients(self, watched: Watched, optimizer: Any) -> None:
        names, values = hyper_parameters(optimizer.param_groups)
        kind, known = type(optimizer).__name__, self._optimizers.of(optimizer)
        told: dict[str, Any] = {"optimizer": kind}
        if known.number >= 0:
            told |= {"made": known.number, "edited": known.edited(names, values)}
        number = self._samples.name((*told.values(), *names), lambda: {"names": [*_STEP, *names], **told})
        log2, hashes, norms = digests(watched, _gradients(watched))
        facts = (
            watched.forwards, watched.synced, watched.backwards, watched.bypass_site, self._flight.outstanding,
            watched.arrived_finite, known.scheduled, _same(watched.reduced, hashes), _same(watched.left, hashes),
        )  # fmt: skip
        numbers = pack(f"{len(facts) + len(values)}d", *facts, *values)
        self._samples.write(watched, "gradients", number, numbers, log2, hashes, norms)

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        if self._inside_another(optimizer):
            return
        stepping, self._stepping = self._stepping, None
        for watched in stepping[1] if stepping is not None and stepping[0]() is optimizer else ():
            watched.steps += 1
            watched.turns["updated"] += 1
            looked = watched.pace.looking
            watched.pace.next_step(watched.steps)
            if looked or watched.pace.looking:  # what the next forward is compared with belongs to the look at it
                with Meter(watched.pace):
                    watched.step_site = self._samples.digest(watched, "updated", watched.parameters, 0, b"")
                watched.stepped = ()
            else:
                watched.stepped = watched.versions() if watched.averaged else ()
            if looked:
                watched.pace.looked(watched.steps, time.perf_counter(), len(self._watched))

    def _clipped(self, norm: Any, parameters: Any, max_norm: Any = 0.0, *_args: Any, **_kwargs: Any) -> None:  # noqa: ARG002
        self._left()
        if isinstance(norm, torch.Tensor) and norm.device.type == "cpu":
            self._look_once("clip", ["norm", "max_norm"], lambda: pack("2d", float(norm), float(max_norm)))

    def _scaled(self, _none: Any, scaler: Any, *_args: Any, **_kwargs: Any) -> None:
        scale = getattr(scaler, "_scale", None)
        if isinstance(scale, torch.Tensor) and scale.device.type == "cpu":
            self._look_once("scale", ["scale"], lambda: pack("d", float(scale)), made=self._optimizers.scaler(scaler))

    def _look_once(self, kind: str, names: list[str], values: Callable[[], bytes], **told: Any) -> None:
        watched = self.models.last
        if watched is None:
            return
        watched.turns[kind] += 1
        if watched.pace.looking:
            with Meter(watched.pace):
                self._samples.write(
                    watched,
                    kind,
                    self._samples.name((kind, *told.values()), lambda: {"names": names, **told}),
                    values(),
                )


def _syncs_buffers(ddp: Any) -> bool:
    """Whether the forward passes give all ranks the buffers of rank 0; before torch 2.13, one argument said it."""
    return bool(getattr(ddp, "forward_sync_buffers", getattr(ddp, "broadcast_buffers", True)))


def _gradients(watched: Watched) -> list[Any]:
    return [None if parameter is None else parameter.grad for parameter in watched.parameters]


def _norm(watched: Watched) -> float:
    """The norm of all gradients of a model whose step is looked at; 0 if that is not to be had cheaply."""
    if not watched.pace.looking or not watched.on_cpu or watched.log2:
        return 0.0
    with Meter(watched.pace):
        norms = array("f", digests(watched, _gradients(watched))[2])
    return math.sqrt(sum(norm * norm for norm in norms if not math.isnan(norm)))


def _same(before: bytes | None, now: bytes) -> float:
    """1: these hashes are equal; 0: they are not; -1: some are not known."""
    return float(before == now) if before and now else -1.0


_FORWARD = ["sync", "training", "buffers_synced", "inputs_hash", "inputs_finite", "forwards"]
_STEP = [
    "forwards", "synced", "backwards", "bypass", "outstanding", "arrived_finite", "scheduled", "as_reduced", "as_left",
]  # fmt: skip
_LOSS = ["inputs_finite", "loss", "factor 1", "factor 2", "factor 3"]
