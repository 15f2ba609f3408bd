"""What a card says of places: the name of each file in full once, and what each rank did where."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from ddpnb.recording import phrases
from ddpnb.recording.calls import Site
from ddpnb.recording.findings import Finding
from ddpnb.recording.parting import Parting
from ddpnb.render.document import Code, Inline, Place
from ddpnb.texts import relative

_PLACES = 8
_FILES = 64
_PATH = 1000  # characters of a name that is looked for in sentences
_FOLDER = re.compile(r"[^<>:\"'`]*/[^<>:\"'`/]+")  # a file in a folder, as files are usually named
_CODE = re.compile(r"`([^`]+)`")
_NAMED = re.compile(r"(?<![\w./-])/[^\s:'\"()]{1,1000}\.py(?=:\d)")
_PARTS, _LEFT, _WENT = ("parts at", "part at"), ("left at", "left at"), ("went to", "went to")
_WAITS, _CALLED, _BLOCKED = ("waits at", "wait at"), ("called at", "called at"), ("is blocked at", "are blocked at")
_LAST, _DECIDED = ("was last at", "were last at"), ("decided at", "decided differently at")
_Role = tuple[str, str]  # after one rank, after several


class FileNames:
    """Names of files in one card: the first time in full, then as short as tells them apart.

    Args:
        files: that have a place.
        sentences: that may name more.
    """

    def __init__(self, files: Iterable[str], sentences: Iterable[str] = ()) -> None:
        known = dict.fromkeys(files)
        for words in sentences:
            known.update(dict.fromkeys(_NAMED.findall(words)))
        shown = {file: relative(file) for file in list(known)[:_FILES] if file and len(file) <= _PATH}
        named = {file: name for file, name in shown.items() if _FOLDER.fullmatch(name)}
        self._short = {file: _short(name, named.values()) for file, name in named.items()}
        self._said: set[str] = set()
        longest = "|".join(map(re.escape, sorted(shown, key=len, reverse=True)))
        self._named = re.compile(rf"(?<![\w./-])({longest}):(\d{{1,9}})\b") if longest else None

    def __call__(self, words: str) -> tuple[Inline, ...]:
        """A sentence with the places that it names, and with what stands between backticks as code."""
        rest, *places = self._named.split(words) if self._named is not None else (words,)
        found = _with_code(rest)
        for file, line, after in zip(places[::3], places[1::3], places[2::3], strict=True):
            found += [self._place(Site(file, int(line), "")), *_with_code(after)]
        return tuple(found)

    def _place(self, site: Site) -> Place:
        said = site.file in self._said
        self._said.add(site.file)
        return Place(site, f"{self._short[site.file]}:{site.line}" if said and site.file in self._short else "")


def _with_code(words: str) -> list[Inline]:
    parts = _CODE.split(words)  # a text, then code and a text, again and again
    return [Code(one) if number % 2 else one for number, one in enumerate(parts) if one]


def _short(name: str, others: Iterable[str]) -> str:
    """The end of a path that no other one has."""
    parts = name.split(os.sep)
    rest = [other.split(os.sep) for other in set(others) if other != name]
    for count in range(1, len(parts)):
        if all(other[-count:] != parts[-count:] for other in rest):
            return os.sep.join(parts[-count:])
    return name


def file_names(finding: Finding) -> FileNames:
    """For the card of a finding."""
    files = [site.file for _, site in finding.where]
    files += files_of(finding.parting) if finding.parting is not None else ()
    if finding.hint is not None:
        files.append(finding.hint.file)
    return FileNames(files, (finding.summary, *finding.evidence, finding.remedy))


def files_of(parting: Parting) -> list[str]:
    """Files in which a parting has places."""
    sites = (parting.site, *parting.callers, *(way.to for way in parting.ways), *(one.site for one in parting.harmless))
    return [site.file for site in sites]


def evidence(finding: Finding) -> tuple[str, ...]:
    """The evidence, in the order in which it is read: that nothing tells which side is at fault comes last."""
    open_question = phrases.undecided(finding.sides)
    return (*phrases.observed(finding), *(text for text in open_question if text in finding.evidence))


def places(finding: Finding) -> list[str]:
    """What each rank did where: ``ranks 0, 1 part at train.py:30``, ``rank 1 left at train.py:31 and was last at train.py:27``."""
    told = dict.fromkeys((rank, _line(site)) for rank, site in finding.where)  # functions may differ
    alone = _alone(finding)
    by_role: dict[tuple[Site, _Role | None], list[int]] = {}
    for rank, site in told:
        by_role.setdefault((site, _role(finding, rank, site, alone=site in alone.get(rank, ()))), []).append(rank)
    by_ranks: dict[tuple[int, ...], list[tuple[Site, _Role | None]]] = {}
    for place, ranks in list(by_role.items())[:_PLACES]:
        by_ranks.setdefault(tuple(ranks), []).append(place)
    found = [_said(ranks, at) for ranks, at in by_ranks.items()]
    return [*found, *([f"and {len(by_role) - _PLACES} more places"] if len(by_role) > _PLACES else [])]


def _said(ranks: Sequence[int], at: Sequence[tuple[Site, _Role | None]]) -> str:
    """The places of these ranks as one sentence, those without a role first."""
    plain = ", ".join(str(site) for site, role in at if role is None)
    acts = [f"{role[len(set(ranks)) > 1]} {site}" for site, role in at if role is not None]
    who = phrases.listed(ranks)
    if not acts:
        return f"{who}: {plain}"
    did = _and(", ".join(acts[:-1]), acts[-1])
    return f"{who}: {plain}, {did}" if plain else f"{who if ' and ' in who else _and(*_last(who))} {did}"


def _and(first: str, last: str) -> str:
    return f"{first} and {last}" if first else last


def _last(listed: str) -> tuple[str, str]:
    """``ranks 0, 2`` and ``3``."""
    first, _, last = listed.rpartition(", ")
    return first, last


def _line(site: Site) -> Site:
    return Site(site.file, site.line, "")


def _alone(finding: Finding) -> dict[int, set[Site]]:
    """Of each rank its only place that is not one of where the ranks part: there it did what the finding says."""
    left: dict[int, set[Site]] = {}
    for rank, site in finding.where:
        if _in_parting(finding, rank, _line(site)) is None:
            left.setdefault(rank, set()).add(_line(site))
    harmless = _harmless(finding)
    return {rank: found for rank, sites in left.items() if len(found := sites - harmless or sites) == 1}


def _harmless(finding: Finding) -> set[Site]:
    return set() if finding.parting is None else {_line(one.site) for one in finding.parting.harmless}


def _in_parting(finding: Finding, rank: int, site: Site) -> _Role | None:
    parting = finding.parting
    if parting is None or rank not in parting.ranks:
        return None
    if site == _line(parting.site):
        return _PARTS if parting.kind != "operation" else None
    way = parting.way_of((rank,))
    if way is None or site != _line(way.to):
        return None
    return _LEFT if way.leaves_loop else _WENT


def _role(finding: Finding, rank: int, site: Site, *, alone: bool) -> _Role | None:
    """What a rank did at a place, as far as the finding tells."""
    call, waits = finding.collective, rank in finding.waiting
    known = _in_parting(finding, rank, site)
    if call is not None and waits and known is not _PARTS and site == _line(call.site):
        return _WAITS
    if known is not None:
        return known
    if call is not None and alone:
        return _WAITS if waits else _alone_at(finding, rank)
    return _DECIDED if site in _harmless(finding) else None


def _alone_at(finding: Finding, rank: int) -> _Role | None:
    """What a rank that does not wait for others did at its only place."""
    kind, culprit = finding.type, rank in finding.culprits
    if kind.mismatch:
        return _CALLED
    in_cycle = kind.separate_calls and not finding.waiting  # else it need not be in a call
    if culprit and (in_cycle or (kind.after_patience and finding.certainty == "timed")):
        return _BLOCKED
    beside = culprit and (finding.waiting or kind.after_patience)
    return _LAST if (kind.ways_part or kind.after_patience) and (beside or finding.sides) else None
