"""What a card says of places: the name of each file in full once, and what each rank did where."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from ddpnb.recording import phrases
from ddpnb.recording.calls import UNNAMED, Site
from ddpnb.recording.findings import Finding
from ddpnb.recording.parting import Parting
from ddpnb.render.document import Code, Inline, Line, Place
from ddpnb.render.excerpt import Mark
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
_IN_MARGIN = {
    _LEFT: ("left", "left"),
    _WENT: ("", ""),
    _BLOCKED: ("blocked", "blocked"),
    _LAST: ("last here", "last here"),
    _DECIDED: ("differs", "differ"),
}
_TWICE = 2  # times that a card names a line
_OF_PARTING = (_PARTS, _LEFT, _WENT)
_RANK = re.compile(r"Rank (\d{1,9})\b(.*)", re.DOTALL)
_AT = re.compile(
    r"(?<! is)(?<! are)(?<! was)(?<! were)(?<!called)(?<!rank \d) at \Z"
)  # what stands before it is a sentence
_ONE = 3  # parts of a sentence that names one place
_CAUSE = "possible cause"


class FileNames:
    """Names of files in one card: the first time in full, then as short as tells them apart.

    Args:
        files: that have a place.
        sentences: that may name more.
        functions: in which these places are.
    """

    def __init__(self, files: Iterable[str], sentences: Iterable[str] = (), functions: Iterable[str] = ()) -> None:
        known = dict.fromkeys(files)
        self._placed = frozenset(known)
        for words in sentences:
            known.update(dict.fromkeys(_NAMED.findall(words)))
        shown = {file: relative(file) for file in list(known)[:_FILES] if file and len(file) <= _PATH}
        named = {file: name for file, name in shown.items() if _FOLDER.fullmatch(name)}
        self._short = {file: _short(name, named.values()) for file, name in named.items()}
        self._said: set[str] = set()
        self._times: Counter[tuple[str, int]] = Counter()
        self._functions = {name for name in functions if name != UNNAMED}
        self._alone = len(shown) == 1  # no other file has lines
        longest = "|".join(map(re.escape, sorted(shown, key=len, reverse=True)))
        self._named = re.compile(rf"(?<![\w./-])({longest}):(\d{{1,9}})\b") if longest else None

    def __call__(self, words: str) -> tuple[Inline, ...]:
        """A sentence with the places that it names, and with what stands between backticks as code.

        Where its only place was named twice before, `` at PLACE in FUNCTION`` is left out.
        """
        rest, *places = self._named.split(words) if self._named is not None else (words,)
        found: list[Inline] = []
        for file, line, after in zip(places[::3], places[1::3], places[2::3], strict=True):
            site = Site(file, int(line), "")
            if len(places) == _ONE and _AT.search(rest) and self._times[file, site.line] >= _TWICE:
                found += _with_code(rest.removesuffix(" at "))
                rest = self._without_function(after)
            else:
                found += [*_with_code(rest), self._place(site)]
                rest = after
        return (*found, *_with_code(rest))

    def title(self, words: str) -> tuple[Inline, ...]:
        """The same of what stands above all others: a file that has a place below is named in short."""
        said, self._said = self._said, {*self._said, *self._placed}
        found = self(words)
        self._said = said
        return found

    def lines(self, file: str, shown: Iterable[Line | None]) -> None:
        """These lines of a file are shown: those with something in their margin are named by that."""
        self._times.update((file, line.number) for line in shown if line is not None and line.beside)

    def heading(self, file: str, function: str, first: int) -> tuple[Inline, ...]:
        """The name of a file whose lines are shown below, from this one on."""
        name = self._short[file] if file in self._said and file in self._short else ""
        self._said.add(file)
        where = f", in {function}" if function not in ("", UNNAMED) else ""
        return Place(Site(file, first, ""), name or file), where

    def _without_function(self, words: str) -> str:
        name = next((name for name in self._functions if words.startswith(f" in {name}")), "")
        rest = words[len(f" in {name}") :] if name else words
        return words if rest[:1].isalnum() else rest

    def _place(self, site: Site) -> Place:
        said = site.file in self._said
        self._said.add(site.file)
        self._times[site.file, site.line] += 1
        if self._alone and self._times[site.file, site.line] > _TWICE:
            return Place(site, f"line {site.line}")
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
    functions = dict.fromkeys(site.function for _, site in finding.where)
    return FileNames(files, (finding.summary, *finding.evidence, finding.remedy), functions)


def files_of(parting: Parting) -> list[str]:
    """Files in which a parting has places."""
    sites = (parting.site, *parting.callers, *(way.to for way in parting.ways), *(one.site for one in parting.harmless))
    return [site.file for site in sites]


def evidence(finding: Finding) -> tuple[str, ...]:
    """The evidence, in the order in which it is read: what is true of several ranks once, and no open question."""
    return _once(phrases.observed(finding))


def open_question(finding: Finding) -> list[str]:
    """That nothing tells which side is at fault, if its evidence says so."""
    return [text for text in phrases.undecided(finding.sides) if text in finding.evidence]


def _once(sentences: Sequence[str]) -> tuple[str, ...]:
    """``Rank 0: gloo.`` and ``Rank 1: gloo.`` as ``Ranks 0 and 1: gloo.``; other sentences name the other ranks at their end."""
    alike: dict[str, list[int]] = {}
    for words in sentences:
        if found := _RANK.fullmatch(words):
            alike.setdefault(found[2], []).append(int(found[1]))
    shown: dict[str, None] = {}
    for words in sentences:
        found = _RANK.fullmatch(words)
        if found is None or len(set(alike[found[2]])) == 1:
            shown[words] = None
        elif found[2].startswith(":"):
            shown[f"{phrases.ranks(alike[found[2]], True)}{found[2]}"] = None
        else:
            first, *others = dict.fromkeys(alike[found[2]])
            shown[f"Rank {first}{found[2].removesuffix('.')} ({phrases.ranks(others)} too)."] = None
    return tuple(shown)


def places(finding: Finding, shown: Collection[tuple[str, int]] = ()) -> list[str]:
    """What each rank did where: ``ranks 0, 1 part at train.py:30``, ``rank 1 left at train.py:31 and was last at train.py:27``.

    Args:
        finding: with the places.
        shown: files and lines that are shown elsewhere, with the ranks.
    """
    by_role = {
        place: ranks for place, ranks in _by_role(finding).items() if (place[0].file, place[0].line) not in shown
    }
    by_ranks: dict[tuple[int, ...], list[tuple[Site, _Role | None]]] = {}
    for place, ranks in list(by_role.items())[:_PLACES]:
        by_ranks.setdefault(tuple(ranks), []).append(place)
    found = [_said(ranks, at) for ranks, at in by_ranks.items()]
    return [*found, *([f"and {len(by_role) - _PLACES} more places"] if len(by_role) > _PLACES else [])]


def _by_role(finding: Finding) -> dict[tuple[Site, _Role | None], list[int]]:
    """The ranks at each place, by what they did there."""
    told = dict.fromkeys((rank, _line(site)) for rank, site in finding.where)  # functions may differ
    alone = _alone(finding)
    by_role: dict[tuple[Site, _Role | None], list[int]] = {}
    for rank, site in told:
        role = _role(finding, rank, site, alone=site in alone.get(rank, ()))
        if role != _LAST or not _went_on(finding, rank, site):
            by_role.setdefault((site, role), []).append(rank)
    return by_role


def _went_on(finding: Finding, rank: int, site: Site) -> bool:
    """Whether it says more where a rank parted from others than that its last call was at this place."""
    way = None if finding.parting is None else finding.parting.way_of((rank,))
    went = way is not None and (rank, _line(way.to)) in {(other, _line(there)) for other, there in finding.where}
    return way is not None and went and not any(call.endswith(str(site)) for call in way.calls)


def marks(finding: Finding) -> dict[str, dict[int, list[Mark]]]:
    """What ranks did at the lines whose text is known, by file; not where they part."""
    known = {file: {number for number, _ in lines} for file, lines in finding.source}
    found: dict[str, dict[int, list[Mark]]] = {}
    for (site, role), ranks in list(_by_role(finding).items())[:_PLACES]:
        if role not in _OF_PARTING and site.line in known.get(site.file, ()):
            one, several = _IN_MARGIN.get(role, tuple(word.removesuffix(" at") for word in role)) if role else ("", "")
            colour = "error" if set(ranks) <= set(finding.culprits) else "note" if role == _WAITS else ""
            mark = Mark(tuple(ranks), phrases.verb(ranks, one, several), colour)
            found.setdefault(site.file, {}).setdefault(site.line, []).append(mark)
    if finding.hint is not None and finding.hint.line in known.get(finding.hint.file, ()):
        found.setdefault(finding.hint.file, {}).setdefault(finding.hint.line, [Mark((), _CAUSE)])
    return found


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
    if rank in finding.blocked or (culprit and (in_cycle or (kind.after_patience and finding.certainty == "timed"))):
        return _BLOCKED
    beside = culprit and (finding.waiting or kind.after_patience)
    return _LAST if (kind.ways_part or kind.after_patience) and (beside or finding.sides) else None
