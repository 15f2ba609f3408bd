"""The parts of a page that show a Recording, each in HTML and in words."""

from __future__ import annotations

from dataclasses import replace

from ddpnb.notebook import recorded
from ddpnb.notebook.parts.frames import MergedStacks
from ddpnb.notebook.widgets.parts import Board, Card, Source
from ddpnb.notebook.widgets.rank_panel import RankPanel
from ddpnb.recording.calls import CallState
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Recording
from ddpnb.render import as_text, board, stacks, variables
from ddpnb.render import card as cards
from ddpnb.render.views import board as boards
from ddpnb.render.views import frame_variables
from tests.render.partings import SKIPS
from tests.render.reading import Reading
from tests.render.views.test_source_lines import hung
from tests.rules.recordings import Rank, Script, diagnose, line, record


def parts(recording, diagnosis):
    card, shown = recorded.parts(recording, diagnosis)
    return [card, *shown]


SCRIPT = Script("""
def main(rank):
    if rank == 0:
        all_reduce(x)   # reduce
""")
HUNG = record(Rank(0, 2).waits("all_reduce", SCRIPT.at("reduce")), Rank(1, 2).finishes(), script=SCRIPT)
FOUND = diagnose(HUNG)


def test_the_card_says_the_finding_as_a_terminal_would():
    card = Card(FOUND)
    assert card.text == cards.text(FOUND)
    assert FOUND.errors[0].code in card.html and "Rank 1 never calls the all_reduce" in card.text


def test_where_ranks_part_stands_once_in_the_cards():
    finding = replace(FOUND.findings[0], parting=SKIPS)
    found = replace(FOUND, findings=(finding, replace(finding, summary="A consequence.")))
    shown = Card(found)
    assert Reading(shown.html).text.count("if not batch:") == shown.text.count("if not batch:") == 1
    assert cards.text(found).count("if not batch:") == Reading(cards.html(found)).text.count("if not batch:") == 1
    assert [one.label for one in parts(HUNG, found)[:2]] == ["diagnosis", "rank board"]


def test_a_card_of_nothing_shows_nothing():
    assert Card().html == Card(Diagnosis()).html == Card().text == ""


def test_a_run_that_ended_well_is_said_to_have():
    assert "completed on all ranks" in Card(Diagnosis("ok", settled=True)).text


def test_a_card_within_a_dashboard_has_no_headline():
    assert "the ranks cannot continue" in Card(FOUND).html
    assert "the ranks cannot continue" not in Card(FOUND, headline=False).html


def test_the_board_names_the_culprit():
    shown = Board(HUNG, FOUND)
    assert shown.text == board.text(boards.tiles(HUNG, FOUND.findings))
    assert FOUND.errors[0].code in shown.text and FOUND.errors[0].code in shown.html
    assert [values["rank"] for action, values in Reading(shown.html).actions if action == "rank"] == ["0", "1"]


def test_in_an_open_tie_board_and_stacks_mark_the_sides():
    apart = [
        Rank(n, 2).calls("all_reduce", SCRIPT.at("reduce"), shape=(n + 1,), state=CallState.FENCED) for n in range(2)
    ]
    taken = record(*(rank.idles(1.0, line(4 + rank.rank)) for rank in apart), script=SCRIPT)
    found = diagnose(taken)
    assert (found.errors[0].culprits, found.errors[0].sides) == ((), ((0,), (1,)))
    assert Board(taken, found).text.count("DDP303: one of the sides") == 2
    assert Reading(MergedStacks.still(taken, found).html).text.count("one side: rank") == 2


def test_the_rank_that_was_chosen_is_pressed():
    shown = Board()
    assert shown.html == ""
    shown.chosen = 0
    shown.show_recording(HUNG)
    assert [one["aria-pressed"] for one in Reading(shown.html).all("button")] == ["true", "false"]


def test_the_stacks_carry_ranks():
    shown = MergedStacks.still(HUNG, FOUND)
    assert shown.text == as_text.text(*stacks.of(HUNG, FOUND)) and "rank 0] main" in shown.text
    assert "train.py" in Reading(shown.html).text


def test_the_panel_of_a_rank_says_what_differs_before_one_is_chosen():
    shown = RankPanel(HUNG)
    assert shown.html == "" and shown.text == variables.summary(frame_variables.side_by_side(HUNG))
    assert "no variable differs" in shown.text


def test_a_tile_of_a_recording_opens_the_panel_of_its_rank():
    board, panel = parts(HUNG, FOUND)[1:3]
    board.on_action("rank", {"rank": "0"})
    assert "call stack of rank 0" in panel.html and board.chosen == 0
    assert "F10" not in panel.html and "watch" not in panel.html  # there are no live ranks
    panel.on_action("rank close", {})
    assert panel.html == "" and board.chosen is None and 'aria-pressed="true"' not in board.html


def test_all_parts_of_a_recording_in_words():
    shown = parts(HUNG, FOUND)
    assert [type(one).__name__ for one in shown] == ["Card", "Board", "RankPanel", "Timeline", "Fragment"]
    assert all(one.text for one in shown)


def test_an_empty_recording_breaks_nothing():
    shown = parts(Recording(0, {}), Diagnosis())
    assert [one.text for one in shown] == [
        "",
        "no ranks.",
        "no rank is in the user's code.",
        "no collective recorded",
        "No stacks: no rank is in a run, or no stacks were requested.",
    ]
    for one in shown:
        Reading(getattr(one, "html", ""))


def test_the_source_of_another_part_of_the_run_and_all_of_its_lines():
    source = Source(hung())
    assert "since all_reduce #3" in source.text and "only rank 1" in source.html
    source.on_action("lines", {"file": "0", "window": "-2"})
    assert "all_reduce #2 to all_reduce #3" in source.text and "only rank 1" not in source.html
    source.on_action("lines", {"file": "99", "window": "no such"})
    assert "all_reduce #2 to all_reduce #3" in source.text
    assert "loader" not in source.html or "lines 1-" not in source.html
    source.on_action("more", {"file": "0", "window": "run"})
    assert "the whole run" in source.text and "def main" in source.html
    assert "only lines that matter" in source.html
    source.show_recording(Recording(1, {}))  # another run, which has none of it
    assert "No rank has run a line" in source.text
    source.on_action("lines", {"file": "0"})


def test_a_recording_with_lines_shows_its_source():
    assert any(isinstance(part, Source) for part in parts(hung(), diagnose(hung())))
    assert not any(isinstance(part, Source) for part in parts(HUNG, FOUND))
