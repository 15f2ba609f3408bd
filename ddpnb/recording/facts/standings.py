"""The state of each rank: in a collective, at start-up, ended, blocked outside any collective, or computing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ddpnb.recording.calls import NO_SITE, Call, CallState, Site
from ddpnb.recording.events import Event
from ddpnb.recording.events.runs import Held, LateWait, ProcessEnds
from ddpnb.recording.events.startup import Joining, NewGroup
from ddpnb.recording.facts.stack_calls import call_in
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.stacks import UNRECORDED_WORK, Stack


@dataclass(frozen=True, slots=True)
class Standing:
    """One rank's place. ``site`` is the innermost line of the user's code where it is.

    ``call`` is what it waits in (``function``: in which its calls are not recorded), ``held`` the call before which it is held: it may be released at any time.
    Of a rank that is held at a line, ``event`` is that.
    """

    rank: int
    state: RankState
    record: RankRecord
    call: Call | None = None
    event: Event | None = None
    site: Site = NO_SITE
    held: Call | None = None
    function: str = ""
    polls: bool = False  # it does not wait in the call, but asks again and again whether it is complete
    never: str = ""  # why a rank that is blocked outside any collective can never continue
    absent: bool = False  # no process of it was seen, and all others wait for it at start-up

    @property
    def reported(self) -> bool:
        """Whether all that is known of it was read from a report."""
        return self.record.reported

    @property
    def shown(self) -> RankState:
        """The state for a reader: a rank on which nothing has run is idle; a report does not say that nothing has."""
        record = self.record
        ran = record.calls or record.history or record.ending or record.reported or self.state is RankState.UNRESPONSIVE
        runs = record.main_stack is not None and record.main_stack.innermost_user is not None
        return self.state if ran or runs or record.unrecorded else RankState.IDLE

    @property
    def starting(self) -> Event | None:
        """The call of ``init_process_group``, ``init_rpc`` or ``new_group`` that it waits in."""
        return self.event if self.state in (RankState.STARTING, RankState.CREATING_GROUP) else None

    @property
    def elsewhere(self) -> bool:
        """Whether it is blocked, and not in a call that is recorded."""
        return self.state is RankState.BLOCKED or (self.state is RankState.WAITING and self.call is None)

    @property
    def path(self) -> list[Site]:
        """The user's frames, outermost first."""
        stack = self.record.main_stack
        path = [frame.site for frame in stack.user_frames] if stack is not None else []
        return path or ([self.site] if self.site != NO_SITE else [])

    @property
    def idle_s(self) -> float:
        return self.record.process.idle_s

    def expired(self, patience: float) -> bool:
        """Whether a rank has been blocked outside any collective for longer than patience.

        One whose sleep ends soon continues by itself. A report is of ranks that somebody saw hang: one that is in no call
        there did not make it until the report was written.
        """
        if self.never or self.absent:
            return True
        if self.reported and self.state in (RankState.UNKNOWN, RankState.BLOCKED, RankState.COMPUTING):
            return True
        if not (self.elsewhere or self.state is RankState.UNRESPONSIVE) or self.idle_s < patience:
            return False
        wakes = self.record.process.wakes_in_s
        return wakes is None or wakes > 2 * patience


_THREADS = 16  # calls, begun at once in as many threads, that may be at the door behind one that is held


def standings(recording: Recording) -> dict[int, Standing]:
    return {rank: _standing(record) for rank, record in recording.ranks.items()}


def with_polls(recording: Recording, standing: dict[int, Standing], patience: float) -> dict[int, Standing]:
    """The ranks that have done nothing for ``patience`` seconds but ask whether a call is complete wait for it.

    That is never proven: they may stop asking at any time.
    """
    polled = {
        rank: _polled(one.record, recording.taken_ns, patience) for rank, one in standing.items() if one.call is None
    }
    return {
        rank: one
        if (call := polled.get(rank)) is None
        or one.state not in (RankState.COMPUTING, RankState.BLOCKED, RankState.UNKNOWN)
        else replace(one, state=RankState.WAITING, call=call, polls=True)
        for rank, one in standing.items()
    }


