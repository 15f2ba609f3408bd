"""The controls of a world: real buttons and forms, each with its action."""

from __future__ import annotations

import pytest

from ddpnb.recording.calls import OPERATIONS
from ddpnb.render import answers, controls, runs
from ddpnb.render.answers import Answer
from ddpnb.render.controls import Head
from ddpnb.render.margin import Mark
from tests.render.reading import HOSTILE, Reading, harmless

IDLE = Head("world", "4 ranks on cpu with gloo", "idle")
ACTIONS = ["why", "hold", "step", "resume", "release", "restart"]
OF_RUN = ["save", "export", "share", "report"]


def head(**changes):
    return Reading(controls.head(Head(**{"title": "world", "description": "4 ranks", "activity": "idle", **changes})))


def usable(page):
    return [one["data-action"] for one in page.all("button") if "disabled" not in one]


def chosen(page):
    return [one["value"] for one in page.all("option") if "selected" in one]


# -- the head


@pytest.mark.parametrize("outcome", [*controls._OUTCOMES, "unheard of"])
def test_every_outcome_has_a_symbol_and_words(outcome):
    page = head(activity=outcome)
    assert len(page.all("svg")) == len(page.all("button"))  # one for the outcome, and none for the keys
    assert controls._OUTCOMES.get(outcome, ("", "", outcome))[2] in page.text
    assert page.all("span")[1]["role"] == "status"


def test_the_head_says_what_goes_on_and_how_the_last_run_ended():
    page = head(activity="idle", last="hang", details=("rank 2 is dead",))
    assert page.all("span")[1]["title"] == "idle, last run: hang, rank 2 is dead"
    assert "last run: " in page.text and "rank 2 is dead" in page.text


def test_every_outcome_of_a_run_has_words():
    from ddpnb.render.card import HEADLINES

    assert {*HEADLINES, "running", "released"} <= set(controls._OUTCOMES)


def test_the_buttons_carry_their_actions():
    assert [action for action, _ in head(held=True).actions] == [*ACTIONS, *OF_RUN, "keys"]
    assert [action for action, _ in head().actions] == [
        *ACTIONS,
        *OF_RUN,
        "keys",
    ]  # none comes or goes, so that none moves
    keys = {one["data-action"]: one.get("aria-keyshortcuts") for one in head(held=True).all("button")}
    assert {action: key for action, key in keys.items() if action not in OF_RUN} == {
        "why": "w",
        "hold": "h",
        "step": "s",
        "resume": "r",
        "release": "x",
        "restart": None,
        "keys": "?",
    }
    assert all(one["type"] == "button" and one["title"] for one in head(held=True).all("button"))


@pytest.mark.parametrize(
    ("state", "can"),
    [
        ({}, ["hold", "restart"]),
        ({"in_run": True}, ["why", "hold", "release", "restart"]),
        ({"in_run": True, "held": True}, ACTIONS),
        ({"in_run": True, "busy": ("holding",)}, ["why", "release"]),
        ({"alive": False}, []),
    ],
)
def test_what_cannot_be_done_is_off(state, can):
    assert usable(head(**state)) == [*can, "keys"]


def test_a_run_can_be_saved_and_reported_also_when_its_ranks_have_ended():
    assert usable(head(ran=True, alive=False)) == [*OF_RUN, "keys"]
    assert usable(head(ran=True, busy=("saving",)))[-1] == "keys" and "save" not in usable(head(ran=True, busy=("x",)))


@pytest.mark.parametrize(("own", "words"), [(True, "The world is closed"), (False, "no longer followed")])
def test_what_is_closed_says_that_it_is_the_last_state(own, words):
    page = head(activity="closed", alive=False, can_begin=own)
    assert words in page.text and "last state" in page.text
    assert "last state" not in head().text


def test_what_helps_next_stands_out():
    def main(**state):
        return [one["data-action"] for one in head(**state).all("button") if one.get("class") == "main"]

    assert main() == [] and main(in_run=True) == ["release"]
    assert main(dead=True) == ["restart"] and main(dead=True, in_run=True) == ["release"]


def test_a_job_that_has_ended_cannot_be_held():
    assert "hold" not in usable(head(activity="ended", can_begin=False))


def test_what_goes_on_and_what_came_of_it_is_said():
    page = head(answer=Answer(("holding", "diagnosing"), "Armed."), details=("detected after 0.4 s",))
    assert "holding, diagnosing …" in page.text and "Armed." in page.text
    assert "working" in page.labels and "detected after 0.4 s" in page.text
    assert [one["role"] for one in page.all("div") if "said" in one["class"]] == ["status"]
    assert [one["role"] for one in head(answer=Answer((), "No.", bad=True)).all("div") if "said" in one["class"]] == [
        "alert"
    ]


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_nothing_that_is_said_is_taken_for_html(hostile):
    short = hostile[:1000]
    harmless(controls.head(Head(short, short, short, short, (short,), answer=Answer((short,), hostile, bad=True))))
    harmless(answers.html(Answer((short,), hostile)))
    harmless(controls.launcher(4, ["gloo"], [(short, hostile)], busy=short, said=hostile))
    harmless(controls.hold(4, [(hostile, Mark(when=hostile))], enabled=True))
    harmless(controls.runs({short: [(short, short, short)]}, [short], enabled=True, going=True))
    harmless(controls.picture(b"x", short))


