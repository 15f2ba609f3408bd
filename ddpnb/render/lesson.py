"""A lesson: a broken training script, with hints, the answer and the fix folded below it."""

from __future__ import annotations

from html import escape

from ddpnb.explanations import catalogue
from ddpnb.render import markup


def lesson(title: str, script: str, finding: str, why: str, look: str, fix: str, difference: str) -> str:
    """The card of a pitfall.

    Args:
        title: title of the pitfall.
        script: text of the broken script.
        finding: code of its finding.
        why: what goes wrong, in two or three sentences.
        look: what to look at while it runs.
        fix: what the fix changes, in words.
        difference: the fix as a unified diff.
    """
    page = catalogue.pages().get(finding)
    name = f"{finding} {page.name}" if page is not None else finding
    return (
        f"<h3>{markup.text(title)}</h3><p>What will happen? Read the script, make a guess, run it, and look.</p>"
        f'<pre tabindex="0" aria-label="the broken script">{markup.text(script)}</pre>'
        f"{_folded('what to look at', f'<p>{markup.text(look)}</p>')}"
        f"{_folded('the answer', f'<p><b>{markup.text(name)}.</b> {markup.text(why)}</p>')}"
        f"{_folded('the fix', f'<p>{markup.text(fix)}</p><pre>{markup.text(difference)}</pre>')}"
    )


def _folded(title: str, inside: str) -> str:
    return f'<details data-key="{escape(title)}"><summary>{escape(title)}</summary>{inside}</details>'
