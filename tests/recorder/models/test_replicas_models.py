"""Which models and optimizers the watch of the replicas follows, and what it tells of them."""

from __future__ import annotations

import copy
import inspect
import math
import warnings

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddpnb.recording.calls import NO_SITE
from ddpnb.recording.events.models import (
    BuffersSynced,
    LossNotFinite,
    OptimizerSeen,
    ParametersFrozen,
    ParametersReplaced,
)
from ddpnb.recording.replicas import UNWRAPPED
from tests.recorder.models.test_replicas import BUFFERS, PARAMETERS, Net, batch, train


def line_of(function, text):
    lines, start = inspect.getsourcelines(function)
    return start + next(number for number, line in enumerate(lines) if text in line)


# -- wrapped models


@pytest.mark.usefixtures("alone")
@pytest.mark.filterwarnings("ignore:`broadcast_buffers` is deprecated")
def test_a_wrapped_model_is_described(watched):
    net = Net()
    net.head.bias.requires_grad_(False)
    DDP._set_params_and_buffers_to_ignore_for_model(net, ["norm.weight"])
    DDP(net, broadcast_buffers=False, bucket_cap_mb=3)
    (model,) = watched.models
    assert (model.number, model.wrapper, model.module, model.ranks) == (0, "DistributedDataParallel", "Net", (0,))
    assert [tensor.name for tensor in model.parameters] == PARAMETERS
    assert [tensor.name for tensor in model.buffers] == BUFFERS
    by_name = {tensor.name: tensor for tensor in model.tensors}
    assert (by_name["body.weight"].shape, by_name["body.weight"].kind) == ((8, 4), "Linear")
    assert by_name["norm.num_batches_tracked"].dtype == "int64"
    assert [name for name, tensor in by_name.items() if tensor.ignored] == ["norm.weight"]
    assert [name for name in PARAMETERS if not by_name[name].trains] == ["head.bias"]
    assert (model.options["broadcast_buffers"], model.options["bucket_cap_mb"]) == (False, 3)
    line = line_of(test_a_wrapped_model_is_described, "DDP(net, broadcast")
    assert (model.site.file, model.site.line) == (__file__, line)
    assert watched.events(BuffersSynced)[0].synced is False


@pytest.mark.usefixtures("alone")
def test_a_model_that_could_not_be_wrapped_is_described_too(watched):
    frozen = nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(RuntimeError, match="requires a gradient"):
        DDP(frozen)
    train(DDP(Net()))
    assert [(model.number, model.module) for model in watched.models] == [(0, "Linear"), (1, "Net")]
    assert {sample.model for sample in watched.samples()} == {1}


@pytest.mark.usefixtures("alone")
def test_each_model_has_samples_of_its_own(watched):
    models = [DDP(nn.Linear(4, 2)), DDP(nn.Linear(4, 3))]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    for model, optimizer, times in zip(models, optimizers, (1, 2), strict=True):
        for _ in range(times):
            model(batch(0)).sum().backward()
            optimizer.step()
    taken = [(sample.model, sample.kind) for sample in watched.samples()]
    assert [taken.count((model, "forward")) for model in (0, 1)] == [1, 2]
    assert [taken.count((model, "gradients")) for model in (0, 1)] == [1, 2]
    assert [taken.count((model, "backward")) for model in (0, 1)] == [1, 2]


@pytest.mark.usefixtures("alone")
def test_parameters_put_in_place_that_alone_are_trained(watched):
    """No optimizer holds anything of what was wrapped."""
    model = DDP(Net())
    adapter = nn.Linear(2, 2)
    model.module.head = nn.Sequential(model.module.head, adapter)
    optimizer = torch.optim.SGD(adapter.parameters(), lr=0.1)
    for step in range(3):
        model(batch(step)).sum().backward()
        optimizer.step()
    assert [event.names for event in watched.events(ParametersReplaced)][:1] == [("head.1.weight", "head.1.bias")]


