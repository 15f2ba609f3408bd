"""What is written of the models that are followed."""

from __future__ import annotations

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from ddpnb.recording.blackbox import RUN_ACTIVE
from ddpnb.recording.calls import NO_SITE
from ddpnb.recording.events.models import BuffersSynced, ModelNotDescribed
from ddpnb.recording.replicas import UNWRAPPED


@pytest.mark.usefixtures("alone")
def test_without_room_for_a_description_the_watch_goes_on(watched, tmp_path, capsys):
    """All hooks of the replicas were taken away, and their traceback stood in the user's log."""
    (tmp_path / "rank0-run1-model0.json.part").mkdir()  # open() fails
    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    model(torch.ones(1, 2)).sum().backward()
    assert watched.samples("forward")
    assert [event.number for event in watched.events(ModelNotDescribed)] == [0]
    assert "The replicas of Linear are not compared on this rank" in capsys.readouterr().err


# -- models that later runs use again: cells share the state of earlier ones


def another_run(watched, number, name="", place=None):
    """The run ends, and another begins in the same process, as ``Rank.run`` does it."""
    watched.replicas.finish(name, place)
    watched.replicas.models.remember()
    watched.box.set_run(number, RUN_ACTIVE)
    watched.begin(number)


def step(model, optimizer):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def made():
    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.usefixtures("alone")
def test_a_model_of_an_earlier_run_is_followed_again(watched):
    """It was taken for a model without a wrapper, of which nothing was known."""
    model, optimizer = made()
    step(model, optimizer)
    another_run(watched, 2, "In[5]")
    with torch.no_grad():
        model.module.bias.add_(1)
    another_run(watched, 3, "In[6]", {"file": "In[6]", "line": 2, "function": "<module>"})
    assert watched.models == []
    step(model, optimizer)
    (described,) = watched.models
    assert (described.wrapper, described.module, described.options["made"]) == (
        "DistributedDataParallel",
        "Linear",
        [1, 0],
    )
    first, edited = watched.samples("earlier")
    assert [(one.turn, one.step, one.facts) for one in (first, edited)] == [
        (1, 0, {"steps": 1.0, "run": "In[5]"}),
        (2, 0, {"steps": 0.0, "run": "In[6]"}),
    ]
    assert (edited.site.file, edited.site.line, first.site) == ("In[6]", 2, NO_SITE)
    begins, updated = watched.samples("updated")
    assert (begins.turn, begins.digests) == (1, edited.digests)
    assert [name for name in begins.digests if begins.digests[name] != first.digests[name]] == ["bias"]
    assert updated.turn == 2 and [one.turn for one in watched.samples("forward")] == [1]
    assert [event.synced for event in watched.events(BuffersSynced)] == [True]


@pytest.mark.usefixtures("alone")
def test_a_run_that_changes_nothing_leaves_no_trace(watched):
    model, optimizer = made()
    step(model, optimizer)
    for number in range(2, 5):
        another_run(watched, number, f"In[{number}]")
    step(model, optimizer)
    assert [one.turn for one in watched.samples("earlier")] == [1]


@pytest.mark.usefixtures("alone")
def test_many_runs_leave_the_first_and_the_last_ends(watched):
    model, optimizer = made()
    for number in range(2, 40):
        step(model, optimizer)
        another_run(watched, number, f"In[{number}]")
    step(model, optimizer)
    assert [one.turn for one in watched.samples("earlier")] == [*range(1, 9), *range(31, 39)]


@pytest.mark.usefixtures("alone")
def test_numbers_of_models_that_are_used_again_and_of_new_ones(watched):
    models = [made() for _ in range(3)]
    another_run(watched, 2, "In[5]")
    step(*models[2])
    assert [one.number for one in watched.models] == [2]
    fresh = made()
    step(*models[0])  # its number is taken
    step(*fresh)
    numbers = {one.number: one.options.get("made") for one in watched.models}
    assert numbers == {0: None, 1: [1, 0], 2: [1, 2]}
    living = sorted(one.number for one in watched.replicas.models.living())
    assert living == [0, 1, 2], "the model that is not used has no number of its own"


@pytest.mark.usefixtures("of_two")
def test_parameters_of_an_optimizer_are_followed_again_too(watched):
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    step(net, optimizer)
    another_run(watched, 2, "In[5]")
    step(net, optimizer)
    (described,) = watched.models
    assert (described.wrapper, described.number, described.options["made"]) == ("", UNWRAPPED, [1, UNWRAPPED])
    assert [one.facts["run"] for one in watched.samples("earlier")] == ["In[5]"]


@pytest.mark.usefixtures("alone")
def test_after_a_script_nothing_is_used_again(watched):
    model, optimizer = made()
    step(model, optimizer)
    watched.replicas.models.remember()
    watched.replicas.models.forget()
    watched.begin(2)
    step(model, optimizer)
    assert watched.samples("earlier") == []
