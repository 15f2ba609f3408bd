"""Data that are wrong are named, data that are merely odd are not. Real ranks, real loaders."""

from __future__ import annotations

import re

import pytest

from ddpnb.recording.events.runs import HooksDetached
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.uneven_loaders import uneven_loops
from ddpnb.rules import engine
from tests.conftest import VICTIMS, marked_lines
from tests.rules.recordings import refined

CASES = {
    "no_sampler": ("DDP501", [0, 1, 2, 3]),
    "seeded_alike": ("DDP501", [0, 1, 2, 3]),
    "first_shard_for_all": ("DDP501", [0, 1, 2, 3]),
    "epoch_not_set": ("DDP502", [0, 1, 2, 3]),
    "seed_of_rank": ("DDP503", []),  # each rank has its own
    "files_unsorted": ("DDP503", []),  # each rank has its own
    "split_without_seed": ("DDP503", []),  # each rank has its own
}
HEALTHY = re.findall(r"^def (\w+)\(rank\)", (VICTIMS / "data_healthy.py").read_text(), re.MULTILINE)


def of_data(recording):
    return engine.ask(Snapshot(recording), engine.of_package("data"))


def played(scenario, file, case):
    def play(world):
        return world.run(VICTIMS / file, case, stream=None).wait(90)

    return scenario(f"{file.removesuffix('.py')}/{case}", play, world="shared_world")


@pytest.mark.world
@pytest.mark.parametrize("case", CASES)
def test_named(scenario, case):
    run = played(scenario, "data.py", case)
    assert all(ending is not None and ending.well for ending in run.endings.values()), run.log(0)
    (finding,) = of_data(run.recording)
    assert (finding.code, list(finding.culprits)) == CASES[case], str(finding)
    assert finding.culprits or finding.sides == ((0,), (1,), (2,), (3,))
    lines = marked_lines(VICTIMS / "data.py", "culprit", case)
    assert {site.line for _, site in finding.where} == lines and len(finding.where) == 4


@pytest.mark.world
def test_uneven_shards(scenario):
    run = played(scenario, "data.py", "uneven")
    assert run.outcome == "hang", str(run.diagnosis)
    found = uneven_loops(run.recording, stopped=True)
    assert found is not None and (found.fewest, found.counts[1]) == ((1,), 6)
    lines = {loop.site.line for loop in found.loops.values()}
    assert lines == marked_lines(VICTIMS / "data.py", "culprit", "uneven")
    assert "out of the loop" in run.recording.ranks[1].output


@pytest.mark.world
@pytest.mark.parametrize(("case", "culprit"), [("worker_waits", 1), ("environment_waits", 2)])
def test_a_process_of_the_rank_stands_still(scenario, case, culprit):
    run = played(scenario, "data.py", case)
    assert run.outcome == "hang", str(run.diagnosis)
    first = run.diagnosis.errors[0]
    found = first if first.code == "DDP507" else refined(run.recording, first)
    assert (found.code, found.culprits) == ("DDP507", (culprit,))
    lines = marked_lines(VICTIMS / "data.py", "culprit", case)
    assert dict(found.where)[culprit].line in lines, found
    children = run.recording.ranks[culprit].children
    assert children and all(child.stacks for child in children if child.status != "Z")
    assert not run.recording.ranks[0].children  # it waits in a collective: its workers are left alone


@pytest.mark.world
@pytest.mark.parametrize("case", HEALTHY)
def test_silent(scenario, case):
    run = played(scenario, "data_healthy.py", case)
    assert run.outcome == "ok", str(run.diagnosis) + run.log(0)[-2000:]
    assert of_data(run.recording) == []
    assert not [record for record in run.recording.ranks.values() if record.events(HooksDetached)]
    host = set(run.recording.host)
    assert {"cores", "memory_total", "shm_free"} <= host
    # Of a control group that is not shown in the container only the kills on the whole machine are known.
    assert {"oom_kills", "oom_kills_before"} <= host or "oom_kills_anywhere" in host
