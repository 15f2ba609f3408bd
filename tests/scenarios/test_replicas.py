"""Replicas that part silently, on real ranks: which tensor, on which ranks, since when, and by how much."""

from __future__ import annotations

import os
import re
import time

import pytest

from ddpnb.recording.events.runs import HooksDetached
from tests.conftest import VICTIMS, marked_lines

pytestmark = pytest.mark.world

SCRIPT = VICTIMS / "replicas.py"
BEGINS = 6  # the step, forward and optimizer step in which the victims part, counted from 1
BODY, HEAD = ("body.weight", "body.bias"), ("head.weight", "head.bias")
# case: code, culprits, tensors that differ first, in which kind of sample
CASES = {
    "edited": ("DDP405", [2], ("head.bias",), "forward"),
    "edited_a_little": ("DDP405", [0], ("wide.weight",), "forward"),
    "rate": ("DDP410", [1], None, "updated"),
    "momentum": ("DDP410", [3], ("head.weight",), "updated"),
    "not_synchronised": ("DDP408", [0, 1, 2, 3], None, "gradients"),
    "gradient": ("DDP409", [1], ("body.bias",), "gradients"),
    "statistics": ("DDP406", [0, 1, 2, 3], None, "forward"),
}


@pytest.fixture
def parted(scenario):
    """One run in which all of them happen, each to a model of its own; nothing happens to the first."""
    what = ",".join(["healthy", *CASES])
    run = scenario("replicas", lambda world: world.run(SCRIPT, what, stream=None).wait(90), world="shared_world")
    assert all(ending is not None and ending.well for ending in run.endings.values()), run.log(0)
    assert not [record for record in run.recording.ranks.values() if record.events(HooksDetached)]
    assert (run.outcome, run.exit_status) == ("divergence", 4)
    assert len(run.diagnosis.findings) == len(CASES), str(run.diagnosis)
    return run


def first_parting(recording, model, buffers=False):
    """(step, kind, sides, tensors) of the first samples that differ, by their digests alone."""
    order = ("updated", "forward", "gradients")
    taken = {}
    for rank, record in recording.ranks.items():
        for sample in record.samples:
            if sample.kind in order and sample.model == model:
                taken.setdefault((sample.step, order.index(sample.kind), sample.turn), {})[rank] = sample
    for (step, kind, _), samples in sorted(taken.items()):
        assert len(samples) == 4
        hashes = {rank: {name: one.hash for name, one in sample.digests.items()} for rank, sample in samples.items()}
        odd = [name for name in hashes[0] if len({told[name] for told in hashes.values()}) > 1]
        odd = [name for name in odd if buffers or not name.startswith("norm.running")]
        if odd:
            sides = {}
            for rank, told in hashes.items():
                sides.setdefault(tuple(told[name] for name in odd), []).append(rank)
            tensors = tuple(dict.fromkeys(name.partition("[")[0] for name in odd))
            return step, order[kind], sorted(sides.values(), key=len), tensors
    return None


@pytest.mark.parametrize("case", CASES)
def test_named(parted, case):
    code, culprits, tensors, kind = CASES[case]
    number = 1 + list(CASES).index(case)
    finding = parted.diagnosis.findings[number - 1]
    assert (finding.code, list(finding.culprits)) == (code, culprits), str(parted.diagnosis)
    lines = marked_lines(SCRIPT, "culprit", case)
    assert not lines or {site.line for _, site in finding.where} & lines, str(finding)
    begins = 2 if case == "statistics" else BEGINS  # they part with the first batch
    told = re.findall(r"(?:forward|optimizer step) (\d+)", finding.summary)
    assert told and begins <= int(told[0]) <= begins + 1, finding.summary
    step, where, sides, names = first_parting(parted.recording, number, buffers=case == "statistics")
    assert (step, where) == (begins - (kind != "updated"), kind)
    if len(culprits) == 1:
        assert sides[0] == culprits and len(sides) == 2
    if tensors is not None:
        assert finding.tensors == names == tensors


def test_by_how_much(parted):
    told = " ".join(parted.diagnosis.findings[0].evidence)
    found = re.search(r"head\.bias: norm ([\d.e-]+) on ranks 0, 1 and 3, ([\d.e-]+) on rank 2", told)
    assert found, told
    assert 0.3 < abs(float(found[2]) - float(found[1])) <= 0.5  # one of two numbers is 0.5 more
    rate = " ".join(parted.diagnosis.findings[2].evidence)
    assert "0.05" in rate and "0.04" in rate


def test_replicas_that_agree(parted):
    assert first_parting(parted.recording, 0) is None
    for record in parted.recording.ranks.values():
        kinds = [sample.kind for sample in record.samples if sample.model == 0]
        assert [kinds.count(kind) for kind in ("forward", "backward", "gradients", "updated")] == [9, 9, 9, 10]


# -- what the training has of it


def train_twice(steps):
    """Digests of all of a training's state, with the watch and without."""
    import hashlib
    import os

    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from ddpnb.recorder import rank
    from ddpnb.recorder.events.hooks import put_in_place

    dist.init_process_group("gloo")
    os.environ["DDPNB_LOOKS"] = f"0..{steps}"  # at each step, however busy the machine is
    found, watch = [], rank.current.replicas
    for watched in (True, False):
        if not watched:
            watch.remove()
        torch.manual_seed(0)
        model = DistributedDataParallel(
            nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 4))
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        torch.manual_seed(dist.get_rank())
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(6, 8)).square().mean().backward()
            optimizer.step()
        state = [*model.state_dict().values(), *(v for s in optimizer.state.values() for v in s.values())]
        rest = torch.random.get_rng_state()
        found.append(hashlib.sha256(b"".join(t.numpy().tobytes() for t in [*state, rest])).hexdigest())
    put_in_place(watch)
    del os.environ["DDPNB_LOOKS"]
    return found


