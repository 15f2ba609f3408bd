"""The pages of the site: all are there, and each link in them leads to a page, a heading or a file. Without Sphinx."""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import ddpnb
from ddpnb import cli, pitfalls
from ddpnb.rules.catalogue import pages
from docs.generator import api, commands, frameworks
from docs.generator.__main__ import add_access
from docs.generator.docstrings import attributes, process, split_raises
from docs.generator.links import Links
from docs.generator.sources import _PROJECT, sources

ROOT = Path(__file__).parents[2]
_MARKDOWN = MarkdownIt("commonmark").enable("table")


@pytest.fixture(scope="module")
def site():
    return sources(ROOT)


def links_and_anchors(markdown):
    """The targets of all links of a Markdown text, and the anchors of its headings, as GitHub and MyST make them."""
    tokens = _MARKDOWN.parse(markdown)
    links = [child.attrs["href"] for token in tokens for child in token.children or () if child.type == "link_open"]
    headings = [after.children for token, after in zip(tokens, tokens[1:]) if token.type == "heading_open"]
    texts = [
        "".join(child.content for child in children if child.type in ("text", "code_inline")) for children in headings
    ]
    return links, {re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-") for text in texts}


def test_all_links_lead_somewhere(site):
    read = {page: links_and_anchors(text) for page, text in site.pages.items()}
    lost = []
    for page, (links, anchors) in read.items():
        for link in links:
            path, _, anchor = link.partition("#")
            target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
            if re.match(r"[a-z]+:", link):
                assert link.startswith("https://")
            elif not path:
                if anchor not in anchors and not anchor.startswith("ddpnb."):
                    lost.append((page, link))
            elif target in read:
                if anchor and anchor not in read[target][1]:
                    lost.append((page, link))
            elif target not in site.files:
                lost.append((page, link))
    assert not lost
    assert sum(len(links) for links, _ in read.values()) > 500


@pytest.mark.parametrize(
    "path",
    [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", *(ROOT / name for name in _PROJECT)],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_links_lead_somewhere_in_the_repository_too(path):
    links, anchors = links_and_anchors(path.read_text())
    for link in links:
        file, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = path.parent / file if file else path
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in (links_and_anchors(target.read_text())[1] if file else anchors), link


def test_every_page_is_in_the_navigation(site):
    listed = {"index.md"}
    for page, text in site.pages.items():
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            for line in filter(None, re.sub(r"^:.*$", "", tree, flags=re.MULTILINE).splitlines()):
                name = re.sub(r".*<(.+)>", r"\1", line)
                listed.add(posixpath.normpath(posixpath.join(posixpath.dirname(page), f"{name}.md")))
    assert listed == {*site.pages}


def test_there_is_a_page_for_each_finding_pitfall_command_framework_and_notebook(site):
    wanted = [f"findings/{code}.md" for code in pages()]
    wanted += [f"pitfalls/{name}.md" for name in pitfalls.names()]
    wanted += [f"commands/{name}.md" for name in cli.COMMANDS]
    wanted += [f"frameworks/{frameworks.name(title)}.md" for title in frameworks.PAGES]
    wanted += [f"notebooks/{path.stem}.md" for path in (ROOT / "notebooks").glob("*.ipynb")]
    assert {*wanted} <= {*site.pages}


def test_every_public_name_is_on_one_page():
    assert sorted(name for group in api.GROUPS for name in group.names) == sorted(ddpnb.__all__)


def test_the_page_of_a_command_has_all_of_its_options(site):
    for name, parser in commands._commands().items():
        for action in parser._actions:
            for option in action.option_strings:
                assert re.search(rf"`[^`\n]*{re.escape(option)}\b", site.pages[f"commands/{name}.md"]), (name, option)


def test_the_first_page_shows_the_example_of_the_readme(site):
    assert "ddpnb run -n 4 hang.py" in site.pages["index.md"]
    assert "% README" not in site.pages["index.md"]
    assert "notebooks/images/tour-dark.png" in site.files


def test_the_table_of_frameworks_must_fit_the_programs():
    table = (ROOT / frameworks.TABLE).read_text()
    line = next(line for line in table.splitlines() if line.startswith("| Hydra"))
    with pytest.raises(ValueError, match="rows"):
        frameworks.rows(table.replace(f"{line}\n", ""))
    with pytest.raises(ValueError, match="does not belong"):
        frameworks.rows(table.replace("| Hydra", "| Ray"))


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        ("`python train.py` (`mp.spawn`)", "ddpnb run -- python train.py"),
        (
            "`for r in 0 1; do RANK=$r python t.py & done; wait`",
            "ddpnb run -- sh -c 'for r in 0 1; do RANK=$r python t.py & done; wait'",
        ),
    ],
)
def test_the_prefix_before_a_usual_command(command, typed):
    assert frameworks.with_prefix(command) == typed


# -- links


@pytest.fixture
def links(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests").mkdir()
    for name in ("docs/a.md", "docs/findings.md", "tests/t.py", "light.png", "dark.png"):
        (tmp_path / name).write_text("")
    return Links(
        tmp_path, {"docs/a.md": "a.md", "docs/findings.md": "f/index.md"}, {("docs/findings.md", "one"): "f/ONE.md"}
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[A](docs/a.md#x)", "[A](../a.md#x)"),
        ("[docs/a.md](docs/a.md)", "[](../a.md)"),
        ("[this](docs/findings.md#one)", "[this](../f/ONE.md)"),
        ("[a test](tests/t.py)", "[a test](../tests/t.py)"),
        ("[programs](tests)", "programs (`tests`)"),
        ("[tests/](tests)", "`tests`"),
        ("[x](https://example.org)", "[x](https://example.org)"),
        ("`[A](docs/a.md)`", "`[A](docs/a.md)`"),
        ("```python\nx[0](docs)\n```\n", "```python\nx[0](docs)\n```\n"),
        ("````md\n```\n[A](docs/a.md)\n````\n", "````md\n```\n[A](docs/a.md)\n````\n"),
    ],
)
def test_links_between_files_become_links_between_pages(links, text, expected):
    assert links.rewrite(text, "README.md", "sub/page.md") == expected


def test_a_picture_for_each_scheme(links):
    picture = '<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="dark.png">\n  <img alt="A" src="light.png">\n</picture>'
    made = links.rewrite(picture, "README.md", "index.md")
    assert "```{image} light.png\n:alt: A\n:class: only-light" in made
    assert "```{image} dark.png\n:alt: A\n:class: only-dark" in made


def test_a_link_that_leads_nowhere_is_an_error(links):
    with pytest.raises(ValueError, match="does not exist"):
        links.rewrite("[A](docs/gone.md)", "README.md", "index.md")


# -- docstrings


def test_several_exceptions_in_one_line_become_several_entries():
    given = [
        "Text.",
        "",
        "Raises:",
        "    UsageError, DeviceError: wrong.",
        "    LaunchError: late.",
        "",
        "Example:",
        "    A, B: c",
    ]
    assert split_raises(given) == [
        "Text.", "", "Raises:", "    UsageError: wrong.", "    DeviceError: wrong.", "    LaunchError: late.", "", "Example:", "    A, B: c",
    ]  # fmt: skip


def test_what_is_before_a_colon_in_a_property_is_no_type_for_napoleon():
    lines = ["What it exits with: 3 for a hang."]
    process(None, "property", "", None, None, lines)
    assert lines[0] == ".." and lines[-1] == "What it exits with: 3 for a hang."


def test_fields_are_documented_by_the_comments_beside_and_above_them():
    section = attributes(ddpnb.FindingType)
    assert section[0] == "Attributes:"
    assert "    code (str):" in section
    above = next(line for line in section if line.strip().startswith("supersedes"))
    assert above.endswith("Codes of findings that follow from this one and are left out beside it.")


def test_notebooks_are_shown_with_all_of_their_text(site):
    book = json.loads((ROOT / "notebooks/tour.ipynb").read_text())
    for cell in book["cells"]:
        assert cell["cell_type"] == "code" or "".join(cell["source"]).splitlines()[0] in site.pages["notebooks/tour.md"]


def test_the_page_of_the_search_has_a_heading(tmp_path):
    (tmp_path / "search.html").write_text('<noscript></noscript>\n<div id="search-results"></div>')
    add_access(tmp_path)
    assert "<h1>Search</h1>" in (tmp_path / "search.html").read_text()
