"""The same frame of all ranks side by side."""

from __future__ import annotations

import pytest

from ddpnb.recording.calls import Site
from ddpnb.recording.stacks import NOT_SHOWN, Frame
from ddpnb.recording.verbs import Opened
from ddpnb.render import as_html, as_text, variables
from ddpnb.render.views.frame_variables import Row, SideBySide, opened, side_by_side
from tests.render.reading import HOSTILE, Reading, harmless
from tests.rules.recordings import Rank, record


def laid(*locals_of_ranks, line=91):
    ranks = (
        Rank(rank).has_stack(Frame("/home/user/train.py", line, "main", locals=values))
        for rank, values in enumerate(locals_of_ranks)
    )
    return side_by_side(record(*ranks))


def html(found, *more, **given):
    return as_html.html(*variables.document(found, *more, **given))


def text(found):
    return as_text.text(*variables.document(found))


def seen(found):
    return Reading(html(found))


def rows(found):
    """Of each variable which cells are marked."""
    cells = seen(found).all("td")
    ranks = len(found.sites)
    return [
        [one.get("class") == "differs" for one in cells[start : start + ranks]] for start in range(0, len(cells), ranks)
    ]


def test_variables_that_differ_come_first_and_are_called_so():
    found = seen(laid({"a": "1", "step": "5"}, {"a": "1", "step": "6"}))
    assert found.labels == {"variables of main on each rank"}
    assert found.text.index("step") < found.text.index("a1")
    assert "differs: ≠ step" in found.text and found.text.count("≠") == 1


def test_the_odd_value_is_marked():
    assert rows(laid({"step": "5"}, {"step": "6"}, {"step": "5"})) == [[False] * 3, [False, True, False]]


def test_of_values_as_frequent_the_first_is_the_usual_one():
    assert rows(laid({"x": "red"}, {"x": "blue"}))[1] == [False, True]


def test_a_variable_that_is_not_set_says_so():
    assert "not set" in seen(laid({"loss": "1.0"}, {})).text


def test_ranks_elsewhere_are_told_of():
    inside = Rank(0).has_stack(Frame("/t.py", 1, "main", locals={"a": "1"}))
    also = Rank(1).has_stack(Frame("/t.py", 2, "main", locals={"a": "1"}))
    found = side_by_side(record(inside, also, Rank(2).finishes()))
    assert "rank 2: ended (finished)" in seen(found).text
    assert "differs: ≠ (line)12" in seen(found).text


def test_no_rank_is_in_the_users_code():
    assert "No rank is running your code" in seen(None).text and variables.NOTHING in seen(None).text
    assert variables.summary(None) == "no rank is in the user's code."


def test_of_many_ranks_those_that_are_odd_are_shown():
    found = laid(*({"loss": "nan" if rank == 777 else "1.0"} for rank in range(1000)))
    page = seen(found)
    assert "rank 777" in page.texts and "nan" in page.texts
    assert "16 of 1000 ranks shown, differing ranks first" in page.text


def test_many_variables_are_bounded_and_the_rest_is_counted():
    assert "and 60 more variables" in seen(laid({f"v{number}": "1" for number in range(100)})).text


def test_what_differs_in_a_sentence():
    assert variables.summary(laid({"a": "1"}, {"a": "1"})) == "main: no variable differs on ranks 0 and 1."
    assert variables.summary(laid({"a": "1"}, {"a": "2"})) == "main: a differs."
    assert variables.summary(laid({"a": "1", "b": "1"}, {"a": "2", "b": "2"})) == "main: a, b differ."


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_nothing_of_a_rank_is_taken_for_html(hostile):
    found = SideBySide(
        hostile,
        {0: Site(hostile, 1, hostile), 1: Site(hostile, 1, hostile)},
        (Row(hostile, {0: hostile, 1: "2"}, 2),),
        {2: hostile},
    )
    page = harmless(html(found))
    assert {name for name, _ in page.tags} == {
        "div",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "span",
        "p",
        "code",
    } | ({"a"} if any(name == "a" for name, _ in page.tags) else set())


def test_classes_are_shown_without_their_modules_and_whole_on_hover():
    page = seen(laid({"model": "<torch.nn.parallel.distributed.DistributedDataParallel>", "x": "'<a.b>'"}))
    assert page.all("td")[1]["title"] == "<torch.nn.parallel.distributed.DistributedDataParallel>"
    assert "<DistributedDataParallel>" in page.text and "torch.nn" not in page.text


def test_what_differs_is_counted():
    assert "1 of 2 variables differs." in seen(laid({"a": "1", "step": "5"}, {"a": "1", "step": "6"})).text
    assert "No variable differs on ranks 0 and 1." in seen(laid({"a": "1"}, {"a": "1"})).text
    assert "No variable of the function is known." in seen(laid({}, {})).text


@pytest.mark.parametrize(
    ("value", "compared"),
    [
        ("tensor[4, 2] float32 cpu", False),
        ("tensor[4, 2] float32 cuda:0", False),
        ("[tensor[3] float32 cpu, 1]", False),
        ("<train.Model>", False),
        ("<list of 100>", False),
        ("[1, 2, … 98 more]", False),
        ("<not shown>", None),
        ("tensor[4, 2] float32 cpu norm 2.01219", True),
        ("0.5 (a float32 tensor of shape [1])", True),
        ("tensor[0] float32 cpu", True),
        ("tensor[4, 0, 2] float32 cpu", True),
        ("'<b> tensor[3] float32 cpu'", True),
        ("<function main>", True),
        ("{'a': [1, 2.5, None]}", True),
        ("torch.Size([3, 4])", True),
    ],
)
def test_what_was_not_compared_by_content_is_not_called_equal(value, compared):
    value, compared = (NOT_SHOWN, False) if compared is None else (value, compared)
    found = laid({"a": "1", "batch": value}, {"a": "1", "batch": value})
    said = "No variable differs on ranks 0 and 1" + ("." if compared else "; not compared by content: batch.")
    assert said in text(found) and said in seen(found).text
    assert variables.summary(found) == f"main: n{said[1:]}"
    assert "not compared" not in text(laid({"batch": f"{value} 1"}, {"batch": f"{value} 2"}))


def test_one_rank_alone_is_compared_with_nothing():
    assert "Only rank 0 is in main: nothing is compared." in text(laid({"a": "1"}))


def test_objects_open_one_level_at_a_time():
    frames = laid({"args": "<argparse.Namespace>", "n": "1"}, {"args": "<argparse.Namespace>", "n": "1"})
    closed = html(frames, opens=True)
    assert (
        closed.count('data-action="open"') == 1 and 'data-path="args"' in closed and 'aria-expanded="false"' in closed
    )
    assert "data-action" not in html(frames)
    answers = {
        0: Opened(inside=((".lr", "0.1"), (".model", "{'a': 1}"))),
        1: Opened(inside=((".lr", "0.2"), (".model", "{'a': 1}"))),
    }
    inside = {"args": opened(frames, "args", answers)}
    page = html(frames, inside, opens=True)
    assert 'data-path="args.model"' in page and 'aria-expanded="true"' in page and "padding-left: 26px" in page
    assert "differs: ≠ .lr" in Reading(page).text
    nothing = {"args": opened(frames, "args", {0: Opened(), 1: Opened()})}
    assert "nothing inside" in html(frames, nothing, opens=True)
    assert "1 of 2 parts differs." in text(inside["args"])
