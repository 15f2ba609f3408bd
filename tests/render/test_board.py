"""The rank board: every state has a symbol and a word, and nothing of a rank is taken for HTML."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from ddpnb.recording.calls import Call, CallState, Group, Signature, Site
from ddpnb.recording.events import Unknown
from ddpnb.recording.events.runs import Checkpoint
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import Process, RankRecord, Recording
from ddpnb.render import board
from ddpnb.render.rank_states import LOOKS
from ddpnb.render.views.board import Tile, tiles
from tests.render.reading import HOSTILE, Reading, harmless
from tests.rules.recordings import Rank, line, record

WAITING = Tile((0,), RankState.WAITING, "all_reduce #57 of default_pg", (1,), 3.0, line(91), 8, 4711, "cuda:0")


def shown(*tiles, **more):
    return Reading(board.board(tiles, **more))


def hostile_tile(text):
    return Tile(
        (0,), RankState.ENDED, text, (1,), 1.0, Site(text, 3, text), 3, 17, text[:200], finding="DDP312", well=False,
        checkpoint=Checkpoint(name=text, number=3, site=Site(text, 3, text)),
    )  # fmt: skip


def hostile_recording(text):
    group = Group((0, 1), label=text)
    call = Call(0, group, 1, Signature(text, ((2,),), (text,)), Site(text, 3, text), CallState.WAITING)
    rank = RankRecord(
        0, calls=(call,), process=Process("idle", 1.0, waits_on=text),
        history=(Unknown(named=text, state="open"), Checkpoint(name=text, number=1)),
    )  # fmt: skip
    return Recording(2, {0: rank, 1: Rank(1, 2).raises(text[:5000], text).record})


# -- states


@pytest.mark.parametrize("state", RankState)
def test_every_state_has_a_symbol_and_a_word(state):
    seen = shown(Tile((0,), state))
    assert len(seen.all("svg")) == 1
    assert LOOKS[state].words in seen.text
    assert seen.labels == {"ranks", f"rank 0: {LOOKS[state].words} "}


def test_no_two_states_look_the_same_without_their_words_but_those_that_wait():
    symbols = {state: re.search(r' d="([^"]*)"', board.board([Tile((0,), state)]))[1] for state in RankState}
    waiting = {symbols.pop(state) for state in (RankState.WAITING, RankState.STARTING, RankState.CREATING_GROUP)}
    assert len(waiting) == 1 and len(set(symbols.values())) == len(symbols)


def test_a_rank_on_one_of_the_sides_of_a_tie_says_so():
    """Never colour alone: in words, to a screen reader and in a terminal too."""
    tile = replace(WAITING, undecided="DDP303")
    seen = shown(tile)
    assert "waiting · DDP303: one of the sides" in seen.text
    assert any(label.endswith(", DDP303: one of the sides") for label in seen.labels)
    assert "state warning" in board.board([tile]) and "data-bad" not in board.board([tile])
    assert board.text([tile]).splitlines()[1].endswith("DDP303: one of the sides")


def test_one_that_ended_with_an_error_has_failed():
    seen = shown(Tile((0,), RankState.ENDED, "KeyError: 'x'", well=False))
    assert "failed" in seen.text and "rank 0: failed KeyError: 'x'" in seen.labels
    assert "failed" not in shown(Tile((0,), RankState.ENDED, "finished")).text


def test_a_culprit_is_named_by_its_finding():
    seen = shown(replace(WAITING, finding="DDP301"))
    assert "waiting · DDP301" in seen.text
    assert seen.all("button")[0]["data-bad"] == ""
    assert any(label.endswith(", DDP301") for label in seen.labels)


# -- what a tile says


def test_a_tile_says_who_does_what_where_since_when_and_for_whom():
    seen = shown(WAITING)
    for words in ("rank 0", "cuda:0", "pid 4711", "all_reduce #57 of default_pg", "3.0 s", "train.py:91", "step 8", "for rank 1"):  # fmt: skip
        assert words in seen.text


def test_of_a_long_path_the_end_and_the_line_stay():
    seen = shown(replace(WAITING, site=Site(f"/home/{'x' * 100}/models/train.py", 91, "main")))
    assert "train.py:91" in seen.text and len(seen.text) < 300
    link = seen.all("a")[0]
    assert link["title"].endswith("/models/train.py:91") and link["tabindex"] == "-1"


def test_the_meters_say_in_words_what_they_show():
    process = Process("computing", memory=2_500_000_000, cores=1.5, device_memory=10**9, device_total=4 * 10**9, device_busy=0.5)  # fmt: skip
    seen = shown(Tile((0,), RankState.COMPUTING, process=process), host={"memory_total": 10**10, "cores": 4})
    for words in (
        "process memory: 2.5 GB",
        "busy: 1.5 cores",
        "GPU memory, all processes: GPU 1.0 GB",
        "GPU 50%",
    ):
        assert words in seen.text
    assert [one["style"] for one in seen.all("i")] == ["width:25%", "width:38%", "width:25%", "width:50%"]


@pytest.mark.parametrize("host", [{}, {"memory_total": 0, "cores": 0}, {"memory_total": "much", "cores": None}])
def test_meters_of_a_host_that_says_nonsense(host):
    process = Process(memory=10**9, cores=float("nan"), device_memory=9, device_total=3, device_busy=7.0)
    widths = [one["style"] for one in shown(Tile((0,), RankState.COMPUTING, process=process), host=host).all("i")]
    assert widths == ["width:0%", "width:0%", "width:100%", "width:100%"]


# -- buttons


def test_tiles_are_buttons_that_say_their_rank():
    seen = shown(Tile((0,), RankState.COMPUTING), Tile((1,), RankState.COMPUTING), chosen=1)
    assert [(action, values["rank"]) for action, values in seen.actions] == [("rank", "0"), ("rank", "1")]
    assert [one["aria-pressed"] for one in seen.all("button")] == ["false", "true"]
    assert [one["tabindex"] for one in seen.all("button")] == ["0", "-1"]


def test_ranks_that_do_the_same_share_a_tile_without_a_process():
    seen = shown(
        Tile(tuple(range(998)), RankState.WAITING, "barrier #1 of default_pg", pid=12, process=Process(memory=10**9))
    )
    assert "ranks 0-997" in seen.text and "998 ranks" in seen.text
    assert "pid" not in seen.text and "memory" not in seen.text


def test_many_tiles_are_small():
    assert 'class="tiles many"' in board.board([Tile((rank,), "idle") for rank in range(17)])
    assert 'class="tiles"' in board.board([Tile((rank,), "idle") for rank in range(16)])


def test_no_rank():
    assert "No ranks." in shown().text
    assert board.text(()) == "no ranks."


# -- more of one rank


def test_the_last_calls_of_a_rank_newest_first():
    recording = record(Rank(0, 2).calls("all_reduce", line(3)).waits("broadcast", line(4)), Rank(1, 2))
    seen = Reading(board.detail(recording, 0))
    assert seen.labels == {"last calls of rank 0"}
    assert seen.text.index("broadcast #2") < seen.text.index("all_reduce #1")
    assert "init_process_group (done)" in seen.text


def test_of_a_rank_without_calls_it_says_so_and_of_none_nothing():
    recording = record(Rank(0, 1))
    assert "no collective recorded" in board.detail(recording, 0)
    assert board.detail(recording, 7) == board.detail(recording, None) == ""


# -- what comes from ranks


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_nothing_of_a_rank_is_taken_for_html(text):
    seen = harmless(board.board([hostile_tile(text)]))
    assert {name for name, _ in seen.tags} <= {"div", "button", "span", "svg", "path", "time", "a", "code"}
    recording = hostile_recording(text)
    harmless(board.board(tiles(recording)))
    harmless(board.detail(recording, 0))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_the_board_in_words_has_a_row_per_rank_whatever_they_say(text):
    words = board.text([hostile_tile(text), Tile((1,), "idle")])
    assert len(words.splitlines()) == 3 and len(words) < 5000
    assert all(character.isprintable() or character in "\n\u202e" for character in words)


def test_the_board_in_words():
    assert board.text([replace(WAITING, finding="DDP301"), Tile((1,), RankState.ENDED, "exited with status 1", well=False)]).splitlines() == [
        "ranks  state    doing                         since  step  where                   finding",
        "0      waiting  all_reduce #57 of default_pg  3.0 s  8     /home/user/train.py:91  DDP301",
        "1      failed   exited with status 1",
    ]  # fmt: skip


PASSED = Checkpoint(name="Trainer ready", number=3, site=line(41))


def test_the_last_checkpoint_of_a_rank():
    seen = shown(replace(WAITING, checkpoint=PASSED))
    assert "checkpoint 3 (Trainer ready), line 41" in seen.text
    assert seen.labels == {
        "ranks", "rank 0: waiting all_reduce #57 of default_pg, waits for rank 1, checkpoint 3 (Trainer ready), line 41"
    }  # fmt: skip
    both = replace(WAITING, ranks=(0, 1), checkpoint=PASSED, further=True)
    assert "checkpoint 3 (Trainer ready), line 41 or a later one" in shown(both).text
    assert "checkpoint" not in shown(WAITING).text


def test_the_last_checkpoint_in_words():
    words = board.text([replace(WAITING, checkpoint=PASSED, site=line(1)), Tile((1,), RankState.COMPUTING)])
    head, first, second = words.splitlines()
    assert head.split()[-3:] == ["passed", "last", "finding"]
    assert first.rstrip().endswith("checkpoint 3 (Trainer ready), line 41")
    assert second.rstrip() == "1      computing"


def test_the_details_of_a_rank_show_its_last_checkpoints_beside_its_events():
    ranks = Rank(0, 1)
    for number in range(1, 20):
        ranks.passes(number, "step", line(9), visit=number)
    seen = Reading(board.detail(record(ranks), 0)).text
    assert "init_process_group (done)" in seen
    assert "checkpoint 14 (step), line 9" in seen and "checkpoint 19 (step), line 9" in seen
    assert "checkpoint 13" not in seen and "checkpoint (done)" not in seen


def test_the_board_in_a_sentence_has_no_control_characters():
    assert board.headline([Tile((0,), RankState.WAITING, "all\x1b[31m")]) == "rank 0 waiting in all�[31m"


def test_the_board_in_a_sentence():
    found = record(
        Rank(0).waits("all_reduce"),
        Rank(1).finishes(),
        Rank(2).waits("all_reduce"),
        Rank(3).calls("barrier", state=CallState.HELD),
        Rank(4).idles(3.0),
    )
    assert board.headline(tiles(found)) == (
        "ranks 0 and 2 waiting in all_reduce #1 of default_pg; rank 1 ended; "
        "rank 3 held before barrier #1 of default_pg; rank 4 blocked outside any collective"
    )
    assert board.headline(()) == ""


def test_a_tile_is_complete_with_ranks_and_a_state():
    both = [Tile((0,), RankState.COMPUTING), Tile((1,), RankState.WAITING)]
    assert board.headline(both) == "rank 0 computing; rank 1 waiting"


# -- a filter of many


def test_of_many_ranks_some_can_be_shown_by_state_and_by_words():
    many = tuple(replace(WAITING, ranks=(rank,), finding="DDP301" * (rank == 37)) for rank in range(63))
    seen = shown(*many, Tile((63,), RankState.COMPUTING))
    assert [one["value"] for one in seen.all("option")] == ["", "named", LOOKS[RankState.COMPUTING].words, "waiting"]
    assert "named by a finding (1)" in seen.text and "waiting (63)" in seen.text
    boxes = [one for one in seen.all("div") if one.get("class") == "tile"]
    assert [one["data-ranks"] for one in boxes] == [str(rank) for rank in range(64)]
    assert [one["data-ranks"] for one in boxes if "data-named" in one] == ["37"]
    assert {one["data-state"] for one in boxes} == {"waiting", LOOKS[RankState.COMPUTING].words}
    assert "data-filters" not in board.board(many[:16])