@pytest.mark.usefixtures("alone")
def test_parameters_put_in_place_of_those_that_were_wrapped(watched):
    model = DDP(Net())
    train(model, 3)
    assert watched.events(ParametersReplaced) == []
    model.module.head.weight = nn.Parameter(torch.ones(2, 8))
    train(model)
    assert [event.names for event in watched.events(ParametersReplaced)] == [("head.weight",)]


@pytest.mark.usefixtures("alone")
def test_parameters_that_are_frozen_after_wrapping_are_recorded_when_a_forward_fails(watched):
    net = Net()
    net.head.bias.requires_grad_(False)
    model = DDP(net)
    train(model)
    net.body.requires_grad_(False)
    train(model)
    assert watched.events(ParametersFrozen) == []
    with pytest.raises(RuntimeError, match="Expected to have finished reduction"):
        train(model, 2)
    (told,) = watched.events(ParametersFrozen)
    assert (told.names, told.count) == (("body.weight", "body.bias"), 2)
    model.module.head = nn.Linear(8, 2)
    with pytest.raises(RuntimeError, match="Expected to have finished reduction"):
        train(model)
    assert watched.events(ParametersReplaced)[-1].names == ("head.weight", "head.bias")


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("find", [True, False])
def test_parameters_that_a_loss_does_not_use(watched, find):
    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x):
            return self.used(x)

    model = DDP(Branch(), find_unused_parameters=find)
    model(batch(0)).sum().backward()
    told = watched.samples("backward")[0].facts.get("unused")
    assert told == (["spare.weight", "spare.bias"] if find else None)


# -- around the wrapper


