"""Text for a terminal: wrapped and aligned, and never more than text."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from ddpnb.render import terminal
from ddpnb.render.terminal import Paragraph, output


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "wanted"),
    [
        (Terminal(), {"TERM": "xterm"}, True),
        (Terminal(), {}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (io.StringIO(), {"TERM": "xterm"}, False),
    ],
    ids=["terminal", "no TERM", "dumb", "NO_COLOR", "file"],
)
def test_colours_on_a_terminal_that_has_them(stream, environment, wanted, monkeypatch):
    for name in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert terminal.wants_colour(stream) is wanted


def test_the_width_is_the_terminals_up_to_100(monkeypatch):
    for columns, used in (("60", 60), ("300", 100), ("5", 20)):
        monkeypatch.setenv("COLUMNS", columns)
        assert terminal.columns() == used
    assert terminal.columns(72) == 72


def test_a_paragraph_hangs_under_its_first_word():
    assert output(Paragraph("word " * 10, first="  - ", rest="    "), width=30) == (
        "  - word word word word word\n    word word word word word"
    )


def test_a_tag_stands_on_one_line():
    assert output(Paragraph("word " * 4, tag="[a b]"), width=30) == "word word word word  [a b]"
    assert output(Paragraph("word " * 4, tag="[a b]"), width=20) == "word word word word\n[a b]"


def test_a_word_is_never_broken():
    path = "/a-long-folder/with-hyphens" * 9
    assert output(Paragraph(f"see {path}:9", rest="  "), width=20) == f"see\n  {path}:9"


@pytest.mark.parametrize("word", ["[red]x[/red]", "[/]", ":warning:", "**x**", "[link=http://x]y[/link]", "\\[x]"])
def test_no_word_is_read_as_markup(word):
    for colour in (False, True):
        assert output(Paragraph(word), colour=colour) == word
    assert terminal.table([["a", word]]) == f"a  {word}"


def test_columns_are_as_wide_as_they_must_be():
    assert terminal.table([["rank", "doing"], ["0", "x" * 300], ["10", "y\nz\x1b[2J"]]) == (
        f"rank  doing\n0     {'x' * 300}\n10    y z�[2J"
    )
    assert terminal.table([["rank", "s"], ["0", "10"]], justify="right") == "rank   s\n   0  10"
    assert terminal.table([]) == ""


def test_wide_characters_are_aligned():
    assert terminal.table([["日本", "x"], ["a", "y"]]) == "日本  x\na     y"


def test_the_last_column_is_cut_at_the_width():
    assert terminal.table([["line 1", "all_reduce", "in main(); if x"]], width=25) == "line 1  all_reduce  in m…"


def test_in_a_notebook_it_is_text_too(monkeypatch, capsys):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert output(Paragraph("x")) == "x"
    assert capsys.readouterr().out == ""


def test_rich_is_imported_when_something_is_shown():
    code = "import sys, ddpnb.cli.run, ddpnb.cli.explain, ddpnb.world.world, ddpnb.ranks.observe.output; assert 'rich' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
