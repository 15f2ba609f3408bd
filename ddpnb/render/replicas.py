"""The replicas: a row per tensor that differs, a column per rank, and since when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddpnb.recording import phrases
from ddpnb.recording.findings import Finding
from ddpnb.render import markup

_ROWS, _RANKS = 32, 16


def replicas(
    differences: Sequence[tuple[str, Sequence[Sequence[int]], float | None, Mapping[int, float]]],
    compared: int,
    *,
    exact: bool = True,
    since: str = "",
    notes: Sequence[str] = (),
) -> str:
    """The table of what differs.

    Args:
        differences: name, ranks that hold the same (the largest side first), the largest difference of an
            element where it is known, the norm on each rank where it is known.
        compared: how many tensors were compared.
        exact: every byte was compared, just now.
        since: the step in which they diverged, in words.
    """
    below = "".join(f'<p class="faint">{markup.text(note, 300)}</p>' for note in notes)
    if not compared:
        return f'<p class="faint">There are no replicas to compare: no rank has a wrapped model.</p>{below}'
    how = "compared byte by byte, now" if exact else "from the last samples of the run"
    if not differences:
        return f'<p class="ok">{markup.icon("done")} The replicas are identical: {compared} tensors, {how}.</p>{below}'
    # The smallest side first: of many ranks, those that differ must be shown.
    known = dict.fromkeys(rank for _, sides, _, _ in differences for side in reversed(sides) for rank in side)
    ranks = sorted(list(known)[:_RANKS])
    notes = [
        *notes,
        *([f"{_RANKS} of {len(known)} ranks shown, differing ranks first"] if len(known) > _RANKS else []),
    ]
    below = "".join(f'<p class="faint">{markup.text(note, 300)}</p>' for note in notes)
    head = ("tensor", *ranks, "largest difference")
    rows = [_row(*difference, ranks) for difference in differences[:_ROWS]]
    more = f'<p class="faint">and {len(differences) - _ROWS} more tensors</p>' if len(differences) > _ROWS else ""
    when = f" {markup.text(since)}" if since else ""
    return (
        f'<p class="error">{markup.icon("warning")} {len(differences)} of {compared} tensors differ, {how}.{when}</p>'
        f"{markup.table('tensors that differ, with their norm on each rank', head, rows)}{more}{below}"
    )


def since(finding: Finding | None) -> str:
    """What the diagnosis says about replicas, without the names of the tensors: the table has them."""
    if finding is None:
        return ""
    names = ", ".join(finding.tensors)
    return finding.summary.removesuffix(f": {names}.").removesuffix(".") + "."


def _row(
    name: str, sides: Sequence[Sequence[int]], largest: float | None, norms: Mapping[int, float], ranks: Sequence[int]
) -> str:
    side_of = {rank: number for number, side in enumerate(sides) for rank in side}
    cells = ""
    for rank in ranks:
        side = side_of.get(rank)
        norm = f"{norms[rank]:.5g}" if rank in norms else "same" if side == 0 else "other" if side is not None else ""
        mark = f'<span class="unseen">side {chr(65 + (side or 0) % 26)}: </span>' if side else ""
        cells += f"<td{' class=differs' if side else ''}>{mark}{norm}</td>"
    difference = f"{largest:.3g}" if largest is not None else "not compared"
    title = " | ".join(phrases.ranks(side) for side in sides)
    return f'<tr title="{markup.text(title, 300)}"><th scope="row">{markup.text(name, 80)}</th>{cells}<td>{difference}</td></tr>'
