"""Calls as columns: numbers in numpy arrays, and the texts they refer to."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import IntEnum
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ddpnb.recording.calls import P2P_OPS, Call, CallState, Group, Signature, Site
from ddpnb.recording.collectives import Direction, direction_of, message_key, root_of
from ddpnb.recording.samples import width_of
from ddpnb.render.views.arrivals import NO_RANK, UNKNOWN_RANKS, Arrivals

Thing = TypeVar("Thing", bound=Hashable)
_SEQ_BITS = 33
_MOST = (1 << 32) - 1  # of a count
_MOST_BYTES = 1 << 53  # what a page can count
_HELD = 100_000  # things that are known by their identity


class Shown(IntEnum):
    """How a call is drawn."""

    DONE = 0
    OPEN = 1  # the rank is in it
    LEFT = 2  # asynchronous: begun, and the rank continued
    FAILED = 3
    HELD = 4


_SHOWN = np.zeros(len(CallState) + 1, np.uint8)
_SHOWN[[CallState.ENTERED, CallState.WAITING]] = Shown.OPEN
_SHOWN[CallState.ISSUED] = Shown.LEFT
_SHOWN[[CallState.FAILED, CallState.FENCED, CallState.REFUSED]] = Shown.FAILED
_SHOWN[CallState.HELD] = Shown.HELD
_SEEN = np.array([False, *(state.seen_by_peers for state in CallState)])

#: one call. ``begin`` and ``end`` are seconds since the origin, ``end`` is infinite while it is open
EVENT = np.dtype([
    ("begin", "<f8"), ("end", "<f8"), ("number", "<u4"), ("seq", "<u4"), ("place", "<u4"), ("kind", "<u4"),
    ("lane", "<u2"), ("state", "u1"),
])  # fmt: skip
Events = NDArray[Any]
CallKind = tuple[int, int, int, int, int]


class CallReader:
    """Reads calls into events, one rank after the other.

    ``texts`` and ``kinds`` only grow. A kind is (title, group, signature, site), each the number of a text, and the bytes that
    the rank gives to the call; a collective's title is to be followed by its ``seq``.
    """

    def __init__(self, arrivals: Arrivals) -> None:
        self.texts: list[str] = []
        self.kinds: list[CallKind] = []
        self.origin: float | None = None  # nanoseconds
        self._arrivals = arrivals
        self._signatures, self._groups, self._sites = _Numbering[Signature](), _Numbering[Group](), _Numbering[Site]()
        self._agreed_of: list[int] = []
        self._agreements: dict[str, int] = {}
        self._in_run: list[int] = []  # for each group, its number in this run: no other run has it
        self._groups_of_runs = 0
        self._kind_of: dict[Any, int] = {}
        self._text_of: dict[str, int] = {}

    def begin(self) -> None:
        """What is read from now on is of another run: its collectives are not those of earlier ones."""
        self._in_run.clear()

    def seconds(self, at_ns: float) -> float:
        """Since the origin; NaN for a moment that is not known."""
        if not 0 < at_ns < 1 << 64:
            return np.nan
        if self.origin is None:
            self.origin = float(at_ns)
        return (float(at_ns) - self.origin) * 1e-9

    def read(self, rank: int, calls: Sequence[Call], before: float) -> tuple[Events, NDArray[np.bool_], NDArray[Any]]:
        """The events, whether peers see each call, and the places at which the rank arrived.

        Args:
            rank: whose calls they are.
            calls: in the order of their numbers.
            before: seconds; taken for the moment of calls whose own is not known.
        """
        state = np.array([int(call.state) for call in calls], np.int64)
        events = np.zeros(len(calls), EVENT)
        events["state"] = _SHOWN[state]
        events["number"], events["seq"] = _whole([c.number for c in calls]), _whole([c.seq for c in calls])
        self._read_times(events, calls, before)
        signature = self._signatures.of([call.signature for call in calls])
        group = self._groups.of([call.group for call in calls])
        site = self._sites.of([call.site for call in calls])
        p2p = np.array([one.op in P2P_OPS for one in self._signatures.known])[signature]
        keys: list[Any] = ((signature << 42) | (group << 21) | site).tolist()
        for at in np.flatnonzero(p2p).tolist():  # to or from whom is part of the title
            keys[at] = (keys[at], calls[at].peer, calls[at].tag)
        kinds = self._kind_of
        found = [kinds.get(key) for key in keys]
        if None in found:
            found = [
                kinds[key] if key in kinds else self._kind(key, call) for key, call in zip(keys, calls, strict=True)
            ]
        events["kind"] = found
        agreed = np.array(self._agreed())[signature]
        places = self._places(rank, calls, group, np.array(self._groups_in_run())[group], events["seq"], p2p, agreed)
        # No other rank waits for a root that collects.
        collects = np.array([direction_of(one.op) is Direction.TO_ROOT for one in self._signatures.known])[signature]
        leaf = [at for at in np.flatnonzero(collects).tolist() if root_of(calls[at]) not in (rank, None)]
        events["place"] = places
        events["place"][leaf] = NO_RANK
        return events, _SEEN[state], places

    def _read_times(self, events: Events, calls: Sequence[Call], before: float) -> None:
        entered, issued = _times([call.entered_ns for call in calls]), _times([call.issued_ns for call in calls])
        done = _times([call.done_ns for call in calls])
        begin = np.where(np.isnan(entered), np.fmin(issued, done), entered)
        if self.origin is None and not np.isnan(begin).all():
            self.origin = float(np.nanmin(begin))
        origin = self.origin or 0.0
        begin, issued, done = (begin - origin) * 1e-9, (issued - origin) * 1e-9, (done - origin) * 1e-9
        begin = _filled(begin, before)
        over = (events["state"] == Shown.DONE) | (events["state"] == Shown.FAILED)
        events["begin"] = begin
        events["end"] = np.where(over, np.fmax(np.where(np.isnan(done), issued, done), begin), np.inf)

    def _kind(self, key: Any, call: Call) -> int:
        title = call.title if call.is_p2p else call.op
        where = f"{call.site} in {call.site.function}" if call.site.line else ""
        title, group, signature, site = map(self._text, (title, str(call.group), str(call.signature), where))
        of = call.signature
        size = sum(count * width_of(dtype) for count, dtype in zip(of.elements, of.dtypes, strict=False))
        self.kinds.append((title, group, signature, site, min(size, _MOST_BYTES)))
        return self._kind_of.setdefault(key, len(self.kinds) - 1)

    def _text(self, text: str) -> int:
        number = self._text_of.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        return number

    def _agreed(self) -> list[int]:
        """For each signature, a number of what all ranks must agree on."""
        for one in self._signatures.known[len(self._agreed_of) :]:
            self._agreed_of.append(self._agreements.setdefault(one.agreed or one.op, len(self._agreements)))
        return self._agreed_of

    def _groups_in_run(self) -> list[int]:
        """For each group, a number that it has in this run alone."""
        more = len(self._groups.known) - len(self._in_run)
        self._in_run += range(self._groups_of_runs, self._groups_of_runs + more)
        self._groups_of_runs += more
        return self._in_run

    def _places(
        self,
        rank: int,
        calls: Sequence[Call],
        known: NDArray[Any],
        group: NDArray[Any],
        seq: NDArray[Any],
        p2p: NDArray[np.bool_],
        agreed: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        member = np.array([rank in one.ranks for one in self._groups.known])[known]
        keys: list[int] = ((group << _SEQ_BITS) | seq.astype(np.int64)).tolist()
        found = self._arrivals.places(keys)
        for at in np.flatnonzero(~member | p2p | (seq == 0)).tolist():
            found[at] = self._message(rank, calls[at], int(group[at])) if p2p[at] else UNKNOWN_RANKS
        for at in [at for at, place in enumerate(found) if place is None]:
            found[at] = self._place(keys[at], calls[at], int(group[at]), int(agreed[at]))
        places = np.array(found, np.int64)
        # A rank that calls something else does not arrive at the place of the others.
        other = self._arrivals.agreed(places) != agreed
        for at in np.flatnonzero(other & (places > UNKNOWN_RANKS) & ~p2p).tolist():
            places[at] = self._place((keys[at], int(agreed[at])), calls[at], int(group[at]), int(agreed[at]))
        return places

    def _place(self, key: Hashable, call: Call, group: int, agreed: int) -> int:
        root = root_of(call) if direction_of(call.op) is Direction.FROM_ROOT else None
        return self._arrivals.place(key, call.group.ranks, root, group, min(call.seq, _MOST), agreed)

    def _message(self, rank: int, call: Call, group: int) -> int:
        key = message_key(call, rank, group)
        return UNKNOWN_RANKS if key is None else self._arrivals.place(key, key[1:3])


class _Numbering(Generic[Thing]):
    """Numbers for equal things. Known objects are looked up by identity, which is fast."""

    def __init__(self) -> None:
        self.known: list[Thing] = []
        self._numbers: dict[Thing, int] = {}
        self._by_id: dict[int, int] = {}
        self._held: list[Thing] = []  # so that an identity is not used again

    def of(self, things: list[Thing]) -> NDArray[np.int64]:
        found = [self._by_id.get(key) for key in map(id, things)]
        if None in found:
            if len(self._held) > _HELD:
                self._by_id.clear()
                self._held.clear()
            found = [self._number(thing) for thing in things]
        return np.array(found, np.int64)

    def _number(self, thing: Thing) -> int:
        number = self._by_id.get(id(thing))
        if number is None:
            number = self._numbers.setdefault(thing, len(self.known))
            if number == len(self.known):
                self.known.append(thing)
            self._by_id[id(thing)] = number
            self._held.append(thing)
        return number


def _times(values: list[int]) -> NDArray[np.float64]:
    """Nanoseconds; NaN for those that are not known or cannot be."""
    try:
        found = np.array(values, np.float64)
    except OverflowError:
        found = np.array([value if 0 < value < 1 << 64 else 0 for value in values], np.float64)
    found[~((found > 0) & (found < 1 << 64))] = np.nan
    return found


def _filled(begin: NDArray[np.float64], before: float) -> NDArray[np.float64]:
    """Replace unknown times with those of the preceding calls."""
    unknown = np.isnan(begin)
    if not unknown.any():
        return begin
    at = np.maximum.accumulate(np.where(unknown, -1, np.arange(len(begin))))
    return np.where(at >= 0, begin[np.maximum(at, 0)], before)


def _whole(values: list[int]) -> NDArray[np.uint32]:
    """Counts, as far as they can be some."""
    try:
        return np.clip(np.array(values, np.float64), 0, _MOST).astype(np.uint32)
    except OverflowError:
        return np.array([min(max(value, 0), _MOST) for value in values], np.uint32)
