"""Groups that some ranks made and others did not: ranks are blocked in new_group, or groups share a name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ddpnb.recording import phrases
from ddpnb.recording.calls import NO_SITE, Site, listed
from ddpnb.recording.events.startup import InitProcessGroup, NewGroup
from ddpnb.recording.facts import hints
from ddpnb.recording.facts.snapshot import PerRank, Snapshot
from ddpnb.recording.facts.standings import Standing
from ddpnb.recording.facts.stops import Stop
from ddpnb.recording.findings import FindingType
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import RankRecord
from ddpnb.recording.split import split
from ddpnb.rules.hangs.table import hang
from ddpnb.rules.rule import Draft, family, say, title

SUBGROUP_MISMATCH = FindingType("DDP108", "subgroup-mismatch", group_mismatch=True, ways_part=True)

_OF_GROUPS = "Call new_group on every rank, members or not, with the same lists in the same order."
_OF_MESHES = (
    "Make each DeviceMesh on all ranks, members or not: one over all of them, of which each rank takes its part "
    '(mesh["dp"]), or the same ones in the same order.'
)
_NOW = 1 << 63
_LISTED = 4  # groups of a rank that are spelled out


@hang(SUBGROUP_MISMATCH)
def not_made(snap: Snapshot, stop: Stop) -> Draft:
    """Groups that some ranks made and others did not: they wait in new_group."""
    recording, standings, waiting = snap.recording, stop.standings, stop.waiting
    grouping = stop.among(RankState.CREATING_GROUP)
    absent = frozenset[int]().union(*{stop.waits_for[rank].missing for rank in grouping})
    unlike, sides, made = _unlike_lists(standings)
    late = {rank for rank in absent if rank in standings and rank not in stop.gone and rank not in waiting}
    culprits = unlike or ([] if sides else sorted(absent.difference(grouping, late)) or grouping)
    named = culprits or sorted(rank for side in sides[1:] for rank in side)
    odd = {*unlike, *(named if sides else ())}
    held = tuple(rank for rank in waiting if rank not in named)
    spoken = [rank for rank in sorted({*grouping, *named})[:8] if rank in standings]
    evidence = [_groups_in_words(standings[rank]) for rank in spoken]
    makers = [rank for rank in grouping if rank not in named]
    others = makers or [rank for rank in standings if odd and rank not in named and rank in made]
    event = (made.get(others[0]) if odd else standings[others[0]].event) if others else None
    members = event.ranks if isinstance(event, NewGroup) else ()
    places = _places(standings, [rank for rank in named if rank in odd], made)
    before = _earlier_there(standings, named, event) if isinstance(event, NewGroup) else {}
    evidence += [
        f"{phrases.ranks(ranks, True)} called new_group at {site} for an earlier group."
        for ranks, site in phrases.by_place(before.items())[:4]
    ]
    mesh = any(one.maker for one in made.among((*named, *others)).values())
    never_called = len(places) < len(named)
    path = standings[(makers or grouping)[0]].path
    if sides and not culprits:
        what = "groups of DeviceMesh" if mesh else "new_group calls"
        short = f"The ranks' {what} do not match"
        summary = title(f"{short}: {phrases.by_side(sides, lambda rank: listed(made[rank].ranks))}.", f"{short}.")
        evidence = [
            f"{phrases.ranks(side, True)} made {listed(made[side[0]].ranks)}{_at(made[side[0]].site)}."
            for side in sides[:8]
        ] + evidence
    elif others:
        now = makers and all(
            isinstance(group := standings[rank].event, NewGroup) and group.ranks == members for rank in makers
        )
        what = f"{phrases.verb(others, 'is creating', 'are creating') if now else 'created'} a group"
        rest = f"{phrases.ranks(named)} {phrases.verb(named, 'does', 'do')} not create it."
        summary = title(
            f"{phrases.ranks(others, True)} {what} of {listed(members)}; {rest}",
            f"{phrases.ranks(others, True)} {what}; {rest}",
        )
    else:
        summary = say("{who} [waits|wait] for each other in new_group.", grouping)
    at = {**_places(standings, named), **places, **_places(standings, held, made if odd else _NONE_MADE)}
    return Draft(
        summary,
        culprits,
        _OF_MESHES if mesh else _OF_GROUPS,
        at,
        held if culprits else (),
        sides,
        evidence,
        first=tuple(before.items()),
        certainty="likely" if len(standings) < recording.world_size else "proven",
        hint=hints.deciding_branch(recording, path) if never_called else None,
        moments=tuple(
            (rank, (made[rank].began_ns if rank in made else 0) or _NOW)
            for rank in sorted({*named, *others, *held} & set(standings))
        ),
    )


@family(SUBGROUP_MISMATCH, failure=True)
def of_one_name(snap: Snapshot) -> Iterable[Draft]:
    """Ranks made different groups under one name: torch counts the groups of each rank.

    Both groups then meet at one place of the store, and whose addresses a rank finds there is a matter of time. A warning;
    an error where all members are in a call that has not completed for ``patience`` seconds.
    """
    recording, standings = snap.recording, snap.standings
    if not all(stop.suspected for stop in snap.stops):
        return
    if any(record.events_forgotten for record in recording.ranks.values()):
        return  # a group of an earlier start may have the name
    made: dict[str, dict[int, NewGroup]] = {}
    for rank, record in recording.ranks.items():
        joined = max((event.ended_ns for event in record.events(InitProcessGroup, state="done")), default=0)
        for group in _of_all(record):
            if group.name and rank in group.ranks and len(group.ranks) > 1 and group.began_ns >= joined:
                made.setdefault(group.name, {})[rank] = group
    shared = {name: groups for name, groups in made.items() if len({group.ranks for group in groups.values()}) > 1}
    if not shared:
        return
    held = {rank: one.call for rank, one in standings.items() if one.call is not None and one.idle_s >= snap.patience}
    waited = {call.group.name for call in held.values()}
    name = next((name for name in shared if name in waited), next(iter(shared)))
    groups = shared[name]
    sides = split({rank: group.ranks for rank, group in groups.items()}).sides
    unlike, _, lists = _unlike_lists(standings)
    by_all = any(rank not in lists[rank].ranks for rank in lists if rank not in unlike)  # not by members alone
    # Ranks that are not known to have made one may be on either side.
    unknown = recording.world_size - len(lists)
    most = not unknown or 2 * len(unlike) + unknown < len(lists)
    odd = [rank for rank in unlike if rank in groups and by_all and most]
    stuck = [side for side in sides if all(rank in held and held[rank].group.name == name for rank in side)]
    made_by = phrases.by_side(sides, _list_of(groups))
    named = f"Ranks made different groups under one name, {name!r}"
    summary = title(f"{named}: {made_by}.", f"{named}.")
    call = held[stuck[0][0]] if stuck else None
    blocked = (
        [f"{phrases.ranks(stuck[0], True)} are all in {call.op}{phrases.at(call.site)}, and it does not complete."]
        if call is not None
        else []
    )
    asked = split({rank: group.ranks for rank, group in lists.items()}).sides if odd else ()
    yield Draft(
        summary,
        odd,
        remedy=_OF_MESHES if any(group.maker for group in groups.values()) else _OF_GROUPS,
        at=dict(sorted(groups.items())),
        evidence=(
            *blocked,
            *(f"{phrases.ranks(side, True)} made {listed(groups[side[0]].ranks)}." for side in sides[:8]),
            *([f"The first calls of new_group that differ: {phrases.by_side(asked, _list_of(lists))}."] if odd else []),
            "torch numbers the groups that a rank makes, so groups that only their members make have the same number. They "
            "look for each other's addresses at one place of the store: whether they connect rightly is a matter of time.",
        ),
        sides=() if odd else sides,
        collective=call,
        severity="error" if stuck else "warning",
        certainty="timed" if stuck else "proven",
        moments=tuple((rank, group.began_ns) for rank, group in sorted(groups.items())),
    )


def _list_of(groups: Mapping[int, NewGroup]) -> Callable[[int], str]:
    return lambda rank: listed(groups[rank].ranks)


def _earlier_there(standings: Mapping[int, Standing], ranks: Iterable[int], group: NewGroup) -> dict[int, Site]:
    """The ranks that made an earlier group at the line at which others make this one, and are elsewhere now."""
    found = {
        rank: own.site
        for rank in ranks
        if rank in standings
        for own in _of_all(standings[rank].record)
        if own.site == group.site != NO_SITE and own.ranks != group.ranks
    }
    return {rank: site for rank, site in found.items() if standings[rank].site != site}


def _groups_in_words(standing: Standing) -> str:
    """The groups that a rank has created or is creating, and where it is."""
    made = [listed(group.ranks) for group in standing.record.events(NewGroup)]
    many = "at least " if standing.record.events_forgotten else ""
    if not made:
        asked = "has not called new_group"
    elif len(made) <= _LISTED and not many:
        asked = f"called new_group for {', '.join(made)}"
    else:
        asked = f"called new_group {many}{len(made)} times, the last {_LISTED} for {', '.join(made[-_LISTED:])}"
    stands = "is in the last of them" if made and standing.state is RankState.CREATING_GROUP else "is"
    return (
        f"Rank {standing.rank} {asked}; it {stands}{phrases.at(standing.site)}."
        if standing.site != NO_SITE
        else f"Rank {standing.rank} {asked}."
    )


def _unlike_lists(
    standings: Mapping[int, Standing],
) -> tuple[list[int], tuple[tuple[int, ...], ...], PerRank[NewGroup]]:
    """(ranks whose lists for new_group are unlike those of the others, the sides, these calls of all ranks), at the first one.

    No ranks where no recorded fact tells which side is at fault.
    """
    made = PerRank({rank: _of_all(one.record) for rank, one in standings.items()})
    first = made.of(lambda groups: groups[0] if groups else None)
    if any(one.record.events_forgotten for one in standings.values()):
        return [], (), first  # their order is not known
    for turn in range(max(map(len, made.values()), default=0)):
        own = made.of(lambda groups, turn=turn: groups[turn] if turn < len(groups) else None)
        apart = own.of(lambda group: group.ranks).split
        if apart.differs:
            lines = {own[side[0]].site.line for side in apart.sides}
            later = {rank: {group.ranks for group in groups[turn + 1 :]} for rank, groups in made.items()}
            left_out = [  # by those who made this list later, after the one that they made instead
                side
                for side in apart.sides
                if any(own[side[0]].ranks in later[other[0]] for other in apart.sides if other is not side)
            ]
            if len(apart.sides) == len(lines) == 2 and len(left_out) == 1:  # at one line it would be another order
                return list(left_out[0]), (), own
            return list(apart.culprits), apart.sides, own
    return [], (), first


_NONE_MADE = PerRank[NewGroup]()


def _places(
    standings: Mapping[int, Standing], ranks: Iterable[int], made: Mapping[int, NewGroup] = _NONE_MADE
) -> dict[int, Site]:
    """The lines at which ranks made these groups, where that is known; else those where they are."""
    there = {rank: made[rank].site for rank in ranks if rank in made and made[rank].site != NO_SITE}
    return {rank: standings[rank].site for rank in ranks if rank in standings} | there


def _at(site: Site) -> str:
    return f" at {site}" if site != NO_SITE else ""


def _of_all(record: RankRecord) -> list[NewGroup]:
    """The new_group calls that all ranks must make: with use_local_synchronization only the members do."""
    return [group for group in record.events(NewGroup) if not group.local]
