"""Outputs of ranks, folded and rendered."""

from __future__ import annotations

import pytest

from ddpnb.render import cells
from ddpnb.render.cells import Output, fold


def folded(texts, **options):
    return [(block.ranks, block.output.text) for block in fold({r: Output(t) for r, t in texts.items()}, **options)]


def test_equal_outputs_share_a_block_in_the_order_of_ranks():
    assert folded({3: "a\n", 0: "b\n", 1: "a\n", 2: "a\n"}) == [((0,), "b\n"), ((1, 2, 3), "a\n")]


def test_who_wrote_nothing_has_no_block():
    assert folded({0: "", 1: ""}) == []
    assert folded({0: "", 1: "x"}) == [((1,), "x")]


def test_while_they_write_one_that_is_behind_shares_the_block():
    assert folded({0: "1\n2\n", 1: "1\n", 2: "1\n3\n"}, growing=True) == [((0, 1), "1\n2\n"), ((2,), "1\n3\n")]
    assert folded({0: "1\n2\n", 1: "1\n"}) == [((0,), "1\n2\n"), ((1,), "1\n")]


def test_ends_alone_do_not_make_outputs_equal():
    blocks = fold({0: Output("end", left_out=9, digest=1), 1: Output("end", left_out=9, digest=2), 2: Output("end")})
    assert len(blocks) == 3
    assert len(fold({0: Output("end", left_out=9, digest=1), 1: Output("end", left_out=9, digest=1)})) == 1


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("10%\r 20%\r100%\n", "100%\n"),
        ("windows\r\nlines\r\n", "windows\nlines\n"),
        ("\x1b[31mred\x1b[0m\x1b[2K", "red"),
        ("bell\x07", "bell�"),
        ("\tindented", "\tindented"),
    ],
)
def test_what_a_terminal_would_show(written, seen):
    assert cells.as_seen(written) == seen


def test_text():
    blocks = fold({0: Output("a\n"), 1: Output("a\n"), 2: Output("Traceback\n", "raised ValueError")})
    assert cells.text(blocks, ["a note"]) == "ranks 0 and 1:\na\nrank 2 raised ValueError:\nTraceback\na note"


def test_html_is_escaped():
    blocks = fold({0: Output("<script>alert(1)</script> & more", "raised <b>")})
    shown = cells.html(blocks, ["<i>note"])
    assert "<script" not in shown and "<b>" not in shown and "<i>" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in shown and "&lt;i&gt;note" in shown
    assert '<details class="bad" open><summary>rank 0 raised &lt;b&gt;</summary>' in shown


def test_long_outputs_are_cut_and_say_where_the_rest_is():
    blocks = fold({r: Output(f"{r}" + "x" * 300_000 + "last\n", log=f"/logs/rank{r}.log") for r in range(4)})
    for shown in (cells.text(blocks), cells.html(blocks)):
        assert len(shown) < 110_000 and shown.count("last") == 4
        assert "[beginning not shown; full output: /logs/rank3.log]" in shown


def test_of_many_blocks_the_first_are_open():
    shown = cells.html(fold({r: Output(str(r)) for r in range(64)}))
    assert shown.count("<details open>") == 8 and shown.count("<details>") == 56
