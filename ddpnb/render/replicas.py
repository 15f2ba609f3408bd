"""The replicas: a row per tensor that differs, a column per rank, and since when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddpnb.recording import phrases
from ddpnb.recording.findings import Finding
from ddpnb.render.document import Block, Cell, Icon, Paragraph, Span, Table
from ddpnb.texts import shortened

_ROWS, _RANKS = 32, 16


def replicas(
    differences: Sequence[tuple[str, Sequence[Sequence[int]], float | None, Mapping[int, float]]],
    compared: int,
    *,
    exact: bool = True,
    since: str = "",
    notes: Sequence[str] = (),
) -> list[Block]:
    """The table of what differs.

    Args:
        differences: name, ranks that hold the same (the largest side first), the largest difference of an
            element where it is known, the norm on each rank where it is known.
        compared: how many tensors were compared.
        exact: every byte was compared, just now.
        since: the step in which they diverged, in words.
    """
    below = [Paragraph(shortened(note, 300), kind="faint") for note in notes]
    if not compared:
        return [Paragraph("There are no replicas to compare: no rank has a wrapped model.", kind="faint"), *below]
    how = "compared byte by byte, now" if exact else "from the last samples of the run"
    if not differences:
        same = f"The replicas are identical: {compared} tensors, {how}."
        return [Paragraph(Icon("done"), same, kind="ok"), *below]
    # The smallest side first: of many ranks, those that differ must be shown.
    known = dict.fromkeys(rank for _, sides, _, _ in differences for side in reversed(sides) for rank in side)
    ranks = sorted(list(known)[:_RANKS])
    head = ("tensor", *map(str, ranks), "largest difference")
    rows = [_row(*difference, ranks) for difference in differences[:_ROWS]]
    table = Table("tensors that differ, with their norm on each rank", head, rows, widest=80)
    left = [f"and {len(differences) - _ROWS} more tensors"] if len(differences) > _ROWS else []
    left += [f"{_RANKS} of {len(known)} ranks shown, differing ranks first"] if len(known) > _RANKS else []
    said = f"{len(differences)} of {compared} tensors differ, {how}."
    first = Paragraph(Icon("warning"), said, f" {since}" if since else "", kind="error")
    return [first, table, *(Paragraph(one, kind="faint") for one in left), *below]


def since(finding: Finding | None) -> str:
    """What the diagnosis says about replicas, without the names of the tensors: the table has them."""
    if finding is None:
        return ""
    names = ", ".join(finding.tensors)
    return finding.summary.removesuffix(f": {names}.").removesuffix(".") + "."


def _row(
    name: str, sides: Sequence[Sequence[int]], largest: float | None, norms: Mapping[int, float], ranks: Sequence[int]
) -> list[Cell]:
    side_of = {rank: number for number, side in enumerate(sides) for rank in side}
    row = [Cell((name,), hover=" | ".join(phrases.ranks(side) for side in sides))]
    for rank in ranks:
        side = side_of.get(rank)
        norm = f"{norms[rank]:.5g}" if rank in norms else "same" if side == 0 else "other" if side is not None else ""
        row.append(
            Cell((Span(f"side {chr(65 + side % 26)}: ", "unseen"), norm), differs=True) if side else Cell((norm,))
        )
    return [*row, Cell((f"{largest:.3g}" if largest is not None else "not compared",))]
