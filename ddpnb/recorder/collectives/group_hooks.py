"""The door on the hooks that torch (2.14 and later) has on every process group: before a collective, and once it is issued.

They are called in the kernels of torch's operators: Python or C++ may make the call. One that the backend refuses never
gets to the second hook: it is found to have left when its thread makes the next call, raises from a function of
``torch.distributed``, or is looked at.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from _thread import get_ident
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d
from torch._C._distributed_c10d import ProcessGroup
from torch.distributed import c10d_logger

from ddpnb.recorder.collectives.callers import (
    NUMBERS,
    functional_of,
    operator_of,
    reduction_of,
    summed_by_torch,
    together,
)
from ddpnb.recorder.collectives.signatures import NOT_COMPARED, OPS, UNKNOWN, OpSpec, Reader
from ddpnb.recorder.events.hooks import hide
from ddpnb.recorder.holds.release import raises_releases
from ddpnb.recorder.stacks.signal_handlers import of_handler
from ddpnb.recorder.stacks.user_frames import frames_of
from ddpnb.recording import blackbox as layout
from ddpnb.recording.calls import CallState

if TYPE_CHECKING:
    from ddpnb.recorder.collectives.door import Door, Entry
    from ddpnb.recorder.collectives.groups import KnownGroup

    #: the call, its group and sequence number, the frame that made it and how far that was; of an asynchronous one also its
    #: operation, the user's place, and its tensors
    Made = tuple[Entry, KnownGroup, int, int, int, tuple[str, int, list[torch.Tensor]] | None]

raises_releases(__name__)

# Hooks are called in the order of their numbers: ours last, so that a call that another one stops was never begun. Others
# count from 0.
_ID = (1 << 62) + int.from_bytes(b"ddpnb", "big")
_ISSUED, _COMPLETED, _FAILED, _DROPPED = map(
    int, (CallState.ISSUED, CallState.COMPLETED, CallState.FAILED, CallState.DROPPED)
)
_STATE_AT = layout.CALL_STATE_AT
_UNKNOWN_PLACE = -1  # of a call in a thread of C++: whether it has left cannot be seen
# Torch's names of the operators; before 2.15 those of the first six stand for several.
_OPERATORS = {
    "ALLREDUCE": "allreduce_",
    "ALLGATHER": "allgather_",
    "REDUCE_SCATTER": "reduce_scatter_",
    "ALLTOALL": "alltoall_",
    "BROADCAST": "broadcast_",
    "REDUCE": "reduce_",
    "SCATTER": "scatter_",
    "GATHER": "gather_",
    "BARRIER": "barrier",
    "ALLREDUCE_COALESCED": "allreduce_coalesced_",
    "ALLGATHER_BASE": "_allgather_base_",
    "ALLGATHER_COALESCED": "allgather_coalesced_",
    "ALLGATHER_INTO_TENSOR_COALESCED": "allgather_into_tensor_coalesced_",
    "REDUCE_SCATTER_BASE": "_reduce_scatter_base_",
    "REDUCE_SCATTER_TENSOR_COALESCED": "reduce_scatter_tensor_coalesced_",
}
_COALESCED = {
    "ALLREDUCE": "allreduce_coalesced_",
    "ALLGATHER": "allgather_into_tensor_coalesced_",
    "REDUCE_SCATTER": "reduce_scatter_tensor_coalesced_",
}
_FUNCTIONAL = {
    "all_reduce_coalesced": "allreduce_coalesced_",
    "all_gather_into_tensor": "allgather_into_tensor_coalesced_",
    "all_gather_into_tensor_coalesced": "allgather_into_tensor_coalesced_",
    "all_gather_into_tensor_out": "_allgather_base_",
    "reduce_scatter_tensor": "reduce_scatter_tensor_coalesced_",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor_coalesced_",
    "reduce_scatter_tensor_out": "reduce_scatter_tensor_coalesced_",
}


#: an operator, the reader of its signatures, whether that describes what it fills, and whether it reduces and has a root
Source = tuple[OpSpec, Reader, bool, bool, bool]


def _source(spec: OpSpec, reader: Reader) -> Source:
    return spec, reader, spec.tensors == 0 and spec.group == 2, spec.reduce_op is not None, spec.root is not None


class GroupHooks:
    """The hooks on the process groups of this process."""

    def __init__(self, door: Door) -> None:
        self._door = door
        #: the hooks do not tell enough of some calls: the kernels must see them
        self.insufficient = False
        self._sums = True  # all reductions that C++ makes by itself
        self._covered: dict[int, weakref.ref[Any]] = {}
        self._undo: list[Callable[[], None]] = []
        names: Any = _distributed_c10d.HookOpName  # pyright: ignore[reportAttributeAccessIssue]
        self._folded = not hasattr(names, "ALLGATHER_BASE")
        reader = door.signatures.reader
        self._operators: dict[str, Source] = {op: _source(OPS[op], reader(OPS[op])) for op in _OPERATORS.values()}
        self._sources: dict[int, Source] = {}  # by the id of the code of a function that calls one operator alone
        self._names: dict[int, str] = {int(getattr(names, name)): name for name in _OPERATORS if hasattr(names, name)}
        # By group and thread: calls that are between the two hooks.
        self._made: list[dict[int, Made]] = []

    @staticmethod
    def exist() -> bool:
        """Whether this torch has hooks that can be used."""
        return hasattr(ProcessGroup, "register_pre_hook") and hasattr(_distributed_c10d, "HookOpName")

    def open(self) -> None:
        """Cover the groups that there are, and each new one before its first call."""
        for group in list(dist.distributed_c10d._world.pg_map):
            self.cover(group)
        for name in ("_register_backend", "_set_group_name"):
            self._after(name, lambda group, _result: self.cover(group))
        for name in ("split_group", "merge_remote_group"):
            self._after(name, lambda _group, result: self.cover(result))
        logger: Any = c10d_logger
        original = logger._get_msg_dict
        logger._get_msg_dict = self._raised(original)
        self._undo.append(lambda: setattr(logger, "_get_msg_dict", original))
        # A group that the program does not destroy outlives the interpreter, and must not keep functions of Python.
        atexit.register(self.close)

    def _after(self, name: str, look: Callable[[Any, Any], None]) -> None:
        original = vars(ProcessGroup).get(name)
        if original is None:
            return
        call: Callable[..., Any] = getattr(ProcessGroup, name)

        def watched(group: Any, *args: Any, **kwargs: Any) -> Any:
            result = call(group, *args, **kwargs)
            look(group, result)
            return result

        setattr(ProcessGroup, name, hide(watched))
        self._undo.append(lambda: setattr(ProcessGroup, name, original))

    def cover(self, group: Any) -> None:
        """Put the hooks on a process group, once. Where it takes none, the kernels see its calls."""
        if not isinstance(group, ProcessGroup):
            return
        known = self._covered.get(id(group))
        if known is not None and known() is group:
            return
        try:
            made: dict[int, Made] = {}
            before, after = self._pair(id(group), weakref.ref(group), made)
            ProcessGroup.register_pre_hook(group, _ID, before)
            ProcessGroup.register_post_hook(group, _ID, after)
            self._made.append(made)
            key, covered, every = id(group), self._covered, self._made

            def gone(_reference: object) -> None:
                covered.pop(key, None)
                every[:] = [one for one in every if one is not made]

            covered[key] = weakref.ref(group, gone)
        except Exception:
            self._need_kernels()

    def close(self) -> None:
        """Take the hooks away. Not while a call is made: torch goes through them then."""
        atexit.unregister(self.close)
        while self._undo:
            self._undo.pop()()
        for reference in list(self._covered.values()):
            group: Any = reference()
            with suppress(Exception):
                ProcessGroup.unregister_pre_hook(group, _ID)
                ProcessGroup.unregister_post_hook(group, _ID)
        self._covered.clear()

    def _need_kernels(self) -> None:
        self.insufficient = True
        self._door.settle()

    def _pair(
        self, key: int, reference: weakref.ref[Any], made: dict[int, Made]
    ) -> tuple[Callable[[Any], None], Callable[[Any], None]]:
        """The two hooks of one group. They are on the hot path: flat, and what does not change is a local name."""
        door, sources, which, note, numbers, frame_at = (
            self._door, self._sources, self._which, self._note, NUMBERS, sys._getframe,
        )  # fmt: skip
        silent, off, held, inside = door.box.silent, door.off, door.gate.armed, door.in_kernel
        pending, fresh, poll, finish = door.flight.pending, door.flight.fresh, door.flight.poll, door.flight.finish
        groups, memory, begin, site_here, refuse = (
            door.groups.known,
            door.box.memory,
            door.begin,
            door.site_here,
            door.refuse,
        )
        summed, introduce, left, on_call = self._summed, door.groups.get, self._left, door.on_call
        asynchronous, began = door.in_use.sites, door.in_use.began

        def before(args: Any) -> None:
            if silent or off:
                if silent:
                    door.record_child()
                return
            thread = get_ident()
            if inside and thread in inside:
                return
            group = entry = None
            seq = 0
            try:
                if made and thread in made:
                    left(made, thread, made[thread])
                if pending or fresh:
                    poll(2)
                group = groups.get(key)
                if group is None:
                    group = introduce(reference())
                try:
                    caller: Any = frame_at(1)
                except ValueError:  # a thread of C++
                    caller = None
                source = direct = sources.get(id(caller and caller.f_code))
                if source is None:
                    source = which(args, caller)
                    if source is None:
                        return
                spec, signature_of, to_outputs, reduces, rooted = source
                reduction = None
                if reduces:
                    if direct:
                        reduction = numbers.get(id(caller.f_locals.get("op")))
                    if reduction is None:
                        reduction = reduction_of(caller)
                        if reduction is None:
                            reduction = summed(caller)
                        elif reduction:
                            note(caller)
                exchange = (tuple([t.shape for t in args.output_tensors]), None) if spec.outputs is not None else None
                signature, agreed, on_cpu, pairs = signature_of(
                    args.output_tensors if to_outputs else args.input_tensors,
                    reduction,
                    args.root if rooted else None,
                    exchange,
                )
                site, frame = site_here(caller)
                seq = group.returned.pop() if group.returned else group.next_seq()
                entry = begin(thread, group, seq, signature, on_cpu, site)
                for look in on_call:
                    look(entry[1], spec.name, group, seq, None)
            except BaseException as error:
                if of_handler(error):
                    door.not_made(entry, group, seq)
                    raise
                door.detach()
                return
            if held:
                door.stop(entry, group, spec, seq, frame)
            board = group.board
            if board is not None and agreed != NOT_COMPARED:
                try:
                    disagreeing = board.announce(seq, agreed, pairs)
                except BaseException as error:
                    door.not_announced(error, entry, group, seq)
                    return
                if disagreeing:
                    refuse(group, seq, entry, disagreeing)
            at = _UNKNOWN_PLACE if caller is None else caller.f_lasti
            of = (spec.name, site, args.input_tensors) if site in asynchronous else None
            made[thread] = entry, group, seq, id(caller), at, of

        def after(args: Any) -> None:
            call = made.pop(get_ident(), None)
            if call is None:
                return
            entry = call[0]
            try:
                if off:
                    finish(entry, _DROPPED)  # nothing will see it end
                    return
                work = args.work
                if work is None:
                    finish(entry, _COMPLETED)
                else:
                    memory[entry[0] + _STATE_AT] = _ISSUED
                    pending[work] = entry
                    if call[5] is not None:
                        began(work, *call[5])
            except BaseException as error:
                if of_handler(error):
                    finish(entry, _DROPPED)
                    raise
                door.detach()

        return hide(before, below=True), hide(after, below=True)

    def _which(self, args: Any, caller: Any) -> Source | None:
        """The operator of a call; None for one that a kernel sees."""
        operator = operator_of(caller)
        if operator is not None:
            if len(self._sources) < 1000:
                self._sources[id(caller.f_code)] = self._operators[operator]
            return self._operators[operator]
        name = self._names.get(int(args.name), "")
        if self._folded and name in _COALESCED:
            functional = functional_of(caller)
            if functional is not None:
                return self._operators[_FUNCTIONAL.get(functional, _OPERATORS[name])]
            if together(caller):
                return self._operators[_COALESCED[name]]
        return self._operators[_OPERATORS[name]] if name else None

    def _summed(self, caller: Any) -> int:
        """The reduction of a call of which the caller says nothing. Where it cannot be known, a kernel sees the next ones."""
        if self._sums and summed_by_torch(caller):
            return 0
        self._need_kernels()
        return UNKNOWN

    def _note(self, caller: Any) -> None:
        """A functional reduction other than a sum: C++ makes its backward, with the same reduction."""
        if self._sums and functional_of(caller) is not None:
            self._sums = False

    # -- calls that never got to the second hook

    def _left(self, made: dict[int, Any], thread: int, call: Any) -> None:
        """The backend has refused this call of a thread, or a release has ended it."""
        if made.get(thread) is not call:
            return  # it is over, and the thread may be in its next one
        del made[thread]
        entry, group, seq = call[:3]
        if self._door.release.wanted:
            self._door.flight.finish(entry, _FAILED)
        else:
            self._door.not_made(entry, group, seq)

    def look(self) -> None:
        """Find calls that threads have left: no frame of theirs is where it made the call. Called from any thread."""
        for made in list(self._made):
            for thread, call in list(made.items()):
                inside = (id(frame) == call[3] and frame.f_lasti == call[4] for frame in frames_of(thread))
                if call[4] != _UNKNOWN_PLACE and not any(inside):
                    self._left(made, thread, call)

    def _raised(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Torch calls this where one of its functions raises: the call has ended, perhaps by a release."""

        def noted(*args: Any, **kwargs: Any) -> Any:
            error = sys.exc_info()[1]
            converted = error
            try:
                thread = get_ident()
                for made in self._made:
                    call = made.get(thread)
                    if call is not None:
                        if error is not None:
                            converted = self._door.release.convert(error)
                        self._left(made, thread, call)
            except Exception:
                self._door.detach()
            if converted is not None and converted is not error:
                raise converted from None
            return original(*args, **kwargs)

        return hide(noted, below=True)
