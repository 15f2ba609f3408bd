"""Asynchronous calls whose tensor is used before anything waits for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from ddpnb.recording import phrases
from ddpnb.recording.calls import CallState, Site
from ddpnb.recording.events.runs import ChangedInFlight
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.findings import FindingType, Hint
from ddpnb.recording.source.branches import guards_of
from ddpnb.recording.source.unwaited import Unwaited, changed_between, unwaited
from ddpnb.recording.split import by_value
from ddpnb.rules.rule import Draft, family, say, title

WORK_NOT_WAITED = FindingType("DDP316", "work-not-waited", once_per_line=True)


@family(WORK_NOT_WAITED, after=(WORK_NOT_WAITED.code,), needs=("calls",))
def unwaited_work(snap: Snapshot) -> Iterable[Draft]:
    """A tensor was changed before the wait; or, after a line from which a call was made, the source uses the tensor before it."""
    changed = [*_changed_in_flight(snap)]
    if changed:
        yield from changed
        return
    sources = sorted(snap.recording.sources.items())
    found = [(path, one) for path, source in sources if _may_be_async(source) for one in unwaited(source)]
    if not found:
        return
    made: dict[tuple[str, int], set[int]] = defaultdict(set)
    dropped: dict[tuple[str, int], set[int]] = defaultdict(set)
    for rank, record in snap.ranks.items():
        # A rank makes thousands of calls from a few lines.
        calls = {(id(call.site), call.state is CallState.DROPPED): call for call in record.calls}.values()
        for call in calls:
            path, _, line = call.site.via.rpartition(":")  # a function that returns the Work made the call
            places = [(call.site.file, call.site.line), *([(path, int(line))] if line.isdigit() else [])]
            for place in places:
                made[place].add(rank)
                if call.state is CallState.DROPPED:
                    dropped[place].add(rank)
    for path, one in found:
        if (path, one.line) in made:
            yield _unwaited(snap, path, one, sorted(made[path, one.line]), sorted(dropped[path, one.line]))
            return


def _changed_in_flight(snap: Snapshot) -> Iterator[Draft]:
    """A tensor was changed in place between an asynchronous call and its wait, as torch has counted."""
    changed = [(rank, event) for rank, events in snap.every(ChangedInFlight).items() for event in events]
    for site, ranks in by_value((rank, event.site) for rank, event in changed).items():
        event = next(event for _, event in changed if event.site == site)
        wait = Site(event.waited.file, event.waited.line, event.waited.function)
        lines = changed_between(snap.recording.sources.get(site.file, ""), site.line, wait.line)
        text = "{who} changed the tensor of {op}{at} before the wait for it{wait}."
        yield Draft(
            title(
                *(say(text, ranks, op=event.operation, at=phrases.at(site), wait=end) for end in (phrases.at(wait), ""))
            ),
            ranks,
            "Call wait() before the tensor is changed, or change a copy of it.",
            dict.fromkeys(ranks, site),
            also=tuple((rank, wait) for rank in ranks),
            evidence=(
                "The tensor was changed in place. Until the wait it is undefined what the call reads from it and writes into it.",
            ),
            hint=Hint(site.file, lines[0], "It changes something in place between the call and the wait")
            if len(lines) == 1 and wait.file == site.file
            else None,
        )


def _may_be_async(source: str) -> bool:
    return "async_op" in source or "isend" in source or "irecv" in source


def _unwaited(snap: Snapshot, path: str, one: Unwaited, ranks: list[int], dropped: list[int]) -> Draft:
    """``dropped``: the ranks whose Work was deleted before anything waited for it, which is proof that it was asynchronous.

    Else that it is, and used too early, is read from the source: a warning.
    """
    site, hint = Site(path, one.line, one.function), one.reason
    early = f" before {one.tensor} is {'changed' if one.changed else 'used'}" if one.use_line else ""
    if dropped:
        ranks = dropped
        text = "{who} discarded the Work of {op}{at} before anything waited for it."
    else:
        text = "{who} called {op}{at}: by the source it is asynchronous, with no wait(){early}."
    source = snap.recording.sources[path]
    guarded = not dropped and bool(
        one.use_line and set(guards_of(source, one.use_line)) - set(guards_of(source, one.line))
    )
    if guarded:
        hint += " That line is under a condition: which of these ranks reach it was not recorded."
    open_question = guarded and len(ranks) > 1
    return Draft(
        title(*(say(text, ranks, op=one.op, at=at, early=early) for at in (phrases.at(site), f" at {site}", ""))),
        () if open_question else ranks,
        "Keep the handle and call handle.wait() before the tensor is read, changed or freed.",
        dict.fromkeys(ranks, site),
        sides=tuple((rank,) for rank in ranks),
        severity=None if dropped else "warning",
        certainty="likely",
        hint=Hint(path, one.line, hint.rstrip(".")),
    )
