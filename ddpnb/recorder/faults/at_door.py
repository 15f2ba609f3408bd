"""Faults at the door: a call of this rank is skipped, changed, delayed, or does not return."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import struct
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllreduceOptions, ProcessGroup, Work

from ddpnb.errors import InjectedFault
from ddpnb.recorder.collectives.callers import REDUCE_OPS
from ddpnb.recorder.holds.breakpoints import AtDoor
from ddpnb.recorder.stacks.user_frames import calling_frame
from ddpnb.recording import blackbox as layout
from ddpnb.recording.holds import Hold

if TYPE_CHECKING:
    from ddpnb.recorder.collectives.door import Door
    from ddpnb.recorder.collectives.groups import KnownGroup
    from ddpnb.recorder.collectives.signatures import OpSpec
    from ddpnb.recorder.faults.armed import Armed

_SITE_AT = 20  # of a call's record: the string of its site
_FOREVER_S = 1 << 30
_SEVERAL = ("nan", "corrupt")  # change one element: a tensor with one alone is a number or a decision, not data
Args = tuple[Any, ...]
#: makes the call with these arguments, past the faults
Make = Callable[[Args], Any]
_REDUCTIONS = {
    "sum": dist.ReduceOp.SUM,
    "product": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
}


class Effect:
    """The effect of a fault: other arguments for the call, or a result in its place."""

    __slots__ = ("args", "result")

    def __init__(self, args: Args | None = None, result: Any = None) -> None:
        self.args = args
        self.result = result


class AtTheDoor:
    """The faults in calls."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self.armed: list[Armed] = door.faults  # which the door reads at every call
        door.apply_faults = self.apply
        self._busy = threading.local()
        self._postponed: tuple[Args, int, Make] | None = None  # of a swap: the call that is to come later

    def apply(self, spec: OpSpec, args: Args, make: Make) -> Effect | None:
        """Apply matching faults to this call; None: make it unchanged."""
        if getattr(self._busy, "now", False):
            return None
        self._busy.now = True
        try:
            return self._apply(spec, args, make)
        finally:
            self._busy.now = False

    def _apply(self, spec: OpSpec, args: Args, make: Make) -> Effect | None:
        group = self._door.groups.get(ProcessGroup.unbox(args[spec.group]))
        if self._postponed is not None:
            return self._in_other_order(args, make)
        frame = calling_frame(4)
        call = AtDoor(spec.name, 0 if spec.p2p else self._next_seq(group), group.identity, frame)
        for armed in self.armed:
            fault = armed.fault
            kind = fault.description
            if kind.ops and spec.name not in kind.ops:
                continue
            if fault.kind in _SEVERAL and all(tensor.numel() < 2 for tensor in _tensors(spec, args)):
                continue
            if not call.fits(Hold((fault.op,) if fault.op else (), fault.seq, fault.site, fault.group)):
                continue
            if not armed.trigger(self._door.box.steps):
                continue
            armed.note(self._door.box, **call.to_json())
            effect = getattr(self, "_" + fault.kind.replace(" ", "_"))(armed, spec, args, make)
            if effect is not None:
                return effect
        return None

    def _next_seq(self, group: KnownGroup) -> int:
        """The number that the next call of this group will have."""
        if group.returned:
            return group.returned[-1]
        memory = self._door.box.memory
        calls = layout.PROGRESS.unpack_from(memory, layout.PROGRESS_AT)[0]
        for number in range(calls - 1, max(-1, calls - 1 - layout.CALLS), -1):
            stamp, string, seq = struct.unpack_from(
                "<QII", memory, layout.CALLS_AT + number % layout.CALLS * layout.CALL_SIZE
            )
            if stamp == number + 1 and string == group.string and seq:
                return seq + 1
        return 1

    # -- the kinds: each does it, and says what is left to do

    def _skip(self, _armed: Armed, spec: OpSpec, args: Args, _make: Make) -> Effect:
        return Effect(result=_as_if_made(spec, args))

    def _extra_call(self, _armed: Armed, spec: OpSpec, args: Args, make: Make) -> None:
        _wait(make(tuple(_each(arg, torch.clone) for arg in args)), spec)

    def _delay(self, armed: Armed, *_: Any) -> None:
        time.sleep(float(armed.fault.value("seconds")))

    def _swap(self, _armed: Armed, spec: OpSpec, args: Args, make: Make) -> Effect:
        frame = calling_frame(5)
        self._postponed = args, self._door.site_here(frame)[0] if frame is not None else 0, make
        return Effect(result=_as_if_made(spec, args))

    def _in_other_order(self, args: Args, make: Make) -> Effect:
        assert self._postponed is not None
        late, site, make_late = self._postponed
        self._postponed = None
        result = make(args)
        self._wait_for(result)
        made = make_late(late)
        memory = self._door.box.memory
        number = layout.PROGRESS.unpack_from(memory, layout.PROGRESS_AT)[0] - 1
        struct.pack_into("<I", memory, layout.CALLS_AT + number % layout.CALLS * layout.CALL_SIZE + _SITE_AT, site)
        self._wait_for(made)
        return Effect(result=result)

    def _wait_for(self, result: Any) -> None:
        work = result[1] if isinstance(result, tuple) else result
        if work is not None:
            Work.unbox(work).wait()

    def _other_op(self, _armed: Armed, spec: OpSpec, args: Args, _make: Make) -> Effect:
        tensors = _tensors(spec, args) or [torch.zeros(1)]
        group = ProcessGroup.unbox(args[spec.group])
        if spec.name == "broadcast":
            work = group.allreduce(tensors, AllreduceOptions())
        else:
            work = group.broadcast(tensors[0], 0)
        return Effect(result=(args[0], work.boxed()) if _is_pair(spec) else work.boxed())

    def _other_shape(self, armed: Armed, spec: OpSpec, args: Args, _make: Make) -> Effect | None:
        return self._other_tensors(armed, spec, args, lambda t: torch.cat([t.flatten(), t.new_zeros(1)]))

    def _other_dtype(self, armed: Armed, spec: OpSpec, args: Args, _make: Make) -> Effect | None:
        dtype = getattr(torch, str(armed.fault.value("dtype")), None)
        if not isinstance(dtype, torch.dtype):
            return armed.cannot(f"torch has no dtype {armed.fault.value('dtype')}")
        return self._other_tensors(armed, spec, args, lambda t: t.to(dtype))

    def _other_layout(self, armed: Armed, spec: OpSpec, args: Args, _make: Make) -> Effect | None:
        if all(t.dim() < 2 or min(t.shape[-2:]) < 2 for t in _tensors(spec, args)):
            return armed.cannot("it needs a tensor of two dimensions")
        return self._other_tensors(armed, spec, args, lambda t: t.mT.contiguous().mT if t.dim() > 1 else t)

    def _other_tensors(
        self, armed: Armed, spec: OpSpec, args: Args, change: Callable[[torch.Tensor], torch.Tensor]
    ) -> Effect | None:
        if not _tensors(spec, args):
            return armed.cannot(f"{spec.name} has no tensors")
        with torch.no_grad():
            return Effect(args=tuple(_each(arg, change) for arg in args))

    def _other_root(self, _armed: Armed, spec: OpSpec, args: Args, _make: Make) -> Effect:
        assert spec.root is not None
        size = ProcessGroup.unbox(args[spec.group]).size()
        return Effect(args=_with(args, spec.root, (args[spec.root] + 1) % size))

    def _other_reduction(self, armed: Armed, spec: OpSpec, args: Args, _make: Make) -> Effect | None:
        options: Any = AllreduceOptions()
        name = str(armed.fault.value("reduction"))
        if name == "another":
            assert spec.reduce_op is not None
            try:
                name = "sum" if REDUCE_OPS[args[spec.reduce_op]._get_method("op")()] == "max" else "max"
            except RuntimeError:
                return armed.cannot("this torch does not say the reduction of a call: name one other than its own")
        wanted = _REDUCTIONS.get(name)
        if wanted is None:
            return armed.cannot(f"there is no reduction {name}")
        options.reduceOp = wanted
        work = ProcessGroup.unbox(args[spec.group]).allreduce(list(args[0]), options)
        return Effect(result=(args[0], work.boxed()))

    def _other_group(self, armed: Armed, spec: OpSpec, args: Args, _make: Make) -> Effect | None:
        mine = ProcessGroup.unbox(args[spec.group])
        others = self._door.groups.others(mine)
        same = [group for group in others if group.size() == mine.size()] or others
        if not same:
            return armed.cannot("this rank is in only one group")
        return Effect(args=_with(args, spec.group, same[0].boxed()))

    def _nan(self, armed: Armed, spec: OpSpec, args: Args, _make: Make) -> None:
        tensors = [t for t in _tensors(spec, args) if t.is_floating_point() and t.numel()]
        if not tensors:
            armed.cannot("it needs a floating-point tensor")
            return
        with torch.no_grad():
            tensors[0].view(-1)[0] = math.nan

    def _corrupt(self, armed: Armed, spec: OpSpec, args: Args, make: Make) -> Effect:
        result = make(args)
        self._wait_for(result)
        with torch.no_grad():
            _tensors(spec, args)[0].view(-1)[0] += float(armed.fault.value("amount"))
        return Effect(result=result)

    def _raise(self, armed: Armed, *_: Any) -> None:
        raise InjectedFault(str(armed.fault.value("message"))[:500])

    def _kill(self, armed: Armed, *_: Any) -> None:
        os.kill(os.getpid(), int(armed.fault.value("signal")))
        time.sleep(_FOREVER_S)  # the signal is on its way

    def _freeze(self, *_: Any) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def _hold_gil(self, *_: Any) -> None:
        ctypes.PyDLL(None).sleep(_FOREVER_S)

    def _block(self, *_: Any) -> None:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()


