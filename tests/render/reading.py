"""Reads HTML as a browser would, and refuses what no part of a page may be."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import ddpnb

SANITIZER = (Path(ddpnb.__file__).parent / "notebook/widgets/static/sanitize.js").read_text()
ELEMENTS, NAMES = (
    set(re.search(rf"const {name} = new Set\(([^;]+)", SANITIZER)[1].replace('"', " ").split())
    for name in ("ELEMENTS", "ATTRIBUTES")
)
VOID = {"input", "img", "br", "hr"}
ADDRESSES = ("href", "src", "action", "formaction", "srcdoc", "xlink:href")

HOSTILE = {
    "image": "<img src=x onerror=alert(1)>",
    "script": "</script><script>alert(1)</script>",
    "double quote": '" onmouseover="alert(1)" x="',
    "single quote": "' onfocus='alert(1)",
    "end of everything": "</div></span></td></table></button></form><h1>",
    "entity": "&lt;b&gt;&quot;",
    "comment": "<!-- ",
    "javascript": "javascript:alert(1)//",
    "control characters": "\x1b[31m\x00\x08\x7f\x9b\r\n",
    "lone surrogate": "\udc80",
    "right to left": "\u202egpj.exe",
    "a megabyte": "<b>" * 350_000,
}


class Reading(HTMLParser):
    """A fragment: every tag closed by its own, no handler, no script, no address that runs something.

    ``tags`` are (name, attributes) in their order, ``text`` is what one reads.
    """

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(fragment)
        self.close()
        assert not self._open, f"{self._open} not closed"
        assert all(c.isprintable() or c in "\n\t\u202e" for c in fragment), "control characters"

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"{tag} has an attribute twice: {names}"
        assert not [name for name in names if name.startswith("on")], f"a handler: {attrs}"
        assert tag in ELEMENTS, f"the page drops {tag}"
        assert all(name in NAMES or name.startswith(("data-", "aria-")) for name in names), (
            f"the page drops one of {names}"
        )
        found = {name: value if value is not None else "" for name, value in attrs}
        for name in ADDRESSES:
            address = found.get(name, "")
            assert ":" not in address.split("/")[0] or address.startswith("data:image/png;base64,"), address
        self.tags.append((tag, found))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self._open, f"</{tag}> closes nothing"
        assert self._open[-1] == tag, f"</{tag}> closes {self._open[-1:]}"
        self._open.pop()

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data[:40]!r}")

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def named(self, name: str) -> dict[str, str]:
        """The only field of this name."""
        (found,) = [attributes for _, attributes in self.tags if attributes.get("name") == name]
        return found

    @property
    def fields(self) -> set[str]:
        return {found["name"] for _, found in self.tags if "name" in found}

    @property
    def actions(self) -> list[tuple[str, dict[str, str]]]:
        """What the buttons send, and their values."""
        return [
            (one["data-action"], {name[5:]: one[name] for name in one if name.startswith("data-")})
            for one in self.all("button")
            if "data-action" in one
        ]

    @property
    def labels(self) -> set[str]:
        return {found["aria-label"] for _, found in self.tags if "aria-label" in found}


def harmless(fragment: str, longest: int = 100_000) -> Reading:
    """A fragment all of whose texts came from a hostile rank: it is read as text, and is no longer than it may be."""
    assert len(fragment) < longest, len(fragment)
    return Reading(fragment)
