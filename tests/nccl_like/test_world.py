"""A world on the stand-in: hangs, releases, holds and restarts with calls that run behind their host."""

from __future__ import annotations

import inspect
import time

import pytest

import ddpnb
from ddpnb.recording.events.startup import InitProcessGroup
from tests import nccl_like
from tests.gpu import programs
from tests.nccl_like.marks import needed
from tests.recordings.scenario import free

pytestmark = [needed, pytest.mark.world]


@pytest.fixture(scope="module")
def pair(forks, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in nccl_like.variables(tmp_path_factory.mktemp("device")).items():
            patch.setenv(name, value)
        with ddpnb.launch(
            2, patience=3.0, end_after_patience=True, quiet=True, fork="training" if forks else False
        ) as world:
            yield world


@pytest.fixture(autouse=True)
def freed(pair):
    yield
    free(pair)
    pair.rebuild()


def line(function, text):
    """The number of the line of a function that has this text."""
    lines, first = inspect.getsourcelines(function)
    return first + next(place for place, one in enumerate(lines) if text in one)


@pytest.mark.full
def test_a_hang_whose_host_is_far_ahead_is_released_by_an_abort(pair):
    """The call that the device waits in is named, not the line at which the host does."""
    run = pair.run(programs.runs_ahead, stream=None).wait(30)
    assert run.outcome == "hang", str(run.diagnosis)
    (finding,) = run.diagnosis.errors
    assert (finding.culprits, finding.waiting, finding.certainty) == ((1,), (0,), "proven")
    assert (finding.collective.op, finding.collective.seq) == ("all_reduce", 8)
    called = line(programs.runs_ahead, "dist.all_reduce(total)")
    assert (0, called) in {(rank, site.line) for rank, site in finding.where}
    waits = f"The host of rank 0 is further: it waits at {programs.__file__}:{line(programs.runs_ahead, '.item()')}"
    assert any(text.startswith(waits) and text.endswith("after 12 more calls.") for text in finding.evidence), finding
    (start, *_) = run.recording.ranks[0].events(InitProcessGroup)
    assert start.implementation == "NcclLike"
    pids = pair.pids()
    assert not pair.release().left
    assert pair.pids() == pids and run.endings[0].how == "raised", str(run.endings)
    again = pair.run(programs.sums, 3, stream=None).wait(30)
    assert again.results == [[4.0, 12.0, 20.0]] * 2, str(again.diagnosis)


@pytest.mark.full
def test_a_training_on_the_device(pair):
    run = pair.run(programs.train, 12, None, 0.1, stream=None).wait(30)
    assert run.outcome == "ok", str(run.diagnosis)
    for record in run.recording.ranks.values():
        assert {spec.device for spec in record.models[0].tensors} == {f"{nccl_like.DEVICE}:0"}
        reductions = [call for call in record.calls if call.op == "all_reduce"]
        assert {call.signature.device for call in reductions} == {nccl_like.DEVICE}
        assert not record.in_flight  # torch does not say when a work of Python is complete: its future does
    assert pair.compare().equal


@pytest.mark.full
def test_calls_are_held_and_stepped(pair):
    holding = pair.hold("all_reduce", when="step == 1")
    run = pair.run(programs.sums, 4, stream=None)
    held = holding.wait(30)
    assert held.held == (0, 1)
    assert {one.call.seq for one in pair.step().ranks} == {held[0].call.seq + 1}
    assert pair.evaluate("x[0].item()").values_by_rank == {0: 2.0, 1: 3.0}
    pair.resume()
    assert run.wait(30).results == [[4.0, 12.0, 20.0, 28.0]] * 2


@pytest.mark.full
def test_a_watchdog_does_not_end_a_rank_while_another_one_is_held(pair):
    """Rank 0 queues a call for which it waits much longer than its time-out."""
    holding = pair.hold("all_reduce", when="step == 2", ranks=[1])
    run = pair.run(programs.hurried, 2.0, 4, stream=None)
    assert holding.wait(30).held == (1,)
    time.sleep(5)
    assert run.outcome == "running" and pair.snapshot().ranks[0].ending is None
    assert pair.evaluate("here.type", ranks=[1]).values_by_rank == {1: nccl_like.DEVICE}
    pair.resume()
    assert run.wait(30).results == [64.0] * 2, str(run.diagnosis)
    assert pair.run(programs.kept_seconds, stream=None).wait(30).results == [2.0] * 2


@pytest.mark.full
def test_the_watchdog_ends_a_rank_that_waits_too_long(pair):
    run = pair.run(programs.skips, 1.0, stream=None).wait(30)
    (finding, *_) = run.diagnosis.errors
    assert run.endings[0].signal_name == "SIGABRT" and "Watchdog caught collective operation timeout" in run.log(0)
    assert (finding.code, finding.culprits, finding.waiting) == ("DDP301", (1,), (0,)), str(run.diagnosis)


@pytest.mark.full
def test_a_rank_is_replaced_in_a_hang(pair):
    assert pair.run(programs.leaves, stream=None).wait(30).outcome == "hang"
    before = pair.pids()
    pair.release()
    pair.restart(1)
    assert pair.pids()[0] == before[0] and pair.pids()[1] != before[1]
    assert pair.run(programs.sums, 3, stream=None).wait(30).results == [[4.0, 12.0, 20.0]] * 2


@pytest.mark.full
def test_a_mismatch_stops_at_the_fence(pair):
    run = pair.run(programs.other_sizes, stream=None).wait(30)
    assert run.outcome == "hang" and run.diagnosis.errors[0].code == "DDP303", str(run.diagnosis)


@pytest.mark.full
def test_groups_that_are_crossed_in_the_queue(pair):
    run = pair.run(programs.crossed, stream=None).wait(30)
    assert run.outcome == "hang", str(run.diagnosis)
    assert (run.diagnosis.errors[0].code, run.diagnosis.errors[0].culprits) == ("DDP306", (0, 1)), str(run.diagnosis)
    assert not pair.release().left


@pytest.mark.full
def test_a_group_beside_a_default_group_of_gloo_is_released_too(pair):
    run = pair.run(programs.beside, stream=None).wait(30)
    assert run.outcome == "hang", str(run.diagnosis)
    assert not pair.release().left and run.endings[0].how == "raised"
