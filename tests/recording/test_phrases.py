"""Words that several findings share."""

from __future__ import annotations

from ddpnb.recording import phrases
from ddpnb.recording.calls import Call, CallState, Group, Signature, Site
from ddpnb.recording.codec import JSON
from ddpnb.recording.phrases import undecided


def test_a_tie_is_told_with_its_sides():
    assert undecided(()) == []
    assert undecided(((0, 2), (1,))) == ["No recorded fact tells which side is at fault: ranks 0 and 2 or rank 1."]
    assert len(undecided([(rank,) for rank in range(1000)])[0]) < 300


def test_a_call_whose_names_had_no_room_in_the_box():
    unnamed = Call(6, Group.from_json({}), 7, JSON.read(Signature, {}), Site.from_json({}), CallState.WAITING)
    text = phrases.in_call(unnamed)
    assert text.startswith("unnamed call #7 of an unknown group") and "its name was not recorded" in text
    for shown in (text, str(unnamed.signature), str(unnamed.site), phrases.at(unnamed.site)):
        assert "?" not in shown


def test_names_from_a_box_do_not_drive_a_terminal():
    odd = "\x1b[31mred\x07\n"
    site, group = Site.from_json({"function": odd, "line": 3}), Group.from_json({"label": odd, "name": odd})
    for name in (site.function, group.label, group.name, JSON.read(Signature, {"op": odd}).op):
        assert name.isprintable() and "red" in name


def test_what_each_side_has_is_said_of_every_side():
    backends = {0: "'gloo'", 1: "'nccl'", 2: "'nccl'", 3: "'mpi'"}
    assert phrases.by_side(((0,), (1, 2), (3,)), backends.__getitem__) == (
        "'gloo' on rank 0, 'nccl' on ranks 1 and 2, 'mpi' on rank 3"
    )


def test_of_many_sides_the_rest_is_counted():
    text = phrases.by_side([(rank,) for rank in range(10)], str)
    assert text.startswith("0 on rank 0, 1 on rank 1") and text.endswith("7 on rank 7, 2 more")
