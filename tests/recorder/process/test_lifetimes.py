"""What a program deletes is gone at once: nothing of the recorder keeps models, optimizers, groups, calls or exceptions.

``tests/harmless/programs/lifetimes.py`` compares many more ways with torchrun.
"""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddpnb.recorder.collectives.door import Door
from ddpnb.recorder.collectives.in_flight import Flight
from ddpnb.recorder.collectives.phases import Phases
from ddpnb.recorder.collectives.waits import asked
from ddpnb.recorder.collectives.waits import watched as watched_wait
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.holds.release import Release
from ddpnb.recorder.models.optimizers import Known
from ddpnb.recorder.models.tracing import Tracing
from ddpnb.recorder.process.functions import SentFunctions
from ddpnb.recorder.process.script import run
from ddpnb.recording.replicas import UNWRAPPED


@pytest.fixture(autouse=True)
def without_collection():
    """Without ddpnb none of these needs the garbage collector."""
    assert torch._dynamo  # an optimizer imports it when it is made, and leaves garbage
    gc.disable()
    yield
    gc.enable()


class Thing:
    """Of which it is asked whether it is still there."""


def trained(steps=3, **options):
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)), **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step(model, optimizer, steps)
    return model, optimizer


def step(model, optimizer, steps=1):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 2)).sum().backward()
        optimizer.step()


def references(**things):
    return {name: weakref.ref(thing) for name, thing in things.items()}


def alive(followed):
    return [name for name, reference in followed.items() if reference() is not None]


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("options", [{}, {"find_unused_parameters": True}, {"gradient_as_bucket_view": True}])
def test_the_last_model(watched, options):
    """Its parameters, gradients and buckets stayed until another one ran forward."""
    watched.door.open()
    try:
        model, optimizer = trained(**options)
        layer, norm = model.module
        followed = references(model=model, optimizer=optimizer, weight=layer.weight, grad=layer.weight.grad)
        followed |= references(buffer=norm.running_mean)
        del model, optimizer, layer, norm
        assert alive(followed) == []
    finally:
        watched.door.close()
    assert watched.replicas.models.last is None and watched.replicas.models.exact() == []
    assert [one.turn for one in watched.samples("forward")] == [1, 2, 3], "what was recorded of it stays"


@pytest.mark.usefixtures("alone")
def test_a_model_of_an_earlier_run(watched):
    model, optimizer = trained()
    weight = weakref.ref(model.module[0].weight)
    watched.replicas.finish("In[5]")
    watched.replicas.models.remember()
    watched.begin(2)
    assert len(watched.replicas.models.living()) == 1
    del model, optimizer
    assert weight() is None and watched.replicas.models.living() == []
    watched.replicas.finish("In[6]")


@pytest.mark.usefixtures("alone")
def test_a_model_without_its_wrapper_is_followed_as_long_as_it_trains(watched):
    model, optimizer = trained(1)
    inner, wrapper = model.module, weakref.ref(model)
    del model
    assert wrapper() is None
    step(inner, optimizer, 2)
    assert [one.turn for one in watched.samples("gradients")] == [1, 2, 3]
    weight = weakref.ref(inner[0].weight)
    del inner, optimizer
    assert weight() is None


@pytest.mark.usefixtures("of_two")
def test_parameters_that_leave_an_optimizer(watched):
    """It stays, and its other parameters are followed as before."""
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD([{"params": layer.parameters()} for layer in net], lr=0.1)
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    weight = weakref.ref(net[0].weight)
    del optimizer.param_groups[0], net[0]
    assert weight() is None
    (watch,) = watched.replicas.models.living()
    assert [name is not None for name in watch.tensors] == [False, False, True, True]
    assert [name for name, _, _ in watch.exact()["tensors"]] == watch.names[2:]
    assert watched.replicas.models.values(UNWRAPPED, watch.names[0], 9) == b""
    assert len(watched.replicas.models.values(UNWRAPPED, watch.names[2], 9)) == 4 * 4
    assert not any(id(parameter) in watch.ids for parameter in torch.nn.Linear(2, 2).parameters())


@pytest.mark.usefixtures("alone")
def test_a_buffer_that_is_assigned_anew(watched):
    """It is not compared any more, as nothing of it is known; all others are."""
    model, optimizer = trained(1)
    before = weakref.ref(model.module[1].running_mean)
    model.module[1].running_mean = torch.ones(2)
    step(model, optimizer)
    assert before() is None
    first, second = watched.samples("forward")
    assert set(first.digests) - set(second.digests) == {"1.running_mean"}
    assert "1.running_var" in second.digests and "0.weight" in second.digests


