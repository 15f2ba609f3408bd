"""Scaling: the same script on increasing numbers of ranks, compared with the smallest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddpnb.recording.account import Account
from ddpnb.recording.findings import Outcome


@dataclass(frozen=True, slots=True)
class Scaled:
    """One world size.

    Every rank is taken to work on batches of its own, of the same size in every world: then the
    same steps per second on n ranks are n times the work. ``efficiency`` compares the steps per
    second with those of the fewest ranks, ``speed_up`` is the number of ranks times that. None
    where no steps were seen.
    """

    size: int
    account: Account
    outcome: Outcome = "ok"
    run_s: float = 0.0
    efficiency: float | None = None

    @property
    def speed_up(self) -> float | None:
        return self.size * self.efficiency if self.efficiency is not None else None


def compare(runs: Sequence[tuple[int, Account, Outcome, float]]) -> tuple[Scaled, ...]:
    """Put these runs (size, account, outcome, seconds) in order and compare each with the smallest that completed."""
    order = sorted(runs, key=lambda run: run[0])
    base = next((a.steps_per_s for _, a, outcome, _ in order if outcome == "ok" and a.steps_per_s), None)
    rows: list[Scaled] = []
    for size, account, outcome, run_s in order:
        pace = account.steps_per_s
        well = outcome == "ok" and pace is not None and base is not None
        rows.append(Scaled(size, account, outcome, run_s, pace / base if well and pace and base else None))
    return tuple(rows)
