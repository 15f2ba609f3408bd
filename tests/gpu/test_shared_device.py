"""Two ranks that share one GPU, with gloo: what is recorded of collectives and models on a device, and done to them."""

from __future__ import annotations

import time

import pytest

import ddpnb
from ddpnb.render import board
from ddpnb.render.views.board import tiles
from tests.gpu import DEVICE, KIND, ONE, programs

pytestmark = [pytest.mark.gpu, pytest.mark.world, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def pair():
    with ddpnb.launch(2, patience=3.0, **ONE) as world:
        yield world


@pytest.fixture(autouse=True)
def free(pair):
    yield
    pair.heal()
    if left := pair.release().left:
        pair.restart(left)


def until(so, what):
    deadline = time.monotonic() + 60
    while not so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_a_training(pair):
    run = pair.run(programs.train, 12, None, 0.2, stream=None).wait(120)
    assert run.outcome == "ok", str(run.diagnosis)
    assert [device for device, _ in run.results] == [DEVICE, DEVICE]
    recording = run.recording
    for rank, record in recording.ranks.items():
        assert record.device == DEVICE
        assert {call.signature.device for call in record.calls if call.op == "all_reduce"} == {KIND}
        assert {spec.device for spec in record.models[0].tensors} == {DEVICE}
        losses = [value for _, value in run.curves.ranks[rank].loss]
        assert len(losses) >= 3
        assert all(min(abs(one - value) for value in run.results[rank][1]) < 1e-5 for one in losses)
    if KIND == "cuda":
        assert any(record.process.device_memory > 0 for record in recording.ranks.values())
        assert all(curves.device_memory for curves in run.curves.ranks.values())
    assert pair.compare().equal and pair.compare().compared == 4


def test_a_change_of_one_replica_is_found(pair):
    """On a device every 64th step is digested, since that waits for it."""
    run = pair.run(programs.train, 140, 1, stream=None).wait(120)
    assert run.outcome == "divergence", str(run.diagnosis)
    found = pair.compare()
    assert [one.name for one in found.differences][:1] == ["0.weight"], str(found)
    by_rank = pair.tensor("0.weight")
    assert by_rank.sides == ((0,), (1,)) and {one.device for one in by_rank.ranks.values()} == {DEVICE}


def test_a_hang_is_diagnosed_read_released_and_left(pair):
    run = pair.run(programs.leaves, stream=None).wait(60)
    assert run.outcome == "hang"
    (finding, *_) = run.diagnosis.errors
    assert finding.culprits == (1,) and finding.waiting == (0,) and finding.certainty == "proven"
    assert finding.collective.op == "all_reduce" and 0 in {rank for rank, _ in finding.where}
    began = time.monotonic()
    weight = pair.tensor("0.weight")
    assert weight.equal and len(weight.ranks) == 2
    assert pair.compare().equal
    snapshot = pair.snapshot()
    assert time.monotonic() - began < 30
    frame = snapshot.ranks[0].main_stack.innermost_user
    assert frame.function == "leaves"
    released = pair.release()
    assert not released.left
    assert run.endings[0].how == "raised"
    assert pair.run(programs.sums, 3, stream=None).wait(60).results == [[4.0, 12.0, 20.0]] * 2


def test_collectives_are_held_and_stepped(pair):
    holding = pair.hold("all_reduce", when="step == 1")
    run = pair.run(programs.sums, 4, stream=None)
    held = holding.wait(60)
    assert held.held == (0, 1)
    assert pair.evaluate("x[0].item()").values_by_rank == {0: 1.0, 1: 2.0}
    assert {one.call.seq for one in pair.step().ranks} == {held[0].call.seq + 1}
    assert pair.evaluate("x[0].item()").values_by_rank == {0: 2.0, 1: 3.0}
    pair.resume()
    assert run.wait(60).results == [[4.0, 12.0, 20.0, 28.0]] * 2


def test_a_fault_is_injected_into_a_tensor_on_the_device(pair):
    pair.inject("nan", ranks=1, op="all_reduce")
    run = pair.run(programs.sums, 3, stream=None).wait(60)
    assert run.missed == []
    assert [sum(value != value for value in result) for result in run.results] == [1, 1], run.results


def test_a_snapshot_while_a_kernel_runs(pair):
    run = pair.run(programs.computes, 20_000_000_000, stream=None)
    until(lambda: "computes" in str(pair.snapshot().ranks[0].main_stack), "the function runs")
    began = time.monotonic()
    record = pair.snapshot().ranks[0]
    took = time.monotonic() - began
    assert took < 5 and run.outcome == "running"
    assert record.process.answered and record.main_stack.innermost_user.function == "computes"
    found = pair.tensor("values", ranks=0)
    assert found.ranks[0].high == 5.0 and run.outcome == "running"
    assert run.wait(120).results == [15.0, 15.0]


def test_a_model_on_two_devices(pair):
    run = pair.run(programs.on_two_devices, stream=None).wait(60)
    if KIND == "cuda":
        assert run.outcome == "crash"
        assert "DDP202" in {finding.code for finding in run.diagnosis.findings}, str(run.diagnosis)


def test_inputs_on_another_device_than_the_model(pair):
    run = pair.run(programs.inputs_elsewhere, stream=None).wait(60)
    if KIND == "cuda":
        assert run.outcome == "crash"
        assert "DDP202" in {finding.code for finding in run.diagnosis.findings}, str(run.diagnosis)


def test_what_a_board_shows_of_the_device(pair):
    run = pair.run(programs.train, 3, stream=None).wait(60)
    assert DEVICE in board.board(tiles(run.recording, run.diagnosis.findings))
