"""The door: a Python kernel on every ``c10d::`` operator, which each collective of a process passes.

Registered at the dispatch key ``BackendSelect``, which ``inference_mode`` does not bypass; user
calls, DDP's C++ reducer, FSDP, functional collectives, compiled code and point-to-point all come
through. The door records a call, checks it with the fence, and passes it unchanged to the backend.

The user's training comes first: an error of the door itself disables the door and is reported once.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from _thread import get_ident
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch._C._distributed_c10d import ProcessGroup, Work

from ddpnb.errors import CollectiveMismatch
from ddpnb.files import write_private
from ddpnb.model import blackbox as layout
from ddpnb.model.calls import CallState, Signature
from ddpnb.model.events import written
from ddpnb.model.events.runs import Caller, DoorDetached, FenceMismatch
from ddpnb.model.events.startup import UsedAfterFork
from ddpnb.recorder.blackbox import BlackBox
from ddpnb.recorder.breakpoints import AtDoor, Gate
from ddpnb.recorder.clock import now_ns
from ddpnb.recorder.faults.at_door import AtTheDoor
from ddpnb.recorder.fence import disagreement
from ddpnb.recorder.groups import Groups, KnownGroup
from ddpnb.recorder.hooks import hide, place, say_failed
from ddpnb.recorder.in_flight import Flight
from ddpnb.recorder.release import Release, raises_releases
from ddpnb.recorder.signal_handlers import of_handler, raise_if_of_handler
from ddpnb.recorder.signatures import OPS, OpSpec, Signatures
from ddpnb.recorder.user_frames import calling_frame, is_user_file, library_of, user_path
from ddpnb.recorder.waits import asked, watched

raises_releases(__name__)

_AFTER = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
_BEGIN = layout.CALL.pack_into
_PROGRESS = layout.PROGRESS.pack_into
_FRAMES = 12  # of a mismatch
_ENTERED, _ISSUED, _WAITING, _COMPLETED, _FAILED, _FENCED, _REFUSED, _DROPPED, _HELD = map(int, CallState)
_CALLS_AT, _CALLS, _CALL_SIZE = layout.CALLS_AT, layout.CALLS, layout.CALL_SIZE
_STATE_AT, _PROGRESS_AT = layout.CALL_STATE_AT, layout.PROGRESS_AT
_put_time = struct.Struct("<Q").pack_into
_get_stamp = struct.Struct("<Q").unpack_from


class Door:
    """Records and fences every collective of this process.

    Args:
        box: where to record.
        folder: where the world's shared files lie (other ranks' boxes, the fence).
        fence: ``raise``, ``warn`` or ``off``.
    """

    def __init__(self, box: BlackBox, folder: str, fence: str = "raise") -> None:
        self.box = box
        self.release = Release()
        self.gate = Gate(self.release)
        self.faults = AtTheDoor(self)
        self.folder = folder
        self.groups = Groups(box, folder, fence)
        self.flight = Flight(box)
        self._signatures = Signatures(box.intern)
        self._sites: dict[tuple[int, int, int | None], tuple[int, Any]] = {}
        self._run = 0
        self._child_recorded = False
        #: called with the number of each call before the backend is; they raise nothing of their own
        self.on_call: list[Callable[[int], None]] = []
        #: not empty once a hook has failed: calls then go directly to the backend
        self.off: list[bool] = []
        self._library: torch.library.Library | None = None
        self._of_works: dict[str, Callable[..., Any]] = {}  # methods of Work, as torch has them
        box.on_new_table.append(self._forget_strings)

    # -- life

    def open(self) -> None:
        """Register the kernels, and watch what the program asks of a Work."""
        library = torch.library.Library("c10d", "IMPL")
        for name, spec in OPS.items():
            packet = getattr(torch.ops.c10d, name, None)
            if packet is not None:
                library.impl(name, self._kernel(packet.default, spec), "BackendSelect", with_keyset=True)
        self._library = library
        self._of_works = {"wait": Work.wait, "is_completed": Work.is_completed}
        self.flight.asks = Work.is_completed
        Work.wait = watched(Work.wait, self)  # type: ignore[method-assign]
        Work.is_completed = asked(Work.is_completed, self)  # type: ignore[method-assign]

    def close(self) -> None:
        """Remove the hooks; from now on calls go directly to the backend."""
        while self._of_works:
            setattr(Work, *self._of_works.popitem())
        self.flight.pending.clear()
        if self._library is not None:
            self._library._destroy()
            self._library = None

    def new_run(self, run: int, fence: str, *, keep: bool = False) -> None:
        """Forget the calls of the last run, and its groups unless they are kept (their sequence numbers continue)."""
        self._run = run
        self.groups.new_run(run, fence, keep=keep)
        self.flight.pending.clear()
        if not keep:
            self.release.clear()

    def _forget_strings(self) -> None:
        """The box's table of strings has begun again."""
        self._sites.clear()
        self._signatures.forget()
        self.groups.renumber()

    def detach(self) -> None:
        """The door itself failed: report it once and disable the door. Raises only what a signal handler raised."""
        raise_if_of_handler()
        first = not self.off
        self.off.append(True)
        if first:
            say_failed(self.box, "instrumentation of collectives", DoorDetached)
        with suppress(Exception):  # nothing will see them end
            for entry in list(self.flight.pending.values()):
                self.flight.finish(entry, _DROPPED)
        with suppress(Exception):
            self.close()

    # -- calls

    def _kernel(self, op: Any, spec: OpSpec) -> Callable[..., Any]:
        """The kernel of one operator: record the call, check it, call the backend.

        This is on the hot path of every collective: it is one flat function, and values that do not change
        are local names.
        """
        redispatch = op.redispatch
        pair = len(op._schema.returns) == 2  # (tensors, Work); otherwise the Work itself
        returns_work = spec.name != "monitored_barrier"
        group_at, p2p, new_group = spec.group, spec.p2p, self.groups.get
        silent, off, held, faults = self.box.silent, self.off, self.gate.armed, self.faults.armed
        pending, fresh, poll, on_call = self.flight.pending, self.flight.fresh, self.flight.poll, self.on_call
        groups, sites = self.groups.known, self._sites
        memory, next_call, signature_of = self.box.memory, self.box.next_call, self._signatures.reader(spec)
        unbox_group, unbox_work = ProcessGroup.unbox, Work.unbox

        def kernel(keyset: Any, *args: Any) -> Any:
            if silent or off:
                if silent:
                    self._record_child()
                return redispatch(keyset & _AFTER, *args)
            if faults:
                effect = self.faults.apply(spec, args, lambda changed: kernel(keyset, *changed))
                if effect is not None:
                    if effect.args is None:
                        return effect.result
                    args = effect.args
            group = entry = None
            seq = 0
            try:
                if pending or fresh:
                    poll(2)
                unboxed = unbox_group(args[group_at])
                group = groups.get(id(unboxed)) or new_group(unboxed)
                signature, agreed, on_cpu, exchange = signature_of(args)
                frame = calling_frame(2)
                if frame is None:
                    site = self._library_site()
                else:
                    caller = frame.f_back
                    known = sites.get((id(frame.f_code), frame.f_lasti, caller and caller.f_lasti))
                    site = self._new_site(frame) if known is None else known[0]
                if p2p:
                    peer, tag, turn, seq = self._p2p(spec, group, args)
                else:
                    peer, tag, turn = -1, 0, 0
                    seq = group.returned.pop() if group.returned else group.next_seq()
                number = next_call()
                at = _CALLS_AT + number % _CALLS * _CALL_SIZE
                now = now_ns()
                _BEGIN(
                    memory, at, number + 1, group.string, seq & 0xFFFFFFFF, signature, site,
                    _ENTERED, get_ident() >> 6 & 0xFFFFFFFF, peer, tag, 0, turn, now, 0, 0,
                )  # fmt: skip
                _PROGRESS(memory, _PROGRESS_AT, number + 1, now)
                entry = (at, number, on_cpu)
                for look in on_call:
                    look(number)
            except BaseException as error:
                if of_handler(error):
                    self._not_made(entry, group, seq)
                    raise
                self.detach()
                return redispatch(keyset & _AFTER, *args)
            if held:
                self._stop(entry, group, spec, seq, frame)
            board = group.board
            if seq and board is not None:
                self._compare(group, seq, entry, agreed, exchange)
            try:
                result = redispatch(keyset & _AFTER, *args)
            except BaseException as error:
                converted = self._failed(error, group, seq, entry, returns_work=returns_work)
                if converted is not error:
                    raise converted from None
                del converted  # this frame is in its traceback: they would keep each other, and what the frames hold
                raise
            try:
                if off:
                    self.flight.finish(entry, _DROPPED)  # nothing will see it end
                elif returns_work:
                    memory[at + _STATE_AT] = _ISSUED
                    work = unbox_work(result[1] if pair else result)
                    if p2p:
                        fresh.append((work, entry))
                    else:
                        pending[work] = entry
                else:
                    self.flight.finish(entry, _COMPLETED)
            except BaseException as error:
                if of_handler(error):
                    self.flight.finish(entry, _DROPPED)
                    raise
                self.detach()
            return result

        return hide(kernel, below=True)

    def _compare(
        self, group: KnownGroup, seq: int, entry: tuple[int, int, bool], agreed: int, exchange: Signature | None
    ) -> None:
        """The fence: announce the call; raise or warn if a peer announced a different one."""
        try:
            disagreeing = group.board.announce(seq, agreed, exchange)  # type: ignore[union-attr]
            what = self._mismatch(group, seq, entry, disagreeing) if disagreeing else ""
        except BaseException as error:
            if of_handler(error):
                self._not_made(entry, group, seq)
                raise
            self.detach()
            return
        if what:
            raise CollectiveMismatch(what, "All ranks must make the same call here (fence='off' disables this check).")

    def _failed(
        self, error: BaseException, group: KnownGroup, seq: int, entry: tuple[int, int, bool], *, returns_work: bool
    ) -> BaseException:
        """The backend raised: record it. Returns the error as the user should see it."""
        converted = error
        try:
            converted = self.release.convert(error)
            lost = converted is not error or not returns_work  # the peers may have seen it
            if lost:
                self.flight.finish(entry, _FAILED)
            else:
                self._not_made(entry, group, seq)
        except Exception:
            self.detach()
        return converted

    def _not_made(self, entry: tuple[int, int, bool] | None, group: KnownGroup | None, seq: int) -> None:
        """An exception of the user's came before the backend was called: the next call has this sequence number."""
        if entry is not None:
            self.flight.finish(entry, _REFUSED)
        if group is not None and seq:
            group.returned.append(seq)
            if group.board is not None:
                group.board.withdraw(seq)

    def _record_child(self) -> None:
        """Record that a forked child uses a group, in a separate file: the box belongs to its parent."""
        if self._child_recorded:
            return
        self._child_recorded = True
        try:
            event = written(UsedAfterFork(pid=os.getpid(), site=place(2)))
            write_private(f"{self.box.path}.child{self._run}", json.dumps(event))
        except Exception:
            return

    def _p2p(self, spec: OpSpec, group: KnownGroup, args: tuple[Any, ...]) -> tuple[int, int, int, int]:
        """Peer (global rank, -1 for any), tag, ordinal in this channel, and sequence number 0."""
        tag = args[spec.tag] & 0x7FFFFFFF  # type: ignore[index]
        place = args[spec.peer] if spec.peer is not None else -1
        peer = group.ranks[place] if 0 <= place < len(group.ranks) else -1
        channel = (spec.name, peer, tag)
        turn = group.turns[channel] = group.turns.get(channel, 0) + 1
        return peer, tag, turn, 0

    def _stop(self, entry: tuple[int, int, bool], group: KnownGroup, spec: OpSpec, seq: int, frame: Any) -> None:
        """Hold the call until it is resumed; its duration is counted from then on.

        Exceptions while it is held go to the user: a release, an interrupt, or from a signal handler.
        """
        call = AtDoor(spec.name, seq, group.identity, frame, marks=partial(self._mark, entry))
        try:
            if not self.gate.stops(call):
                return
        except BaseException as error:
            if of_handler(error):
                self._not_made(entry, group, seq)
                raise
            self.detach()
            return
        try:
            self.gate.wait(call)
        except BaseException:
            at, memory = entry[0], self.box.memory
            if _get_stamp(memory, at)[0] == entry[1] + 1:
                memory[at + _STATE_AT] = _ENTERED
            self._not_made(entry, group, seq)
            raise

    def _mark(self, entry: tuple[int, int, bool], held: bool) -> None:
        """Write in the record of a call that it is held, or, which is when it is entered, no longer."""
        at, memory = entry[0], self.box.memory
        try:
            if _get_stamp(memory, at)[0] != entry[1] + 1:
                return  # other threads made so many calls meanwhile that its record was used again
            if not held:
                now = now_ns()
                _put_time(memory, at + layout.CALL_ENTERED_AT, now)
                _put_time(memory, _PROGRESS_AT + 8, now)
            memory[at + _STATE_AT] = _HELD if held else _ENTERED
        except Exception:
            self.detach()

    def site_of(self, frame: Any) -> int:
        """The string number of the site (file, line) of this user frame."""
        caller = frame.f_back
        known = self._sites.get((id(frame.f_code), frame.f_lasti, caller and caller.f_lasti))
        return self._new_site(frame) if known is None else known[0]

    def _library_site(self) -> int:
        """The string number of a call to which no line of the user's led: of which library the thread is."""
        library = library_of(3)
        return self.box.intern({"library": library}) if library else 0

    def _new_site(self, frame: Any) -> int:
        code, caller = frame.f_code, frame.f_back
        facts = {"file": code.co_filename, "line": frame.f_lineno, "function": code.co_name}
        if caller is not None and is_user_file(caller.f_code.co_filename):
            facts["via"] = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        site = self.box.intern(facts)
        if len(self._sites) < 20_000:
            # The place in the caller stands for the caller: two callers of one function at the same
            # place of their own code are rare, and then taken for one. The code: its id must stay its own.
            self._sites[id(code), frame.f_lasti, caller and caller.f_lasti] = (site, code)
        return site

    def _mismatch(self, group: KnownGroup, seq: int, entry: tuple[int, int, bool], places: list[int]) -> str:
        """Record that peers announced a different call with the same sequence number.

        Returns:
            the mismatch as text if the call must not be made; empty if it was only a warning.
        """
        number = entry[1]
        peers = [group.ranks[place] for place in places]
        what = disagreement(self.box.memory, self.folder, group, seq, number, peers)
        path = tuple(Caller(file=file, line=line, function=name) for file, line, name in user_path(_FRAMES))
        self.box.emit(FenceMismatch(call=number, peers=tuple(peers), seq=seq, fence=self.groups.fence, path=path))
        if self.groups.fence == "warn":
            print(f"ddpnb: fence: {what}", file=sys.stderr, flush=True)
            return ""
        self.flight.finish(entry, _FENCED)
        return what
