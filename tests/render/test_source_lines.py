"""A file with a column for each rank."""

from __future__ import annotations

from dataclasses import replace

import pytest

import ddpnb
from ddpnb.errors import UsageError
from ddpnb.render.as_html import html
from ddpnb.render.as_text import text
from ddpnb.render.source_lines import document, form
from ddpnb.render.views.source_lines import source_view
from tests.render.reading import HOSTILE, Reading
from tests.render.views.test_source_lines import SCRIPT, USUAL, hung, of, trains
from tests.rules.recordings import Rank, record

SHOWN = """\
train.py, since all_reduce #3 (ranks 0-3): only some ranks ran 2 lines
   line  0  1  2  3  which ranks  code
   …                              lines 1-3: 2 of 3 lines of code run by all ranks
   4
   5     ●  ●  ●  ●                       if is_bad(loss):            # check
>   6    ·  ●  ·  ·  only rank 1              return                  # leave
>   7    ●  ·  ●  ●  not rank 1           all_reduce(loss)            # reduce
   8     ·  ·  ·  ·                   barrier()                       # barrier
● ran, · did not run, > only some ranks ran it"""


def test_in_a_terminal(monkeypatch):
    monkeypatch.setattr("os.getcwd", lambda: "/home/user")
    assert str(ddpnb.lines(hung())) == SHOWN
    same = str(ddpnb.lines(hung(), window=-2))
    assert "ranks 0-3 ran the same lines" in same and ">" not in same
    assert "in 3-4 windows" in str(ddpnb.lines(hung(), window="run"))


def test_it_fits_into_a_narrow_terminal():
    long = SCRIPT.text.replace("return ", f"return {'x' * 400} ")
    shown = text(*document(source_view(replace(hung(), sources={SCRIPT.file: long}))), width=72)
    table = [line for line in shown.split("\n") if "●" in line and "did not run" not in line]
    assert max(map(len, table)) <= 72 and "…" in shown
    assert len({line.index("●") if line[0] == " " else 0 for line in table} - {0}) == 1


def test_of_many_ranks_their_number_is_shown():
    ranks = [trains(Rank(rank, 20), "loop forward check leave" if rank in (3, 7) else USUAL) for rank in range(20)]
    recording = record(*ranks, script=SCRIPT)
    shown = text(*document(source_view(recording)))
    assert " 2/20   only ranks 3 and 7" in shown and " 18/20  not ranks 3 and 7" in shown and "●" not in shown
    assert "18/20" in Reading(html(*document(source_view(recording)))).text


def test_in_a_notebook():
    view = source_view(hung())
    page = Reading(form(view, whole=False) + html(*document(view)))
    rows = [attributes for tag, attributes in page.tags if tag == "tr"]
    assert len([one for one in rows if one.get("class") == "parts"]) == 2
    assert "only rank 1" in page.text and "only some ranks ran 2 lines" in page.text
    meanings = [attributes["aria-label"] for tag, attributes in page.tags if attributes.get("role") == "img"]
    assert meanings.count("only some ranks") == 2 and set(meanings) == {"only some ranks", "ran", "did not run"}
    assert [a["name"] for tag, a in page.tags if tag == "select"] == ["file", "window"]
    assert "ddpnb" in ddpnb.lines(hung())._repr_html_()


def test_what_is_not_known_is_said():
    recording = hung()
    nothing = of(recording, **{f"rank{rank}": replace(recording.ranks[rank], lines=None) for rank in range(4)})
    for shown in (str(ddpnb.lines(nothing)), Reading(html(*document(source_view(nothing)))).text):
        assert "Executed lines of ranks 0-3 are not recorded" in shown
    full = replace(recording.ranks[0], lines=replace(recording.ranks[0].lines, dropped=7))
    assert "? not known" in str(ddpnb.lines(of(recording, rank0=full)))


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_are_escaped_and_bounded(hostile):
    line = hostile.replace("\n", " ")
    recording = replace(hung(), sources={SCRIPT.file: "\n".join([line] * 3 + ["#"] * 2000)})
    view = source_view(recording)
    for whole in (False, True):
        named = replace(view, file=f"/{hostile[:5000]}", files=(f"/{hostile[:5000]}",))
        shown = form(named, whole=whole) + html(*document(named, whole=whole))
        Reading(shown)
        assert len(shown) < 400_000
    said = text(*document(view))
    assert len(said) < 20_000 and "\x1b" not in said


def test_only_a_recording_has_lines():
    with pytest.raises(UsageError):
        ddpnb.lines("hang.ddpnb")
    with pytest.raises(UsageError):
        ddpnb.lines(hung(), 3)
