"""The result of a scan: the collectives of a project, each with its conditions."""

from __future__ import annotations

from dataclasses import dataclass

from ddpnb.lint import vocabulary as words
from ddpnb.lint.conditions import Condition, Doubt
from ddpnb.lint.modules import Problem
from ddpnb.lint.unwaited import Unwaited
from ddpnb.model.calls import Site

DOUBTS: tuple[Doubt, ...] = ("strong", "weak", "none")


@dataclass(frozen=True, slots=True)
class CollectiveSite:
    """A collective in the source, by one way that leads to it.

    Without ``via`` it is the call itself with the conditions of its own function. With it, a call in
    another function, under conditions that not all ranks need pass, leads here: ``via`` are the calls,
    outermost first, and ``conditions`` those of the outermost.
    """

    op: str
    site: Site
    conditions: tuple[Condition, ...] = ()
    via: tuple[Site, ...] = ()
    through: tuple[str, ...] = ()  # what is called at each place of ``via``
    text: str = ""
    last_line: int = 0
    both_arms: bool = False  # the ranks that decide otherwise make other calls instead

    @property
    def decision(self) -> Condition | None:
        """The condition most likely to let only some ranks pass."""
        found = [one for one in self.conditions if self._doubt_of(one) != "none"]
        return min(found, key=lambda one: (DOUBTS.index(self._doubt_of(one)), -one.line), default=None)

    @property
    def decisions(self) -> tuple[Condition, ...]:
        """All conditions as likely as ``decision``, in line order."""
        doubt = self.doubt
        return tuple(one for one in self.conditions if doubt != "none" and self._doubt_of(one) == doubt)

    @property
    def doubt(self) -> Doubt:
        """``strong``: according to the source only some ranks get here; ``weak``: possible; ``none``."""
        found = self.decision
        return self._doubt_of(found) if found is not None else "none"

    def _doubt_of(self, condition: Condition) -> Doubt:
        doubt = condition.doubt
        if self.op in words.P2P:  # sends and receives are for some ranks by nature
            return "none"
        if self.op in words.ENDS:
            return "weak" if doubt == "strong" and condition.cause == "rank" else "none"
        if self.op == "init_process_group" and (condition.cause != "rank" or self.via):
            return "none"  # far away it is called once, by the first rank
        return doubt

    @property
    def marked(self) -> bool:
        return self.doubt != "none"

    @property
    def reason(self) -> str:
        """Why it is marked."""
        found = self.decision
        return found.reason if found is not None else ""

    @property
    def advice(self) -> str:
        """What to do about it."""
        found = self.decision
        return self.advice_on(found) if found is not None else ""

    def advice_on(self, one: Condition) -> str:
        """What to do about one of the conditions."""
        if self.both_arms and one.doubt == "strong":
            return f"Issue the same collectives in the same order in both branches of line {one.line}."
        return _advice(one, bool(self.via))

    @property
    def places(self) -> tuple[Site, ...]:
        """The calls that lead here and the collective itself, outermost first."""
        return (*self.via, self.site)


def _advice(one: Condition, far: bool) -> str:
    what = "the function that contains it" if far else "it"
    if one.kind in ("if", "else", "case", "and") and one.cause == "rank":
        return (
            f"Call {what} on all ranks, and keep only rank-specific work (printing, writing) under the `if`."
            if far
            else "Call it on all ranks: move it out of the `if`, before or after it."
        )
    if one.kind == "decorator":
        return "Move the collective out of the function that runs on one rank, and call it on all ranks."
    if one.kind in ("return", "continue", "break", "raise") and one.cause == "rank":
        return f"Call it before line {one.line}, or also on the ranks that leave there."
    if one.cause in ("shard", "stream"):
        return (
            "Give all ranks equally many iterations (drop the rest, repeat samples, or stop at the smallest length), "
            "or use torch.distributed.algorithms.Join."
        )
    if one.cause == "failure":
        return "Let the exception end the rank, or all_reduce an error flag before continuing."
    if one.kind in ("for", "while") and one.cause == "rank":
        return "Give all ranks equally many iterations."
    if one.cause == "files":
        return "Check on one rank, and broadcast the result before any rank branches on it."
    if one.cause in ("clock", "random", "memory"):
        return "Decide on one rank and broadcast the decision, or agree on it with all_reduce."
    return "Reduce the value, or a flag computed from it, over all ranks (all_reduce) before any rank branches on it."


@dataclass(frozen=True, slots=True)
class Scan:
    """What a scan found. ``sites`` holds the surest doubts first, then the order of files and lines."""

    sites: tuple[CollectiveSite, ...]
    files: tuple[str, ...]
    problems: tuple[Problem, ...] = ()
    unwaited: tuple[tuple[str, Unwaited], ...] = ()  # by file

    @property
    def marked(self) -> tuple[CollectiveSite, ...]:
        return tuple(one for one in self.sites if one.marked)

    @property
    def own(self) -> tuple[CollectiveSite, ...]:
        """Each collective of the source once."""
        return tuple(one for one in self.sites if not one.via)
