"""Calls that were matched although they should not have been: swapped calls, and two threads on one group."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from ddpnb.recording import phrases
from ddpnb.recording.calls import NO_SITE, Call, Site
from ddpnb.recording.collectives import Collective, collectives
from ddpnb.recording.events.models import CommHook
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.findings import FindingType, Hint
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.source.branches import function_at, relation
from ddpnb.recording.split import by_value
from ddpnb.rules.rule import Draft, family, say

ORDER_SWAP = FindingType("DDP309", "order-swap", separate_calls=True, ways_part=True)
CONCURRENT_USE = FindingType("DDP310", "concurrent-use")
_CHECKPOINT = "torch.distributed.checkpoint"
_NEAR = 64  # calls between the two places of an exchange

Place = tuple[str, int]


def _place(call: Call) -> Place:
    return call.site.file, call.site.line


def _caller(call: Call) -> Place:
    """For calls from one helper function: the line that called it."""
    path, _, line = call.site.via.rpartition(":")
    return (path, int(line)) if line.isdigit() else ("", 0)


@lru_cache(maxsize=64)
def _lines(source: str) -> list[str]:
    return source.splitlines()


def _statement(recording: Recording, place: Callable[[Call], Place]) -> Callable[[Call], Place]:
    """The text of a call's line, for ranks that issue the same calls in different branches; else the line."""

    def words(call: Call) -> Place:
        file, line = place(call)
        lines = _lines(recording.sources.get(file, ""))
        text = lines[line - 1].partition("#")[0].strip() if 0 < line <= len(lines) else ""
        return (text, 0) if text else (file, line)

    return words


@family(ORDER_SWAP, after=("DDP310", "DDP411", "DDP503"))
def order_swap(snap: Snapshot) -> Iterable[Draft]:
    """At two sequence numbers some ranks are at each other's lines: they called them in the opposite order.

    Only an exchange counts: that ranks call from different lines is legal (a root and the others). In
    a rank that skipped a call all later ones are shifted too; that is another matter, and ends unevenly.
    """
    recording = snap.recording
    for group in collectives(recording).values() if not snap.found("DDP310") else ():
        common = _of_all_ranks(group)
        ranks = group[max(group)].calls.keys()
        if any(not collective.calls.keys() <= ranks for collective in group.values()):
            continue
        alike = _alike(common)
        for index, one in enumerate(common if len(alike) > 1 else ()):
            here = {rank: one.calls[rank] for rank in alike}
            place = _place if len(set(map(_place, here.values()))) > 1 else _caller
            if len(set(map(place, here.values()))) < 2 or NO_SITE in {call.site for call in here.values()}:
                continue
            for distance, other in enumerate(common[index + 1 : index + 1 + _NEAR]):
                there = {rank: other.calls[rank] for rank in alike}
                if len({call.signature.agreed for call in (*here.values(), *there.values())}) > 1:
                    continue  # no exchange: a root that changes, each time with its own line
                swapped, usual = _exchanged(alike, here, there, place)
                between = common[index + 1 : index + 1 + distance]
                if swapped and place is _place and _decided_anew(recording, here, between):
                    continue
                guessed = not swapped
                if guessed:
                    swapped, usual = _exchanged(alike, here, there, _statement(recording, place))
                if swapped:
                    sites = {
                        rank: _site(recording, place(one.calls[rank])) or one.calls[rank].site
                        for rank in (*swapped, *usual)
                    }
                    yield _swap((one, other), swapped, usual, sites, guessed=guessed)
                    return


def _decided_anew(recording: Recording, here: Mapping[int, Call], between: Sequence[Collective]) -> bool:
    """Whether the lines are two ways of one decision, and between the two calls ranks left the function that decides.

    So a root that changes has its own line, each time.
    """
    one, *others = {_place(call): call.site for call in here.values()}.values()
    source = recording.sources.get(one.file, "")
    if any(site.file != one.file or relation(source, one.line, site.line) != "exclusive" for site in others):
        return False
    own = (one.file, function_at(source, one.line))
    return any(
        (call.site.file, function_at(recording.sources.get(call.site.file, ""), call.site.line)) != own
        for collective in between
        for call in collective.calls.values()
    )


