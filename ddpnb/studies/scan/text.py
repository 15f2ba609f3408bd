"""A scan as text: each rank-dependent condition, the collectives under it, the reason and the fix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ddpnb.recording.phrases import ranks as ranks_in_words
from ddpnb.recording.split import by_value
from ddpnb.render.terminal import Paragraph, columns, output, table
from ddpnb.studies.scan.scan import Scan
from ddpnb.studies.scan.sites import CollectiveSite, Condition
from ddpnb.studies.scan.tally import Counted
from ddpnb.texts import one_line

_MOST_PLACES = 8  # of one decision, unless all are asked for
_HEADING = "Rank-dependent collectives. Ranks that call them block on the ranks that do not."


def scan(result: Scan, *, everything: bool = False, colour: bool = False, width: int | None = None) -> str:
    """The whole scan: marked collectives grouped by condition, then the rest; ends without a newline."""
    headline = f"ddpnb scan: {_count(len(result.sites), 'collective call', 'collective calls')} in "
    headline += _count(len(result.files), "file", "files")
    parts = [Paragraph((headline, "bold"))]
    for problem in result.problems:
        parts += [Paragraph(), Paragraph(f"{problem.file}:{problem.line}: not scanned: {problem.text}")]
    if result.marked:
        parts += [Paragraph(), Paragraph((_HEADING, "error"))]
    for condition, sites in _by_decision(result.marked):
        parts += [Paragraph(), *_group(condition, sites, everything)]
    if result.unwaited:
        parts += [Paragraph(), *_unwaited(result)]
    text = output(*parts, colour=colour, width=width)
    rest = _rest(result, everything, columns(width))
    return f"{text}\n\n{rest}" if rest else text


def _by_decision(sites: Iterable[CollectiveSite]) -> list[tuple[Condition, list[CollectiveSite]]]:
    """Sites grouped by the condition that decides whether they are called."""
    groups: dict[tuple[str, int, str], tuple[Condition, list[CollectiveSite]]] = {}
    for site in sites:
        for condition in site.decisions:
            groups.setdefault((condition.file, condition.line, str(condition)), (condition, []))[1].append(site)
    return list(groups.values())


def _group(condition: Condition, sites: Sequence[CollectiveSite], everything: bool) -> list[Paragraph]:
    shown = sites if everything else sites[:_MOST_PLACES]
    parts = [Paragraph((f"{condition.file}:{condition.line}  {condition}", "bold"), rest="    ")]
    parts += [Paragraph(f"line {site.site.line} {site.op}", first="  - ", rest="      ") for site in shown]
    if len(sites) > len(shown):
        parts.append(Paragraph(f"  - and {len(sites) - len(shown)} more (--all)"))
    return [*parts, *_why(_sentence(condition.reason), condition.advice)]


def _why(reason: str, advice: str) -> list[Paragraph]:
    return [Paragraph(f"{word}: {text}", first="  ", rest="    ") for word, text in (("why", reason), ("Fix", advice))]


def _unwaited(result: Scan) -> list[Paragraph]:
    parts = [Paragraph(("Async collectives not waited for in time (DDP316):", "error"))]
    for file, call in result.unwaited:
        parts += [Paragraph(), Paragraph((f"{file}:{call.line}  {call.op}", "bold")), *_why(call.reason, call.advice)]
    return parts


def _rest(result: Scan, everything: bool, width: int) -> str:
    rest = [site for site in result.sites if not site.marked]
    more = " more" if result.marked else ""
    if not rest:
        return "" if result.marked else "No collective calls found."
    free = f"{len(rest)}{more}: no condition on the rank around the call"
    if not everything:
        return f"{free} (--all lists {'it' if len(rest) == 1 else 'them'})."
    lines = [f"{free}."]
    for file in result.files:
        rows = [(f"  line {site.site.line}", site.op, _under(site)) for site in rest if site.site.file == file]
        lines += [one_line(file), table(rows, width=width)] if rows else []
    return "\n".join(lines)


def _under(site: CollectiveSite) -> str:
    function = "" if site.site.function == "<module>" else f"in {site.site.function}()"
    conditions = [str(one) for one in site.conditions if one.kind != "finally"]
    return "; ".join(filter(None, [function, *conditions]))


def counts(rows: Sequence[Counted], world_size: int, *, whole: bool, outcome: str, width: int | None = None) -> str:
    """How often each rank made what the scan lists; unequal counts first, marked with ``!``."""
    reached = [row for row in rows if any(count for _, count in row.counts)]
    lines = [f"Counted in a run on {_count(world_size, 'rank', 'ranks')} ({outcome}):"]
    if not whole:
        notice = "The run was long: calls are counted from the oldest that all ranks still hold."
        lines.append(output(Paragraph(notice), width=width))
    for file in dict.fromkeys(row.file for row in reached):
        cells = [
            (f"{'!' if row.unequal else ' '} line {row.line}", row.op or "(by a wrapper)", _made(row))
            for row in reached
            if row.file == file
        ]
        lines += [one_line(file), table(cells, width=columns(width))]
    if not reached:
        lines.append("  no collective was called")
    missed = len({(row.file, row.line) for row in rows}) - len(reached)
    if missed:
        lines.append(f"  {_count(missed, 'call site was', 'call sites were')} not reached.")
    return "\n".join(lines)


def _made(row: Counted) -> str:
    """``12 by each of ranks 0-3``; ``1 by rank 0, 0 by ranks 1-3``."""
    by_count = by_value(row.counts)
    if len(by_count) == 1:
        ((count, ranks),) = by_count.items()
        return f"{count} by {'each of ' if len(ranks) > 1 else ''}{ranks_in_words(ranks)}"
    return ", ".join(f"{count} by {ranks_in_words(ranks)}" for count, ranks in sorted(by_count.items(), reverse=True))


# -- as JSON


def to_json(result: Scan) -> dict[str, Any]:
    """The scan as JSON."""
    return {
        "schema": 1,
        "files": list(result.files),
        "collectives": [_site_json(site) for site in result.sites],
        "unwaited": [
            {"file": file, "line": call.line, "use_line": call.use_line, "tensor": call.tensor, "op": call.op,
             "kind": call.kind, "function": call.function, "reason": call.reason, "advice": call.advice}
            for file, call in result.unwaited
        ],
        "problems": [asdict(problem) for problem in result.problems],
    }  # fmt: skip


def _site_json(site: CollectiveSite) -> dict[str, Any]:
    decision = site.decision
    return {
        "op": site.op, "file": site.site.file, "line": site.site.line, "function": site.site.function, "last_line": site.last_line, "text": site.text, "doubt": "strong" if site.marked else "none",
        "reason": decision.reason if decision is not None else "", "advice": decision.advice if decision is not None else "",
        "decision": None if decision is None else _condition(decision),
        "decisions": [_condition(condition) for condition in site.decisions],
        "conditions": [_condition(condition) for condition in site.conditions],
    }  # fmt: skip


def _condition(condition: Condition) -> dict[str, Any]:
    return {**asdict(condition), "cause": "rank" if condition.depends_on_rank else ""}


def counts_json(rows: Sequence[Counted]) -> list[Mapping[str, Any]]:
    """The counts as JSON."""
    return [
        {"file": row.file, "line": row.line, "op": row.op, "unequal": row.unequal,
         "counts": {str(rank): count for rank, count in row.counts}}
        for row in rows
    ]  # fmt: skip


# -- words


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
