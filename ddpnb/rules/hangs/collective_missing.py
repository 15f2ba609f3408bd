"""DDP301: ranks that did not make a call in which others wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ddpnb.recording import phrases
from ddpnb.recording.calls import UNNAMED, Call, Site
from ddpnb.recording.collectives import call_in
from ddpnb.recording.events.models import ModelWrapped
from ddpnb.recording.facts.departures import Left, calls_like
from ddpnb.recording.facts.endings import is_fence_stop
from ddpnb.recording.facts.paths.partings import parting as where_they_part
from ddpnb.recording.facts.reported_calls import (
    calls_known,
    claims_absence,
    first_call_of,
    last_call,
    members_known,
    overwritten,
)
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.stops import Awaited, Stop, Waits
from ddpnb.recording.findings import Finding, FindingType
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.source.paths import parting, path_to
from ddpnb.rules.causes.parted_in_library import parted
from ddpnb.rules.hangs.mismatch import argument
from ddpnb.rules.hangs.stack_lines import missing_by_stacks
from ddpnb.rules.hangs.table import hang
from ddpnb.rules.rule import (
    ERROR,
    FEW,
    MISMATCHES,
    SET_UP,
    Draft,
    after_verb,
    alike,
    each,
    family,
    in_calls,
    refine,
    say,
    title,
)
from ddpnb.texts import shortened

MISSING = FindingType("DDP301", "collective-missing", ways_part=True)
_WHATEVER_IS_RAISED = (
    "Make the call whether or not the exception comes: behind the try, or in its finally. Or do not catch the exception: the "
    "job then ends with it."
)
TOGETHER = "Make all ranks take the same branch: all_reduce the flag first, then call on all ranks or on none."


@hang(MISSING, needs=())
def collective_missing(snap: Snapshot, stop: Stop) -> Draft | None:
    """Ranks skipped a call in which others wait, or made one too many."""
    if stop.waits is Waits.CALLS:
        return _of_calls(snap.recording, stop)
    if stop.waits is Waits.STACK:
        return missing_by_stacks(snap, stop, MISSING)
    if stop.awaited is Awaited.SILENT:
        return silent(snap.recording, stop)
    return _ended(snap.recording, stop) if stop.awaited is Awaited.ENDED else _in_groups(stop)


def _of_calls(recording: Recording, stop: Stop) -> Draft:
    """One side skipped the call of the other, or made one more; in a tie either may have."""
    collective, left = stop.collective, stop.left
    assert collective is not None and left is not None
    where = {rank: call.site for rank, call in collective.calls.items()}
    if left.how is Left.EITHER:
        sides = collective.sides
        one, other = (collective.calls[side[0]] for side in sides[:2])
        return Draft(
            title(
                say(
                    "{who} [is|are] in {mine}, {others} in {theirs}: one side skipped a call.",
                    sides[0],
                    mine=one.op,
                    others=sides[1],
                    theirs=other.op,
                ),
                f"The ranks are in {one.op} and {other.op}: one side skipped a call.",
            ),
            remedy=TOGETHER,
            at={rank: where[rank] for side in sides for rank in side},
            sides=sides,
            evidence=[f"{_is_in(side, collective.calls[side[0]])}." for side in sides[:FEW]],
            collective=collective.calls[sides[0][0]],
            certainty="likely",
        )
    culprits = left.ranks
    (waiting,) = (side for side in collective.sides if side != culprits)
    mine, theirs = collective.calls[culprits[0]], collective.calls[waiting[0]]
    extra = left.how is Left.EXTRA
    (one, call), (other, later) = (
        ((culprits, mine), (waiting, theirs)) if extra else ((waiting, theirs), (culprits, mine))
    )
    return Draft(
        _extra(culprits, mine, waiting, theirs) if extra else _skipped(culprits, mine, waiting, theirs),
        culprits,
        _remedy(recording, culprits, waiting),
        where,
        waiting,
        evidence=(
            f"{_is_in(one, call)}.",
            f"{_is_in(other, later)}, the same sequence number (seq {later.seq}) of {later.group}.",
            *left.evidence,
        ),
        kind=replace(MISSING, extra_call=extra),
        collective=theirs,
        certainty="likely",
        hint=left.hint,
    )


def _remedy(recording: Recording, culprits: tuple[int, ...], waiting: tuple[int, ...]) -> str:
    """By what made the culprits leave the others: an exception that they handled, or another decision."""
    known = where_they_part(recording, culprits, waiting)
    raised = known is not None and known.kind == "exception" and set(culprits) <= set(known.odd)
    return _WHATEVER_IS_RAISED if raised else TOGETHER


def _extra(culprits: Sequence[int], mine: Call, waiting: Sequence[int], theirs: Call) -> str:
    """Of ranks that made one call too many."""
    one, other = _named_apart(mine, theirs)

    def told(here: str, there: str) -> str:
        text = "{who} [is|are] already in {theirs}{there}."
        others = say(text, waiting, theirs=other, there=there)
        return f"Only {phrases.ranks(culprits)} called the {one}{here}: {others[:1].lower()}{others[1:]}"

    return title(
        told(phrases.at(mine.site), phrases.at(theirs.site)),
        told(_line(mine.site), _line(theirs.site)),
        told(_line(mine.site), ""),
        told("", ""),
    )


def _skipped(culprits: Sequence[int], mine: Call, waiting: Sequence[int], theirs: Call) -> str:
    """Of ranks that are in another call than the one that others wait in."""
    one, other = _named_apart(mine, theirs)

    def told(here: str, there: str, one: str = one, other: str = other) -> str:
        is_ = phrases.verb(culprits, "it is", "they are")
        return f"{_did_not_call(culprits, other, waiting, there)}: {is_} in {one}{here}."

    return title(
        told(phrases.at(mine.site), phrases.at(theirs.site)),
        told(_line(mine.site), _line(theirs.site)),
        told(_line(mine.site), ""),
        told("", ""),
        told(_line(mine.site), "", mine.op, theirs.op),
        f"{_did_not_call(culprits, other, waiting, '')}.",
    )


def _named_apart(mine: Call, theirs: Call) -> tuple[str, str]:
    """Two calls in a title: the operations, and where both are the same what differs, ``all_reduce of [3]``."""
    if mine.op != theirs.op or (mine.signature == theirs.signature and mine.group.key == theirs.group.key):
        return mine.op, theirs.op
    if mine.group.key != theirs.group.key:
        return f"{mine.op} of {mine.group}", f"{theirs.op} of {theirs.group}"
    return f"{mine.op} {argument(mine, theirs)}", f"{theirs.op} {argument(theirs, mine)}"


def _did_not_call(missing: Sequence[int], call: str, waiting: Sequence[int], at: str) -> str:
    return (
        f"{phrases.ranks(missing, True)} did not call the {call} that {phrases.ranks(waiting)} "
        f"{phrases.verb(waiting, 'is', 'are')} blocked in{at}"
    )


def _line(site: Site) -> str:
    """`` at train.py:7``: without the function, as in a title."""
    return phrases.at(replace(site, function="?"))


def _is_in(ranks: Sequence[int], call: Call) -> str:
    return say("{who} [is|are] in {call}{at}", ranks, call=phrases.in_call(call), at=phrases.at(call.site))


def _ended(recording: Recording, stop: Stop) -> Draft:
    """Ranks that finished while others wait for them."""
    waiting, missing = stop.waiting, stop.gone
    call, site = stop.calls[stop.first], stop.standings[stop.first].site
    text = "{who} never [calls|call] the {op} that {others} {are} blocked in{at}: {they} {ended}."
    words = {
        "op": call.op,
        "others": waiting,
        "are": phrases.verb(waiting, "is", "are"),
        "they": phrases.verb(missing, "it", "they"),
        "ended": how_ended(recording, missing),
    }
    return Draft(
        title(*(say(text, missing, at=at, **words) for at in (phrases.at(site), _line(site), ""))),
        missing,
        "Call it on all ranks or on none: move it out of the condition, or end all ranks together.",
        waiting=waiting,
        evidence=ended_lines(recording, stop),
        collective=call,
        # What the fence has refused is known only where the other calls are.
        certainty="likely" if any(is_fence_stop(recording.ranks[rank].ending) for rank in missing) else "proven",
        hint=stop.left.hint if stop.left is not None else None,
    )


def how_ended(recording: Recording, ranks: Sequence[int]) -> str:
    """``finished``; ``ended`` if one of them did not end well."""
    well = all((ending := recording.ranks[rank].ending) is not None and ending.well for rank in ranks)
    return "finished" if well else "ended"


def ended_lines(recording: Recording, stop: Stop) -> tuple[str, ...]:
    """Where the others wait, and after how many calls ranks ended."""
    call = stop.calls[stop.first]
    return (
        say(
            "{who} [is|are] in {call}{at}.",
            stop.waiting,
            call=phrases.in_call(call),
            at=phrases.at(stop.standings[stop.first].site),
        ),
        *after_verb({rank: _ended_after(recording.ranks[rank], call) for rank in stop.gone}),
    )


def _ended_after(record: RankRecord, call: Call) -> str:
    """How many collectives of the group a rank called before it ended, and how many of them at the line of ``call``."""
    text = phrases.ended(record.ending)
    made = [c for c in record.calls if c.group.key == call.group.key and c.seq]
    there = calls_like(record, call)
    if not record.forgotten:
        if not made:
            return f"{text} without a collective in this group."
        lines = f"{'not ' * (not there)}at that line" if len(made) == 1 else f"{there or 'none'} of them at that line"
        return f"{text} after {len(made)} collective{'s' * (len(made) != 1)} in this group, {lines}."
    lines = f", at least {there} of them at that line" if there else ""  # none among the recorded calls: no number
    return f"{text} after {made[-1].title} of this group{lines}." if made else f"{text}."  # its number is exact


def _in_groups(stop: Stop) -> Draft:
    """Of ranks that wait for each other in several groups: one skipped a call."""
    assert stop.left is not None
    calls, culprits = stop.calls, stop.left.ranks
    mine = calls[culprits[0]]
    call = calls[stop.left.past]
    waiting = phrases.besides(stop.waiting, culprits)
    inside = [r for r in waiting if calls[r].group.key == call.group.key and calls[r].seq == call.seq]
    return Draft(
        _skipped(culprits, mine, inside, call),
        culprits,
        "Call every collective of a group on all of its members.",
        waiting=waiting,
        evidence=call_lines(stop),
        collective=call,
        certainty="likely",
        hint=stop.left.hint,
    )


def call_lines(stop: Stop) -> tuple[str, ...]:
    """In which call each rank is; at a line to which several callers lead, with the line of the caller."""
    calls, callers = stop.calls, dict[Site, set[str]]()
    for call in calls.values():
        callers.setdefault(call.site, set()).add(call.site.via)

    def place(rank: int) -> str:
        site = calls[rank].site
        via = f", called at {site.via}" if site.via and len(callers[site]) > 1 else ""
        return f"{phrases.at(stop.standings[rank].site)}{via}"

    return alike(
        "{who} [is|are] in {call}{at}.",
        {rank: {"call": phrases.in_call(calls[rank]), "at": place(rank)} for rank in sorted(calls)},
    )


# -- of reports


def silent(recording: Recording, stop: Stop) -> Draft | None:
    """Ranks that others waited for, and that made no call, raised nothing and did not end as far as a report says.

    Ranks whose calls of that group the report holds are at fault. Otherwise it is one of those that do not occur in it;
    they are named only where they are fewer than those that wait.
    """
    standings = stop.standings
    chosen = first_call_of(standings, stop.waits_for, stop.waiting)
    if chosen is None:
        return None
    call, inside, missing = chosen
    waited_too = {rank for rank in missing if (one := recording.ranks.get(rank)) is not None and one.lost == "call"}
    seen = [rank for rank in missing if calls_known(recording.ranks.get(rank), call)]
    unseen = sorted(set(missing) - set(seen) - waited_too)
    if not seen and not claims_absence(recording, call, inside):
        return None
    few = len(unseen) < len(inside) or (len(unseen) == 1 and members_known(recording, call))
    culprits = seen or (unseen if few else [])
    if not culprits:
        return None  # which of them it is, if any, these files do not show
    lost = overwritten(recording, call, seen, inside[0])
    own = standings[inside[0]].call or call
    call = lost if lost is not None else call
    waited_s = recording.report.waited_s if recording.report is not None else 0.0
    who, at = phrases.ranks(culprits), phrases.at(standings[inside[0]].site)
    shorter = (at, _line(standings[inside[0]].site), "")
    if lost is not None:
        text = "{culprits} did not call {call} of {group}: {inside} {were} blocked in {own}{at}, a later one."
    else:
        text = "{culprits} did not call the {call} that {inside} {were} blocked in{at}."
    words = {
        "culprits": phrases.ranks(culprits, True),
        "call": _named(call),
        "group": call.group,
        "inside": phrases.ranks(inside),
        "were": phrases.verb(inside, "was", "were"),
        "own": _named(own),
    }
    # Those that wait elsewhere for a rank that waits here.
    rest = sorted(set(stop.waiting) - set(inside) - set(culprits))
    what = "send" if call.op != "send" else "receive"
    has = phrases.verb(culprits, "has", "have")
    if call.is_p2p:
        remedy = f"Match it with a {what} of the same peer and tag on {who}."
    else:
        remedy = (
            "Call it on all ranks or on none: look at the condition or the loop around it, with the values that "
            f"{who} {has}."
        )
    theirs = phrases.verb(culprits, "its output and its stack", "their output and their stacks")
    return Draft(
        title(*(text.format(at=place, **words) for place in shorter)),
        culprits,
        f"{remedy} What {who} did instead is not in these files: {theirs} (py-spy dump --pid PID) say it.",
        {rank: standings[rank].site for rank in (*culprits, *inside, *rest) if rank in standings},
        (*inside, *rest),
        evidence=(
            _waited(inside, own, waited_s) + at + "." + _before(recording, inside[0], own, lost),
            *each(seen, lambda rank: last_call(recording.ranks[rank], call)),
            *_unseen(recording, unseen),
            *in_calls({rank: stop.calls[rank] for rank in rest if rank in stop.calls}, standings, "was"),
        ),
        collective=call,
        certainty="timed" if seen and waited_s and lost is None else "likely",
    )


def _waited(inside: Sequence[int], own: Call, waited_s: float) -> str:
    long = f" for {waited_s:.0f} s" if waited_s >= 1 else f" for {waited_s:.2g} s" if waited_s else ""
    return f"{phrases.ranks(inside, True)} waited in {phrases.in_call(own)}{long}"


def _before(recording: Recording, rank: int, own: Call, lost: Call | None) -> str:
    """What is not known of the calls before."""
    if lost is None:
        return ""
    if recording.ranks[rank].partial:
        return f" These files show none of the calls #{lost.seq} to #{own.seq - 1}."
    return f" Its dump begins there: #{lost.seq} to #{own.seq - 1} were overwritten."


def _unseen(recording: Recording, ranks: Sequence[int]) -> list[str]:
    report = recording.report
    present = {*report.present, *(rank for line in report.lines for rank in line.ranks)} if report else set[int]()
    mentioned = present | {rank for rank in ranks if rank in recording.ranks and recording.ranks[rank].mentioned}
    found = [
        say("{who} [occurs|occur] {how}.", some, how=how)
        for some, how in (
            (sorted(mentioned & set(ranks)), "in these files, but no call of this group"),
            ([rank for rank in ranks if rank not in mentioned], "in none of these files"),
        )
        if some
    ]
    ended = {rank: recording.ranks[rank].ending for rank in ranks if rank in recording.ranks}
    ended = {rank: ending for rank, ending in ended.items() if ending is not None}
    lost = each(ended, lambda rank: f"Rank {rank} lost its connection to another: {shortened(str(ended[rank]), 200)}")
    return [*found, *map(phrases.sentence, lost)]


def _named(call: Call) -> str:
    return call.title if call.is_p2p else f"{call.op} #{call.seq}" if call.op != UNNAMED else f"collective #{call.seq}"


@family(MISSING, after=(ERROR,), needs=())
def named_missing(snap: Snapshot) -> Iterable[Draft]:
    """Ranks that a message names as missing, where no file shows the call of the others."""
    report = snap.recording.report
    if report is not None and (missing := report.missing):
        yield Draft(
            say("{who} [is|are] missing: other ranks waited for [it|them] until their time-out.", missing),
            missing,
            "Look at the output of these ranks, and at their stacks while it hangs (py-spy dump --pid PID).",
            evidence=(say("{who} [is|are] named as missing in these files.", missing),),
            certainty="timed",
        )


# -- in the place of other findings


@refine(
    MISSING,
    refines=MISMATCHES,
    after=(*SET_UP, "DDP411", "DDP605"),
    needs=("stacks",),
)
def parted_in_library(snap: Snapshot, finding: Finding) -> Draft | None:
    """The ranks' calls differ because one function of a library called different others."""
    return parted(snap.standings, finding)