def _of_all_ranks(group: Mapping[int, Collective]) -> list[Collective]:
    """The collectives of a group that all ranks which use it have called, in their order."""
    ranks = set[int]().union(*(collective.calls for collective in group.values()))
    return [collective for _, collective in sorted(group.items()) if len(collective.calls) == len(ranks)]


def _alike(common: Sequence[Collective]) -> dict[int, list[int]]:
    """The ranks that called all of these with equal signatures and from the same lines, by the first of them.

    What is true of the first is true of all, and most often there are two kinds: the root and the others.
    """
    kinds: dict[object, int] = {}
    known: dict[tuple[int, int], int] = {}  # by the identity of line and signature, which the calls of a rank share

    def number(key: tuple[int, int], call: Call) -> int:
        known[key] = kinds.setdefault((call.site, call.site.via, call.signature.agreed), len(kinds) + 1)
        return known[key]

    made = {rank: [one.calls[rank] for one in common] for rank in sorted(common[0].calls)} if common else {}
    found = by_value(
        (rank, tuple(known.get(key := (id(c.site), id(c.signature))) or number(key, c) for c in calls))
        for rank, calls in made.items()
    )
    return {ones[0]: ones for ones in found.values()}


def _exchanged(
    alike: Mapping[int, Sequence[int]],
    here: Mapping[int, Call],
    there: Mapping[int, Call],
    place: Callable[[Call], Place],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ranks that issue the two calls in the opposite order of most ranks; and those that issue them as most do."""
    pairs = {rank: (place(here[rank]), place(there[rank])) for rank in here}
    counts: Counter[object] = Counter()
    for rank, pair in pairs.items():
        counts[pair] += len(alike[rank])
    most = max(counts.values())
    usual = next(pairs[rank] for rank in sorted(pairs) if counts[pairs[rank]] == most)
    if usual[0] == usual[1]:
        return (), ()

    def making(wanted: object) -> tuple[int, ...]:
        return tuple(sorted(one for rank, pair in pairs.items() if pair == wanted for one in alike[rank]))

    return making((usual[1], usual[0])), making(usual)


def _site(recording: Recording, place: Place) -> Site | None:
    """The line as a site, if its text is known."""
    source = recording.sources.get(place[0], "")
    return Site(*place, function_at(source, place[1])) if source else None


def _swap(
    met: tuple[Collective, Collective],
    swapped: tuple[int, ...],
    usual: tuple[int, ...],
    sites: Mapping[int, Site],
    *,
    guessed: bool,
) -> Draft:
    """The Draft; ``guessed``: that these are the same two calls follows from the text of their lines alone."""
    absent = len(set(met[0].group.ranks) - met[0].calls.keys())  # ranks that may do as either side
    tied = len(swapped) + absent >= len(usual)
    mine, theirs = (met[0].calls[side[0]] for side in (swapped, usual))
    return Draft(
        say(
            "{who} issue two {op} calls in different orders."
            if tied
            else "{who} [issues|issue] two {op} calls in a different order than {usual}.",
            sites if tied else swapped,
            usual=usual,
            op=mine.op,
        ),
        () if tied else swapped,
        "Issue collectives in the same order on all ranks (sort by name; do not iterate over sets).",
        dict(sorted(sites.items())),
        waiting=() if tied else usual,
        sides=(usual, swapped) if tied else (),
        evidence=[
            "The calls have the same signature, so their data was mixed silently.",
            *(
                f"{one.calls[swapped[0]].title}: {phrases.ranks(swapped)} at {_told(one.calls[swapped[0]].site)}, "
                f"{phrases.ranks(usual)} at {_told(one.calls[usual[0]].site)}."
                for one in met
            ),
        ],
        kind=ORDER_SWAP,
        collective=theirs,
        certainty="likely" if guessed else "proven",
        hint=Hint(mine.site.file, mine.site.line, "lines with the same text issue the same call") if guessed else None,
    )


def _told(site: Site) -> str:
    return f"{site} (called at {site.via})" if site.via else str(site)


@family(CONCURRENT_USE, after=("DDP411", "DDP503"))
def concurrent_use(snap: Snapshot) -> Iterable[Draft]:
    """Two threads of a rank have calls of one group in flight at the same time.

    On a CUDA device DDP's own calls come from autograd's threads, so only calls on the CPU count. A communication
    hook that makes one call when another is done (PowerSGD) makes it in a thread of gloo's.
    """
    found = snap.ranks.of(_overlap)
    if not found:
        return
    seen = min(found)
    one, other = found[seen]
    for rank, record in snap.ranks.items():
        if rank not in found and (alike := _from_both(record, one, other)) is not None:
            found[rank] = alike
    culprits = tuple(sorted(found))
    orders = _orders_differ(snap.recording, one.group.key)
    saving = any(call.site.library == _CHECKPOINT for pair in found.values() for call in pair)
    yield Draft(
        f"Two threads of {phrases.ranks(culprits)} use {one.group} at the same time.",
        culprits,
        'Give async_save its own group: saving = dist.new_group(backend="gloo"), once and on all ranks, then '
        "async_save(..., process_group=saving)."
        if saving
        else "Give each thread its own group (dist.new_group, created on all ranks in the same order), or issue all calls from one thread.",
        {rank: last if last.site != NO_SITE else first for rank, (first, last) in found.items()},
        waiting=phrases.besides(snap.ranks, culprits),
        evidence=(
            f"Rank {seen}: {one.title} {one.site.placed} and {other.title} {other.site.placed}, in two threads.",
            "The order of their calls is not deterministic.",
            *(("The same sequence number belongs to different lines on different ranks.",) if orders else ()),
        ),
        kind=CONCURRENT_USE,
        collective=other,
        severity="error" if orders or _harmed(snap.recording) else "warning",
    )


def _from_both(record: RankRecord, one: Call, other: Call) -> tuple[Call, Call] | None:
    """The last calls of a rank from two lines, if they are of two threads: these too may meet at any time."""
    mine = {_place(call): call for call in record.calls if call.group.key == one.group.key}
    pair = mine.get(_place(one)), mine.get(_place(other))
    return (pair[0], pair[1]) if pair[0] and pair[1] and pair[0].thread != pair[1].thread else None


def _overlap(record: RankRecord) -> tuple[Call, Call] | None:
    """Two calls of two threads of which the second began before the first was over."""
    if len({call.thread for call in record.calls}) < 2:
        return None
    hooked = _hooked(record)
    last: dict[str, dict[int, Call]] = defaultdict(dict)  # of each group and thread
    for call in record.calls:
        if not call.seq or call.signature.device != "cpu" or _place(call) in hooked:
            continue
        own = last[call.group.key]
        for thread, earlier in own.items():
            if thread != call.thread and (not earlier.done_ns or earlier.done_ns > call.entered_ns):
                return earlier, call
        own[call.thread] = call
    return None


def _hooked(record: RankRecord) -> set[Place]:
    """The lines whose backward passes run a communication hook, which continues in its own threads."""
    if not record.events(CommHook):
        return set()
    threads: dict[Place, set[int]] = defaultdict(set)
    for call in record.calls:
        threads[_place(call)].add(call.thread)
    return {place for place, ones in threads.items() if len(ones) > 1}


def _orders_differ(recording: Recording, key: str) -> bool:
    """Whether one sequence number belongs to calls from different lines."""
    common = _of_all_ranks(collectives(recording).get(key, {}))
    return any(len({_place(call) for call in collective.calls.values()}) > 1 for collective in common)


def _harmed(recording: Recording) -> bool:
    return any(
        not call.state.seen_by_peers or call.state.in_flight for r in recording.ranks.values() for call in r.calls
    )
