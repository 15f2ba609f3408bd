"""Ranks that are blocked at start-up, because other ranks never join."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from ddpnb.facts import hints
from ddpnb.facts.digests import split
from ddpnb.facts.init_facts import address_of, claim_of, knocks_within
from ddpnb.facts.places import where
from ddpnb.facts.standings import Standing
from ddpnb.facts.waits import Wait
from ddpnb.model import phrases
from ddpnb.model.calls import NO_SITE
from ddpnb.model.events.startup import Environment, InitProcessGroup, Joining
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.rank_state import RankState
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.texts import shortened

BAD_ENVIRONMENT = FindingType("DDP101", "bad-environment")
WORLD_INCOMPLETE = FindingType("DDP102", "world-incomplete")
DUPLICATE_RANK = FindingType("DDP103", "duplicate-rank")
RENDEZVOUS_UNREACHABLE = FindingType("DDP104", "rendezvous-unreachable", after_patience=True)
STALE_STORE = FindingType("DDP105", "stale-store")
WRONG_INTERFACE = FindingType("DDP110", "wrong-interface", after_patience=True)


def _world_size(standing: Standing) -> int | None:
    return standing.event.world_size if isinstance(standing.event, Joining) else None


def _call_of(standing: Standing) -> str:
    """``init_process_group`` or ``init_rpc``."""
    return standing.event.title if standing.event is not None else "init_process_group"


def world_too_large(standings: dict[int, Standing], starting: list[int], absent: list[int]) -> Finding:
    sizes = {rank: _world_size(standings[rank]) for rank in starting}
    launched = len(standings)
    wrong = [rank for rank, size in sizes.items() if size != launched] or starting
    size = max(size or 0 for size in sizes.values())
    return Finding(
        WORLD_INCOMPLETE,
        f"{phrases.ranks(wrong, True)} {phrases.verb(wrong, 'expects', 'expect')} a world of {size} ranks, "
        f"but {launched} were launched: {phrases.ranks(absent)} never {phrases.verb(absent, 'joins', 'join')}.",
        tuple(wrong),
        _rest(starting, wrong),
        None,
        where(standings, starting),
        tuple(
            f"Rank {rank} is in {_call_of(standings[rank])} with world_size={sizes[rank]}{phrases.at(standings[rank].site)}."
            for rank in starting[:8]
        ),
        "Leave world_size to the launcher (WORLD_SIZE in the environment), or launch as many ranks as the script asks for.",
    )


def _rest(ranks: Iterable[int], without: Iterable[int]) -> tuple[int, ...]:
    left_out = set(without)
    return tuple(rank for rank in ranks if rank not in left_out)


def _was_told(record: RankRecord) -> str:
    """The address that the launcher set for this rank, before the script changed anything."""
    found = record.events(Environment)
    if not found or not found[0].variables.get("MASTER_ADDR"):
        return ""
    return f"{found[0].variables['MASTER_ADDR']}:{found[0].variables.get('MASTER_PORT')}"


def wrong_claims(standings: dict[int, Standing], starting: list[int]) -> Finding | None:
    """DDP103 or DDP101: processes that claim the rank of another process, or one that does not exist."""
    claims = {rank: claim_of(standings[rank].record) for rank in starting}
    sizes = {rank: _world_size(standings[rank]) or len(standings) for rank in starting}
    outside = tuple(rank for rank in starting if not 0 <= claims[rank] < sizes[rank])
    claimed = Counter(claims.values())
    double = tuple(rank for rank in starting if claims[rank] != rank and claimed[claims[rank]] > 1)
    culprits = outside or double
    if not culprits:
        return None
    waiting = _rest(starting, culprits)
    if outside and all(claims[rank] != rank for rank in starting):  # all of them number the ranks differently
        culprits, waiting = tuple(starting), ()
    told = f"claim{'s' * (len(culprits) == 1)}"
    same = [[rank for rank in culprits if claims[rank] == claim] for claim in dict.fromkeys(map(claims.get, culprits))]
    if outside:
        known = {sizes[rank] for rank in culprits}
        world = f"a world of {known.pop()}" if len(known) == 1 else "the world that they expect"
        summary = f"{phrases.ranks(culprits, True)} {told} a rank that does not exist in {world}."
    elif len(same) > 1:
        summary = (
            f"{phrases.ranks(culprits, True)} {told} ranks that other processes have claimed: "
            f"{phrases.by_side(same, lambda rank: str(claims[rank]))}."
        )
    else:
        summary = (
            f"{phrases.ranks(culprits, True)} {told} rank {claims[culprits[0]]}, which another process has claimed."
        )
    return Finding(
        BAD_ENVIRONMENT if outside else DUPLICATE_RANK,
        summary,
        culprits,
        waiting,
        None,
        where(standings, [*culprits, *waiting]),
        tuple(
            f"The process of rank {rank} claims rank {claims[rank]} of {sizes[rank]}{phrases.at(standings[rank].site)}."
            for rank in starting[:8]
        ),
        "Take the rank from the launcher (RANK in the environment, counted from 0) instead of computing it.",
    )


def apart(standings: dict[int, Standing], starting: list[int]) -> Finding:
    sides: dict[str, list[int]] = {}
    for rank in starting:
        sides.setdefault(address_of(standings[rank].record), []).append(rank)
    found = split({rank: address_of(standings[rank].record) for rank in starting})
    # A rank that uses the address of the launcher is not at fault.
    moved = [
        rank for rank in starting if _was_told(standings[rank].record) not in ("", address_of(standings[rank].record))
    ]
    culprits = moved if moved and len(moved) < len(starting) else list(found.culprits)
    odd = culprits or list(found.odd)
    rest = _rest(starting, odd)
    tied = () if culprits else found.sides
    return Finding(
        RENDEZVOUS_UNREACHABLE,
        f"The ranks use different rendezvous addresses: {phrases.ranks(odd)} {phrases.verb(odd, 'differs', 'differ')} "
        f"from {phrases.ranks(rest)}.",
        tuple(culprits),
        () if tied else rest,
        None,
        where(standings, [*odd, *rest]),
        (
            *(f"{phrases.ranks(ranks, True)}: {address}" for address, ranks in sorted(sides.items())[:8]),
            *phrases.undecided(tied),
        ),
        "Give every rank the same MASTER_ADDR and MASTER_PORT, or the same init_method.",
        sides=tied,
    )


def never_joined(
    recording: Recording, standings: dict[int, Standing], starting: list[int], ended: list[int]
) -> Finding:
    call = _call_of(standings[starting[0]])
    return Finding(
        WORLD_INCOMPLETE,
        f"{phrases.ranks(ended, True)} ended without joining: "
        f"{phrases.ranks(starting)} {phrases.verb(starting, 'is', 'are')} blocked forever in {call}.",
        tuple(ended),
        tuple(starting),
        None,
        where(standings, [*ended, *starting]),
        (
            f"{phrases.ranks(starting, True)} {phrases.verb(starting, 'is', 'are')} in {call}{phrases.at(standings[starting[0]].site)}.",
            *(f"Rank {rank} {phrases.ended(standings[rank].record.ending)} and never called it." for rank in ended[:8]),
        ),
        f"Every rank that was launched must call {call}.",
        hint=hints.deciding_branch(recording, standings[starting[0]].path, ended=True),
    )


def unreachable(
    recording: Recording, standings: dict[int, Standing], waits: dict[int, Wait], patience: float
) -> Finding | None:
    """DDP104 or DDP110: all ranks are in init_process_group with the same address, and it does not complete."""
    starting = [rank for rank, s in standings.items() if s.state is RankState.STARTING]
    if len(starting) < len(standings) or not starting:
        return None
    came = [event.began_ns for rank in starting if (event := standings[rank].event) is not None]
    needed = max(patience, 3.0, knocks_within((max(came, default=0) - min(came, default=0)) / 1e9))
    if any(
        waits[rank].missing or standings[rank].record.process.still_s < needed for rank in starting if rank in waits
    ):
        return None
    address = address_of(standings[starting[0]].record)
    unknown = [rank for rank in starting if _UNKNOWN_HOST.search(standings[rank].record.output)]
    culprits = tuple(unknown or starting)
    others = _rest(starting, culprits)
    return Finding(
        WRONG_INTERFACE if unknown else RENDEZVOUS_UNREACHABLE,
        f"All ranks are blocked in the rendezvous at {address}: "
        + ("the host name cannot be resolved." if unknown else "they cannot reach each other."),
        culprits,
        others,
        None,
        where(standings, [*culprits, *others]),
        tuple(
            f"Rank {rank} is in {_call_of(standings[rank])}{phrases.at(standings[rank].site)}." for rank in starting[:8]
        ),
        "Set MASTER_ADDR to an address of rank 0's machine that all others can reach (127.0.0.1 on one machine).",
        certainty="timed",
    )


def stale_address(recording: Recording) -> Finding | None:
    """DDP105: a rank was refused at the address of one that has not joined yet: an earlier run left the address there."""
    for rank, record in sorted(recording.ranks.items()):
        told = record.events(InitProcessGroup, state="failed")
        if not told or record.ending is None or not _REFUSED.search(record.ending.message[:20_000]):
            continue
        late = [
            other
            for other, one in sorted(recording.ranks.items())
            if not any(start.began_ns < told[-1].ended_ns for start in _since(one, told[-1]))
        ]
        if not late:
            continue
        site = told[-1].site
        return Finding(
            STALE_STORE,
            f"The store holds addresses of an earlier run: rank {rank} tried to connect to {phrases.ranks(late)} "
            f"before {phrases.verb(late, 'it', 'they')} joined.",
            (rank,),
            tuple(late),
            None,
            ((rank, site),) if site != NO_SITE else (),
            (
                f"Rank {rank}: {shortened(record.ending.message.strip().splitlines()[0], 200)}.",
                f"{phrases.ranks(late, True)} had not called init_process_group then.",
            ),
            "Use a new rendezvous file, prefix or port for every run, and remove the file of an earlier one.",
        )
    return None


def _since(record: RankRecord, failed: InitProcessGroup) -> list[InitProcessGroup]:
    """A rank's starts that may be the counterpart of one that failed: not those that ended before it began."""
    return [s for s in record.events(InitProcessGroup) if s.state == "open" or s.ended_ns >= failed.began_ns]


_REFUSED = re.compile(r"connectFullMesh.*Connection refused", re.DOTALL)
_UNKNOWN_HOST = re.compile(r"gai error|getaddrinfo|Name or service not known|name resolution|hostname", re.IGNORECASE)
