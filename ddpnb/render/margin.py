"""The source around the line of a rank; in its margin, the holds of each line and the ranks that stand there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from zlib import crc32

from ddpnb.recording import phrases
from ddpnb.recording.calls import Site
from ddpnb.render import markup
from ddpnb.texts import one_line, relative

_AROUND = 200  # lines before and after the current one
_LONGEST = 400  # characters of a condition
_HOW = "right click, or Shift and click: condition and count"


@dataclass(frozen=True, slots=True)
class Mark:
    """The hold of a line. ``on``: it is armed; ``held``: the ranks that it holds now; ``when`` and ``count``: its conditions."""

    on: bool = True
    held: tuple[int, ...] = ()
    when: str = ""
    count: int = 1

    @property
    def state(self) -> str:
        """In words."""
        if self.held:
            return f"holds {phrases.ranks(self.held)}"
        return "armed" if self.on else "disabled"

    @property
    def conditions(self) -> str:
        """In words: `` when step == 5, from time 3 on``; empty if there are none."""
        when = f" when {self.when[:_LONGEST]}" if self.when else ""
        return when + (f" from time {self.count} on" if self.count > 1 else "")


@lru_cache(8)  # it is drawn after each call of a rank
def listing(
    site: Site,
    text: str,
    rank: int,
    at: tuple[tuple[int, str], ...],
    marks: tuple[tuple[int, Mark], ...],
    whom: str = "",
    edited: int = 0,
) -> str:
    """The source around the line of a rank, with the ranks that stand at its lines in the margin.

    Args:
        site: where the rank is.
        text: of the whole file.
        rank: whose line it is.
        at: lines of this file, and which ranks stand there.
        marks: lines that have a hold, and which.
        whom: the ranks that a click in the margin holds (the action ``arm`` with ``line``, and the ``named`` ``file``); empty: there are none.
        edited: the line of whose hold a form shows the conditions (the action ``arm with``).
    """
    lines = text.splitlines()
    first = max(1, site.line - _AROUND)
    last = min(len(lines), site.line + _AROUND)
    if not first <= site.line <= last:
        return f'<p class="faint">The text of {markup.text(one_line(site.file, 200))} is not recorded.</p>'
    margin = _Margin(site, dict(at), dict(marks), whom, edited)
    rows = [margin.row(number, lines[number - 1]) for number in range(first, last + 1)]
    label = f"source of rank {rank}: {one_line(relative(site.file), 100)}, line {site.line}"
    left_out = f'<p class="faint">lines {first}-{last} of {len(lines)}</p>' if last - first + 1 < len(lines) else ""
    given = {"class": "listing", "data-at": f"{named(site.file)}:{site.line}", "data-walk": "1"}
    stop = markup.attributes({**given, "tabindex": None if whom else "0"})
    table = markup.table(label, ("hold", "ranks", "line", "code"), rows, kind="mono ran fork")
    return f"<div{stop}>{table}</div>{left_out}"


def named(file: str) -> str:
    """A short name of a file for the page, which would carry its path once for each line."""
    return f"{crc32(file.encode('utf-8', 'surrogatepass')):08x}"


@dataclass(frozen=True, slots=True)
class _Margin:
    site: Site
    at: Mapping[int, str]
    marks: Mapping[int, Mark]
    whom: str
    edited: int

    def row(self, number: int, code: str) -> str:
        current = number == self.site.line
        given = {"class": "parts" if current else None, "aria-current": "true" if current else None}
        arrow = f" {markup.icon('go')}" if current else ""
        who = f"<span>{markup.text(self.at[number])}{arrow}</span>" if number in self.at else arrow
        return (
            f'<tr{markup.attributes({**given})}><td class="arm">{self._arm(number, stop=current)}</td>'
            f'<td class="ranks">{who}</td><th scope="row">{number}</th>'
            f'<td class="code">{markup.source_line(code)}</td></tr>{self._form(number)}'
        )

    def _of(self, number: int) -> dict[str, object]:
        return {"data-file": named(self.site.file), "data-line": str(number)}

    def _arm(self, number: int, *, stop: bool) -> str:
        mark = self.marks.get(number)
        if not self.whom:
            return "●" if mark is not None else ""
        hold = f"hold {self.whom} at line {number}"
        label = f"remove the hold at line {number}" if mark is not None else hold
        said = f"{label} ({mark.state}{mark.conditions})" if mark is not None else label
        given = {"type": "button", "class": "plain", "data-action": "arm", **self._of(number)}
        given |= {"aria-pressed": str(mark is not None).lower(), "aria-label": label, "title": f"{said}; {_HOW}"}
        given |= {"data-mark": _kind(mark) if mark is not None else None}
        return f"<button{markup.attributes({**given, 'data-stop': '1', 'tabindex': '0' if stop else '-1'})}></button>"

    def _form(self, number: int) -> str:
        """A row with the conditions of the hold of this line, if they are shown."""
        if number != self.edited or not self.whom:
            return ""
        mark = self.marks.get(number)
        of = self._of(number)
        fields = (
            markup.field("when", "when", mark.when if mark is not None else "", hint="step == 5", size=16),
            markup.number("from time", "count", mark.count if mark is not None else 1, least=1),
        )
        buttons = [_button("hold", "arm with", "hold", of)]
        if mark is not None:
            buttons.append(_button("disable" if mark.on else "enable", "arm switch", "idle" if mark.on else "go", of))
            buttons.append(_button("remove", "arm", "gone", of))
        buttons.append(_button("close", "arm close", "", of))
        label = f"hold of {self.whom} at line {number}"
        given = {"class": "row edit", "data-action": "arm with", "aria-label": label, **of}
        state = f'<span class="faint">{markup.text(mark.state)}</span>' if mark is not None else ""
        form = f"<form{markup.attributes(given)}>{''.join(fields)}{''.join(buttons)}{state}</form>"
        return f'<tr data-key="edit"><td colspan="4">{form}</td></tr>'


def _kind(mark: Mark) -> str:
    """How it looks: ``armed``, ``held`` or ``off``, and ``if`` with a condition."""
    state = "held" if mark.held else "armed" if mark.on else "off"
    return f"{state} if" if mark.conditions else state


def _button(label: str, action: str, image: str, of: Mapping[str, object]) -> str:
    given = {"type": "button", "data-action": action, **of}
    return f"<button{markup.attributes(given)}>{markup.icon(image) if image else ''}{label}</button>"
