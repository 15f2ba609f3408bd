"""All pages of the site as Markdown, and the files that they need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from docs.generator import api, commands, findings, frameworks, notebooks, pitfalls
from docs.generator.links import Links, files_of

#: files of the repository outside ``docs`` -> their pages
_PROJECT = {
    "benchmarks/RESULTS.md": "project/results.md",
    "CHANGELOG.md": "project/changelog.md",
    "changes/README.md": "project/changes.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "notebooks/reports/README.md": "notebooks/reports.md",
}
#: of these files the site has generated pages instead
_GENERATED = {"docs/findings.md": "findings/index.md", "docs/frameworks.md": "frameworks/index.md"}
#: where the first page has the example of the README
_EXAMPLE = "% README: An example\n"


@dataclass(frozen=True)
class Sources:
    """``pages``: path in the site -> Markdown; ``files``: paths in the repository that they link to or show."""

    pages: Mapping[str, str]
    files: frozenset[str]


def sources(root: Path) -> Sources:
    """The pages of the site, from the repository at ``root``.

    Raises:
        ValueError: a file links to one that does not exist, or the table of frameworks does not fit the programs.
    """
    texts = {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((root / "docs").glob("*.md"))
    }
    texts |= {name: (root / name).read_text(encoding="utf-8") for name in _PROJECT}
    readme = (root / "README.md").read_text(encoding="utf-8")
    books = list(notebooks.written(root))
    made = {path: _GENERATED.get(path, _PROJECT.get(path, path.removeprefix("docs/"))) for path in texts}
    made |= {source: page for source, page, _ in books if source != "README.md"} | {"README.md": "index.md"}
    links = Links(root, made, findings.anchors())

    pages = {
        made[path]: links.rewrite(text, path, made[path]) for path, text in texts.items() if path != "docs/findings.md"
    }
    pages |= {page: links.rewrite(text, source, page) for source, page, text in books}
    for part in (findings.written(), pitfalls.written(), commands.written(), frameworks.written(root), api.written()):
        pages |= dict(part)
    pages["frameworks/index.md"] = frameworks.shortened(pages["frameworks/index.md"])
    example = links.rewrite(_between(readme, "An example: ", "\nThe ranks of a hang"), "README.md", "index.md")
    pages["index.md"] = pages["index.md"].replace(_EXAMPLE, example)
    files = set[str]().union(*(files_of(text, page) for page, text in pages.items()))
    files |= {source for source in made if source.endswith(".ipynb")}
    return Sources(pages, frozenset(path for path in files if (root / path).is_file()))


def _between(text: str, first: str, last: str) -> str:
    """The part of a text that begins with ``first`` and ends before ``last``."""
    start = text.index(first)
    return text[start : text.index(last, start)]
