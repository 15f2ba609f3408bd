"""Outputs of ranks, folded and rendered."""

from __future__ import annotations

from ddpnb.render import cells
from ddpnb.render.cells import Display, Output, fold


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
    for shown, most in ((cells.text(blocks), 110_000), (cells.html(blocks), 1_010_000)):
        assert len(shown) < most and shown.count("last") == 4
        assert "[beginning not shown; full output: /logs/rank3.log]" in shown


def test_of_many_blocks_the_first_are_open():
    shown = cells.html(fold({r: Output(str(r)) for r in range(64)}))
    assert shown.count("<details open>") == 8 and shown.count("<details>") == 56


FIGURE = Display({"text/plain": "<Figure>", "image/png": "iVBO"})


def shown(outputs, **options):
    """The bundles as text, and which of them are displays of the user's."""
    return [
        one.data["text/plain"] if "text/html" in one.data and "ddpnb-cell" in one.data["text/html"] else one
        for one in cells.bundles(fold(outputs), **options)
    ]


def test_displays_stand_between_the_texts_of_their_ranks():
    output = Output("before\nafter\n", displays=((7, FIGURE),))
    assert shown({0: output, 1: output}) == ["ranks 0 and 1:\nbefore", FIGURE, "after"]
    assert shown({0: Output("", displays=((0, FIGURE),)), 1: Output("x")}) == ["rank 0:", FIGURE, "rank 1:\nx"]


def test_what_is_equal_is_shown_once_also_beside_what_is_not():
    table = [Display({"text/plain": "t", "text/html": f"<i>{rank}</i>"}) for rank in (0, 1)]
    outputs = {rank: Output("a\nb\n", displays=((2, FIGURE), (4, table[rank == 1]))) for rank in range(3)}
    assert shown(outputs) == [
        "ranks 0, 1 and 2:\na", FIGURE, "b\nranks 0 and 2:", table[0], "rank 1:", table[1]
    ]  # fmt: skip


def test_what_differs_everywhere_goes_from_rank_to_rank():
    figures = [Display({"image/png": str(rank)}) for rank in range(2)]
    outputs = {rank: Output(f"{rank}\nend\n", displays=((2, figures[rank]),)) for rank in range(2)}
    assert shown(outputs) == ["rank 0:\n0", figures[0], "rank 1:\n1", figures[1], "ranks 0 and 1:\nend"]


def test_displays_that_look_alike_are_equal():
    one, other = (Display({"text/plain": f"<T at {at}>", "text/html": "t"}) for at in "12")
    assert one == other
    assert one != Display({"text/plain": "<T at 1>"}) != Display({"text/plain": "<T at 2>"})


def test_a_rank_that_displayed_less_has_its_own_block():
    outputs = {0: Output("", displays=((0, FIGURE),)), 1: Output("", displays=((0, FIGURE), (0, FIGURE)))}
    assert shown(outputs) == ["rank 0:", FIGURE, "rank 1:", FIGURE, FIGURE]
    growing = fold(outputs, growing=True)
    assert [block.ranks for block in growing] == [(0, 1)]


def test_the_text_of_panels_has_the_text_of_displays():
    assert cells.text(fold({0: Output("a\n", displays=((2, FIGURE),))})) == "rank 0:\na\n<Figure>"
    html = cells.html(fold({0: Output("", displays=((0, Display({"text/html": "<script>"})),))}))
    assert "&lt;text/html&gt;" in html and "<script" not in html


def test_bars_that_differ_in_time_alone_are_one():
    bars = {rank: Output(f"100%|###| 3/3 [00:0{rank}<00:00, {rank}.5it/s]\n") for rank in range(3)}
    (block,) = fold(bars)
    assert (block.ranks, block.heading) == ((0, 1, 2), "ranks 0, 1 and 2 (times of rank 0)")
    assert len(fold({**bars, 1: Output("99%|## | 2/3 [00:01<00:00, 1.5it/s]\n")})) == 2


def test_notes_and_what_comes_after_are_at_the_end():
    output = Output("", displays=((0, FIGURE),))
    assert shown({0: output}, notes=["a note"], after=[("card", "<b>card</b>")]) == [
        "rank 0:", FIGURE, "a note\n\ncard"
    ]  # fmt: skip
    assert cells.bundles([], after=[("card", "<b>card</b>")])[0].data["text/html"] == "<b>card</b>"
    assert cells.bundles([]) == []
