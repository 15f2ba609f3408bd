"""What is recorded of optimizers and schedulers: where they are made and stepped, and what else changes settings."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, Optimizer, lr_scheduler

from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.models.optimizers import Optimizers, hyper_parameters
from ddpnb.recording.blackbox import BoxReader
from ddpnb.recording.events.models import OptimizerMade, SchedulerMade, SchedulerStepped


@pytest.fixture
def box(tmp_path):
    return BlackBox(str(tmp_path / "rank0.box"), 0)


@pytest.fixture
def optimizers(box):
    hooks = Optimizers(box)
    hooks.new_run()
    hooks.install()
    yield hooks
    hooks.remove()


def seen(box, kind):
    return [event for event in BoxReader(box.memory).events() if isinstance(event, kind)]


def parameters():
    return nn.Linear(2, 1).parameters()


def edited(optimizers, optimizer):
    return optimizers.of(optimizer).edited(*hyper_parameters(optimizer.param_groups))


class Own(Optimizer):
    def __init__(self, params, speed):
        super().__init__(params, {"speed": speed})

    def step(self, closure=None):
        return None


def test_where_an_optimizer_is_made_and_with_which_settings(optimizers, box):
    kept = SGD(parameters(), lr=0.5), Own(parameters(), speed=3.0)
    first, second = seen(box, OptimizerMade)
    assert (first.number, first.class_name, first.settings["lr"], first.site.file) == (0, "SGD", 0.5, __file__)
    assert (second.number, second.class_name, second.settings) == (1, "Own", {"speed": 3.0})
    assert [edited(optimizers, one) for one in kept] == [(), ()]
    optimizers.new_run()
    kept = SGD(parameters(), lr=0.1)
    assert optimizers.of(kept).number == seen(box, OptimizerMade)[-1].number == 2


def test_a_setting_that_the_script_changes(optimizers):
    optimizer = Adam(parameters(), lr=0.1, betas=(0.9, 0.99))
    optimizer.param_groups[0]["betas"] = (0.8, 0.99)
    assert edited(optimizers, optimizer) == ("beta 0",)
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))], "lr": 0.3})
    assert edited(optimizers, optimizer) == ("beta 0",), "a setting of which it is not known who set it"


def sequence(optimizer):
    parts = [lr_scheduler.ConstantLR(optimizer, 0.5, 2), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    return lr_scheduler.SequentialLR(optimizer, parts, [2])


@pytest.mark.filterwarnings("ignore:.*scheduler.step")
@pytest.mark.parametrize(
    "make",
    [
        lambda optimizer: lr_scheduler.StepLR(optimizer, 1),
        lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (n + 2)),
        lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=9),
        lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 2),
        sequence,
        lambda optimizer: lr_scheduler.ChainedScheduler([lr_scheduler.StepLR(optimizer, 1)], optimizer),
    ],
    ids=["step", "lambda", "one cycle", "warm restarts", "sequence", "chain"],
)
def test_steps_of_schedulers_are_counted_and_change_nothing_themselves(optimizers, box, make):
    optimizer = SGD(parameters(), lr=0.1, momentum=0.9)
    scheduler = make(optimizer)
    assert (edited(optimizers, optimizer), optimizers.of(optimizer).scheduled) == ((), 0)
    for _ in range(4):
        scheduler.step()  # of the scheduler
    assert (edited(optimizers, optimizer), optimizers.of(optimizer).scheduled) == ((), 4)
    assert {event.optimizer for event in seen(box, SchedulerMade)} == {0}
    (stepped,) = seen(box, SchedulerStepped)
    assert (stepped.optimizer, stepped.class_name, stepped.site.file) == (0, type(scheduler).__name__, __file__)
    optimizer.param_groups[0]["lr"] *= 2
    assert edited(optimizers, optimizer) == ("lr",)


def test_a_plateau(optimizers, box):
    optimizer = SGD(parameters(), lr=0.1)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    for loss in (1.0, 2.0):
        scheduler.step(loss)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)
    assert (edited(optimizers, optimizer), optimizers.of(optimizer).scheduled) == ((), 2)


def test_an_error_of_a_scheduler_is_the_users(optimizers):
    scheduler = lr_scheduler.ReduceLROnPlateau(SGD(parameters(), lr=0.1))
    with pytest.raises(TypeError):
        scheduler.step()
    scheduler.step(1.0)
    assert optimizers.of(scheduler.optimizer).scheduled == 1


def test_optimizers_in_a_loop_do_not_fill_the_box(optimizers, box):
    for _ in range(100):
        lr_scheduler.StepLR(SGD(parameters(), lr=0.1), 1)
    assert len(seen(box, OptimizerMade)) == len(seen(box, SchedulerMade)) == 32


def test_what_was_made_before_the_hooks_is_unknown(box):
    optimizer = SGD(parameters(), lr=0.1)
    hooks = Optimizers(box)
    hooks.install()
    try:
        lr_scheduler.StepLR(optimizer, 1)
        assert (hooks.of(optimizer).number, edited(hooks, optimizer), hooks.of(optimizer).scheduled) == (-1, (), 0)
    finally:
        hooks.remove()
    assert Optimizer.__init__.__module__ == "torch.optim.optimizer" and not hasattr(Optimizer.__init__, "__wrapped__")
