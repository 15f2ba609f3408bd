"""Wrappers of ``Work.wait``, which records when a call is waited for, and when the wait ends, and of others of Work."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ddpnb.recorder.events.hooks import hide, place
from ddpnb.recorder.files.clock import now_ns
from ddpnb.recorder.holds.release import raises_releases
from ddpnb.recorder.stacks.signal_handlers import of_handler
from ddpnb.recording import blackbox as layout
from ddpnb.recording.calls import CallState
from ddpnb.recording.events.runs import LateWait

if TYPE_CHECKING:
    from ddpnb.recorder.collectives.door import Door

raises_releases(__name__)

_ISSUED, _WAITING, _COMPLETED, _FAILED, _DROPPED = map(
    int, (CallState.ISSUED, CallState.WAITING, CallState.COMPLETED, CallState.FAILED, CallState.DROPPED)
)
_STATE_AT, _TIMEOUT_AT = layout.CALL_STATE_AT, layout.CALL_TIMEOUT_AT
_get_stamp = struct.Struct("<Q").unpack_from
_DONE_AT, _CHANGED_AT = layout.CALL_DONE_AT, layout.PROGRESS_AT + 8
_put_time = struct.Struct("<Q").pack_into
_put_timeout = struct.Struct("<I").pack_into


def watched(wait: Callable[..., Any], door: Door) -> Callable[..., Any]:
    """``wait`` of a Work, which records itself in the door's black box."""
    pending, fresh, p2p_works = door.flight.pending, door.flight.fresh, door.flight.p2p
    silent, off, memory = door.box.silent, door.off, door.box.memory
    finish, loosen, convert = door.flight.finish, door.flight.loosen, door.release.convert
    in_use, waited = door.in_use.calls, door.in_use.waited

    def watched_wait(work: Any, timeout: Any = None) -> Any:
        given = () if timeout is None else (timeout,)
        if silent or off:
            return wait(work, *given)
        entry = None
        try:
            if in_use:
                waited(work)
            if fresh:
                loosen()
            entry = pending.pop(work, None) or p2p_works.get(work)
            at, number, on_cpu = entry or (0, -1, False)
            ours = entry is not None and _get_stamp(memory, at)[0] == number + 1
            if ours:
                if isinstance(timeout, timedelta):
                    milliseconds = max(1, int(timeout.total_seconds() * 1000)) & 0x7FFFFFFF
                    _put_timeout(memory, at + _TIMEOUT_AT, milliseconds)
                memory[at + _STATE_AT] = _WAITING
        except BaseException as error:
            if of_handler(error):
                if entry is not None:
                    finish(entry, _DROPPED)
                raise
            door.detach()
            return wait(work, *given)
        if entry is None:
            with door.release.converting():  # not recorded
                return wait(work, *given)
        if not ours:
            return _late_wait(wait, work, given, door)
        try:
            result = wait(work, *given)
        except BaseException as error:
            converted = error
            try:
                finish(entry, _FAILED)
                converted = convert(error)
            except Exception:
                door.detach()
            if converted is not error:
                raise converted from None
            del converted  # this frame is in its traceback: they would keep each other, and the tensors of the call
            raise
        try:
            if _get_stamp(memory, at)[0] != number + 1:
                pass  # other threads have issued many calls meanwhile: the record is of another one
            elif on_cpu or door.flight.asks(work):
                now = now_ns()
                memory[at + _STATE_AT] = _COMPLETED
                _put_time(memory, at + _DONE_AT, now)
                _put_time(memory, _CHANGED_AT, now)
            else:  # on a CUDA device wait() only orders streams: the call may still be in flight
                memory[at + _STATE_AT] = _ISSUED
                pending[work] = entry
        except Exception:
            door.detach()
        return result

    watched_wait.__doc__ = wait.__doc__
    return hide(watched_wait, below=True)


def asked(is_completed: Callable[..., bool], door: Door) -> Callable[..., bool]:
    """``is_completed`` of a Work, which records that the program asks.

    Where it is complete, the program may be done with the call, and nothing here keeps it.
    """
    pending, fresh, p2p_works = door.flight.pending, door.flight.fresh, door.flight.p2p
    silent, off, memory, flight = door.box.silent, door.off, door.box.memory, door.flight

    def watched_question(work: Any) -> bool:
        result = is_completed(work)
        if not silent and not off:
            try:
                if fresh:
                    flight.loosen()
                if result:
                    door.in_use.over(work)
                entry = pending.get(work) or p2p_works.get(work)
                if entry is not None and result:
                    flight.completed(work, entry)
                elif entry is not None and _get_stamp(memory, entry[0])[0] == entry[1] + 1:
                    at = entry[0] + layout.CALL_DONE_AT  # until it is complete
                    memory[at : at + 8] = now_ns().to_bytes(8, "little")  # at once: pack_into() writes zeros first
            except BaseException as error:
                if of_handler(error):
                    raise
                door.detach()
        return result

    watched_question.__doc__ = is_completed.__doc__
    return hide(watched_question, below=True)


def on_future(get_future: Callable[..., Any], door: Door) -> Callable[..., Any]:
    """``get_future`` of a Work: the program may learn from that when the call is complete, which is not seen."""

    def watched_future(work: Any) -> Any:
        door.in_use.over(work)
        return get_future(work)

    watched_future.__doc__ = get_future.__doc__
    return hide(watched_future, below=True)


def _late_wait(wait: Callable[..., Any], work: Any, given: tuple[Any, ...], door: Door) -> Any:
    """Wait for a work whose record a later call has: the wait is a phase, since there is no call to show it on."""
    number, failed = -1, True
    with suppress(Exception):
        number = door.box.begin(LateWait(site=place(2)))
    try:
        with door.release.converting():
            result = wait(work, *given)
        failed = False
    finally:
        with suppress(Exception):
            door.box.end(number, failed=failed)
    return result
