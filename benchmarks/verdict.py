"""From the last rank's stop to the verdict, for ten kinds of hang on 2, 4 and 8 ranks, against PyTorch's own means.

The peers run the same scripts with a time-out of 3 s (``benchmarks.hangs``). An error that came by that time-out is counted as
coming by the default one, as the script reads it from torch: 1800 s on gloo. A rank that is blocked outside any collective
is reported after the patience of the World, here 2 s instead of 10.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import ddpnb
from benchmarks.hangs import KINDS, PEERS, Kind, Said, said
from benchmarks.rows import Goal, Row, percentile
from benchmarks.show import alone

SIZES, PATIENCE_S = (2, 4, 8), 2.0


def verdicts(quick: bool = False) -> Iterator[Row]:
    """time to the verdict of a hang"""
    from torch.distributed.constants import default_pg_timeout

    kinds, sizes = ((KINDS[0], KINDS[4], KINDS[9]), (2,)) if quick else (KINDS, SIZES)
    ours = {(kind.case, n): seen for n in sizes for kind, seen in _ours(kinds, n)}
    peers = said(kinds, sizes)
    usual = default_pg_timeout.total_seconds()
    for kind in kinds:
        yield _of_kind(kind, sizes, ours, peers, usual)
    proven = [kind for kind in kinds if kind.proven]
    for n in sizes:
        for peer in PEERS:
            yield _of_peer(peer, n, proven, ours, peers, usual)


def _ours(kinds: tuple[Kind, ...], n: int) -> Iterator[tuple[Kind, tuple[float, set[int], str]]]:
    """Of each kind: seconds to the verdict, and the culprits (or sides of a tie) and code that it names."""
    with ddpnb.launch(n, quiet=True, patience=PATIENCE_S, end_after_patience=True) as world:
        for kind in kinds:
            run = world.run(kind.path, kind.case, stream=None).wait(60)
            if not run.done or not run.diagnosis.errors:
                raise RuntimeError(f"no verdict of {kind.case} on {n} ranks")
            finding = run.diagnosis.errors[0]
            ranks = set(finding.culprits) or {rank for side in finding.sides for rank in side}
            yield kind, (run.diagnosis.timing["diagnosis_s"], ranks, finding.code)
            left = world.release().left
            if left:
                world.restart(left)


def _of_kind(
    kind: Kind, sizes: tuple[int, ...], ours: dict, peers: dict[tuple[str, str, int], Said], usual: float
) -> Row:
    seconds, theirs = [], []
    counts = dict.fromkeys(("ddpnb", *PEERS), 0)
    for n in sizes:
        took, ranks, _ = ours[kind.case, n]
        seconds.append(took)
        counts["ddpnb"] += ranks == kind.culprits(n)
        for peer in PEERS:
            counts[peer] += peers[peer, kind.case, n].named == kind.culprits(n)
        after = peers["time-out", kind.case, n].extrapolated(usual)
        theirs += [] if after is None else [after]
    names = ", ".join(f"{who} {count}" for who, count in counts.items())
    goal = Goal(1.0, "most") if kind.proven else Goal(PATIENCE_S + 1.0, "most")
    detail = {
        "ddpnb": {n: [ours[kind.case, n][0], sorted(ours[kind.case, n][1]), ours[kind.case, n][2]] for n in sizes},
        **{
            peer: {n: [(one := peers[peer, kind.case, n]).seconds, sorted(one.named), one.text] for n in sizes}
            for peer in PEERS
        },
    }
    return Row(
        "verdict",
        f"{kind.name}, {', '.join(map(str, sizes))} ranks",
        tuple(seconds),
        peer="plain PyTorch, first error",
        theirs=tuple(theirs),
        goal=goal,
        note=f"names exactly the culprits, of {len(sizes)}: {names}",
        detail=detail,
    )


def _of_peer(
    peer: str, n: int, kinds: list[Kind], ours: dict, peers: dict[tuple[str, str, int], Said], usual: float
) -> Row:
    """All provable kinds on ``n`` ranks against one peer."""
    told = [peers[peer, kind.case, n] for kind in kinds]
    after = [one.extrapolated(usual) for one in told]
    exact = sum(one.named == kind.culprits(n) for one, kind in zip(told, kinds, strict=True))
    more = sum(one.named > kind.culprits(n) for one, kind in zip(told, kinds, strict=True))
    waits = sum(one is not None and one >= usual for one in after)
    crashed, silent = sum(one.crashed for one in told), sum(one.seconds is None for one in told)
    named = sum(ours[kind.case, n][1] == kind.culprits(n) for kind in kinds)
    mine = tuple(ours[kind.case, n][0] for kind in kinds)
    note = (
        f"names exactly the culprits, of {len(kinds)}: ddpnb {named}, peer {exact} (with others {more}); "
        f"peer: {waits} wait for the time-out, {crashed} crash, {silent} without error"
    )
    return Row(
        "verdict",
        f"{len(kinds)} provable kinds, {n} ranks: p95 {percentile(mine, 0.95):.2f} s",
        mine,
        peer={"time-out": f"time-out of {usual:.0f} s"}.get(peer, peer),
        theirs=tuple(one for one in after if one is not None),
        goal=Goal(1.0, "p95"),
        note=note,
        detail={"median_s": statistics.median(mine)},
    )


if __name__ == "__main__":
    alone("verdict", verdicts)