@pytest.mark.usefixtures("alone")
def test_a_module_that_is_called_behind_its_wrappers_back(watched):
    model = DDP(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model.module(batch(0)).sum().backward()
        optimizer.step()
    found = watched.samples("gradients")
    assert [[s.forwards, s.backwards] for s in found] == [[0, 1], [0, 1]]
    site = found[0].facts["bypass_site"]
    here = test_a_module_that_is_called_behind_its_wrappers_back
    assert (site["file"], site["line"]) == (__file__, line_of(here, "model.module(batch"))


@pytest.mark.usefixtures("alone")
def test_a_part_of_a_module_that_is_called_by_a_method_behind_its_wrappers_back(watched):
    class Student(Net):
        def loss(self, x):
            return self.features(x).sum()

        def features(self, x):
            return next(self.children())(x)

    def distill(net):
        return net.loss(batch(0))

    model = DDP(Student())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        distill(model.module).backward()
        optimizer.step()
    site = watched.samples("gradients")[-1].facts["bypass_site"]
    assert (site["file"], site["line"], site["function"]) == (__file__, line_of(distill, "net.loss(batch"), "distill")


@pytest.mark.usefixtures("alone")
def test_a_module_that_is_evaluated_by_itself_goes_past_nothing(watched):
    model = DDP(Net())
    with torch.no_grad():
        model.module(batch(0))
    model.module.eval()
    model.module(batch(0))
    model.train()
    train(model, 2)
    model.module(batch(0))
    train(model)
    assert [s.bypass for s in watched.samples("gradients")] == [0, 0, 0]
    assert torch.nn.modules.module._global_forward_pre_hooks == {}  # it is looked for until the wrapper is used


@pytest.mark.full
@pytest.mark.usefixtures("alone", "watched")
def test_a_wrapper_that_is_compiled_while_its_module_is_looked_for():
    """torch warns of hooks on all modules: of ours nobody wants to hear, least of all where warnings are errors."""
    torch._dynamo.reset()
    wrapper = DDP(Net())
    assert torch.nn.modules.module._has_any_global_hook()
    model = torch.compile(wrapper, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Guards may run slower")  # of torch, about this version of Python
        model(batch(0)).sum().backward()
    DDP(Net())
    assert not torch.nn.modules.module._has_any_global_hook()
    torch._dynamo.reset()


@pytest.mark.usefixtures("alone")
@pytest.mark.filterwarnings("ignore:Guards may run slower")  # of torch, about this version of Python
def test_the_compiler_compiles_no_function_of_ours(watched):
    """It looks at each function that is called below a frame which it leaves to Python, as that of the wrapper."""
    from torch._dynamo.utils import counters

    def compiled():
        torch._dynamo.reset()
        counters.clear()
        model = torch.compile(DDP(Net()), backend="eager")
        for step in range(3):
            model(batch(step)).sum().backward()
        return dict(counters["frames"]), dict(counters["graph_break"])

    compiled()
    watched.door.open()
    ours = compiled()
    watched.door.close()
    watched.replicas.remove()
    assert ours == compiled()
    torch._dynamo.reset()


# -- optimizers


@pytest.mark.usefixtures("alone")
def test_what_an_optimizer_holds(watched):
    model = DDP(Net())
    train(model)
    seen = watched.events(OptimizerSeen)[-1]
    assert seen.facts() == {"optimizer": "SGD", "model": 0, "parameters": 6, "idle": 0, "number": 0}
    assert seen.site != NO_SITE
    torch.optim.Adam([*model.module.body.parameters(), nn.Parameter(torch.ones(1))]).step()
    told = watched.events(OptimizerSeen)[-1]
    assert (told.strangers, told.idle, told.missing, told.copies) == (1, 1, tuple(PARAMETERS[2:]), False)


@pytest.mark.usefixtures("alone")
def test_whether_what_an_optimizer_holds_beside_a_model_is_used(watched):
    """Parameters of another model have gradients, if not in the first step, which may only make the optimizer's state."""
    model = DDP(Net())
    train(model)
    other = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(other.parameters())
    for parameter in other.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for _ in range(3):
        optimizer.step()
    assert [seen.idle for seen in watched.events(OptimizerSeen)] == [0, 2]
    other(torch.ones(1, 2)).sum().backward()
    for _ in range(3):
        optimizer.step()
    assert [(seen.idle, seen.number) for seen in watched.events(OptimizerSeen)] == [(0, 0), (2, 1), (0, 1)]


@pytest.mark.usefixtures("alone")
def test_an_optimizer_of_tensors_that_have_been_replaced(watched):
    net = Net()
    stale = torch.optim.SGD(copy.deepcopy(net).parameters(), lr=0.1)
    DDP(net)(batch(0)).sum().backward()
    model = DDP(net)
    model(batch(0)).sum().backward()
    stale.step()
    told = watched.events(OptimizerSeen)[-1]
    assert (told.copies, told.strangers, told.missing) == (True, 6, tuple(PARAMETERS))
    assert watched.samples("gradients") == []


@pytest.mark.usefixtures("of_two")
def test_without_a_wrapper_the_parameters_of_the_optimizer_are_followed(watched):
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        net(batch(0)).sum().backward()
        optimizer.step()
    (model,) = watched.models
    assert (model.wrapper, model.ranks, model.options) == ("", (0, 1), {"sharded": False})
    assert [tensor.name for tensor in model.tensors] == PARAMETERS
    kinds = [sample.kind for sample in watched.samples()]
    assert kinds == ["start", "gradients", "updated", "backward", "gradients", "updated"]


@pytest.mark.usefixtures("of_two")
@pytest.mark.parametrize("shared", [False, True], ids=["an optimizer of their own", "the model's optimizer"])
def test_parameters_beside_a_wrapped_model_are_followed_too(watched, shared):
    model, temperature = DDP(Net()), nn.Parameter(torch.ones(()))
    optimizers = [torch.optim.SGD([*model.parameters(), temperature], lr=0.1)]
    if not shared:
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD([temperature], lr=0.1)]
    for _ in range(2):
        with model.no_sync():  # the other rank is imagined
            (model(batch(0)).sum() * temperature).backward()
        for optimizer in optimizers:
            optimizer.step()
    assert [[tensor.name for tensor in one.tensors] for one in watched.models[1:]] == [["temperature"]]
    own = [sample for sample in watched.samples() if sample.model == UNWRAPPED]
    assert [sample.kind for sample in own] == ["start", "gradients", "updated", "gradients", "updated"]
    assert {event.model for event in watched.events(OptimizerSeen)} == {0}


@pytest.mark.usefixtures("of_two")
def test_what_a_rank_makes_of_its_gradients_before_the_first_collective(watched):
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    norms = []
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.ones(1, 2)).sum().backward()
        norms.append(torch.cat([p.grad.flatten() for p in net.parameters()]).norm().item())
        for parameter in net.parameters():
            parameter.grad *= 0.5
        for _ in range(2):  # as the kernel of each collective does
            for look in watched.door.on_call:
                look(0, "allreduce_", None, 0, None)
        optimizer.step()
    seen = watched.samples("sent")
    assert [(one.model, one.turn) for one in seen] == [(UNWRAPPED, 2), (UNWRAPPED, 3)]  # known since its first step
    assert [one.facts["local"] for one in seen] == pytest.approx(norms[1:])
    assert [one.facts["sent"] for one in seen] == pytest.approx([norm / 2 for norm in norms[1:]])


