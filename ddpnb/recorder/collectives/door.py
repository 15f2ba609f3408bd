"""The door, which each collective of a process passes: it records a call, checks it with the fence, and holds it.

Where torch has hooks on its process groups (2.14 and later), these are the door (``group_hooks``): they cost a quarter of a
Python kernel. They cannot change or skip a call, and give no tag of a message and no splits of an all_to_all_single. So the
operators that need this, all of them while a fault is armed, and all of older versions of torch, have a Python kernel here,
at the dispatch key ``BackendSelect``, which ``inference_mode`` does not bypass. User calls, DDP's C++ reducer, FSDP,
functional collectives and compiled code all come through either.

The user's training comes first: an error of the door itself disables the door and is reported once.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from _thread import get_ident
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup, Work

from ddpnb.errors import CollectiveMismatch, ValuesDiffer
from ddpnb.recorder.collectives.callers import reduction_of
from ddpnb.recorder.collectives.fence import disagreement, peer_call
from ddpnb.recorder.collectives.group_hooks import GroupHooks
from ddpnb.recorder.collectives.groups import Groups, KnownGroup
from ddpnb.recorder.collectives.in_flight import Flight
from ddpnb.recorder.collectives.in_use import InUse, is_asynchronous
from ddpnb.recorder.collectives.sameness import Sameness, warn
from ddpnb.recorder.collectives.signatures import NOT_COMPARED, OPS, UNKNOWN, OpSpec, Signatures, exchanged
from ddpnb.recorder.collectives.waits import asked, on_future, watched
from ddpnb.recorder.events.hooks import hide, place, say_failed
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.files.clock import now_ns
from ddpnb.recorder.holds.breakpoints import AtDoor, Gate
from ddpnb.recorder.holds.held_time import HeldClock
from ddpnb.recorder.holds.lines import Lines
from ddpnb.recorder.holds.parted import Partings
from ddpnb.recorder.holds.release import Release, raises_releases
from ddpnb.recorder.stacks.signal_handlers import of_handler, raise_if_of_handler
from ddpnb.recorder.stacks.user_frames import calling_frame_from, is_user_file, library_of, user_path
from ddpnb.recording import blackbox as layout
from ddpnb.recording.calls import CallState, Signature, Site
from ddpnb.recording.events import written
from ddpnb.recording.events.runs import Caller, DoorDetached, Elsewhere, FenceMismatch, Held, NotTheSame, RanksPart
from ddpnb.recording.events.startup import UsedAfterFork
from ddpnb.recording.files import write_private
from ddpnb.recording.protocol import KEEP

raises_releases(__name__)

_AFTER = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
_BEGIN = layout.CALL.pack_into
_PROGRESS = layout.PROGRESS.pack_into
_FRAMES = 12  # of a mismatch
_PEERS = 16  # of those that are elsewhere, of which it is recorded
# What torch's hooks do not tell enough of: the tag of a message, splits, one operator that has none and one without a name.
_ONLY_KERNELS = frozenset(
    {"send", "recv_", "recv_any_source_", "alltoall_base_", "gather_into_tensor_", "monitored_barrier_"}
)
#: environment variable: ``kernels`` keeps torch's hooks out of use
DOOR = "DDPNB_DOOR"
_ENTERED, _ISSUED, _WAITING, _COMPLETED, _FAILED, _FENCED, _REFUSED, _DROPPED, _HELD = map(int, CallState)
_CALLS_AT, _CALLS, _CALL_SIZE = layout.CALLS_AT, layout.CALLS, layout.CALL_SIZE
_STATE_AT, _PROGRESS_AT = layout.CALL_STATE_AT, layout.PROGRESS_AT
#: a call's place in the box, its number, and whether its tensors lie on the CPU
Entry = tuple[int, int, bool]
_put_time = struct.Struct("<Q").pack_into
_get_stamp = struct.Struct("<Q").unpack_from


def _reduction(op: Any) -> int:
    try:
        return op._get_method("op")()
    except RuntimeError:  # torch 2.9 does not say it
        return UNKNOWN


class Door:
    """Records and fences every collective of this process.

    Args:
        box: where to record.
        folder: where the world's shared files lie (other ranks' boxes, the fence).
        fence: ``raise``, ``warn``, ``off``, or ``keep``: the rank stays in the call until it is released.
    """

    def __init__(self, box: BlackBox, folder: str, fence: str = "raise") -> None:
        self.box = box
        self.release = Release()
        #: faults in calls, and what they do to one (``faults.at_door``): none until one is armed
        self.faults: list[Any] = []
        self.apply_faults: Callable[..., Any] = lambda *_: None
        self.folder = folder
        self.groups = Groups(box, folder, fence)
        self.gate = Gate(
            self.release, Partings(box, self.groups.shared_places), self.groups.shared_values, HeldClock(box)
        )
        self.gate.lines = Lines(box, self.gate)
        self.sameness = Sameness(self.gate, box.silent, lambda: self.groups.fence)
        self.flight = Flight(box)
        self.in_use = InUse(box)
        self.signatures = Signatures(box.intern)
        self._sites: dict[tuple[int, int, int | None], tuple[int, Any]] = {}
        self._run = 0
        self._child_recorded = False
        #: called before the backend is, with the number of the call, its operation, its group, its sequence number there
        #: (0: a message), and the peer of a message; they raise nothing of their own
        self.on_call: list[Callable[[int, str, KnownGroup, int, int | None], None]] = []
        #: not empty once a hook has failed: calls then go directly to the backend
        self.off: list[bool] = []
        #: threads that are inside a kernel: the hooks leave the call to it
        self.in_kernel: dict[int, Entry] = {}
        self.hooks: GroupHooks | None = None
        self._libraries: list[torch.library.Library] = []  # that of what always needs a kernel, and that of the others
        self._of_works: dict[str, Callable[..., Any]] = {}  # methods of Work, as torch has them
        self.begin = self._recorder()
        box.on_new_table.append(self._forget_strings)

    # -- life

    def open(self) -> None:
        """Put the hooks or kernels in place, and watch what the program asks of a Work."""
        if GroupHooks.exist() and os.environ.get(DOOR) != "kernels":
            self.hooks = GroupHooks(self)
            self.hooks.open()
        self._add_kernels(_ONLY_KERNELS if self.hooks else OPS)
        self.settle()
        self.sameness.open()
        self._of_works = {"wait": Work.wait, "is_completed": Work.is_completed, "get_future": Work.get_future}
        self.flight.asks, self.flight.future_of = Work.is_completed, Work.get_future
        Work.wait = watched(Work.wait, self)  # type: ignore[method-assign]
        Work.is_completed = asked(Work.is_completed, self)  # type: ignore[method-assign]
        Work.get_future = on_future(Work.get_future, self)  # type: ignore[method-assign]

    def settle(self) -> None:
        """Kernels for what the hooks see are there only while a fault is armed, or if the hooks do not tell enough."""
        if self.hooks is None or not self._libraries:
            return
        wanted = bool(self.faults) or self.hooks.insufficient
        if wanted and len(self._libraries) == 1:
            self._add_kernels(OPS.keys() - _ONLY_KERNELS)
        elif not wanted and len(self._libraries) > 1:
            self._libraries.pop()._destroy()

    def _add_kernels(self, names: Iterable[str]) -> None:
        library = torch.library.Library("c10d", "IMPL")
        for name in names:
            packet = getattr(torch.ops.c10d, name, None)
            if packet is not None:
                library.impl(name, self._kernel(packet.default, OPS[name]), "BackendSelect", with_keyset=True)
        self._libraries.append(library)

    def close(self) -> None:
        """Remove the hooks; from now on calls go directly to the backend."""
        self._close_kernels()
        if self.hooks is not None:
            self.hooks.close()

    def _close_kernels(self) -> None:
        """What can also be taken away while a call is made; the hooks of a group then do nothing."""
        while self._of_works:
            setattr(Work, *self._of_works.popitem())
        self.flight.pending.clear()
        while self._libraries:
            self._libraries.pop()._destroy()

    @property
    def is_open(self) -> bool:
        return bool(self._libraries)

    def new_run(self, run: int, fence: str, *, keep: bool = False) -> None:
        """Forget the calls of the last run, and its groups unless they are kept (their sequence numbers continue)."""
        self._run = run
        self.groups.new_run(run, fence, keep=keep)
        self.sameness.new_run()
        self.in_use.new_run()
        self.flight.pending.clear()
        if not keep:
            self.release.clear()

    def _forget_strings(self) -> None:
        """The box's table of strings has begun again."""
        self._sites.clear()
        self.in_use.sites.clear()
        self.signatures.forget()
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
            self._close_kernels()

    def look(self) -> None:
        """Bring the records of calls that nobody waits for up to date. Called from any thread."""
        self.find_left()
        self.flight.poll()

    def find_left(self) -> None:
        """Find calls that a thread has left with an error of the backend."""
        if self.hooks is not None:
            self.hooks.look()

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
        tensors_at, reduce_op_at, root_at, outputs_at = spec.tensors, spec.reduce_op, spec.root, spec.outputs
        silent, off, held, faults = self.box.silent, self.off, self.gate.armed, self.faults
        pending, fresh, poll, inside = self.flight.pending, self.flight.fresh, self.flight.poll, self.in_kernel
        on_call, asynchronous, began = self.on_call, self.in_use.sites, self.in_use.began
        groups, memory, signature_of = self.groups.known, self.box.memory, self.signatures.reader(spec)
        unbox_group, unbox_work, begin, site_here, tensor_type = (
            ProcessGroup.unbox, Work.unbox, self.begin, self.site_here, torch.Tensor,
        )  # fmt: skip
        frame_here = sys._getframe

        def kernel(keyset: Any, *args: Any) -> Any:
            if silent or off:
                if silent:
                    self.record_child()
                return redispatch(keyset & _AFTER, *args)
            if faults:
                effect = self.apply_faults(spec, args, lambda changed: kernel(keyset, *changed))
                if effect is not None:
                    if effect.args is None:
                        return effect.result
                    args = effect.args
            group = entry = None
            seq, thread = 0, get_ident()
            try:
                if pending or fresh:
                    poll(2)
                unboxed = unbox_group(args[group_at])
                group = groups.get(id(unboxed)) or new_group(unboxed)
                tensors = args[tensors_at] if tensors_at is not None else ()
                if isinstance(tensors, tensor_type):
                    tensors = (tensors,)
                caller = frame_here().f_back  # none in a thread of C++
                reduction = None
                if reduce_op_at is not None:
                    reduction = reduction_of(caller)
                    if reduction is None:  # it is in a ScriptObject, which is dear to ask
                        reduction = _reduction(args[reduce_op_at])
                signature, agreed, on_cpu, exchange = signature_of(
                    tensors,
                    reduction,
                    args[root_at] if root_at is not None else None,
                    None if outputs_at is None else exchanged(spec, args),
                )
                site, frame = site_here(caller)
                peer = None
                if p2p:
                    peer, tag, turn = self._p2p(spec, group, args)
                    entry = begin(thread, group, 0, signature, on_cpu, site, peer, tag, turn)
                else:
                    seq = group.returned.pop() if group.returned else group.next_seq()
                    entry = begin(thread, group, seq, signature, on_cpu, site)
                for look in on_call:
                    look(entry[1], spec.name, group, seq, peer)
            except BaseException as error:
                if of_handler(error):
                    self.not_made(entry, group, seq)
                    raise
                self.detach()
                return redispatch(keyset & _AFTER, *args)
            if held:
                self.stop(entry, group, spec, seq, frame)
            if seq and group.board is not None:
                self.compare(group, seq, entry, agreed, exchange)
            outermost = inside.setdefault(thread, entry) is entry
            try:
                result = redispatch(keyset & _AFTER, *args)
            except BaseException as error:
                converted = self.failed(error, group, seq, entry, returns_work=returns_work)
                if converted is not error:
                    raise converted from None
                del converted  # this frame is in its traceback: they would keep each other, and what the frames hold
                raise
            finally:
                if outermost:
                    inside.pop(thread, None)
            try:
                if off:
                    self.flight.finish(entry, _DROPPED)  # nothing will see it end
                elif returns_work:
                    memory[entry[0] + _STATE_AT] = _ISSUED
                    work = unbox_work(result[1] if pair else result)
                    if site in asynchronous:
                        began(work, spec.name, site, tensors)
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

    def _recorder(self) -> Callable[..., Entry]:
        """The function that writes the record of a call. It is on the hot path: what does not change is a local name."""
        memory, next_call = self.box.memory, self.box.next_call

        def begin(
            thread: int, group: KnownGroup, seq: int, signature: int, on_cpu: bool, site: int,
            peer: int = -1, tag: int = 0, turn: int = 0,
        ) -> Entry:  # fmt: skip
            """Record that a call is entered: its place in the box, its number, and whether its tensors lie on the CPU."""
            number = next_call()
            at = _CALLS_AT + number % _CALLS * _CALL_SIZE
            now = now_ns()
            _BEGIN(
                memory, at, number + 1, group.string, seq & 0xFFFFFFFF, signature, site,
                _ENTERED, thread >> 6 & 0xFFFFFFFF, peer, tag, 0, turn, now, 0, 0,
            )  # fmt: skip
            _PROGRESS(memory, _PROGRESS_AT, number + 1, now)
            return at, number, on_cpu

        return begin

    def compare(self, group: KnownGroup, seq: int, entry: Entry, agreed: int, exchange: Signature | None) -> None:
        """The fence: announce the call; raise or warn if a peer announced a different one."""
        if agreed == NOT_COMPARED:
            return
        try:
            disagreeing = group.board.announce(seq, agreed, exchange)  # type: ignore[union-attr]
        except BaseException as error:
            self.not_announced(error, entry, group, seq)
            return
        if disagreeing:
            self.refuse(group, seq, entry, disagreeing)

    def not_announced(self, error: BaseException, entry: Entry, group: KnownGroup, seq: int) -> None:
        """The fence itself raised: detach, or, of a signal handler, raise it."""
        if of_handler(error):
            self.not_made(entry, group, seq)
            raise error
        self.detach()

    def refuse(self, group: KnownGroup, seq: int, entry: Entry, places: list[int]) -> None:
        """Peers announced a different call: raise, or warn."""
        what = ""
        try:
            what = self._mismatch(group, seq, entry, places)
        except BaseException as error:
            self.not_announced(error, entry, group, seq)
        if what and self.groups.fence == KEEP:
            self._keep(group, seq, entry, what)
        if what:
            raise CollectiveMismatch(what, "All ranks must make the same call here (fence='off' disables this check).")

    def _keep(self, group: KnownGroup, seq: int, entry: Entry, what: str) -> None:
        """Stay in the call, so that the rank can be looked at; the exception that ends it is that of a release."""
        with suppress(OSError, ValueError):  # the program may have closed it
            print(f"ddpnb: fence: {what}", file=sys.stderr, flush=True)
        try:
            self.gate.stay()
        finally:
            self.not_made(entry, group, seq)

    def failed(
        self, error: BaseException, group: KnownGroup, seq: int, entry: Entry, *, returns_work: bool
    ) -> BaseException:
        """The backend raised: record it. Returns the error as the user should see it."""
        converted = error
        try:
            converted = self.release.convert(error)
            lost = converted is not error or not returns_work  # the peers may have seen it
            if lost:
                self.flight.finish(entry, _FAILED)
            else:
                self.not_made(entry, group, seq)
        except Exception:
            self.detach()
        return converted

    def not_made(self, entry: Entry | None, group: KnownGroup | None, seq: int) -> None:
        """An exception of the user's came before the backend was called: the next call has this sequence number."""
        if entry is not None:
            self.flight.finish(entry, _REFUSED)
        if group is not None and seq:
            group.returned.append(seq)
            for announced in (group.board, group.places):
                if announced is not None:
                    announced.withdraw(seq)

    def record_child(self) -> None:
        """Record that a forked child uses a group, in a separate file: the box belongs to its parent."""
        if self._child_recorded:
            return
        self._child_recorded = True
        try:
            event = written(UsedAfterFork(pid=os.getpid(), site=place(2)))
            write_private(f"{self.box.path}.child{self._run}", json.dumps(event))
        except Exception:
            return

    def _p2p(self, spec: OpSpec, group: KnownGroup, args: tuple[Any, ...]) -> tuple[int, int, int]:
        """Peer (global rank, -1 for any), tag, and ordinal in this channel."""
        tag = args[spec.tag] & 0x7FFFFFFF  # type: ignore[index]
        place = args[spec.peer] if spec.peer is not None else -1
        peer = group.ranks[place] if 0 <= place < len(group.ranks) else -1
        channel = (spec.name, peer, tag)
        turn = group.turns[channel] = group.turns.get(channel, 0) + 1
        return peer, tag, turn

    def stop(self, entry: Entry, group: KnownGroup, spec: OpSpec, seq: int, frame: Any) -> None:
        """Hold the call until it is resumed; its duration is counted from then on.

        Exceptions while it is held go to the user: a release, an interrupt, or from a signal handler.
        """
        if seq and self.sameness.pending:
            self._check_same(entry, group, spec, seq)
        call = AtDoor(spec.name, seq, group.identity, frame, known=group, marks=partial(self._mark, entry))
        try:
            if not self.gate.stops(call):
                return
            if call.parted:
                self._say_parted(entry, group, call)
            if call.differs:
                self.box.emit(Held(kind="call", why=call.why[:500], call=entry[1]))
        except BaseException as error:
            if of_handler(error):
                self.not_made(entry, group, seq)
                raise
            self.detach()
            return
        try:
            self.gate.wait(call)
        except BaseException:
            at, memory = entry[0], self.box.memory
            if _get_stamp(memory, at)[0] == entry[1] + 1:
                memory[at + _STATE_AT] = _ENTERED
            self.not_made(entry, group, seq)
            raise

    def _check_same(self, entry: Entry, group: KnownGroup, spec: OpSpec, seq: int) -> None:
        """Announce what the program says is the same on all ranks; raise or warn if it is not."""
        what = ""
        try:
            whole = len(group.ranks) == dist.get_world_size()
            what = self.sameness.differences(group, seq, spec.name, whole)
            if what:
                self.box.emit(NotTheSame(call=entry[1], what=what[:1000]))
        except BaseException as error:
            self.not_announced(error, entry, group, seq)
            return
        if what and self.groups.fence == "warn":
            warn(what)
        elif what:
            self.not_made(entry, group, seq)
            raise ValuesDiffer(f"{what}.", "The program says that they are the same (fence='off' disables this check).")

    def _say_parted(self, entry: Entry, group: KnownGroup, call: AtDoor) -> None:
        """Record which ranks are elsewhere in the program."""
        peers: list[Elsewhere] = []
        for one in call.parted[:_PEERS]:
            rank = group.identity.ranks[one.member]
            place, operation = one.there, ""
            if not place.file:
                theirs = peer_call(self.folder, rank, group.key, call.seq)
                if theirs is not None:
                    site, operation = theirs.site, theirs.op
                    place = Caller(file=site.file, line=site.line, function=site.function)
            iterations = one.iterations if any(one.iterations) else ()
            peers.append(
                Elsewhere(
                    rank=rank,
                    operation=operation,
                    here=one.here,
                    place=place,
                    iterations=iterations,
                    exchanged=one.exchanged,
                )
            )
        self.box.emit(RanksPart(call=entry[1], seq=call.seq, peers=tuple(peers)))

    def _mark(self, entry: Entry, held: bool) -> None:
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

    def site_here(self, caller: Any) -> tuple[int, Any]:
        """The string number of the site of the call that is made from this frame, and the user's frame, if one led here."""
        frame = calling_frame_from(caller)
        if frame is None:
            return self._library_site(caller), None
        back = frame.f_back
        known = self._sites.get((id(frame.f_code), frame.f_lasti, back and back.f_lasti))
        return (self._new_site(frame, caller) if known is None else known[0]), frame

    def _library_site(self, caller: Any) -> int:
        """The string number of a call to which no line of the user's led: of which library the thread is."""
        library = library_of(caller)
        return self.box.intern({"library": library}) if library else 0

    def _new_site(self, frame: Any, inside: Any) -> int:
        code, caller = frame.f_code, frame.f_back
        facts = {"file": code.co_filename, "line": frame.f_lineno, "function": code.co_name}
        if caller is not None and is_user_file(caller.f_code.co_filename):
            facts["via"] = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        site = self.box.intern(facts)
        if is_asynchronous(inside, frame):
            self.in_use.sites[site] = Site(code.co_filename, frame.f_lineno, code.co_name)
        if len(self._sites) < 20_000:
            # The place in the caller stands for the caller: two callers of one function at the same
            # place of their own code are rare, and then taken for one. The code: its id must stay its own.
            self._sites[id(code), frame.f_lasti, caller and caller.f_lasti] = (site, code)
        return site

    def _mismatch(self, group: KnownGroup, seq: int, entry: Entry, places: list[int]) -> str:
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
        if self.groups.fence != KEEP:  # that rank is in the call
            self.flight.finish(entry, _FENCED)
        return what
