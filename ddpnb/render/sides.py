"""Where ranks part, as lines of the source and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ddpnb.recording import phrases
from ddpnb.recording.calls import NO_SITE, UNNAMED, Site
from ddpnb.recording.parting import Harmless, Parting, PartingKind, Way
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.split import by_value
from ddpnb.render.document import Line
from ddpnb.render.excerpt import Mark, excerpt
from ddpnb.texts import shortened

CONTEXT = 2  # lines before and after the decision
_WAYS = 8
_CALLS = 3  # of a side that are named
_NAMES = 6  # of the deciding expression
_VALUES = 4  # of a name
_HARMLESS = 3
_CALLERS = 2
_BEFORE = "before"
_COUNTS = 3  # ways of saying how often, of one side
_EXPRESSION, _VALUE, _CALL, _NAME, _PATH = 100, 60, 200, 80, 1000  # characters
_TITLES: Mapping[PartingKind, str] = {
    "loop": "at a loop",
    "branch": "at a decision",
    "exception": "at an exception",
    "call": "at a call",
    "end": "at an end",
    "operation": "after equal decisions, by what they call",
}


@dataclass(frozen=True, slots=True)
class Side:
    """Ranks that went the same way, as ``who``; ``words`` say which, without a full stop. ``odd``: they left the others."""

    who: str
    words: str
    calls: str = ""
    odd: bool = False


def title(parting: Parting) -> str:
    """What parts the ranks."""
    usual = any(not way.ranks for way in parting.ways)
    who = f"{phrases.ranks(parting.ranks, True)} left its usual way" if usual else "Ranks part"
    return f"{who} {_TITLES[parting.kind]}"


def where(parting: Parting) -> str:
    """``train.py:33 in train, called from train.py:60 in main``"""
    callers = _callers(parting.callers)
    return f"{_named(parting.site)}{f', called from {callers}' if callers else ''}"


def sides(parting: Parting) -> list[Side]:
    """Those that left the others first."""
    ways = sorted(parting.ways, key=lambda way: (not _odd(way, parting), way.ranks))
    rest = [rank for way in ways[_WAYS:] for rank in way.ranks]
    more = [Side(phrases.listed(rest), f"{len(ways) - _WAYS} more ways")] if len(ways) > _WAYS else []
    return [*(_side(way, parting) for way in ways[:_WAYS]), *more]


def role(parting: Parting, *, odd: bool) -> str:
    """Colours tell the sides apart where one of them left the others; the words say it too."""
    return "error" if odd else "ok" if any(_odd(way, parting) for way in parting.ways) else "note"


def _at(site: Site) -> str:
    return f"{site.file[:_PATH]}:{site.line}"


def _named(site: Site) -> str:
    return _at(site) if site.function == UNNAMED else f"{_at(site)} in {_name(site)}"


def _name(site: Site) -> str:
    return shortened(site.function, _NAME)


def _callers(callers: Sequence[Site]) -> str:
    """``train.py:60 in main, train.py:80 in <module> and 2 more``: the nearest first."""
    callers = [site for site in callers if not site.file.startswith("<")]  # such as ``<string>``
    nearest = callers[: -_CALLERS - 1 : -1]
    more = f" and {len(callers) - _CALLERS} more" if len(callers) > _CALLERS else ""
    return ", ".join(map(_named, nearest)) + more


def _odd(way: Way, parting: Parting) -> bool:
    return bool(way.ranks) and set(way.ranks) <= set(parting.odd)


# -- the source


def lines(
    parting: Parting,
    context: int = CONTEXT,
    also: Mapping[int, Sequence[Mark]] = MappingProxyType({}),
    known: Iterable[tuple[int, str]] = (),
) -> list[Line | None]:
    """The source around the decision, if the parting is ``quoted``.

    Args:
        parting: that is shown.
        context: lines before and after, at most 8.
        also: what ranks did at other lines of the file.
        known: numbers and texts of more lines.
    """
    here = marks(parting)
    for line, ones in also.items() if here else ():
        named = {rank for mark in ones for rank in mark.ranks}
        came = [mark for mark in here.get(line, ()) if mark.word or not named.issuperset(mark.ranks)]
        here[line] = [*came, *ones]
    return excerpt(here, {**dict(known), **texts(parting)}, {parting.site.line: context}, parting.site.line)


def texts(parting: Parting) -> dict[int, str]:
    """The lines that are known; without a source the deciding expression. Nothing of a package, which is not in the recording."""
    return dict(parting.source) or ({parting.site.line: parting.text} if parting.text else {})


def marks(parting: Parting) -> dict[int, list[Mark]]:
    """Which ranks came to which line in the function of the decision; nothing where no line is known."""
    if not texts(parting):
        return {}
    found = {parting.site.line: [Mark(parting.ranks, _apart(parting))]}
    for way in parting.ways:
        if parting.here(way.to) and way.to.line != parting.site.line:
            word = "left" if way.leaves_loop else "" if way.ranks else _BEFORE
            mark = Mark(way.ranks, word, role(parting, odd=_odd(way, parting)))
            found.setdefault(way.to.line, []).append(mark)
    return found


def _apart(parting: Parting) -> str:
    if parting.kind == "operation" or any(not way.ranks for way in parting.ways):
        return ""
    return phrases.verb(parting.ranks, "parts", "part")


# -- the sides


def _side(way: Way, parting: Parting) -> Side:
    """``line 33, left the loop, for the first time in 15``; what it called or raised comes before the line."""
    parts = [shortened(way.says, _CALL)] if way.says else []
    if parting.kind == "call" and way.to == parting.site and not parts:
        parts.append("no such call")
    elif way.to != NO_SITE:
        there = f"line {way.to.line}" if way.to.file == parting.site.file else _at(way.to)
        known = parts or parting.kind == "operation"
        there = "" if known and way.to == parting.site else there  # it is the line of the decision
        if not parting.here(way.to) and way.to.function != UNNAMED:
            there = f"{there} in {_name(way.to)}"
        if there:
            parts.insert(1 if parting.kind in ("call", "exception") else 0, there)
    elif not parts:
        parts.append("other calls" if parting.kind == "operation" else f"left {_name(parting.site)}")
    if often := _often(way.before):
        parts.append(often)
    named = [shortened(call, _CALL) for call in way.calls[:_CALLS]]
    if len(way.calls) > _CALLS:
        named.append(f"{len(way.calls) - _CALLS} more")
    calls = " and ".join(filter(None, (", ".join(named[:-1]), *named[-1:])))
    return Side(phrases.listed(way.ranks) if way.ranks else _BEFORE, ", ".join(parts), calls, _odd(way, parting))


def _often(before: Mapping[int, tuple[int, int]]) -> str:
    """How often the ranks of a side had gone this way before; each group of them that differs in that."""
    kinds: dict[str, list[int]] = {}
    for rank, (taken, times) in sorted(before.items()):
        kind = "first" if not times else "new" if not taken else "always" if taken >= times else "sometimes"
        kinds.setdefault(kind, []).append(rank)
    if not kinds:
        return ""
    words: list[str] = []
    for kind, ranks in kinds.items():
        times = _span(before[rank][1] + (kind != "sometimes") for rank in ranks)
        says = {
            "first": "at this decision for the first time",
            "new": f"for the first time in {times}",
            "always": f"as always ({times} times)",
            "sometimes": f"as in {_span(before[rank][0] for rank in ranks)} of {times} times before",
        }[kind]
        words.append(says if len(kinds) == 1 else f"{phrases.ranks(ranks)} {says}")
    return ", ".join(words[:_COUNTS])


def _span(numbers: Iterable[int]) -> str:
    found = sorted(set(numbers))
    return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"


# -- why


def values(parting: Parting) -> list[str]:
    """``batch = 0 on rank 2, 4 on the others (now)``: names that differ first. They may have changed since the decision."""
    names = list(dict.fromkeys(name for known in parting.values.values() for name in known))
    by_name: dict[str, list[tuple[str, list[int]]]] = {}
    for name in names:
        known = ((rank, told[name]) for rank, told in sorted(parting.values.items()) if name in told)
        by_name[name] = sorted(by_value(known).items(), key=lambda group: not set(group[1]) <= set(parting.odd))
    names.sort(key=lambda name: len(by_name[name]) == 1)
    return [f"{shortened(name, _VALUE)} = {_by_rank(by_name[name], parting.ranks)} (now)" for name in names[:_NAMES]]


def _by_rank(groups: Sequence[tuple[str, list[int]]], ranks: tuple[int, ...]) -> str:
    known = {rank for _, there in groups for rank in there}
    if len(groups) == 1:
        return f"{shortened(groups[0][0], _VALUE)} on {'all' if known >= set(ranks) else phrases.ranks(known)}"
    parts = [f"{shortened(value, _VALUE)} on {phrases.ranks(there)}" for value, there in groups[:_VALUES]]
    if len(groups) > _VALUES:
        parts.append(f"{len(groups) - _VALUES} more values on others")
    elif len(groups[-1][1]) > 1 and known >= set(ranks):
        parts[-1] = f"{shortened(groups[-1][0], _VALUE)} on the others"
    return ", ".join(parts)


def harmless(parting: Parting) -> list[str]:
    """What was decided differently before, until the ranks met again."""
    more = len(parting.harmless) - _HARMLESS
    return [*map(_harmless, parting.harmless[:_HARMLESS]), *([f"and {more} more"] if more > 0 else [])]


def _harmless(one: Harmless) -> str:
    """``train.py:28 `if rank == 0` (rank 0: line 29; ranks 1-3: line 31)``"""
    text = f" `{shortened(one.text, _EXPRESSION)}`" if one.text else ""
    apart = len({to for _, to in one.ways}) > 1  # not in one line
    ways = [
        (phrases.listed(ranks) if ranks else _BEFORE) + (f": {_line(to, one.site)}" if apart else "")
        for ranks, to in one.ways[:_VALUES]
    ]
    ways += [f"{len(one.ways) - _VALUES} more ways"] if len(one.ways) > _VALUES else []
    return f"{_at(one.site)}{text}" + (f" ({('; ' if apart else ' | ').join(ways)})" if ways else "")


def _line(to: Site, site: Site) -> str:
    return "left the function" if to == NO_SITE else f"line {to.line}" if to.file == site.file else _at(to)


# -- what is not known


def unknown(recording: Recording) -> list[str]:
    """Of which ranks paths are not recorded, in whole or in part, and why."""
    missing = by_value((rank, _unknown(record)) for rank, record in sorted(recording.ranks.items()))
    return [f"{phrases.ranks(ranks, True)}: {why}" for why, ranks in missing.items() if why]


def _unknown(record: RankRecord) -> str:
    if record.path is not None and (record.path.missing or any(record.path.threads.values())):
        return record.path.missing
    if record.reported:
        return "decisions are not in the logs and dumps that were read."
    if record.unrecorded:
        return "decisions are not recorded: the job was started without ddpnb."
    return "decisions are not recorded: that needs Python 3.12 or later, and DDPNB_LINES not to be 0."
