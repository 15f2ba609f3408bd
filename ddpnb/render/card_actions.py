"""The buttons below the card of a finding, and what they have shown."""

from __future__ import annotations

import re

from ddpnb.render import lesson, markup, pages
from ddpnb.rules import catalogue

_CODE = re.compile(r"<pre>.*?</pre>", re.DOTALL)


def row(number: int, *, lesson: bool, opened: str = "") -> str:
    """Buttons for one finding.

    Args:
        number: of the finding in the diagnosis.
        lesson: there is a pitfall with this finding.
        opened: the action whose answer is shown.
    """
    named = [("explain", "explain", "why", "what this finding means, and how it is detected and fixed")]
    if lesson:
        named.append(("show the pitfall", "lesson", "fault", "a short script with this mistake, and its fix"))
    parts = (_toggle(*one, number, pressed=opened == one[1]) for one in named)
    return f'<div class="row actions">{"".join(parts)}</div>'


def _toggle(label: str, action: str, image: str, title: str, number: int, *, pressed: bool) -> str:
    button = markup.button(label, action, image=image, title=title, number=number)
    return button.replace("<button", f'<button aria-pressed="{str(pressed).lower()}"', 1)


def answer(inside: str, number: int, *, closes: bool = False) -> str:
    """What an action has shown, with a button that closes it; ``closes``: it has one itself."""
    if closes:
        return f'<div class="below">{inside}</div>'
    close = markup.button("close", "close finding", image="gone", number=number)
    return f'<div class="below">{inside}<div class="row">{close}</div></div>'  # a page, not a line beside buttons


def page(code: str) -> str:
    """The page of a finding."""
    known = catalogue.pages().get(code)
    if known is None:
        return f'<p class="faint">There is no page for {markup.text(code)}.</p>'
    # Not an article of the same name within that of the finding.
    html = pages.page_html(known).replace(
        f'role="article" aria-label="{code}"', f'role="group" aria-label="page of {code}"'
    )
    return _CODE.sub(lambda found: lesson.copied(found[0]), html)


def report(text: str, copied: bool | None) -> str:
    """The report; ``copied``: whether the page has put it into the clipboard, None: not known yet."""
    words = {
        True: "Copied. Secrets, names and homes are masked; read it before you send it.",
        False: "This page may not write to the clipboard: select the text and copy it.",
        None: "Copying …",
    }[copied]
    role = "ok" if copied else "faint"
    close = markup.button("close", "close report", image="gone", title="close this report")
    return (
        f'<div class="row title"><h2>Report</h2><span class="{role}" role="status">{words}</span>'
        f'<span class="space"></span>{close}</div><pre tabindex="0" aria-label="report">{markup.verbatim(text)}</pre>'
    )
