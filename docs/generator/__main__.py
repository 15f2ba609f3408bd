"""``python -m docs.generator``: gather the pages in ``build/docs`` and make the site of them in ``site``."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from docs.generator.sources import sources

ROOT = Path(__file__).parents[2]
GATHERED = ROOT / "build" / "docs"
SITE = ROOT / "site"
#: what the theme leaves out for those who do not see the page, or use no mouse
_ACCESS = (
    ('<p class="caption" role="heading">', '<p class="caption" role="heading" aria-level="2">'),
    ('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="all pages">'),
    ('<aside class="toc-drawer">', '<aside class="toc-drawer" aria-label="on this page">'),
    ('<div class="highlight"><pre>', '<div class="highlight"><pre tabindex="0">'),
    ('<div class="table-wrapper ', '<div tabindex="0" class="table-wrapper '),
    ('<th class="head"><p></p></th>', "<td></td>"),
    ('<div id="search-results"></div>', '<h1>Search</h1>\n<div id="search-results"></div>'),
)
#: the parameters of a long signature: Sphinx writes a list of definitions that has no terms
_PARAMETERS = re.compile(r'<dl>\n((?:<dd><em class="sig-param">.*?</dd>\n?)+)</dl>', re.DOTALL)


def gather(folder: Path) -> None:
    """Write all pages, and the files that they link to, into a folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    gathered = sources(ROOT)
    for name, text in gathered.pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for name in gathered.files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, path)


def add_access(site: Path) -> None:
    """Write into all pages what a screen reader and the keyboard need."""
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for bare, named in _ACCESS:
            text = text.replace(bare, named)
        text = _PARAMETERS.sub(_as_lines, text)
        page.write_text(text, encoding="utf-8")


def _as_lines(found: re.Match[str]) -> str:
    lines = found[1].replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>")
    return f'<span class="sig-lines">{lines}</span>'


def main() -> int:
    """Make the site; returns the exit status of Sphinx, for which a warning is an error."""
    from sphinx.cmd.build import main as build

    gather(GATHERED)
    shutil.rmtree(SITE, ignore_errors=True)
    options = ["--quiet", "--fail-on-warning", "--keep-going", "--nitpicky", "--jobs", "auto", "--fresh-env"]
    folders = ["--conf-dir", str(Path(__file__).parent), "--doctree-dir", str(GATHERED.with_name("doctrees"))]
    status = build([*options, *folders, str(GATHERED), str(SITE)])
    if status == 0:
        add_access(SITE)
        print(
            f"The site is in {SITE.relative_to(Path.cwd()) if SITE.is_relative_to(Path.cwd()) else SITE}: open index.html"
        )
    return status


if __name__ == "__main__":
    sys.exit(main())