def with_absent(recording: Recording, standing: Mapping[int, Standing], patience: float) -> Mapping[int, Standing]:
    """The ranks of which no process was seen, where all others have waited at start-up for ``patience`` seconds.

    That is never proven: they may be started later, or on another host.
    """
    unseen = [rank for rank, one in standing.items() if _never_seen(one.record)]
    began = [
        one.event.began_ns
        for rank, one in standing.items()
        if rank not in unseen and one.state is RankState.STARTING and one.event is not None
    ]
    others = sum(one.state is not RankState.ENDED for one in standing.values()) - len(unseen)
    if not unseen or not began or len(began) < others or recording.taken_ns - max(began) < patience * 1e9:
        return standing
    return {**standing, **{rank: replace(standing[rank], absent=True) for rank in unseen}}


def _never_seen(record: RankRecord) -> bool:
    heard = record.calls or record.history or record.ending or record.stacks or record.output
    return record.process.activity == "gone" and not (record.pid or heard or record.reported or record.unrecorded)


_ASKED_NS = 2e9  # since the last question, of a program that asks all the time


def _polled(record: RankRecord, now_ns: int, patience: float) -> Call | None:
    if not record.calls or now_ns - record.calls[-1].entered_ns < patience * 1e9:
        return None
    return next((call for call in record.in_flight if call.asked_ns and now_ns - call.asked_ns < _ASKED_NS), None)


def _standing(record: RankRecord) -> Standing:
    rank, process = record.rank, record.process
    if record.ending is not None:
        return Standing(rank, RankState.ENDED, record, site=last_site(record))
    if process.activity == "gone":
        return Standing(rank, RankState.UNKNOWN, record)
    if process.activity == "stopped":
        return Standing(rank, RankState.UNRESPONSIVE, record, site=last_site(record))
    if record.unrecorded:
        return _from_stack(record)
    held = next((call for call in reversed(record.calls[-_THREADS:]) if call.state is CallState.HELD), None)
    if held is not None:
        return Standing(rank, RankState.HELD, record, site=held.site, held=held)
    at_line = record.events(Held, state="open")
    if at_line:
        return Standing(rank, RankState.HELD, record, event=at_line[-1], site=at_line[-1].site)
    call = _waited_for(record)
    if call is not None:
        return Standing(rank, RankState.WAITING, record, call=call, site=_call_site(record, call))
    late = _late_wait(record)
    if late is not None and process.activity == "idle":  # in an unknown call: no rank is blamed for it
        return Standing(rank, RankState.UNKNOWN, record, event=late, site=late.site)
    unseen = record.main_stack.unseen if record.main_stack is not None and process.activity == "idle" else ""
    if unseen:
        return Standing(rank, RankState.WAITING, record, site=last_site(record), function=unseen)
    waiting = record.events(Joining, NewGroup, state="open")
    if waiting and process.activity != "computing":
        state = RankState.STARTING if isinstance(waiting[-1], Joining) else RankState.CREATING_GROUP
        return Standing(rank, state, record, event=waiting[-1], site=waiting[-1].site)
    if process.activity == "idle" and not compiles(record):
        # A missing answer proves nothing: where py-spy shows a stack and the GIL is not held, the rank is only blocked.
        known = process.answered or (bool(record.stacks) and not process.holds_lock)
        state = RankState.BLOCKED if known else RankState.UNRESPONSIVE
        return Standing(rank, state, record, site=last_site(record))
    busy = process.activity == "computing" or compiles(record)
    return Standing(rank, RankState.COMPUTING if busy else RankState.UNKNOWN, record, site=last_site(record))


def _from_stack(record: RankRecord) -> Standing:
    """A rank of which only the stack and the process are known."""
    activity, stack, site = record.process.activity, record.main_stack, last_site(record)
    if activity != "idle" or stack is None:
        state = RankState.COMPUTING if activity == "computing" else RankState.UNKNOWN
        return Standing(record.rank, state, record, site=site)
    function = call_in(stack)
    outside = RankState.COMPUTING if compiles(record) else RankState.BLOCKED
    return Standing(record.rank, RankState.WAITING if function else outside, record, site=site, function=function)