@pytest.mark.usefixtures("of_two")
def test_parameters_that_nobody_names(watched):
    parameters = iter([nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))])
    torch.optim.SGD(parameters, lr=0.1).step()
    assert [tensor.name for tensor in watched.models[0].tensors] == ["parameter 0", "parameter 1"]


@pytest.mark.usefixtures("alone")
def test_a_rank_that_is_alone_has_no_replicas(watched):
    net = nn.Linear(4, 2)
    train(net)
    assert watched.models == [] and watched.samples() == []


class Sharded(torch.optim.Optimizer):
    """Steps an optimizer of its own for a part of the parameters, and brings the others from elsewhere afterwards."""

    def __init__(self, parameters):
        super().__init__(parameters, {})
        self.own = torch.optim.SGD(self.param_groups[0]["params"][:1], lr=0.1)
        self.fails = False

    def step(self, closure=None):
        self.own.step()
        if self.fails:
            raise ValueError("not this time")


@pytest.mark.usefixtures("alone")
def test_an_optimizer_inside_another_one_makes_no_step_of_its_own(watched):
    model = DDP(Net())
    optimizer = Sharded(model.parameters())
    for fails in (False, True, False):
        model(batch(1)).sum().backward()
        optimizer.fails = fails
        if fails:
            with pytest.raises(ValueError, match="not this time"):
                optimizer.step()
        else:
            optimizer.step()
    assert [s.step for s in watched.samples("updated")] == [0, 1, 2]
    optimizer.own.step()  # by itself, after all
    assert [s.step for s in watched.samples("updated")] == [0, 1, 2, 3]


@pytest.mark.usefixtures("alone")
def test_losses_that_are_not_finite_before_a_model_is_known(watched):
    """A model without a wrapper is known since its first optimizer step: the loss that led to it was not looked at."""

    def runs(*losses):
        net = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for loss in losses:
            (net(torch.ones(2, 4)).mean() * loss).backward()  # backward
            optimizer.step()

    runs(math.nan, 1.0)
    (event,) = watched.events(LossNotFinite)
    assert (event.loss, event.backward) == ("nan", 1)
    assert (event.site.file, event.site.line) == (__file__, line_of(runs, "# backward"))


@pytest.mark.usefixtures("alone")
def test_a_single_loss_that_is_not_finite_may_have_been_left_out(watched):
    net = nn.Linear(4, 1)
    for factor in (1.0, math.inf, 1.0, math.inf, 1.0):
        (net(torch.ones(2, 4)).mean() * factor).backward()
        net.zero_grad()
    assert watched.events(LossNotFinite) == []