@refine(MISSING, refines=("DDP312",), after=("DDP103", "DDP403", "DDP404", "DDP707"))
def not_about_a_model(snap: Snapshot, finding: Finding) -> Draft | None:
    """A rank was refused as it wrapped its model, because its calls met others than those of a wrapper.

    What torch then says of the models is read from numbers that mean something else.
    """
    drafts = (_met_others(snap.recording, finding, rank) for rank in finding.culprits)
    return next((one for one in drafts if one is not None), None)


def _met_others(recording: Recording, finding: Finding, rank: int) -> Draft | None:
    record = recording.ranks[rank]
    wrapped = [event.site for event in record.events(ModelWrapped, state="failed")]
    own = next((call for call in record.calls if call.site in wrapped[-1:]), None)
    if own is None:
        return None
    calls = {other: call_in(one, own.group, own.seq) for other, one in recording.ranks.items() if other != rank}
    met = {other: call for other, call in sorted(calls.items()) if call is not None}
    if not met or any(recording.ranks[other].events(ModelWrapped) for other in met):
        return None
    theirs = met[min(met)]
    way = parting(recording, path_to(recording.ranks[min(met)], theirs), path_to(record, own))
    skipped = len(met) > 1 or (way.relation == "sequence" and way.other.line > way.one.line)
    return Draft(
        title(
            *(
                f"Rank {rank} did not call the {theirs.op} that {phrases.ranks(met)} made{there}: it wraps its model{here}."
                for here, there in ((_line(own.site), _line(theirs.site)), ("", _line(theirs.site)), ("", ""))
            )
        ),
        (rank,) if skipped else (),
        TOGETHER,
        {rank: own.site, **{other: call.site for other, call in met.items()}},
        tuple(met) if skipped else (),
        () if skipped else (tuple(met), (rank,)),
        (*finding.evidence, f"{_is_in([rank], own)}: its calls were matched with those of {phrases.ranks(met)}."),
        instead=finding,
        collective=theirs,
        certainty="likely",
    )