# In which torch waits for what it compiles: in other processes, or for a lock of the cache that another rank holds.
_COMPILER = re.compile(r"/torch/(_dynamo/convert_frame|_inductor/(async_compile|codecache|cpp_builder))\.py\Z")


def compiles(record: RankRecord) -> bool:
    """Whether torch.compile is at work on a rank, as was recorded, or as its stack shows."""
    stack = record.main_stack
    frames = stack.frames if stack is not None else ()
    return record.compiling is not None or any(not one.user and _COMPILER.search(one.file) for one in frames)


# Where torch waits in C++ for calls that Python code does not wait for: DDP's reducer, FSDP, coalesced
# broadcasts. The data loader is part of torch too, but waits for its workers.
_WAITS_IN_TORCH = ("/torch/distributed/", "/torch/nn/", "/torch/autograd/", "/torch/_", "/torch/optim/")


def _waited_for(record: RankRecord) -> Call | None:
    """The call that the rank is blocked in, if it is blocked in one."""
    in_flight = record.in_flight
    if not in_flight:
        return None
    main = record.main_stack
    held = [call for call in in_flight if call.state in (CallState.WAITING, CallState.ENTERED)]
    on_main = [call for call in held if main is None or call.thread == main.native_id]
    if on_main:
        return on_main[-1]
    idle = record.process.activity == "idle"
    if held and idle:
        return held[-1]  # the main thread waits for a thread that waits for the call
    if _late_wait(record) is not None:
        return None  # for a call that is older than the recorded ones: unknown which of its group's
    if main is not None and main.unseen and not main.unseen.endswith(UNRECORDED_WORK):
        return None
    inside = main.innermost if main is not None else None
    if inside is not None and not inside.user and any(part in inside.file for part in _WAITS_IN_TORCH) and idle:
        return in_flight[0]
    # On a device other than the CPU nothing waits in Python: the thread blocks, spinning or not, at the statement that
    # needs the result.
    on_device = [call for call in in_flight if call.signature.asynchronous]
    if on_device and record.process.still_s >= 2.0:
        return on_device[0]
    return None


def _late_wait(record: RankRecord) -> LateWait | None:
    """The wait for a call that is older than the recorded ones, if the rank is in one."""
    return next(reversed(record.events(LateWait, state="open")), None)


def _call_site(record: RankRecord, call: Call) -> Site:
    if call.signature.asynchronous and call.state is CallState.ISSUED:
        return call.site  # the host is further (``queued_calls.with_hosts``)
    main = record.main_stack
    frame = main.innermost_user if main is not None and call.thread == main.native_id else None
    return frame.site if frame is not None else call.site


def last_site(record: RankRecord) -> Site:
    """The innermost line of the user's code where the rank is, or was last seen."""
    if record.ending is not None:
        frame = record.ending.innermost_user
        if frame is not None:
            return frame.site
        ends = [event.site for event in record.events(ProcessEnds) if event.site != NO_SITE]
        if record.ending.how == "died" and ends:
            return ends[-1]
    else:
        stack: Stack | None = record.main_stack
        frame = stack.innermost_user if stack is not None else None
        if frame is not None:
            return frame.site
    # A call or a step of training, whichever came last.
    seen = [(call.entered_ns, call.site) for call in record.calls[-1:]]
    seen += [(sample.at_ns, sample.site) for sample in record.samples[-1:] if sample.site != NO_SITE]
    if seen:
        return max(seen, key=lambda one: one[0])[1]
    return next((event.site for event in reversed(record.history) if event.site != NO_SITE), NO_SITE)


def before_init(record: RankRecord) -> bool:
    """Whether the rank runs code of the user, and has not called init_process_group in this run."""
    stack = record.main_stack
    began = record.unrecorded or record.calls or record.events_forgotten or record.events(Joining)
    return stack is not None and stack.innermost_user is not None and not began
