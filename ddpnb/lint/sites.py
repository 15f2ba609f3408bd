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
    both_arms: bool = False  # the other ranks issue other calls instead

    @property
    def decision(self) -> Condition | None:
        """The condition most likely to let only some ranks pass."""
        doubtful = [condition for condition in self.conditions if self._doubt_of(condition) != "none"]
        return min(doubtful, key=lambda c: (DOUBTS.index(self._doubt_of(c)), -c.line), default=None)

    @property
    def decisions(self) -> tuple[Condition, ...]:
        """All conditions as likely as ``decision``, in line order."""
        doubt = self.doubt
        return tuple(
            condition for condition in self.conditions if doubt != "none" and self._doubt_of(condition) == doubt
        )

    @property
    def doubt(self) -> Doubt:
        """``strong``: according to the source only some ranks get here; ``weak``: possible; ``none``."""
        decision = self.decision
        return self._doubt_of(decision) if decision is not None else "none"

    def _doubt_of(self, condition: Condition) -> Doubt:
        doubt = condition.doubt
        if self.op in words.P2P:  # only some ranks send and receive
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
        decision = self.decision
        return decision.reason if decision is not None else ""

    @property
    def advice(self) -> str:
        """What to do about it."""
        decision = self.decision
        return self.advice_on(decision) if decision is not None else ""

    def advice_on(self, condition: Condition) -> str:
        """What to do about one of the conditions."""
        if self.both_arms and condition.doubt == "strong":
            return f"Issue the same collectives in the same order in both branches of line {condition.line}."
        return _advice(condition, bool(self.via))

    @property
    def places(self) -> tuple[Site, ...]:
        """The calls that lead here and the collective itself, outermost first."""
        return (*self.via, self.site)


def _advice(condition: Condition, far: bool) -> str:
    what = "the function that contains it" if far else "it"
    if condition.kind in ("if", "else", "case", "and") and condition.cause == "rank":
        return (
            f"Call {what} on all ranks, and keep only rank-specific work (printing, writing) under the `if`."
            if far
            else "Call it on all ranks: move it out of the `if`, before or after it."
        )
    if condition.kind == "decorator":
        return "Move the collective out of the function that runs on one rank, and call it on all ranks."
    if condition.kind in ("return", "continue", "break", "raise") and condition.cause == "rank":
        return f"Call it before line {condition.line}, or also on the ranks that leave there."
    if condition.cause in ("shard", "stream"):
        return (
            "Give all ranks equally many iterations (drop the rest, repeat samples, or stop at the smallest length), "
            "or use torch.distributed.algorithms.Join."
        )
    if condition.cause == "failure":
        return "Let the exception end the rank, or all_reduce an error flag before continuing."
    if condition.kind in ("for", "while") and condition.cause == "rank":
        return "Give all ranks equally many iterations."
    if condition.cause == "files":
        return "Check on one rank, and broadcast the result before any rank branches on it."
    if condition.cause in ("clock", "random", "memory"):
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
        return tuple(site for site in self.sites if site.marked)

    @property
    def own(self) -> tuple[CollectiveSite, ...]:
        """Each collective of the source once."""
        return tuple(site for site in self.sites if not site.via)
