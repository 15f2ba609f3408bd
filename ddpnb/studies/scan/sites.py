"""What a scan finds: a collective in the source, and the conditions under which a rank reaches it."""

from __future__ import annotations

from dataclasses import dataclass

from ddpnb.recording.calls import Site
from ddpnb.studies.scan import vocabulary as words

WAYS_OUT = ("return", "continue", "break")
ARMS = ("if", "else", "case", "and")


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition on the way to a call.

    ``kind`` ``return``, ``continue`` and ``break`` are ways around the call: when ``text`` holds, the rank leaves before
    it. ``matched``: the ranks that decide otherwise make the same calls, or need not make this one.
    """

    line: int
    text: str
    kind: str
    depends_on_rank: bool = False
    reason: str = ""  # in plain words
    file: str = ""
    matched: bool = False

    @property
    def marked(self) -> bool:
        """Whether only some ranks may pass."""
        return self.depends_on_rank and not self.matched

    @property
    def advice(self) -> str:
        """What to do about it."""
        if self.kind in ("for", "while"):
            return (
                "Give all ranks equally many iterations (drop the rest, repeat samples, or stop at the smallest length), "
                "or use torch.distributed.algorithms.Join."
            )
        if self.kind == "decorator":
            return "Move the collective out of the function that runs on one rank, and call it on all ranks."
        if self.kind in WAYS_OUT:
            return f"Call it before line {self.line}, or also on the ranks that leave there."
        return "Call it on all ranks: move it out of the `if`, before or after it."

    def __str__(self) -> str:
        """The condition as text."""
        if self.kind in WAYS_OUT:
            return f"{self.kind} if {self.text}"
        if self.kind in ARMS:
            return f"only if {self.text}"
        return f"{self.kind} {self.text}".strip() if self.kind in ("while", "except") else self.text


@dataclass(frozen=True, slots=True)
class CollectiveSite:
    """A collective in the source, with the conditions around it in its function, in line order."""

    op: str
    site: Site
    conditions: tuple[Condition, ...] = ()
    text: str = ""
    last_line: int = 0
    group: str = ""  # as the call names it; empty: the default one

    @property
    def decisions(self) -> tuple[Condition, ...]:
        """The conditions that may let only some ranks pass."""
        if self.op in words.P2P or self.op in words.ENDS:  # only some ranks send and receive; ends need not be joint
            return ()
        return tuple(condition for condition in self.conditions if condition.marked)

    @property
    def decision(self) -> Condition | None:
        """The last of ``decisions``."""
        return max(self.decisions, key=lambda condition: condition.line, default=None)

    @property
    def marked(self) -> bool:
        """Whether according to the source only some ranks get here."""
        return bool(self.decisions)
