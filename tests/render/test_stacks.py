"""The merged stacks as nested lists."""

from __future__ import annotations

import pytest

from ddpnb.errors import UsageError
from ddpnb.recording.stacks import Frame
from ddpnb.render import as_html, as_text, stacks
from ddpnb.render.views.merged_stacks import Branch, merge
from tests.render.reading import HOSTILE, Reading, harmless
from tests.rules.recordings import Rank, Script, record

MAIN = Frame("…/user/train.py", 90, "main")
STEP = Frame("…/user/train.py", 40, "step")
EVAL = Frame("…/user/train.py", 61, "evaluate")


def library(number):
    return Frame(f"/venv/lib/torch/nn/module{number}.py", number, f"inner{number}", user=False)


def html(*shown, **more):
    return as_html.html(*stacks.document(*shown, **more))


def text(*shown, **more):
    return as_text.text(*stacks.document(*shown, **more))


def tree(*paths):
    return merge(record(*(Rank(rank).has_stack(*frames) for rank, frames in enumerate(paths))))


PARTED = tree((MAIN, STEP), (MAIN, EVAL), (MAIN, STEP))


def test_where_paths_part_the_ranks_are_named():
    seen = Reading(html(PARTED))
    assert [words for words in seen.texts if words.startswith("rank")] == ["ranks 0, 1 and 2", "ranks 0 and 2", "rank 1"]  # fmt: skip
    assert len(seen.all("ul")) == 2 and len(seen.all("li")) == 3
    for words in ("main  …/user/train.py:90", "step  …/user/train.py:40", "evaluate  …/user/train.py:61"):
        assert words in seen.text


def test_each_frame_is_below_the_one_that_called_it():
    deep = tree((MAIN, STEP, EVAL), (MAIN, STEP, EVAL, MAIN), (MAIN, STEP, EVAL, STEP))
    assert [len(line) - len(line.lstrip()) for line in text(deep).splitlines()] == [0, 2, 4, 6, 6]
    assert len(Reading(html(deep)).all("ul")) == 4
    indents = [len(line) - len(line.lstrip()) for line in text(tree((MAIN,) * 40)).splitlines()]
    assert max(indents) == 24 and len(indents) == 40


def test_a_culprit_is_called_one():
    """Never colour alone."""
    seen = Reading(html(PARTED, {1}))
    assert "culprit: rank 1" in seen.text and seen.text.count("culprit") == 1
    assert len(seen.all("svg")) == 1


def test_each_side_of_a_tie_is_called_one():
    seen = Reading(html(PARTED, (), [(0, 2), (1,)]))
    assert "one side: ranks 0 and 2" in seen.text and "one side: rank 1" in seen.text
    assert seen.text.count("one side:") == 2 and "culprit" not in seen.text  # the branch of all ranks is no side


def test_of_a_long_run_inside_libraries_the_end_is_shown_and_the_rest_counted():
    seen = Reading(html(tree((MAIN, *map(library, range(10))))))
    assert "… 7 library frames" in seen.text
    assert "inner9" in seen.text and "inner7" in seen.text and "inner6" not in seen.text
    assert "module9.py:9" in seen.text and "/venv" not in seen.text


def test_a_stack_of_libraries_alone_says_how_many_are_left_out_and_whose_it_is():
    seen = Reading(html(tree(tuple(map(library, range(10))))))
    assert "rank 0… 7 library frames" in seen.text and "inner9" in seen.text


def test_a_short_run_is_shown_whole():
    seen = Reading(html(tree((MAIN, *map(library, range(4))))))
    assert "library frames" not in seen.text and "inner0" in seen.text


def test_a_terminal_can_show_all_frames_of_libraries():
    deep = tree((MAIN, *map(library, range(10))))
    assert "… 7 library frames" in text(deep) and "inner3" not in text(deep)
    assert len(text(deep, whole=True).splitlines()) == 11 and "inner3" in text(deep, whole=True)


def test_the_tree_in_words_names_culprits_too():
    assert "\n  [culprit: rank 1] evaluate  …/user/train.py:61" in text(PARTED, {1})


def test_no_stack():
    assert "No stacks" in Reading(html(())).text
    assert text(()).startswith("No stacks: ")


def test_the_tree_in_words():
    assert text(PARTED).splitlines() == [
        "[ranks 0, 1 and 2] main  …/user/train.py:90",
        "  [ranks 0 and 2] step  …/user/train.py:40",
        "  [rank 1] evaluate  …/user/train.py:61",
    ]


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("user", [True, False])
def test_nothing_of_a_rank_is_taken_for_html(hostile, user):
    frame = Frame(hostile, 3, hostile, user)
    shown = html((Branch(frame, (0, 1), (Branch(frame, (0,)), Branch(frame, (1,)))),), {1})
    assert {name for name, _ in harmless(shown).tags} <= {"ul", "li", "div", "span", "code", "svg", "path", "a"}
    words = text((Branch(frame, (0, 1)),))
    assert len(words) < 5000 and all(character.isprintable() or character in "\n\u202e" for character in words)


def test_the_deepest_tree_that_merging_gives():
    deep = tree((*(Frame("/t.py", n, "recurse") for n in range(5000)), STEP), (MAIN,))
    assert "step" in Reading(html(deep)).text and "step" in text(deep)


def test_the_stacks_of_a_recording_show_themselves_and_name_the_culprits():
    script = Script("def main(rank):\n    all_reduce(x)   # reduce\n")
    waits = Rank(0, 2).waits("all_reduce", script.at("reduce")).has_stack(MAIN, STEP)
    found = stacks.stacks(record(waits, Rank(1, 2).finishes().has_stack(MAIN, EVAL), script=script))
    assert found.branches and found.culprits == {1}
    assert "culprit: rank 1" in found._repr_html_() and "[culprit: rank 1]" in str(found)


def test_anything_else_than_a_recording_is_refused():
    with pytest.raises(UsageError, match=r"stacks\(\) takes a Recording"):
        stacks.stacks("hang.ddpnb")