@pytest.mark.usefixtures("of_two")
def test_torch_may_swap_what_is_followed(watched):
    """It refuses to swap tensors that have weak references."""
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    torch.utils.swap_tensors(net.weight, torch.nn.Parameter(torch.full((2, 2), 5.0)))
    assert net.weight.tolist() == [[5, 5], [5, 5]]
    (watch,) = watched.replicas.models.living()
    assert watch.tensors[0] is net.weight


@pytest.mark.parametrize("values", [{}, {"lr": 1.0}])
def test_what_an_optimizer_was_set_to(values):
    """Its settings are kept, not its parameters."""
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer, known = torch.optim.SGD([parameter], **{"lr": 0.5, **values}), Known()
    known.is_set(optimizer)
    reference = weakref.ref(parameter)
    del optimizer, parameter
    assert reference() is None and known.settings["lr"] == values.get("lr", 0.5)


@pytest.mark.usefixtures("of_two")
def test_a_process_group_that_nobody_has(watched):
    """Torch's own table has those of new_group(), but a group can be made without it."""
    groups = watched.door.groups
    group = dist.ProcessGroup(dist.HashStore(), 0, 1)
    first = groups.get(group)
    assert groups.get(group) is first and first.of() is group
    reference = weakref.ref(group)
    del group
    assert reference() is None and groups.known == {}
    another = dist.ProcessGroup(dist.HashStore(), 0, 1)
    assert groups.get(another) is not first


@pytest.fixture
def door(tmp_path):
    return Door(BlackBox(str(tmp_path / "rank0.box"), 0), str(tmp_path))


class Work:
    """Of the backend."""

    def __init__(self, complete=True):
        self.complete = complete

    def is_completed(self):
        return self.complete


def test_an_exception_of_a_wait(door):
    def fails(work):
        raise RuntimeError(Thing())

    wait, work = watched_wait(fails, door), Work()
    door.flight.pending[work] = (0, -1, True)
    try:
        wait(work)
    except RuntimeError as error:
        followed = references(thing=error.args[0], work=work)
    del work
    assert alive(followed) == []


def test_an_exception_of_a_backward_pass(door):
    def fails():
        raise RuntimeError(Thing())

    try:
        Phases(door.box, door)._backward(fails)()
    except RuntimeError as error:
        followed = references(thing=error.args[0])
    assert alive(followed) == []


@pytest.mark.usefixtures("alone")
def test_an_exception_of_a_call(door):
    """The backend refuses the call."""
    door.open()
    try:
        tensor = torch.ones(2).to_sparse()
        try:
            dist.broadcast(tensor, 5, group=dist.group.WORLD)
        except Exception:
            followed = references(tensor=tensor)
        del tensor
        assert alive(followed) == []
    finally:
        door.close()


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit])
def test_an_exception_that_ends_the_code(kind):
    """Of a cell, after which the rank goes on."""
    followed = {}

    def code():
        thing = Thing()
        followed.update(references(thing=thing))
        raise kind("no")

    assert run(code, Release()).ending["code"] == 1
    assert alive(followed) == []


def test_a_call_that_the_program_knows_to_be_complete(door):
    question, work = asked(Work.is_completed, door), Work(complete=False)
    door.flight.pending[work] = (0, -1, False)
    assert question(work) is False and door.flight.outstanding == 1
    work.complete = True
    assert question(work) is True and door.flight.outstanding == 0


def test_calls_that_nobody_waits_for(door):
    """Those of DDP hold its buckets: they are let go of after its backward pass."""
    flight = Flight(door.box)
    works = [Work(), Work(), Work(complete=False), Work()]
    flight.pending = {work: (0, number, False) for number, work in enumerate(works)}
    flight.tidy()
    assert list(flight.pending) == works[2:]


def test_what_a_function_of_the_notebook_brought():
    sent, thing = SentFunctions(), Thing()
    sent._sent = {"thing": weakref.ref(thing), "other": lambda: 1}
    assert sent._is_notebooks("thing", {"thing": thing}) and not sent._is_notebooks("thing", {"thing": Thing()})
    assert not sent._is_notebooks("unknown", {"unknown": None})


def test_a_model_whose_traced_forward_fails(tmp_path):
    """The hook stays until the next run, and does not hold the model."""
    tracing = Tracing(BlackBox(str(tmp_path / "rank0.box"), 0))
    model = torch.nn.Linear(2, 2)
    tracing.arm(0, 1, True)
    tracing.begin(0, 1, model, dict)
    reference = weakref.ref(model)
    del model
    assert reference() is None
    tracing.remove()
