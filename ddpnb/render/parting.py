"""Where ranks part: as text, HTML and Markdown. Everything from a rank is escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpnb.errors import UsageError
from ddpnb.facts.paths import partings as compared
from ddpnb.model.calls import Site
from ddpnb.model.findings import Finding
from ddpnb.model.parting import Parting
from ddpnb.model.recording import Recording
from ddpnb.render import markup
from ddpnb.render.places import FileNames
from ddpnb.render.terminal import Line, Paragraph, output
from ddpnb.views.fork import CONTEXT, Fork, ForkLine, ForkWay, fork, unknown

if TYPE_CHECKING:
    from rich.console import RenderableType

_FEW = 3  # partings that are written out in full
_NOTEBOOK = 4  # lines of the source before and after, where there is room
_WIDE = 100  # characters of a line in Markdown
_TICKS = "```"
_NOWHERE = "The ranks do not part, as far as their paths are recorded."
_HARMLESS = "Decided differently before, without harm:"


class Partings(tuple[Parting, ...]):  # noqa: SLOT001 (it has notes)
    """Where ranks part, as ``partings()`` returns it, the first one first; it shows itself as text and in a notebook.

    ``notes`` are what is not known of the paths, in sentences.

    Example:
        >>> ddpnb.partings(recording)[0].site.line
        33
    """

    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts: list[RenderableType] = []
        for parting in self[:_FEW]:
            parts += [*([Paragraph()] if parts else []), *paragraphs(parting, "")]
        return output(*parts, *(Paragraph(note) for note in self._said()))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        shown = "".join(html(parting, _NOTEBOOK) for parting in self[:_FEW])
        notes = "".join(f'<p class="faint">{markup.text(note)}</p>' for note in self._said())
        return markup.standalone(shown + notes, "where ranks part")

    def _said(self) -> list[str]:
        return [*([f"And {len(self) - _FEW} more."] if len(self) > _FEW else []), *self.notes]


def partings(recording: Recording) -> Partings:
    """Where the ways of the ranks part: the decision, the way of each side, and what they called after it.

    Ranks record their paths on Python 3.12 and later.

    Args:
        recording: from ``World.snapshot()``, ``Run.recording`` or ``ddpnb.load()``.

    Returns:
        The partings, the first one first; none if the ranks made the same collectives as far as their paths are recorded.

    Raises:
        UsageError: it is not a Recording.

    Example:
        >>> ddpnb.partings(ddpnb.load("hang.ddpnb"))
    """
    if not isinstance(recording, Recording):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("partings() takes a Recording.", "world.partings() and run.partings are for live ranks.")
    found = Partings(one.quoted(recording.sources, recording.edited) for one in compared.partings(recording))
    known = any(record.path is not None for record in recording.ranks.values())
    found.notes = (*([_NOWHERE] if known and not found else []), *unknown(recording))
    return found


def _side(way: ForkWay) -> str:
    return f"{way.who[0].upper()}{way.who[1:]} went another way: {way.words}" if way.odd else f"{way.who}: {way.words}"


def first_shown(findings: Sequence[Finding]) -> list[int]:
    """The numbers of the findings whose ranks part where those of no finding before it do: each parting is shown once."""
    before: list[Parting] = []
    found: list[int] = []
    for number, finding in enumerate(findings):
        if finding.parting is not None and finding.parting not in before:
            before.append(finding.parting)
            found.append(number)
    return found


def of_finding(finding: Finding, parting: Parting) -> Parting:
    """Its parting without the calls that its evidence names: those that differ in one collective."""
    call = finding.collective
    if not finding.type.mismatch or call is None:
        return parting
    named = f" #{call.seq} of {call.group}"
    ways = (replace(way, calls=tuple(one for one in way.calls if f"{named} " not in f"{one} ")) for way in parting.ways)
    return replace(parting, ways=tuple(ways))


# -- plain text


def forks_text(findings: Sequence[Finding]) -> str:
    """Where the ranks of findings part, for a page that shows the findings above."""
    parts: list[RenderableType] = []
    for number, parting in _forks(findings):
        parts += [*([Paragraph(number)] if number else []), *paragraphs(parting, "")]
    return output(*parts)


def _forks(findings: Sequence[Finding]) -> Iterator[tuple[str, Parting]]:
    """Each with the code of its finding, where there are several findings."""
    for number in first_shown(findings)[:_FEW]:
        parting = findings[number].parting
        if parting is not None:
            yield findings[number].code if len(findings) > 1 else "", parting


def paragraphs(parting: Parting, indent: str = "  ", named: Callable[[str], str] = str) -> list[RenderableType]:
    """For ``terminal.output``: where, the source with ranks in its margin, the sides, and why.

    ``named``: a sentence with shorter names of files.
    """
    shown, deep = fork(parting), f"{indent}  "
    where, called = named(shown.where), named(f", called from {shown.callers}") if shown.callers else ""
    parts: list[RenderableType] = [
        Paragraph(f"{shown.title}: ", (where, "bold"), called, first=indent, rest=deep),
        *_source(shown, deep),
    ]
    for way in shown.ways:
        parts.append(Paragraph((named(_side(way)), _role(shown, odd=way.odd)), first=deep, rest=f"{deep}  "))
        if way.calls:
            parts.append(Paragraph(f"only here: {named(way.calls)}", first=f"{deep}  ", rest=f"{deep}    "))
    parts += [Paragraph(value, first=deep, rest=f"{deep}  ") for value in shown.values]
    if shown.harmless:
        parts.append(Paragraph(_HARMLESS, first=deep, rest=f"{deep}  "))
        parts += [Paragraph(named(one), first=f"{deep}  - ", rest=f"{deep}    ") for one in _listed(shown)]
    return parts


def _role(shown: Fork, *, odd: bool) -> str:
    """Colours tell the sides apart where one of them left the others; the words say it too."""
    return "error" if odd else "ok" if any(way.odd for way in shown.ways) else "note"


def _listed(shown: Fork) -> Sequence[str]:
    return (*shown.harmless, *([f"and {shown.more} more"] if shown.more else []))


def _source(shown: Fork, indent: str) -> list[Line]:
    lines = [line for line in shown.lines if line is not None]
    wide = max(len(line.beside) for line in lines)
    digits = max(len(str(line.number)) for line in lines)
    found: list[Line] = []
    for line in shown.lines:
        if line is None:
            found.append(Line(f"{indent}{'':{wide}}    {'...':>{digits}}"))
            continue
        mark = " >" if line.decides else "->" if line.beside else "  "
        style = "bold" if line.decides else _role(shown, odd=line.odd) if line.beside else ""
        start = f"{indent}{line.beside:>{wide}} {mark} {line.number:>{digits}} "
        found.append(Line((start, style), "| ", (line.text, "bold" if line.decides else "")))
    return found


# -- Markdown


def markdown(parting: Parting, plain: Callable[[str], str]) -> list[str]:
    """The same as lines of Markdown; ``plain`` makes one line of a text that opens no block and no HTML."""
    shown = fork(parting)
    called = f", called from {shown.callers}" if shown.callers else ""
    source = output(*_source(shown, ""), width=_WIDE).replace(_TICKS, "'''")
    found = [plain(f"{shown.title}: {shown.where}{called}"), "", _TICKS, *source.split("\n"), _TICKS, ""]
    for way in shown.ways:
        found.append(f"- {plain(_side(way))}" + (plain(f"; only here: {way.calls}") if way.calls else ""))
    found += [f"- {plain(value)}" for value in shown.values]
    found += [f"- {plain(f'{_HARMLESS} {one}')}" for one in shown.harmless]
    return found


# -- HTML


def forks_html(findings: Sequence[Finding]) -> str:
    """The same."""
    return "".join(
        (f'<div class="mono faint">{markup.text(code)}</div>' if code else "") + html(parting, _NOTEBOOK)
        for code, parting in _forks(findings)
    )


def html(parting: Parting, context: int = CONTEXT, named: FileNames | None = None) -> str:
    """The same for a page that has the style sheet; ``context``: lines of the source before and after; ``named``: of the card."""
    shown = fork(parting, context)
    files = {parting.site.file, *(site.file for site in parting.callers), *(way.to.file for way in parting.ways)}
    files |= {one.site.file for one in parting.harmless}

    label = (named or FileNames(files)).label

    def linked(words: str) -> str:
        return markup.sentence(words, files, label)

    where = linked(shown.where)
    called = f", called from {linked(shown.callers)}" if shown.callers else ""
    rows = [_row(shown, line) for line in shown.lines]
    table = (
        markup.table("the source where ranks part", ("ranks", "line", "code"), rows, kind="mono ran fork")
        if rows
        else ""
    )
    ways = "".join(_way(shown, way, linked) for way in shown.ways)
    values = "".join(f"<li>{linked(value)}</li>" for value in shown.values)
    harmless = "".join(f"<li>{linked(one)}</li>" for one in _listed(shown))
    return (
        '<div class="parting">'
        f"<div><b>{shown.title}:</b> {where}{called}</div>{table}<ul>{ways}{values}</ul>"
        + (f"<div>{_HARMLESS}</div><ul>{harmless}</ul>" if harmless else "")
        + "</div>"
    )


def _row(shown: Fork, line: ForkLine | None) -> str:
    if line is None:
        return '<tr><td></td><th scope="row">…</th><td></td></tr>'
    who = ""
    if line.beside:
        role = None if line.decides else _role(shown, odd=line.odd)
        image = markup.icon("why" if line.decides else "go")
        who = f"<span{markup.attributes({'class': role})}>{markup.text(line.beside)} {image}</span>"
    place = markup.place(Site(shown.site.file, line.number, ""), str(line.number))
    kind = markup.attributes({"class": "parts" if line.decides else None})
    code = markup.source_line(line.text)
    return f'<tr{kind}><td class="ranks">{who}</td><th scope="row">{place}</th><td class="code">{code}</td></tr>'


def _way(shown: Fork, way: ForkWay, linked: Callable[[str], str]) -> str:
    image, left = (f"{markup.icon('stop')} ", " went another way") if way.odd else ("", "")
    who = f'<b class="{_role(shown, odd=way.odd)}">{image}{markup.text(way.who)}</b>'
    calls = f"<div>only here: {linked(way.calls)}</div>" if way.calls else ""
    return f"<li>{who}{left}: {linked(way.words)}{calls}</li>"
