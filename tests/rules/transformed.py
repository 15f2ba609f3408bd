"""Recordings of which it is known how their diagnosis differs from that of the recording that they are made from.

Each function is pure. ``renumbered``: the same run with other numbers for the ranks. ``without``: nothing is known of one rank.
``doubled``: every rank runs twice, and the groups of the copies have nothing in common. ``until``: the same run, seen earlier.
``with_more_events``: events that have nothing to do with the ranks' calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from ddpnb.recording.calls import Call, CallState, Group
from ddpnb.recording.events import Event, read
from ddpnb.recording.events.data import ReplicatedTensor, SamplerMade, SamplerPass
from ddpnb.recording.events.models import CheckpointRead, CheckpointSaved, ModelWrapped
from ddpnb.recording.events.runs import FenceMismatch, FenceOff, RanksPart
from ddpnb.recording.events.startup import Environment, InitProcessGroup, Joining, NewGroup
from ddpnb.recording.path import KIND, MOST, C, Kind, Path
from ddpnb.recording.recording import Process, RankRecord, Recording
from ddpnb.recording.replicas import Model

_NAMED = re.compile(r"(?<=\b[Rr]ank )\d+|(?<=\[rank)\d+")
_ROOT = re.compile(r"(?<=\|root )\d+")
_GROUP = re.compile(r"(?<=^group \[)\d+(?:, \d+)*(?=\])")  # in the texts of a path


def changed(value: Any, /, **changes: Any) -> Any:
    """An event, or facts in one, with other fields: they are no dataclasses for ``replace``."""
    return type(value)(**{**{field.name: getattr(value, field.name) for field in fields(value)}, **changes})


@dataclass(frozen=True)
class _Ranks:
    """What becomes of numbers of ranks and of groups. ``shift``: whether a group keeps the order of its members."""

    new: Callable[[int], int]
    in_order: bool = False

    def many(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """As members of a group: torch sorts them."""
        found = tuple(map(self.new, ranks))
        return tuple(sorted(found)) if list(ranks) == sorted(ranks) else found

    def group(self, group: Group) -> Group:
        return replace(group, ranks=self.many(group.ranks))

    def key(self, key: str) -> str:
        ranks, _, ordinal = key.partition("#")
        if not ranks:
            return key
        return f"{','.join(map(str, self.many(tuple(map(int, ranks.split(','))))))}#{ordinal}"

    def text(self, text: str) -> str:
        return _NAMED.sub(lambda found: str(self.new(int(found[0]))), text)

    def call(self, call: Call) -> Call:
        group = self.group(call.group)
        places = [group.ranks.index(self.new(rank)) for rank in call.group.ranks]
        signature = call.signature
        if signature.root is not None and signature.root < len(places):
            agreed = _ROOT.sub(str(places[signature.root]), signature.agreed)
            signature = replace(signature, root=places[signature.root], agreed=agreed)

        def moved(values: Any) -> Any:
            if not values or len(values) != len(places):
                return values
            return tuple(values[places.index(place)] for place in range(len(places)))

        if signature.op.startswith("all_to_all"):
            parts = {name: moved(getattr(signature, name)) for name in ("in_splits", "out_splits")}
            if signature.op == "all_to_all":
                parts |= {name: moved(getattr(signature, name)) for name in ("shapes", "dtypes", "out_shapes")}
            signature = replace(signature, **parts)
        peer = self.new(call.peer) if call.peer >= 0 else call.peer
        return replace(call, group=group, signature=signature, peer=peer)

    def event(self, event: Event) -> Event:
        if isinstance(event, Environment):
            named = {
                name: str(self.new(int(value))) if name in ("RANK", "LOCAL_RANK") and value.isdecimal() else value
                for name, value in event.variables.items()
            }
            return changed(event, variables=named)
        if isinstance(event, InitProcessGroup):
            return changed(event, rank=self._one(event.rank), as_rank=self._one(event.as_rank))
        if isinstance(event, (Joining, SamplerMade, SamplerPass)):
            return changed(event, rank=self._one(event.rank))
        if isinstance(event, (NewGroup, ReplicatedTensor, FenceOff)):
            return changed(event, ranks=self.many(event.ranks))
        if isinstance(event, FenceMismatch):
            return changed(event, peers=self.many(event.peers))
        if isinstance(event, RanksPart):
            return changed(event, peers=tuple(changed(one, rank=self.new(one.rank)) for one in event.peers))
        return event

    def _one(self, rank: int | None) -> int | None:
        return None if rank is None else self.new(rank)

    def path(self, path: Path | None) -> Path | None:
        if path is None:
            return None
        threads = {name: tuple(map(self._word, words)) for name, words in path.threads.items()}
        return replace(path, threads=threads, texts=tuple(_GROUP.sub(self._members, text) for text in path.texts))

    def _members(self, found: re.Match[str]) -> str:
        return ", ".join(map(str, self.many(tuple(map(int, found[0].split(", "))))))

    def _word(self, word: int) -> int:
        peer = word >> C & MOST
        if word & KIND != Kind.NUMBER or not peer:
            return word
        return word & ~(MOST << C) | (self.new(peer - 1) + 1) << C

    def record(self, record: RankRecord) -> RankRecord:
        calls = tuple(map(self.call, record.calls))
        ending = record.ending
        if ending is not None:
            ending = replace(ending, message=self.text(ending.message), traceback=self.text(ending.traceback))
        return replace(
            record,
            rank=self.new(record.rank),
            calls=calls,
            history=tuple(map(self.event, record.history)),
            process=replace(record.process, held_up_by=self.held(record.process.held_up_by)),
            ending=ending,
            models=tuple(replace(one, ranks=self.many(one.ranks), group=self.key(one.group)) for one in record.models),
            output=self.text(record.output),
            reached={self.key(key): seq for key, seq in record.reached.items()},
            path=self.path(record.path),
        )

    def held(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(rank if rank < 0 else self.new(rank) for rank in ranks)


def renumbered(recording: Recording, new: Mapping[int, int]) -> Recording:
    """The same run in which each rank has another number: ``new[old]``."""
    ranks = _Ranks(lambda rank: new.get(rank, rank))
    records = [ranks.record(record) for record in recording.ranks.values()]
    return replace(
        recording,
        ranks={record.rank: record for record in sorted(records, key=lambda one: one.rank)},
        account=None,
        curves=None,
        startup=None,
    )


def without(recording: Recording, rank: int) -> Recording:
    """The same run, of which nothing is known of one rank: its file was lost."""
    kept = {number: record for number, record in recording.ranks.items() if number != rank}
    return replace(recording, ranks=kept, account=None, curves=None, startup=None)


def doubled(recording: Recording) -> Recording:
    """A job with twice as many ranks, whose halves do the same in groups of their own; they read different data."""
    size = recording.world_size
    halves: dict[int, RankRecord] = {}
    for half in (0, 1):
        shift = half * size
        ranks = _Ranks(lambda rank, shift=shift: rank + shift)
        for record in recording.ranks.values():
            copy = ranks.record(record)
            halves[copy.rank] = replace(
                copy,
                pid=copy.pid + 10_000 * half,
                calls=tuple(replace(call, group=_named(call.group, half)) for call in copy.calls),
                history=tuple(_of_half(event, size, half) for event in copy.history),
                samples=tuple(replace(one, facts=_other_data(one.facts)) if half else one for one in copy.samples),
                path=_half_path(copy.path, half),
            )
    return replace(
        recording,
        world_size=2 * size,
        ranks=dict(sorted(halves.items())),
        account=None,
        curves=None,
        startup=None,
    )


def _named(group: Group, half: int) -> Group:
    return replace(group, label=f"half {half}") if group.label == "default_pg" else group


def _half_path(path: Path | None, half: int) -> Path | None:
    if path is None:
        return None
    return replace(path, texts=tuple(f"half {half}" if text == "default_pg" else text for text in path.texts))


def _of_half(event: Event, size: int, half: int) -> Event:
    """Samplers divide the data among the ranks of a half; groups are made by their members alone; files are its own."""
    if isinstance(event, Environment):
        sizes = {"WORLD_SIZE": str(2 * size)} if event.variables.get("WORLD_SIZE") == str(size) else {}
        return changed(event, variables={**event.variables, **sizes})
    if isinstance(event, InitProcessGroup):
        given = None if event.world_size is None else event.world_size + size
        return changed(event, world_size=given, size=None if event.size is None else event.size + size)
    if isinstance(event, NewGroup):
        return changed(event, local=True)
    if isinstance(event, (CheckpointSaved, CheckpointRead)):
        return changed(event, path=f"{event.path}.{half}")
    if isinstance(event, (SamplerMade, SamplerPass)) and half and event.rank is not None:
        return changed(event, rank=event.rank - size)
    return event


def _other_data(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value + 1 if name == "inputs_hash" and isinstance(value, (int, float)) else value
        for name, value in facts.items()
    }


def until(recording: Recording, at_ns: int) -> Recording:
    """The same run, as it was seen at this moment: what came later has not happened yet."""
    return replace(
        recording,
        ranks={number: _until(record, at_ns) for number, record in recording.ranks.items()},
        taken_ns=min(recording.taken_ns, at_ns),
        account=None,
        curves=None,
        startup=None,
        command=None,
    )


def _until(record: RankRecord, at_ns: int) -> RankRecord:
    calls = tuple(_call_until(record, call, at_ns) for call in record.calls if call.entered_ns <= at_ns)
    history = tuple(_event_until(event, at_ns) for event in record.history if event.began_ns <= at_ns)
    ended = record.ending is not None and record.ending.at_ns <= at_ns
    same = len(calls) == len(record.calls) and len(history) == len(record.history)
    now = same and (record.ending is None or ended)
    later = [mark.steps for mark in record.marks if mark.kind == "step" and mark.at_ns > at_ns]
    return replace(
        record,
        steps=min(later) - 1 if later else record.steps,
        models=_models_until(record, at_ns),
        calls=calls,
        history=history,
        samples=tuple(one for one in record.samples if one.at_ns <= at_ns),
        marks=tuple(one for one in record.marks if one.at_ns <= at_ns),
        ending=record.ending if ended else None,
        stacks=record.stacks if now else (),
        process=record.process if now or ended else _process_then(calls),
        output=record.output if ended else "",
        path=record.path if now else None,
        lines=record.lines if now else None,
    )


def _models_until(record: RankRecord, at_ns: int) -> tuple[Model, ...]:
    """The models that were wrapped by then, where each has an event that says when."""
    wrapped = [model for model in record.models if model.wrapper]
    made = [event.ended_ns for event in record.events(ModelWrapped, state="done")]
    then = dict(zip([model.number for model in wrapped], made, strict=True)) if len(made) == len(wrapped) else {}
    return tuple(model for model in record.models if then.get(model.number, at_ns) <= at_ns)


def _process_then(calls: tuple[Call, ...]) -> Process:
    """A rank that waits in a call is idle; of another one it is not known what it did."""
    waits = any(call.state is CallState.WAITING for call in calls)
    return Process("idle", 0.5) if waits else Process("computing")


def _call_until(record: RankRecord, call: Call, at_ns: int) -> Call:
    """A call that was not complete then: the rank waited in it if it did nothing else before the end of the call."""
    if not at_ns < call.done_ns:
        return call
    begun = [one.entered_ns for one in record.calls] + [event.began_ns for event in record.history]
    went_on = any(call.entered_ns < ns < call.done_ns for ns in begun)
    issued = 0 < call.issued_ns <= at_ns
    state = CallState.ISSUED if went_on else CallState.WAITING if issued else CallState.ENTERED
    return replace(call, state=state, done_ns=0, issued_ns=call.issued_ns if issued else 0)


def _event_until(event: Event, at_ns: int) -> Event:
    return changed(event, state="open", ended_ns=0) if event.ended_ns > at_ns else event


def with_more_events(recording: Recording, at_ns: int) -> Recording:
    """The same run, with events of kinds that nobody knows, and a checkpoint that every rank passes, at this moment."""

    def more(record: RankRecord) -> RankRecord:
        ended = record.ending.at_ns if record.ending is not None else at_ns
        then = min(at_ns, ended)
        added = [read("an event of a later version", {"rank": record.rank, "count": 3}, "done", then, then)]
        history = sorted((*record.history, *added), key=lambda event: event.began_ns)
        return replace(record, history=tuple(history))

    return replace(recording, ranks={number: more(record) for number, record in recording.ranks.items()})
