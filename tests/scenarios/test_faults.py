"""Every fault, injected into a healthy training on real ranks, gives the finding that it names."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import pytest

import ddpnb
from ddpnb.recording.faults import KINDS
from tests.conftest import VICTIMS
from tests.recordings.scenario import free, launched

pytestmark = pytest.mark.world

SCRIPT = VICTIMS / "faulty.py"
PATIENCE_S = 2.0


@dataclass(frozen=True)
class Case:
    kind: str
    script: str
    given: dict[str, Any] = field(default_factory=dict)
    code: str = ""  # where it is another one than the kind's first
    culprits: tuple[int, ...] = (1,)
    ranks: tuple[int, ...] | None = (1,)
    wait: float = 60.0
    tie: bool = False  # of two ranks nothing that is recorded tells which one is at fault


CASES = [
    Case("skip", "collectives", {"op": "all_reduce", "seq": 4}),
    Case("skip", "collectives", {"op": "all_reduce", "seq": 7}),
    Case("skip", "training", {"op": "all_reduce", "step": 3}),
    Case("extra call", "collectives", {"op": "all_reduce", "seq": 4}),
    Case("delay", "collectives", {"seq": 5, "seconds": 20.0}, wait=1.5),
    Case("swap", "alike", {"seq": 5}, tie=True),
    Case("swap", "collectives", {"op": "all_reduce"}, code="DDP301", tie=True),
    Case("other op", "collectives", {"op": "all_reduce"}, tie=True),
    Case("other shape", "collectives", {"op": "all_reduce"}, tie=True),
    Case("other dtype", "collectives", {"op": "all_reduce"}, tie=True),
    Case("other root", "collectives", tie=True),
    Case("other reduction", "collectives", tie=True),
    Case("other layout", "collectives", tie=True),
    Case("other group", "collectives", {"op": "all_reduce"}, culprits=(0, 1)),
    Case("nan", "training", {"step": 3}, culprits=()),
    Case("corrupt", "training", {"op": "all_reduce", "step": 3}, tie=True),
    Case("raise", "collectives", {"seq": 5}),
    Case("block", "collectives", {"seq": 5}),
    Case("shorter shard", "training", code="DDP308"),
    Case("shorter shard", "slowly", wait=4.0),
    Case("same shard", "training", culprits=(0, 1)),
    Case("epoch not set", "training", culprits=(0, 1), ranks=None),
    Case("epoch not set", "training", code="DDP503", tie=True),
    Case("other shuffle", "training", tie=True),
    Case("reseeded", "training", tie=True),
    Case("stalled worker", "workers", {"step": 3}),
    Case("killed worker", "workers", {"step": 3}),
    Case("bad sample", "training", {"step": 3}),
    Case("perturb parameter", "training", {"step": 3}),
    Case("perturb buffer", "own_buffers", {"step": 3}),
    Case("unused parameter", "training", {"step": 3}),
    Case("unused parameter", "unused_allowed", {"step": 3}, code="DDP402", tie=True),
    Case("frozen parameter", "training", {"step": 3}),
    Case("thawed parameter", "partly_frozen", {"step": 3}),
    Case("extra parameter", "training", tie=True),
    Case("other order", "training", tie=True),
    Case("other order", "unused_allowed", tie=True),
    Case("other precision", "training", tie=True),
    Case("converted batchnorm", "training"),
    Case("other hook", "training", tie=True),
    Case("bypassed forward", "training", {"step": 3}),
    Case("bypassed forward", "own_buffers", {"times": None}),
    Case("skipped synchronisation", "training", {"step": 3}),
    Case("lone forward", "training", {"step": 3}),
    Case("scaled gradient", "training", tie=True),
    Case("nan loss", "training", {"step": 3}),
    Case("other learning rate", "training", {"step": 3}),
    Case("variable", "training", {"name": "WORLD_SIZE", "value": ""}),
    Case("missing variable", "training"),
    Case("duplicate rank", "training"),
    Case("wrong port", "training", tie=True),
    Case("wrong address", "training", tie=True),
    Case("wrong interface", "training"),
    Case("world size", "training"),
    Case("many threads", "training", culprits=(0, 1), ranks=None),
    Case("deprecated variable", "training"),
    Case("other version", "training", tie=True),
    # these cost a process
    Case("kill", "collectives", {"seq": 5}),
    Case("freeze", "collectives", {"seq": 5}),
    Case("hold gil", "collectives", {"seq": 5}),
]


@pytest.fixture(scope="module")
def pair():
    with launched(2, patience=PATIENCE_S, fork=True) as world:
        yield world


@pytest.fixture
def faulty(pair):
    free(pair)
    return pair


def played(scenario, name, play):
    return scenario(f"faults/{name}", play, world="pair", patience=PATIENCE_S)


def test_every_kind_has_a_case():
    assert {case.kind for case in CASES} == set(KINDS)


@pytest.mark.parametrize(
    "script",
    ["collectives", "alike", "training", "slowly", "workers", "own_buffers", "unused_allowed", "partly_frozen"],
)
def test_without_a_fault_nothing_is_found(scenario, script):
    run = played(scenario, f"none {script}", lambda world: world.run(SCRIPT, script, stream=None).wait(60))
    assert (run.outcome, run.diagnosis.findings) == ("ok", ()), run.log(0)


def name(case):
    return " ".join(map(str, (case.kind, case.script, *case.given.values(), *(["all"] if case.ranks is None else []))))


@pytest.mark.parametrize("case", CASES, ids=name)
def test_the_finding_that_it_names(scenario, case):
    def play(world):
        injection = world.inject(case.kind, ranks=case.ranks, **case.given)
        assert injection.finding == KINDS[case.kind].finding
        run = world.run(SCRIPT, case.script, stream=None).wait(case.wait)
        deadline = time.monotonic() + 240  # of a run that goes on: the ranks of a busy machine are not there yet
        while not run.done and time.monotonic() < deadline:
            recording = world.snapshot()
            if ddpnb.diagnose(recording, PATIENCE_S).findings:
                return recording
            time.sleep(0.1)
        assert run.done and run.diagnosis.findings, f"{run.missed}; {injection.troubles}; {run.log(1)[-2000:]}"
        return run

    run = played(scenario, name(case), play)
    finding = run.diagnosis.findings[0]
    assert finding.code == (case.code or KINDS[case.kind].finding), str(run)
    assert finding.code in (KINDS[case.kind].finding, *KINDS[case.kind].also)
    expected = ((), ((0,), (1,))) if case.tie else (case.culprits, ())
    assert (finding.culprits, finding.sides) == expected, str(run)


def test_a_fault_ends_with_its_run(faulty):
    faulty.inject("raise", ranks=1, seq=5)
    assert faulty.run(SCRIPT, "collectives", stream=None).wait(60).outcome == "crash"
    faulty.release()
    assert faulty.run(SCRIPT, "collectives", stream=None).wait(60).outcome == "ok"


def test_one_that_is_kept_strikes_again_until_healed(faulty):
    injection = faulty.inject("raise", ranks=1, seq=5, keep=True, times=None)
    for _ in range(2):
        assert faulty.run(SCRIPT, "collectives", stream=None).wait(60).outcome == "crash"
        assert not faulty.release().left
    injection.heal()
    assert faulty.run(SCRIPT, "collectives", stream=None).wait(60).outcome == "ok"
    assert injection.struck == {}


@pytest.mark.full
def test_a_setting_is_put_back_when_it_is_healed(faulty):
    for kind, given in (
        ("shorter shard", {}),
        ("same shard", {}),
        ("other shuffle", {}),
        ("other learning rate", {}),
        ("frozen parameter", {"step": 3}),
    ):
        faulty.inject(kind, ranks=1, **given)
    holding = faulty.hold("broadcast", seq=16)  # in the fourth forward
    faulty.run(SCRIPT, "training", stream=None)
    assert holding.wait(60).held == (0, 1)
    settings = (
        "len(loader), sampler.rank, sampler.seed, optimizer.param_groups[0]['lr'], model.module[3].bias.requires_grad"
    )
    assert faulty.evaluate(settings).values_by_rank == {0: "(16, 0, 3, 0.05, True)", 1: "(14, 0, 4, 0.1, False)"}
    faulty.heal()
    assert faulty.evaluate(settings).values_by_rank == {0: "(16, 0, 3, 0.05, True)", 1: "(16, 1, 3, 0.05, True)"}


@pytest.mark.parametrize(
    ("kind", "script", "trouble"),
    [
        pytest.param("perturb buffer", "training", "broadcasts rank 0's buffers", marks=pytest.mark.full),
        ("stalled worker", "training", "has no workers"),
        pytest.param("thawed parameter", "training", "no parameter is frozen", marks=pytest.mark.full),
        pytest.param("converted batchnorm", "own_buffers", "no batch normalisation layer", marks=pytest.mark.full),
        pytest.param("lone forward", "own_buffers", "issues no collective", marks=pytest.mark.full),
    ],
)
def test_where_it_cannot_be_done_it_says_so(faulty, kind, script, trouble):
    injection = faulty.inject(kind, ranks=1, keep=True)
    run = faulty.run(SCRIPT, script, stream=None).wait(60)
    assert (run.outcome, run.diagnosis.findings, injection.struck) == ("ok", (), {1: 0})
    assert trouble in injection.troubles[1][0]
