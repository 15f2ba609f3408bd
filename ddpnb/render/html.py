"""The diagnosis as one card for a notebook. Everything from a rank is escaped."""

from __future__ import annotations

import os
from html import escape
from urllib.parse import quote

from ddpnb.model.calls import Site
from ddpnb.model.findings import Diagnosis, Finding
from ddpnb.render.palette import on_dark_pages, variables
from ddpnb.render.text import HEADLINES, printable, relative

_ICONS = {
    "error": '<path d="M4 1h4l3 3v4l-3 3H4L1 8V4zM3 5.2v1.6h6V5.2z" fill-rule="evenodd"/>',
    "warning": '<path d="M6 1l5.5 10H.5zM5.3 4.5v3h1.4v-3zM5.3 8.4v1.3h1.4V8.4z" fill-rule="evenodd"/>',
    "note": '<path d="M2 1h8v1.5L7 6l3 3.5V11H2V9.5L5 6 2 2.5z"/>',
    "ok": '<path d="M1.5 6.2l1.2-1.2L4.9 7.2 9.6 2.4l1.2 1.2L4.9 9.6z"/>',
}

_STYLE = """
.ddpnb{%s;color:var(--f);font:13px/1.5 var(--jp-ui-font-family,system-ui,sans-serif);max-width:62em}
.ddpnb .card{border:1px solid var(--l);border-left:4px solid var(--c);border-radius:6px;padding:10px 16px;margin:8px 0;background:var(--b)}
.ddpnb .t{font-size:15px;font-weight:600}.ddpnb .k{font-weight:400;opacity:.75;white-space:nowrap}
.ddpnb code,.ddpnb .k{font-family:var(--jp-code-font-family,ui-monospace,monospace);font-size:12px;background:none}
.ddpnb ul{margin:8px 0 8px 18px;padding:0}.ddpnb .fix{border-top:1px solid var(--l);padding-top:8px;margin-top:8px}
.ddpnb .c{color:var(--c);font-weight:600}.ddpnb svg{width:12px;height:12px;fill:currentColor;vertical-align:-1px;margin-right:5px}
.ddpnb a,.ddpnb a code{color:var(--a);text-decoration:underline}
%s{%s}
"""


def _style() -> str:
    roles = {"e": "error", "w": "warning", "n": "note", "o": "ok", "f": "fg", "b": "bg", "l": "line", "a": "link"}
    light, dark = (variables(shade, **roles) for shade in (0, 1))
    return f"<style>{_STYLE % (light, on_dark_pages('.ddpnb'), dark)}</style>"


def diagnosis(found: Diagnosis, *, headline: bool = True) -> str:
    """A self-contained fragment: no script, nothing loaded from elsewhere."""
    cards = "".join(_card(one) for one in found.findings)
    head = _head(found) if headline else ""
    return f'{_style()}<div class="ddpnb" role="group" aria-label="diagnosis">{head}{cards}</div>'


def _head(found: Diagnosis) -> str:
    role = "ok" if found.outcome == "ok" else "error"
    headline = HEADLINES[found.outcome]
    seconds = found.timing.get("diagnosis_s")
    if found.outcome == "hang" and seconds is not None:
        headline += f", detected {seconds:.1f} s after the last progress"
    if not found.settled and found.outcome == "ok":
        headline = "running: no problems found so far"
    return f'<div class="c" style="--c:var(--{role[0]})">{_icon(role)}{_text(headline)}</div>'


def _card(one: Finding) -> str:
    evidence = "".join(f"<li>{_text(text)}</li>" for text in one.evidence)
    places = ", ".join(f"rank {rank}: {_link(site)}" for rank, site in one.where[:8])
    more = f", and {len(one.where) - 8} more" if len(one.where) > 8 else ""
    where = f"<div>Where: {places}{more}</div>" if places else ""
    fix = f'<div class="fix"><b>Fix:</b> {_text(one.remedy)}</div>' if one.remedy else ""
    return (
        f'<div class="card" style="--c:var(--{one.severity[0]})" role="article" aria-label="{escape(one.code)}">'
        f'<div class="t"><span class="c">{_icon(one.severity)}</span>{_text(one.summary)} '
        f'<span class="k">{escape(one.code)} {escape(one.name)}</span></div>'
        f"<ul>{evidence}</ul>{where}{fix}</div>"
    )


def _icon(role: str) -> str:
    return f'<svg viewBox="0 0 12 12" aria-hidden="true">{_ICONS[role]}</svg>'


def _text(text: str) -> str:
    return escape(relative(printable(text)))


def _link(site: Site) -> str:
    """JupyterLab opens a relative link in its editor; files outside its tree stay text."""
    shown = relative(site.file)
    label = f"<code>{_text(shown)}:{site.line}</code>"
    if os.path.isabs(shown) or shown.startswith("<"):
        return label
    return f'<a href="{escape(quote(shown, errors="replace"))}#line={site.line}" target="_blank">{label}</a>'
