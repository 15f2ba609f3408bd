"""A lesson: a broken training script, with hints, the answer and the fix folded below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddpnb.pitfalls import Pitfall
from ddpnb.render import markup
from ddpnb.render.as_html import prose
from ddpnb.render.code import coloured
from ddpnb.rules import catalogue
from ddpnb.rules.catalogue import CHAPTERS


def lesson(title: str, script: str, finding: str, why: str, look: str, fix: str, difference: str) -> str:
    """The card of a pitfall.

    Args:
        title: title of the pitfall.
        script: text of the broken script.
        finding: code of its finding.
        why: what goes wrong, in two or three sentences, as Markdown.
        look: what to look at while it runs, as Markdown.
        fix: what the fix changes, in words, as Markdown.
        difference: the fix as a unified diff.
    """
    page = catalogue.pages().get(finding)
    name = f"{finding} {page.name}" if page is not None else finding
    close = markup.button("close", "close story", image="gone", title="close this lesson")
    return (
        f'<div class="row title"><h2>{markup.text(title)}</h2><span class="space"></span>{close}</div>'
        "<p>What will happen? Read the script, make a guess, run it, and look.</p>"
        f"{numbered(script, 'the broken script')}"
        f"{_folded('what to look at', prose(look))}"
        f"{_folded('the answer', f'<p><b>{markup.text(name)}.</b></p>{prose(why)}')}"
        f"{_folded('the fix', f'{prose(fix)}{changes(difference)}')}"
    )


def repaired(title: str, fix: str, difference: str, *, ok: bool) -> str:
    """What the fixed script of a pitfall changes, shown after its run; ``ok``: it had no error."""
    close = markup.button("close", "close story", image="gone", title="close this lesson")
    said = "The fixed script ran without an error." if ok else "The fixed script failed here too: see what was found."
    return (
        f'<div class="row title"><h2>Fixed: {markup.text(title)}</h2><span class="space"></span>{close}</div>'
        f"<p>{said}</p>{prose(fix)}{changes(difference)}"
    )


def changes(difference: str) -> str:
    """A unified diff, in which lines that are new and lines that are gone have their colours."""
    colours = {"+": "ok", "-": "error"}
    lines = (
        f"<span{markup.attributes({'class': None if line[:3] in ('+++', '---') else colours.get(line[:1])})}>{markup.text(line)}</span>"
        for line in difference.split("\n")
    )
    return f'<pre tabindex="0" aria-label="what the fix changes">{chr(10).join(lines)}</pre>'


def offered(chapters: Mapping[int, Sequence[Pitfall]]) -> dict[str, list[tuple[str, str, str]]]:
    """Pitfalls to choose from, by chapter: name, label, and words by which each is found."""
    known = catalogue.pages()
    return {
        f"{number} {CHAPTERS[number]}": [
            (one.name, f"{one.title} ({one.difficulty})", f"{one.finding} {known[one.finding].name}") for one in those
        ]
        for number, those in chapters.items()
    }


def _folded(title: str, inside: str) -> str:
    return markup.folded(title, inside, key=title)


def numbered(code: str, label: str) -> str:
    """Code with the numbers of its lines, which a selection leaves out."""
    lines = "\n".join(
        f'<span class="number" aria-hidden="true">{number}</span>{line}'
        for number, line in enumerate(coloured(code.rstrip("\n")).split("\n"), 1)
    )
    return copied(f'<pre class="numbered" tabindex="0" aria-label="{markup.text(label)}">{lines}</pre>')


def copied(code: str) -> str:
    """Code as HTML, with a button that copies it: the page does that (``widgets/static/fragment.js``)."""
    return f'<div class="code">{markup.button("copy", "copy code", title="copy this code")}{code}</div>'
