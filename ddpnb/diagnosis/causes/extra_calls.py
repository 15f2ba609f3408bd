"""DDP301: ranks made a call which the others passed by. Nothing of their own history tells, so the smaller side is named."""

from __future__ import annotations

from dataclasses import replace

from ddpnb.diagnosis.execution.departures import departures
from ddpnb.diagnosis.hangs.call_order import out_of_turn, path_of
from ddpnb.diagnosis.hangs.skipped_call import COLLECTIVE_MISSING, TOGETHER, one_skipped
from ddpnb.model import phrases
from ddpnb.model.collectives import Collective, collective_of
from ddpnb.model.findings import Finding
from ddpnb.model.recording import Recording
from ddpnb.source.paths import parting


def judge(recording: Recording, finding: Finding) -> Finding:
    """The finding with the ranks that called alone as its culprits, or with sides if there are as many on either side.

    Itself where those that skipped a call are fewer, or as many and left their way by a jump, or made calls at that line, or
    in their turn, until now.

    Args:
        recording: what is known.
        finding: any; of a skipped call its culprits are in a later call.
    """
    call, alone, past = finding.collective, finding.waiting, finding.culprits
    if finding.type != COLLECTIVE_MISSING or call is None or not alone or len(past) < len(alone):
        return finding
    collective = collective_of(recording, call)
    if not {*alone, *past} <= set(collective.calls) or set(collective.sides) != {alone, past}:
        return finding
    tied = len(past) == len(alone)
    jumped = tied and any(way.kind == "jump" for way in departures(recording, past, alone, call))
    if jumped or out_of_turn(recording, collective) == past or (tied and _came_there(recording, collective, past)):
        return finding
    own, later = collective.calls[alone[0]], collective.calls[past[0]]
    # Other evidence than where the ranks are: how it is known that some are past the call of the others.
    more = finding.evidence[2:]
    if tied:
        tie = one_skipped(collective)
        return replace(tie, evidence=(*tie.evidence, *more))
    return replace(
        finding,
        type=replace(COLLECTIVE_MISSING, extra_call=True),
        summary=f"Only {phrases.ranks(alone)} called the {own.op}{phrases.at(own.site)}: {phrases.ranks(past)} "
        f"{phrases.verb(past, 'is', 'are')} already in {later.op}{phrases.at(later.site)}.",
        culprits=alone,
        waiting=past,
        collective=later,
        where=collective.sites((*alone, *past)),
        remedy=TOGETHER,
    )


def _came_there(recording: Recording, collective: Collective, past: tuple[int, ...]) -> bool:
    """Whether ranks have made calls from the line at which the others are: what that line runs took more turns there."""
    (alone,) = (side for side in collective.sides if side != past)
    paths = [path_of(recording, collective, collective.sides.index(side)) for side in (alone, past)]
    own = collective.calls[alone[0]].site
    direct = len(parting(recording, paths[0], paths[1]).one_rest) == 1
    return direct and all(any(call.site == own for call in recording.ranks[rank].calls) for rank in past)
