"""Scaling as a table."""

from __future__ import annotations

from collections.abc import Sequence

from ddpnb.recording.account import Parts
from ddpnb.recording.timing.quantities import percent, span
from ddpnb.recording.timing.scaling import Scaled
from ddpnb.render.account import WORDS
from ddpnb.render.terminal import table

_PARTS = Parts().parts  # without holds: a run that is held has no pace
_HEADER = ("ranks", "run", "steps/s", "speed-up", "efficiency", *(WORDS[part] for part in _PARTS), "")
_WHAT = (
    "Speed-up counts batches: ranks times steps per second, relative to the first row. A script that splits\n"
    "one batch among its ranks does the same work in every row: compare its steps per second."
)


def scaling(rows: Sequence[Scaled], cores: float = 0) -> str:
    """The table, with what its numbers mean; ends without a newline."""
    lines = [table([_HEADER, *(_row(row) for row in rows)], justify="right")]
    if any(row.efficiency is not None for row in rows):
        lines += ["", _WHAT]
    else:
        lines += ["", "No optimizer steps were recorded: only the run times can be compared."]
    crowded = [row.size for row in rows if cores and sum(rank.threads for rank in row.account.ranks) > cores]
    if crowded:
        lines.append(f"This machine has {cores:g} cores: from {crowded[0]} ranks on, the ranks compete for them.")
    return "\n".join(lines)


def _row(row: Scaled) -> tuple[str, ...]:
    parts, pace = row.account.parts, row.account.steps_per_s
    return (
        str(row.size),
        span(row.run_s),
        f"{pace:.3g}" if pace is not None else "-",
        f"{row.speed_up:.2f}" if row.speed_up is not None else "-",
        percent(row.efficiency) if row.efficiency is not None else "-",
        *(percent(parts.share(part)) if parts.total > 0 else "-" for part in _PARTS),
        "" if row.outcome == "ok" else row.outcome,
    )
