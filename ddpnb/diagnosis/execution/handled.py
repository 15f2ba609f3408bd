"""Exceptions that handlers of the user's code caught."""

from __future__ import annotations

from dataclasses import replace

from ddpnb.diagnosis.execution.parts import Executed, Part, place
from ddpnb.model.events.runs import ExceptionHandled
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.source.ways import handler_at

REFUSAL = "CollectiveMismatch"  # what the fence raises


def handled(recording: Recording, rank: int) -> list[ExceptionHandled]:
    """The exceptions that handlers of a rank caught, in their order; of a file without text, what may have been one."""
    found: dict[tuple[object, ...], ExceptionHandled] = {}
    for event in recording.ranks[rank].events(ExceptionHandled):
        source = recording.sources.get(event.site.file, "")
        handler = handler_at(source, event.site.line)
        if handler is not None or not source:
            found.setdefault((event.exception, event.raised, event.site.file, handler or event.site.line), event)
    return list(found.values())


def until_refusal(recording: Recording, part: Part) -> Part:
    """The part without what ranks ran after the fence had refused a call of theirs: others did not come to that."""
    return replace(part, ranks={rank: _until_refusal(recording.ranks[rank], mine) for rank, mine in part.ranks.items()})


def _until_refusal(record: RankRecord, mine: Executed) -> Executed:
    after = {place(event.site) for event in record.events(ExceptionHandled) if event.exception == REFUSAL}
    order = list(mine.lines)
    first = min((order.index(at) for at in after if at in mine.lines), default=len(order))
    left_out = {at for at in order[first:] if at not in mine.before}
    return replace(
        mine,
        lines={at: mine.lines[at] for at in order[:first]},
        run={at: line for at, line in mine.run.items() if at not in left_out},
    )
