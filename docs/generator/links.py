"""Links in Markdown: from file to file of the repository, made links from page to page of the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"(`{3,}|~{3,})")
# Inline code is matched first, so that nothing in it is taken for a link.
_LINK = re.compile(r"(?P<code>`+).+?(?P=code)|\[(?P<label>(?:[^\[\]`]|`[^`]*`)*)\]\((?P<target>[^()\s]+)\)", re.DOTALL)
_PICTURE = re.compile(
    r'<picture>\s*<source [^>]*dark[^>]*srcset="([^"]+)">\s*<img alt="([^"]+)" src="([^"]+)"(?: width="\d+")?>\s*</picture>'
)
_EXTERNAL = re.compile(r"[a-z]+:")


def prose(text: str, change: Callable[[str], str]) -> str:
    """The text with ``change`` applied to all that is not in a fenced block of code."""
    return "".join(part if fenced else change(part) for fenced, part in _parts(text))


def _parts(text: str) -> Iterator[tuple[bool, str]]:
    """The text in pieces: whether each is a fenced block."""
    piece: list[str] = []
    fence = ""
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line.lstrip())
        if not fence and mark:
            yield False, "".join(piece)
            piece, fence = [line], mark[1]
        elif fence and mark and mark[1].startswith(fence) and line.strip() == mark[1]:
            yield True, "".join([*piece, line])
            piece, fence = [], ""
        else:
            piece.append(line)
    yield bool(fence), "".join(piece)


@dataclass(frozen=True)
class Links:
    """Where the files of the repository are in the site.

    ``pages``: path in the repository -> page of the site. ``anchors``: (path, anchor) -> page, for parts of a file that have
    a page of their own.
    """

    root: Path
    pages: Mapping[str, str]
    anchors: Mapping[tuple[str, str], str]

    def rewrite(self, text: str, source: str, page: str) -> str:
        """The Markdown of the file ``source`` of the repository as that of ``page`` of the site."""

        def link(match: re.Match[str]) -> str:
            if match["target"] is None or _EXTERNAL.match(match["target"]) or match["target"].startswith("#"):
                return match[0]
            return self._link(match["label"], match["target"], source, page)

        def picture(match: re.Match[str]) -> str:
            dark, light = (self._from(page, self._file(path, source)) for path in (match[1], match[3]))
            return "\n".join(
                f"```{{image}} {path}\n:alt: {match[2]}\n:class: only-{scheme}\n```"
                for scheme, path in (("light", light), ("dark", dark))
            )

        return prose(text, lambda part: _LINK.sub(link, _PICTURE.sub(picture, part)))

    def _link(self, label: str, target: str, source: str, page: str) -> str:
        path, _, anchor = target.partition("#")
        file = self._file(path, source)
        if (file, anchor) in self.anchors:
            return f"[{label}]({self._from(page, self.anchors[file, anchor])})"
        if file in self.pages:
            # A label that is a path says nothing on the site: without a label Sphinx shows the title.
            shown = "" if not anchor and label.endswith((".md", ".ipynb")) else label
            return f"[{shown}]({self._from(page, self.pages[file])}{'#' if anchor else ''}{anchor})"
        if (self.root / file).is_file():
            return f"[{label}]({self._from(page, file)})"
        return f"{label} (`{file}`)" if label.strip("`/") != file else f"`{file}`"

    def _file(self, path: str, source: str) -> str:
        """The path in the repository of what a file links to.

        Raises:
            ValueError: there is no such file or folder in the repository.
        """
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if file.startswith("..") or not (self.root / file).exists():
            raise ValueError(f"{source} links to {path}, which does not exist")
        return file

    @staticmethod
    def _from(page: str, target: str) -> str:
        return posixpath.relpath(target, posixpath.dirname(page) or ".")


def files_of(text: str, page: str) -> set[str]:
    """What a page of the site links to that is no page: files of the repository, at the same path."""
    found = {match["target"] for match in _LINK.finditer(text) if match["target"]}
    found |= set(re.findall(r"^```\{image\} (.+)$", text, re.MULTILINE))
    paths = {target.partition("#")[0] for target in found if not _EXTERNAL.match(target)}
    return {
        posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) for path in paths if not path.endswith(".md")
    }
