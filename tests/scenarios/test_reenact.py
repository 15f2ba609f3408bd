"""Recorded hangs on live ranks: the same finding, and everything that works on a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import ddpnb
from ddpnb.errors import UsageError
from tests.conftest import VICTIMS
from tests.studies.reenactment import programs
from tests.studies.reenactment.programs import KINDS, recording_of

pytestmark = pytest.mark.world


@pytest.fixture
def reenact(world):
    """Re-enacts on the shared ranks, which are idle again afterwards."""
    opened = []

    def on_world(recording):
        opened.append(ddpnb.reenact(recording, world))
        return opened[-1]

    yield on_world
    for one in opened:
        one.close()
    idle(world)


def idle(world):
    """Interrupt the ranks that hang, and replace those that died."""
    world.release()
    if any(ending is not None and ending.how == "died" for ending in world.last_run.endings.values()):
        world.restart()


LIVE = (
    "uneven",
    "crossed",
)  # in the fast lane: a call too few, groups


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, id=name, marks=[] if name in LIVE else [pytest.mark.full])
        for name, kind in KINDS.items()
        if name != "died"
    ],
)
def test_live_ranks_give_the_finding_of_a_recording(kind, reenact):
    reenactment = reenact(recording_of(kind))
    assert reenactment.same, str(reenactment)
    assert reenactment.finding.code == reenactment.expected.code
    assert "give the finding of the recording" in repr(reenactment)


@pytest.mark.parametrize(
    ("program", "case"),
    [
        ("missing", "continue_over"),
        pytest.param("groups", "crossed_branches", marks=pytest.mark.full),
        pytest.param("p2p", "other_tag", marks=pytest.mark.full),
    ],
)
def test_what_ranks_did_once_they_do_again(program, case, world, reenact, tmp_path):
    run = world.run(VICTIMS / f"{program}.py", case, stream=None).wait(60)
    run.recording.save(tmp_path / "hang.ddpnb")
    idle(world)
    reenactment = reenact(tmp_path / "hang.ddpnb")
    assert reenactment.same, str(reenactment)
    assert f"{program}.py:" in Path(reenactment.script).read_text()


def test_a_re_enactment_is_a_run_like_any_other(world, reenact):
    reenactment = reenact(recording_of(programs.never_called))
    assert world.last_run is reenactment.run
    assert world.status()[0].state == "waiting"
    assert world.snapshot().ranks[0].main_stack.innermost_user.file == reenactment.script
    assert sorted(world.release().ranks) == [0, 2, 3]
    reenactment.close()
    assert not world.closed  # it is somebody else's


@pytest.mark.full
def test_ranks_are_held_before_a_call_and_step(world):
    holding = world.hold("all_reduce", ranks=0)
    reenactment = ddpnb.reenact(recording_of(programs.never_called), world, wait=False)
    try:
        holding.wait(20)
        assert world.status()[0].state == "held"
        world.step()
        assert reenactment.wait().same
    finally:
        reenactment.close()
        idle(world)


@pytest.mark.full
def test_512_ranks_on_four(world):
    reenactment = ddpnb.reenact(recording_of(programs.tensor_and_data_parallel, 512), world, ranks=4)
    assert reenactment.same, str(reenactment)
    assert "4 live ranks stand for 512." in repr(reenactment)
    assert "re-enactment" in reenactment._repr_html_()
    reenactment.close()
    idle(world)


@pytest.mark.full
def test_ranks_of_its_own_end_with_it():
    with ddpnb.reenact(recording_of(programs.uneven, 2)) as reenactment:
        assert reenactment.same, str(reenactment)
        assert os.path.exists(reenactment.script)
    assert reenactment.world.closed
    assert not os.path.exists(reenactment.script)


def test_a_world_of_another_size_is_refused(world):
    with pytest.raises(UsageError, match="has 2 ranks, and the World 4"):
        ddpnb.reenact(recording_of(programs.uneven, 2), world)
