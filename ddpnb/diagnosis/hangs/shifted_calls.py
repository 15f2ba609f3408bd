"""DDP301: ranks skipped a call, and their later ones were matched with those before them of the others.

As long as the calls have one signature, nothing fails: each takes the numbers of another. Which call was skipped follows from
where each was made: from the first one that differs on, these ranks are where the others come one call later.
"""

from __future__ import annotations

from collections.abc import Mapping

from ddpnb.diagnosis.execution.parts import place
from ddpnb.diagnosis.hangs.skipped_call import COLLECTIVE_MISSING, TOGETHER
from ddpnb.model import phrases
from ddpnb.model.calls import NO_SITE, Call, Site
from ddpnb.model.collectives import Collective, collectives
from ddpnb.model.findings import Finding
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.source.branches import function_at

_NEAR = 64  # calls


def find(recording: Recording, collective: Collective) -> Finding | None:
    """The finding; None where the calls before this mismatch were made at the same places.

    Args:
        recording: what is known.
        collective: the first one whose calls do not match, on two sides.
    """
    if len(collective.sides) != 2:
        return None
    group = collectives(recording)[collective.group.key]
    reference, odd = collective.sides
    for past, made in ((odd, reference), (reference, odd)):
        first = _since(group, collective, past, made)
        if first is not None:
            return _finding(recording, first, collective, past, made)
    return None


def _since(
    group: Mapping[int, Collective], last: Collective, past: tuple[int, ...], made: tuple[int, ...]
) -> Collective | None:
    """The first of the collectives before ``last`` in which ranks are where the others come in the next one."""
    found, after = None, last
    for seq in range(last.collective_seq_id - 1, last.collective_seq_id - 1 - _NEAR, -1):
        one = group.get(seq)
        if one is None or not {*past, *made} <= one.calls.keys():
            break
        ahead = {_place(one.calls[rank]) for rank in past}
        here, following = ({_place(each.calls[rank]) for rank in made} for each in (one, after))
        if ahead == here or ahead != following or len(ahead) > 1 or NO_SITE in {one.calls[r].site for r in one.calls}:
            break
        found = after = one
    return found


def _place(call: Call) -> tuple[str, int, str]:
    return call.site.file, call.site.line, call.site.via


def _finding(
    recording: Recording, first: Collective, last: Collective, past: tuple[int, ...], made: tuple[int, ...]
) -> Finding:
    """Those that skipped it are named, those that made it alone if they are fewer, and the sides if they are as many."""
    call, own = first.calls[made[0]], first.calls[past[0]]
    extra, tied = len(past) > len(made), len(past) == len(made)
    culprits, waiting = ((), ()) if tied else (made, past) if extra else (past, made)
    sides = (made, past) if tied else ()
    passed = [] if extra else _passed(recording, first, call, past)
    return Finding(
        COLLECTIVE_MISSING,
        f"{phrases.ranks(past, True)} did not make the {call.op} #{call.seq} that {phrases.ranks(made)} made{phrases.at(call.site)}"
        f"{_via(call)}: it was matched with {phrases.verb(past, 'its', 'their')} next call, and so on until #{last.collective_seq_id}.",
        culprits,
        waiting,
        call,
        tuple(
            dict.fromkeys(
                (
                    *passed,
                    *first.sites((*past, *made) if not extra else (*made, *past)),
                    *last.sites((*past, *made)),
                )
            )
        ),
        (
            f"#{call.seq}: {phrases.ranks(made)} at {call.site}{_via(call)}, {phrases.ranks(past)} at {own.site}{_via(own)}.",
            f"#{last.collective_seq_id}: {phrases.ranks(made)} at {last.calls[made[0]].site}, {phrases.ranks(past)} at "
            f"{last.calls[past[0]].site}.",
            *(
                f"{phrases.ranks([rank], True)} ran {site} and did not make the call there."
                for rank, site in passed[:4]
            ),
            *phrases.undecided(sides),
        ),
        TOGETHER,
        sides=sides,
        certainty="likely",
    )


def _via(call: Call) -> str:
    return f" (called at {call.site.via})" if call.site.via else ""


def _passed(recording: Recording, first: Collective, call: Call, ranks: tuple[int, ...]) -> list[tuple[int, Site]]:
    """The line from which others came to the skipped call, on ranks that ran it before the call that they made instead."""
    file, _, line = call.site.via.rpartition(":")
    if not line.isdigit():
        return []
    source = recording.sources.get(file, "")
    site = Site(file, int(line), function_at(source, int(line)) if source else "")
    return [
        (rank, site) for rank in ranks if _ran_without(recording.ranks[rank], site, call.site.via, first.calls[rank])
    ]


def _ran_without(record: RankRecord, site: Site, via: str, own: Call) -> bool:
    """Whether a rank ran a line in the window of its own call, before that, and made no call from the line in that window."""
    until = record.begun_before(own)
    windows = record.executed.windows if record.executed is not None else ()
    window = next((one for one in reversed(windows) if one.calls <= until), None)
    if record.executed is None or window is None:
        return False
    made = (call for call in record.calls if window.calls <= record.begun_before(call) <= until)
    ran = [place(one) for one in record.executed.of(window)]
    before = ran[: ran.index(place(own.site))] if place(own.site) in ran else []
    return place(site) in before and not any(call.site.via == via for call in made)
