"""The buttons below the card of a finding, and what they have shown."""

from __future__ import annotations

from ddpnb.render import markup, pages
from ddpnb.rules import catalogue

_TAGS = (("<strong>", "<b>"), ("</strong>", "</b>"), ("<em>", "<i>"), ("</em>", "</i>"))  # what the page allows


def row(number: int, *, lesson: bool, opened: str = "", busy: bool = False) -> str:
    """Buttons for one finding.

    Args:
        number: of the finding in the diagnosis.
        lesson: there is a pitfall with this finding.
        opened: the action whose answer is shown.
        busy: a file is being written.
    """
    named = [
        ("explain", "explain", "why"),
        ("show the pitfall", "lesson", "fault"),
        ("copy as a report", "report", "step"),
    ]
    parts = [
        _toggle(label, action, image, number, pressed=opened == action)
        for label, action, image in named
        if action != "lesson" or lesson
    ]
    for label, action, image in (
        ("save the Recording", "save finding", "done"),
        ("export a reproduction", "export finding", "go"),
        ("share as HTML", "share finding", "done"),
    ):
        parts.append(markup.button(label, action, image=image, enabled=not busy, number=number))
    return f'<div class="row actions">{"".join(parts)}</div>'


def _toggle(label: str, action: str, image: str, number: int, *, pressed: bool) -> str:
    button = markup.button(label, action, image=image, number=number)
    return button.replace("<button", f'<button aria-pressed="{str(pressed).lower()}"', 1)


def answer(inside: str, number: int) -> str:
    """What an action has shown, with a button that closes it."""
    close = markup.button("close", "close finding", image="gone", number=number)
    return f'<div class="answer">{inside}<div class="row">{close}</div></div>'


def page(code: str) -> str:
    """The page of a finding."""
    known = catalogue.pages().get(code)
    if known is None:
        return f'<p class="faint">There is no page for {markup.text(code)}.</p>'
    # Not an article of the same name within that of the finding.
    html = pages.page_html(known).replace(
        f'role="article" aria-label="{code}"', f'role="group" aria-label="page of {code}"'
    )
    for theirs, ours in _TAGS:
        html = html.replace(theirs, ours)
    return html


def report(text: str, copied: bool | None) -> str:
    """The report; ``copied``: whether the page has put it into the clipboard, None: not known yet."""
    words = {
        True: "Copied. Secrets, names and homes are masked; read it before you send it.",
        False: "This page may not write to the clipboard: select the text and copy it.",
        None: "Copying …",
    }[copied]
    role = "ok" if copied else "faint"
    return f'<p class="{role}" role="status">{words}</p><pre tabindex="0" aria-label="report">{markup.text(text)}</pre>'
