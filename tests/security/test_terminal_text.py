"""The sender of a file wants its name, or what is in it, to drive the terminal of the one who reads it, or to read as another."""

from __future__ import annotations

import ast
import gzip
import json
import shutil
from pathlib import Path

import pytest

import ddpnb
from ddpnb import texts
from ddpnb.cli import main
from ddpnb.errors import DdpnbError, UsageError
from ddpnb.recording.names import given_name, one_line
from ddpnb.render import card, markup
from ddpnb.render.terminal import output, table
from tests.security.mutations import DUMPS, RECORDINGS
from tests.security.test_exported_scripts import poisoned

LOG = Path(__file__).parents[2] / "notebooks" / "reports" / "torchrun.log"
UNSEEN = [
    *map(chr, (0x00, 0x07, 0x08, 0x0B, 0x0C, 0x1B, 0x1C, 0x7F, 0x80, 0x85, 0x9B, 0x9D, 0xAD)),
    *map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)),
    *map(
        chr,
        (
            0x200B,
            0x200C,
            0x200D,
            0x2060,
            0xFEFF,
            0x180E,
            0x2028,
            0x2029,
            0x115F,
            0x3164,
            0xFFA0,
            0xE0041,
            0xDC80,
            0xD83D,
        ),
    ),
]
NAMES = [
    "a\u202egpj.log",
    "a\x1b[2J\x1b]0;x\x07.log",
    "a\u2066\u200b\u061c.log",
    "a\x9b31m.log",
    "a\nddpnb: nothing is wrong\r.log",
]


def is_clean(text: str) -> bool:
    return texts.printable(text) == text and not any(c in text for c in UNSEEN)


@pytest.mark.parametrize("unseen", UNSEEN, ids=ascii)
def test_what_is_not_seen_is_replaced(unseen):
    hostile = f"a{unseen}b"
    for clean in (texts.printable, one_line, given_name, texts.comment, texts.shell_word, markup.text):
        assert unseen not in clean(hostile)
    assert is_clean(output(hostile)) and is_clean(table([[hostile, hostile]]))
    assert is_clean(str(UsageError(hostile, hostile))) and is_clean(DdpnbError(hostile).what)
    assert unseen not in markup.attributes({"title": hostile})


def test_what_is_seen_stays():
    shown = "\u00fc \u4e2d\u6587 \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \U0001f642 \u2764\ufe0f\tx\ny"
    assert texts.printable(shown) == shown
    assert texts.printable("\x1b[1;31mred\x1b[0m\x1b[2J", styled=True) == "\x1b[1;31mred\x1b[0m\ufffd[2J"


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("source", [LOG, RECORDINGS[0], DUMPS[0]], ids=["log", "recording", "dump"])
def test_the_name_of_a_file(tmp_path, monkeypatch, capsys, name, source):
    monkeypatch.chdir(tmp_path)
    shutil.copy(source, name)
    for command in (
        ["diagnose", name],
        ["diagnose", name, f"missing {name}"],
        ["export", name, "-o", f"{name}.py"],
        ["explain", name],
    ):
        main(command)
        shown = capsys.readouterr()
        assert is_clean(shown.out + shown.err), ascii(shown)
        assert not any(line.startswith("ddpnb: nothing is wrong") for line in shown.err.splitlines())
    for made in tmp_path.glob("*.py"):
        ast.parse(made.read_bytes())


def test_an_unknown_option(capsys):
    with pytest.raises(SystemExit):
        main(["diagnose", "--\u202e\x1b[2J"])
    assert is_clean(capsys.readouterr().err)


def test_all_texts_of_a_recording(tmp_path, capsys):
    recording = ddpnb.load(RECORDINGS[0])
    hostile = "x" + "".join(c for c in UNSEEN if not 0xD800 <= ord(c) <= 0xDFFF) + "<b>"
    for field in ("", "file", "function", "message", "output", "waits_on", "text"):
        given = poisoned(recording, hostile, field)
        diagnosis = ddpnb.diagnose(given)
        shown = [str(diagnosis), card.text(diagnosis), diagnosis.to_markdown(), diagnosis._repr_html_()]
        assert all(map(is_clean, (text.replace("@\u200b", "@") for text in shown)))
        path = tmp_path / "page.html"
        given.to_html(path)
        page = path.read_text()
        assert not any(c in page for c in UNSEEN)
        given.save(tmp_path / "x.ddpnb")
        assert gzip.open(tmp_path / "x.ddpnb").read().isascii()
        assert json.dumps(diagnosis.to_json()).isascii()
    assert not capsys.readouterr().out
