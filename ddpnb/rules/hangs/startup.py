"""DDP101 to DDP105 and DDP110: ranks that are blocked at start-up."""

from __future__ import annotations

import re

from ddpnb.recording import phrases
from ddpnb.recording.events.startup import Environment
from ddpnb.recording.facts import hints
from ddpnb.recording.facts.init_facts import address_of, claim_of, inits, stale_start, world_size
from ddpnb.recording.facts.snapshot import PerRank, Snapshot
from ddpnb.recording.facts.standings import Standing
from ddpnb.recording.facts.stops import Awaited, Stop, Waits, store_of
from ddpnb.recording.findings import Finding, FindingType
from ddpnb.recording.recording import RankRecord
from ddpnb.rules.environment.backends import backends
from ddpnb.rules.hangs.stack_lines import missing_by_stacks, not_started
from ddpnb.rules.hangs.table import hang
from ddpnb.rules.rule import Draft, alike, each, explained, findings_of, refine, say
from ddpnb.texts import shortened

BAD_ENVIRONMENT = FindingType("DDP101", "bad-environment")
WORLD_INCOMPLETE = FindingType("DDP102", "world-incomplete")
DUPLICATE_RANK = FindingType("DDP103", "duplicate-rank")
RENDEZVOUS_UNREACHABLE = FindingType("DDP104", "rendezvous-unreachable", after_patience=True)
WRONG_INTERFACE = FindingType("DDP110", "wrong-interface", after_patience=True)

_UNKNOWN_HOST = re.compile(r"gai error|getaddrinfo|Name or service not known|name resolution|hostname", re.IGNORECASE)


@hang(BAD_ENVIRONMENT, DUPLICATE_RANK)
def wrong_claims(_: Snapshot, stop: Stop) -> Draft:
    """Processes claim the rank of another process, or one that does not exist."""
    starting = stop.waiting
    claims = {rank: claim_of(stop.standings[rank].record) for rank in starting}
    sizes = {rank: world_size(stop.standings[rank]) or len(stop.standings) for rank in starting}
    outside = any(not 0 <= claims[rank] < sizes[rank] for rank in starting)
    # Perhaps all of them number the ranks differently.
    culprits = starting if outside and all(claims[rank] != rank for rank in starting) else stop.gone
    same = [[rank for rank in culprits if claims[rank] == n] for n in dict.fromkeys(claims[r] for r in culprits)]
    if outside:
        known = {sizes[rank] for rank in culprits}
        world = f"a world of {known.pop()}" if len(known) == 1 else "the world that they expect"
        what = f"a rank that does not exist in {world}"
    elif len(same) > 1:
        what = f"ranks that other processes have claimed: {phrases.by_side(same, lambda rank: str(claims[rank]))}"
    else:
        what = f"rank {claims[culprits[0]]}, which another process has claimed"
    return Draft(
        say("{who} [claims|claim] {what}.", culprits, what=what),
        culprits,
        "Take the rank from the launcher (RANK in the environment, counted from 0) instead of computing it.",
        waiting=phrases.besides(starting, culprits),
        evidence=each(
            starting,
            lambda rank: (
                f"The process of rank {rank} claims rank {claims[rank]} of "
                f"{sizes[rank]}{phrases.at(stop.standings[rank].site)}."
            ),
        ),
        kind=BAD_ENVIRONMENT if outside else DUPLICATE_RANK,
    )


def _call_of(standing: Standing) -> str:
    """``init_process_group`` or ``init_rpc``."""
    return standing.event.title if standing.event is not None else "init_process_group"


@hang(WORLD_INCOMPLETE, needs=())
def world_incomplete(snap: Snapshot, stop: Stop) -> Draft | None:
    """Ranks wait for others that never join."""
    absent = stop.awaited is Awaited.ABSENT
    if stop.waits is Waits.STACK:
        return not_started(snap, stop) if absent else missing_by_stacks(snap, stop, WORLD_INCOMPLETE)
    if absent:
        return _unseen(stop) if any(rank in stop.standings for rank in stop.gone) else _too_large(stop)
    return _never_joined(snap, stop)


def _too_large(stop: Stop) -> Draft:
    standings, starting, absent = stop.standings, stop.waiting, stop.gone
    sizes = {rank: world_size(standings[rank]) for rank in starting}
    launched = len(standings)
    wrong = tuple(rank for rank, size in sizes.items() if size != launched) or starting
    return Draft(
        say(
            "{who} [expects|expect] a world of {size} ranks, but {launched} were launched: {absent} never {join}.",
            wrong,
            size=max(size or 0 for size in sizes.values()),
            launched=launched,
            absent=absent,
            join=phrases.verb(absent, "joins", "join"),
        ),
        wrong,
        "Leave world_size to the launcher (WORLD_SIZE in the environment), or launch as many ranks as the script asks for.",
        waiting=phrases.besides(starting, wrong),
        evidence=each(
            starting,
            lambda rank: (
                f"Rank {rank} is in {_call_of(standings[rank])} with world_size={sizes[rank]}"
                f"{phrases.at(standings[rank].site)}."
            ),
        ),
    )