def _is_pair(spec: OpSpec) -> bool:
    return spec.name not in ("barrier", "reduce", "gather", "all_to_all_single", "send", "recv", "recv_any_source")


def _as_if_made(spec: OpSpec, args: Args) -> Any:
    if spec.name == "monitored_barrier":
        return None
    future: Any = torch.futures.Future()
    future.set_result(_tensors(spec, args))
    work = torch._C._distributed_c10d._create_work_from_future(future).boxed()  # pyright: ignore[reportAttributeAccessIssue]
    return (args[0], work) if _is_pair(spec) else work


def _wait(result: Any, spec: OpSpec) -> None:
    if spec.name != "monitored_barrier":
        Work.unbox(result[1] if isinstance(result, tuple) else result).wait()


def _tensors(spec: OpSpec, args: Args) -> list[torch.Tensor]:
    """The tensors that the rank contributes."""
    tensors = args[spec.tensors] if spec.tensors is not None else ()
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _each(arg: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(arg, torch.Tensor):
        return change(arg)
    if isinstance(arg, (list, tuple)) and arg and isinstance(arg[0], (torch.Tensor, list, tuple)):
        return [_each(item, change) for item in arg]
    return arg


def _with(args: Args, place: int, value: Any) -> Args:
    return (*args[:place], value, *args[place + 1 :])
