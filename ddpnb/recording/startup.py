"""Start-up as named steps: from the environment to the first step of an optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

#: in this order: what a training does first
STEPS = (
    "environment",
    "device",
    "store",
    "process group",
    "first barrier",
    "first all-reduce",
    "model on device",
    "wrap",
    "forward",
    "backward",
    "optimizer step",
)
#: steps that complete on no rank before all ranks have reached them
TOGETHER = frozenset({"process group", "first barrier", "first all-reduce", "wrap", "backward"})

State = Literal["waiting", "running", "done", "failed"]


@dataclass(frozen=True, slots=True)
class StepState:
    """One step on one rank. ``facts``: details to display; ``error``: why it failed."""

    state: State = "waiting"
    seconds: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    error: str = ""


@dataclass(frozen=True, slots=True)
class StartupState:
    """All steps of all ranks, at one moment. ``ranks``: rank -> step -> its state; ``stopped``: by SIGSTOP."""

    world_size: int
    ranks: Mapping[int, Mapping[str, StepState]]
    dead: tuple[int, ...] = ()
    stopped: tuple[int, ...] = ()

    def at(self, rank: int, step: str) -> StepState:
        return self.ranks.get(rank, {}).get(step, StepState())

    def next_of(self, rank: int) -> str | None:
        """The first step that this rank has not done; None when it has done them all."""
        return next((step for step in STEPS if self.at(rank, step).state != "done"), None)

    def running_of(self, rank: int) -> str | None:
        return next((step for step in STEPS if self.at(rank, step).state == "running"), None)

    @property
    def done(self) -> bool:
        return all(self.next_of(rank) is None for rank in range(self.world_size))

    @property
    def stopped_at(self) -> str | None:
        """The earliest step that some rank has not done; None when all have done all."""
        steps = [step for rank in range(self.world_size) if (step := self.next_of(rank)) is not None]
        return min(steps, key=STEPS.index) if steps else None

    def to_json(self) -> dict[str, Any]:
        """Rank -> step -> state, seconds, facts and error."""
        return {
            str(rank): {
                step: {
                    "state": state.state,
                    "seconds": round(state.seconds, 4),
                    "facts": dict(state.facts),
                    "error": state.error,
                }
                for step, state in steps.items()
            }
            for rank, steps in sorted(self.ranks.items())
        }