def test_numbers_are_the_same(world):
    run = world.run(train_twice, 20, stream=None).wait(60)
    assert run.outcome == "ok" and run.diagnosis.findings == (), str(run.diagnosis)
    assert all(with_it == without for with_it, without in run.results), run.log(0)
    # 20 steps of the first model, and its wrapping; the second was not seen.
    assert len([s for s in run.recording.ranks[0].samples if s.kind == "updated"]) == 21


def fail_on(rank, steps):
    import os

    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from ddpnb.recorder.stacks.digests import Digester

    dist.init_process_group("gloo")
    os.environ["DDPNB_LOOKS"] = f"0..{steps}"
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        if dist.get_rank() == rank and step == 3:
            Digester.digest = lambda *_: 1 / 0
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    del os.environ["DDPNB_LOOKS"]
    return model.module.weight.tolist()


def test_a_failing_hook_detaches_itself_and_says_so_once(world):
    run = world.run(fail_on, 1, 8, stream=None).wait(60)
    try:
        assert run.outcome == "ok", str(run.diagnosis)
        assert len({str(weight) for weight in run.results}) == 1
        assert run.log(1).count("a hook failed and was disabled") == 1
        assert "ZeroDivisionError" in run.log(1)
        assert run.log(2) == run.log(3) == "" and "hook" not in run.log(0)
        taken = [len([s for s in run.recording.ranks[r].samples if s.kind == "gradients"]) for r in range(4)]
        assert taken == [8, 3, 8, 8]
    finally:
        world.restart([1])


# -- on demand


@pytest.mark.full
def test_compare_while_they_hang(world):
    run = world.run(SCRIPT, "hangs", stream=None).wait(60)
    assert run.outcome == "hang"
    found = world.compare()
    assert found.exact and not found.equal and set(found.steps.values()) == {9} and found.compared == 11
    parameters = [one for one in found.differences if not one.name.startswith("norm.running")]
    assert [(one.name, one.sides) for one in parameters] == [("head.bias", ((0, 3), (2,)))]  # rank 1 has none any more
    assert parameters[0].largest == pytest.approx(0.5, rel=1e-5)
    assert "head.bias: ranks 0 and 3 | rank 2; largest difference 0.5" in str(found)
    assert any("buffers may differ" in note for note in found.notes)  # of its last batch
    began = time.monotonic()
    traced = world.compare(trace=True)
    assert traced.first_module == "" and any("needs a run in progress" in note for note in traced.notes)
    assert time.monotonic() - began < 20


@pytest.mark.full
def test_compare_while_they_train(world, tmp_path):
    """Live, in a forward that all of them make: nothing but the parted tensor differs, of two models in turn."""
    stop = tmp_path / "stop"
    run = world.run(SCRIPT, "goes_on", stop, stream=None)
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and world.compare().compared < 22:
        time.sleep(0.2)
    for _ in range(3):
        found = world.compare()
        assert run.outcome == "running" and found.exact and not found.equal
        assert {one.model for one in found.differences} == {0}, str(found)
        assert "wide.bias" in [one.name for one in found.differences]
        assert {one.sides for one in found.differences} == {((0, 2, 3), (1,))}
        assert found.compared == 22
    traced = world.compare(trace=True)
    assert traced.first_module.startswith("wide (Linear): ranks 0, 2 and 3 | rank 1"), str(traced)
    assert "DDP405" in [finding.code for finding in run.diagnosis.findings]
    stop.touch()
    assert run.wait(30).outcome == "divergence"
    assert run.diagnosis.errors[0].culprits == (1,)


TRAINS = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
model = DistributedDataParallel(net)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4) + dist.get_rank()).square().mean().backward()
        optimizer.step()
train(20)
"""
EDITS = "with torch.no_grad():\n    net[0].weight[0, 0] += 0.5\n"


@pytest.mark.full
def test_a_weight_that_one_rank_edits_between_two_cells_that_train(world):
    """The card said that the parameters were never the same, and advised to use DistributedDataParallel."""

    def cell(code, name, ranks=None):
        return world.execute(code, ranks=ranks, stream=None, name=name).wait(60)

    assert cell(TRAINS, "In[4]").outcome == "ok"
    assert cell(EDITS, "In[5]", [1]).outcome == "ok"
    for name in ("In[6]", "In[7]"):
        run = cell("train(10)", name)
        (found,) = (one for one in run.diagnosis.findings if one.severity == "error")
        assert (run.outcome, found.code, found.culprits) == ("divergence", "DDP405", (1,))
        assert found.tensors == ("0.weight",)
        assert "parameters of Sequential" in found.summary and "since In[5]" in found.summary
        assert "When In[4] ended, all ranks held the same values." in found.evidence
        assert found.evidence[1].startswith("Rank 1 changed 0.weight in In[5], without an optimizer step;")
        (where,) = (site for rank, site in found.where if rank == 1)
        assert (os.path.basename(where.file), where.line) == ("In[5].py", 2)
        assert "DistributedDataParallel" not in found.remedy
    assert [one.name for one in world.compare().differences] == ["0.weight"]
    assert cell("for p in net.parameters(): dist.broadcast(p.data, src=0)", "In[8]").outcome == "ok"
    assert cell("train(10)", "In[9]").outcome == "ok"