def _unseen(stop: Stop) -> Draft:
    standings, starting, absent = stop.standings, stop.waiting, stop.gone
    first, failed = standings[starting[0]], standings[absent[0]].record.unjoined if absent[0] in standings else None
    size = world_size(first)
    frame = failed.innermost_user if failed is not None else None
    why = (
        f"its process seems to have failed{phrases.at(frame.site) if frame is not None else ''}"
        if failed is not None
        else "no process of " + phrases.verb(absent, "it", "them") + " was seen"
    )
    return Draft(
        say(
            "{who} [waits|wait] in {call} for {absent}: {why}.", starting, call=_call_of(first), absent=absent, why=why
        ),
        absent,
        f"Start with the {failed.exception}."
        if failed is not None
        else f"Start as many processes as the world has ranks ({size}), or leave world_size to the launcher.",
        {absent[0]: frame.site} if frame is not None else {},
        starting,
        evidence=(
            *(
                [
                    f"A process of the same parent raised {failed.exception}: {shortened(failed.message, 200)} before it "
                    f"joined, and no other rank is missing."
                ]
                if failed is not None
                else ()
            ),
            *each(
                starting,
                lambda rank: (
                    f"Rank {rank} has waited {standings[rank].idle_s:.0f} s in {_call_of(standings[rank])} with "
                    f"world_size={world_size(standings[rank])}{phrases.at(standings[rank].site)}."
                ),
            ),
        ),
        also=tuple((rank, standings[rank].site) for rank in starting),
    )


def _never_joined(snap: Snapshot, stop: Stop) -> Draft:
    standings, starting, ended = stop.standings, stop.waiting, stop.gone
    first = standings[starting[0]]
    call = _call_of(first)
    return Draft(
        say(
            "{ended} ended without joining: {who} [is|are] blocked forever in {call}.",
            starting,
            ended=phrases.ranks(ended, True),
            call=call,
        ),
        ended,
        f"Every rank that was launched must call {call}.",
        waiting=starting,
        evidence=(
            say("{who} [is|are] in {call}{at}.", starting, call=call, at=phrases.at(first.site)),
            *each(
                ended, lambda rank: f"Rank {rank} {phrases.ended(standings[rank].record.ending)} and never called it."
            ),
        ),
        hint=hints.deciding_branch(snap.recording, first.path, ended=True),
    )


@hang(RENDEZVOUS_UNREACHABLE, WRONG_INTERFACE)
def unreachable(_: Snapshot, stop: Stop) -> Draft:
    """Ranks use different addresses, or are all at one address and do not reach each other."""
    if stop.waits is Waits.STORE:
        return _stores_apart(stop)
    return _addresses_differ(stop) if stop.awaited is Awaited.ELSEWHERE else _in_vain(stop)


def _addresses_differ(stop: Stop) -> Draft:
    standings, starting = stop.standings, stop.waiting
    used = PerRank({rank: address_of(standings[rank].record) for rank in starting})
    # A rank that uses the address of the launcher is not at fault.
    moved = tuple(rank for rank in starting if _given(standings[rank].record) not in ("", used[rank]))
    culprits = moved if moved and len(moved) < len(starting) else used.split.culprits
    odd = culprits or used.split.odd
    others = phrases.besides(starting, odd)
    text = "The ranks use different rendezvous addresses: {odd} [differs|differ] from {others}."
    return Draft(
        say(text, odd, odd=odd, others=others),
        culprits,
        "Give every rank the same MASTER_ADDR and MASTER_PORT, or the same init_method.",
        {rank: standings[rank].site for rank in (*odd, *others)},
        others if culprits else (),
        used.split.sides,
        alike("{who}: {address}", {rank: {"address": used[rank]} for rank in sorted(used, key=lambda r: used[r])}),
        kind=RENDEZVOUS_UNREACHABLE,
    )


def _given(record: RankRecord) -> str:
    """The address that the launcher set for this rank, before the script changed anything."""
    found = record.events(Environment)
    if not found or not found[0].variables.get("MASTER_ADDR"):
        return ""
    return f"{found[0].variables['MASTER_ADDR']}:{found[0].variables.get('MASTER_PORT')}"