# -- the launcher


def test_the_launcher_lists_the_jobs_that_run():
    page = controls.launcher(4, ("gloo",), [("/dev/shm/j", "ranks 0 and 1 of 2  python train.py")])
    assert "ranks 0 and 1 of 2  python train.py" in page
    assert 'data-target="/dev/shm/j"' in page
    assert "No job runs here" in controls.launcher(4, ("gloo",))


def test_the_launcher_asks_for_ranks_backend_and_fence():
    page = Reading(controls.launcher(8, ("gloo", "nccl")))
    assert page.fields == {"n", "backend", "fence"}
    assert chosen(page) == ["4", ""]
    assert page.all("form")[0]["data-action"] == "launch" and usable(page) == ["launch", "jobs", "guide"]


def test_a_machine_for_two_ranks_offers_two():
    page = Reading(controls.launcher(2, ("gloo",)))
    assert chosen(page) == ["2", ""]


def test_the_history_says_when_an_outcome_was_known_and_which_ranks_are_in_their_run():
    what = f"train.py {'--option ' * 20}"
    rows = [
        runs.Row(1, "train.py", "12:00:00", 2.6, "hang", stands=True),
        runs.Row(2, what, "12:01:00", None, "running"),
    ]
    page = Reading(runs.history(rows, None))
    assert "known after" in page.text and "hang, ranks are in it" in page.text and "2.6 s" in page.text
    assert [one["title"] for one in page.all("td") if "title" in one] == [what], "what is cut can be read"


def test_while_it_launches_one_can_only_cancel():
    page = Reading(controls.launcher(4, (), busy="starting 4 ranks: 2 s"))
    assert usable(page) == ["cancel"] and "starting 4 ranks: 2 s" in page.text and "launching" in page.labels


def test_why_the_last_launch_failed_is_an_alert():
    page = Reading(controls.launcher(4, (), said="no GPU"))
    assert "no GPU" in page.text and page.all("div")[-1]["role"] == "alert"


# -- what to run


def test_scripts_and_pitfalls_can_be_run():
    page = Reading(
        controls.runs(
            {"3 collectives": [("early-return", "early return", "DDP301")]}, ["train.py"], enabled=True, going=False
        )
    )
    assert page.fields == {"script", "arguments", "name"}
    assert [one["data-action"] for one in page.all("form")] == ["run", "pitfall"]
    assert [(action, values.get("fixed")) for action, values in page.actions] == [
        ("browse", None),
        ("run", None),
        ("release", None),
        ("pitfall", None),
        ("pitfall", "1"),
        ("story", None),
    ]


def test_while_a_run_goes_on_it_can_be_ended_and_stories_can_be_read():
    page = Reading(controls.runs({}, [], enabled=False, going=True))
    assert usable(page) == ["browse", "release", "story"]


# -- hold and step


def test_the_conditions_of_a_hold():
    page = Reading(controls.hold(2, [], enabled=True))
    assert [one["data-action"] for one in page.all("form")] == ["hold at", "step", "evaluate"]
    assert page.fields == {
        "before",
        "line",
        "seq",
        "site",
        "when",
        "differs",
        "exception",
        "parted",
        "ranks",
        "n",
        "how",
        "expression",
    }
    assert [one["value"] for one in page.all("option")] == [
        "",
        *OPERATIONS,
        "collective",
        "over",
        "into",
        "out",
        "iteration",
    ]


def test_every_hold_that_is_armed_can_be_removed():
    holds = [("hold all_reduce", Mark()), ("hold at t.py:3", Mark(held=(1,))), ("hold barrier", Mark(on=False))]
    page = Reading(controls.hold(2, holds, enabled=True))
    for action in ("unhold", "switch hold"):
        assert [values["number"] for name, values in page.actions if name == action] == ["0", "1", "2"]
    assert "armed holds" in page.labels
    for words in ("hold all_reduce: armed disable", "t.py:3: holds rank 1 disable", "barrier: disabled enable"):
        assert words in " ".join(page.text.split())


def test_in_a_world_that_is_closed_nothing_can_be_held():
    assert usable(Reading(controls.hold(2, [], enabled=False))) == []


# -- a picture


def test_a_picture_says_what_it_is_and_can_be_saved():
    page = Reading(controls.picture(b"\x89PNG", "memory of each rank over time"))
    assert page.all("img")[0]["alt"] == "memory of each rank over time"
    assert [action for action, _ in page.actions] == ["save PNG", "save SVG"]
    assert not Reading(controls.picture(b"", "x", save=False)).actions