def _in_vain(stop: Stop) -> Draft:
    """All ranks are in init_process_group with the same address, and it does not complete."""
    standings, starting = stop.standings, stop.waiting
    unknown = tuple(rank for rank in starting if _UNKNOWN_HOST.search(standings[rank].record.output))
    culprits = unknown or starting
    return Draft(
        f"All ranks are blocked in the rendezvous at {address_of(standings[starting[0]].record)}: "
        + ("the host name cannot be resolved." if unknown else "they cannot reach each other."),
        culprits,
        "Set MASTER_ADDR to an address of rank 0's machine that all others can reach (127.0.0.1 on one machine).",
        waiting=phrases.besides(starting, culprits),
        evidence=each(
            starting, lambda rank: f"Rank {rank} is in {_call_of(standings[rank])}{phrases.at(standings[rank].site)}."
        ),
        kind=WRONG_INTERFACE if unknown else RENDEZVOUS_UNREACHABLE,
        certainty="timed",
    )


def _stores_apart(stop: Stop) -> Draft:
    """All ranks are blocked creating a store, apparently each its own."""
    ranks = stop.waiting
    made = PerRank({rank: store for rank in ranks if (store := store_of(stop.standings[rank])) is not None})
    ports = made.of(lambda store: store.port).split
    masters = [rank for rank in ranks if made[rank].is_master]
    others = phrases.besides(ranks, ports.culprits)
    tied = ports.differs and not ports.culprits
    return Draft(
        f"{phrases.ranks(ranks, True)} are blocked creating a store{phrases.at(made[ranks[0]].site)} and do not connect "
        "to each other" + (": they use different ports." if ports.differs else "."),
        ports.culprits,
        "Give all ranks the same address and port: take MASTER_ADDR and MASTER_PORT from the launcher (init_method='env://'), or "
        "let one rank choose a free port and send it to the others.",
        {rank: made[rank].site for rank in (*ports.culprits, *others)},
        () if tied else others,
        ports.sides if tied else (),
        (
            *each(ranks, lambda rank: f"Rank {rank}: TCPStore at {made[rank].address}."),
            say("{who} [is|are] to listen there (is_master=True).", masters)
            if masters
            else "No rank is to listen there (is_master=True).",
        ),
        kind=RENDEZVOUS_UNREACHABLE,
        certainty="proven" if ports.differs or not masters else "likely",
    )


@hang(FindingType("DDP105", "stale-store"))
def stale_store(snap: Snapshot, _: Stop) -> Draft:
    """A rank was refused at the address of one that has not joined yet: an earlier run left the address there."""
    found = stale_start(snap.recording)
    assert found is not None
    rank, start, late = found
    ending = snap.ranks[rank].ending
    said = ending.message.strip().splitlines() if ending is not None else []
    refused = [f"Rank {rank}: {shortened(line, 200)}." for line in said[:1]]
    not_there = [f"{phrases.ranks(late, True)} had not called init_process_group then."] if late else []
    if start.attempts_before:
        return Draft(
            f"Rank {rank} was refused at an address in init_process_group that an earlier attempt of torchrun may have left.",
            (rank,),
            "Start torchrun with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in its environment: each attempt then has a store of its own.",
            {rank: start.site},
            late,
            evidence=(
                *refused,
                *not_there,
                f"This is attempt {start.attempts_before + 1}, in the store of torchrun, which the attempts before have used too.",
            ),
            certainty="likely",
        )
    return Draft(
        f"The store holds addresses of an earlier run: rank {rank} tried to connect to {phrases.ranks(late)} "
        f"before {phrases.verb(late, 'it', 'they')} joined.",
        (rank,),
        "Use a new rendezvous file, prefix or port for every run, and remove the file of an earlier one.",
        {rank: start.site},
        late,
        evidence=(*refused, *not_there),
    )


@refine(DUPLICATE_RANK, refines=("DDP102", "DDP104", "DDP110", "DDP312"), after=("DDP707",))
def same_rank_twice(snap: Snapshot, finding: Finding) -> Draft | None:
    """Two processes claim the same rank."""
    starts = PerRank(inits(snap.recording))
    claims = starts.of(lambda start: start.rank)
    double = {number: ranks for number in sorted(set(claims.values())) if len(ranks := claims.having(number)) > 1}
    if not double:
        return None
    number, ranks = next(iter(double.items()))
    culprits = tuple(sorted(rank for one, claimants in double.items() for rank in claimants if rank != one))
    claimed = [one for one, claimants in double.items() if set(claimants) - {one}]
    return Draft(
        f"{len(ranks)} processes claim rank {number}: {phrases.ranks(culprits)} {phrases.verb(culprits, 'calls', 'call')} "
        f"init_process_group with rank={' and '.join(map(str, claimed[:4]))}.",
        culprits,
        "Take the rank from the launcher (RANK in the environment) instead of computing it.",
        starts,
        phrases.besides(sorted(starts), culprits),
        evidence=each(starts, lambda rank: f"Rank {rank} joined as rank {starts[rank].rank}."),
        instead=finding,
    )


@refine(refines=("DDP102", "DDP104", "DDP108", "DDP110"), after=("DDP103",), gives=("DDP106",))
def other_backend(snap: Snapshot, finding: Finding) -> Draft | None:
    """The ranks use different backends."""
    return explained(finding, findings_of(snap.recording, backends))
