"""Marks at steps, on a real box, with real loaders and optimizers."""

from __future__ import annotations

import itertools
import threading
import warnings

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from ddpnb.recorder.events.steps import Steps
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recording.blackbox import RUN_ACTIVE, RUN_ENDED, BoxReader


@pytest.fixture
def box(tmp_path):
    return BlackBox(str(tmp_path / "rank0.box"), 0)


@pytest.fixture
def steps(box):
    steps = Steps(box)
    steps.install()
    yield steps
    steps.remove()


def marks(box):
    return BoxReader(box.memory).marks()


def train(model=None, **more):
    model = model or torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 2)).sum().backward(**more)
    optimizer.step()
    return model


class Slow(Dataset):
    """Reads from a loader of its own."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return sum(batch.sum() for batch in DataLoader(torch.ones(4, 2))) + index


def test_the_time_in_loaders_is_that_of_all_their_batches(box, monkeypatch):
    monkeypatch.setattr("ddpnb.recorder.events.steps.now_ns", itertools.count(0, 10).__next__)
    steps = Steps(box)
    steps.install()
    try:
        # The first is that of making the iterator.
        assert [box.data_ns for _ in DataLoader(torch.ones(4, 2))] == [20, 30, 40, 50]
    finally:
        steps.remove()


def test_a_run_leaves_marks_at_its_beginning_its_steps_and_its_end(box, steps):
    box.set_run(1, RUN_ACTIVE)
    train()
    train()
    box.set_run(1, RUN_ENDED)
    found = marks(box)
    assert [mark.kind for mark in found] == ["begin", "backward", "step", "backward", "step", "end"]
    assert [mark.steps for mark in found] == [0, 0, 1, 1, 2, 2]
    assert [mark.at_ns for mark in found] == sorted(mark.at_ns for mark in found)
    assert [mark.thread_ns for mark in found] == sorted(mark.thread_ns for mark in found)
    assert all(mark.cpu_ns > 0 for mark in found if mark.kind != "backward")
    assert found[2].threads == torch.get_num_threads()
    assert len({mark.thread for mark in found}) == 1


def test_the_next_run_counts_from_its_own_beginning(box, steps):
    box.set_run(1, RUN_ACTIVE)
    train()
    list(DataLoader(torch.ones(2, 2)))
    box.set_run(2, RUN_ACTIVE)
    assert [(mark.kind, mark.steps, mark.data_ns) for mark in marks(box)] == [("begin", 0, 0)]


def test_time_inside_loaders_is_counted_once_even_where_one_reads_from_another(box, steps):
    box.set_run(1, RUN_ACTIVE)
    before = steps.box.data_ns
    began = marks(box)[0].at_ns
    assert len(list(DataLoader(Slow()))) == 3
    train()
    step = marks(box)[-1]
    assert before < step.data_ns <= step.at_ns - began


def test_loaders_of_other_threads_do_not_hold_up_the_main_thread(box, steps):
    thread = threading.Thread(target=lambda: list(DataLoader(torch.ones(4, 2))))
    thread.start()
    thread.join()
    assert box.data_ns == 0


def test_a_loader_with_workers_still_delivers(box, steps):
    assert torch.cat(list(DataLoader(torch.arange(8.0), num_workers=1, batch_size=2))).tolist() == list(range(8))
    assert box.data_ns > 0


def test_gradients_and_errors_are_as_without(box, steps):
    x = torch.ones(2, requires_grad=True)
    torch.autograd.backward([x * 2], [torch.ones(2)])
    assert x.grad.tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones(1).backward()
    assert [mark.kind for mark in marks(box)] == ["backward"]
    with pytest.raises(StopIteration):
        next(iter(DataLoader([])))


def test_a_backward_pass_inside_another_is_no_mark_of_its_own(box, steps):
    from torch.utils.checkpoint import checkpoint

    layer = torch.nn.Linear(2, 2)
    checkpoint(layer, torch.ones(1, 2, requires_grad=True), use_reentrant=True).sum().backward()
    assert layer.weight.grad is not None
    assert [mark.kind for mark in marks(box)] == ["backward"]


@pytest.mark.full
def test_the_compiler_does_not_look_into_the_hooks(box, steps):
    import torch._dynamo

    torch._dynamo.reset()
    torch._dynamo.utils.warn_once_cache.clear()
    compiled = torch.compile(train, backend="eager")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            compiled()
    assert [str(one.message) for one in caught if "trace" in str(one.message)] == []
    assert [mark.kind for mark in marks(box)] == ["backward", "step"] * 2


def test_taken_away_nothing_is_left(box):
    before = torch.autograd.backward, torch.utils.data.dataloader._BaseDataLoaderIter.__next__, DataLoader.__iter__
    steps = Steps(box)
    steps.install()
    assert torch.autograd.backward is not before[0]
    steps.remove()
    after = torch.autograd.backward, torch.utils.data.dataloader._BaseDataLoaderIter.__next__, DataLoader.__iter__
    assert after == before
    train()
    assert marks(box) == ()


def test_a_mark_that_fails_takes_the_hooks_away_and_not_the_training(box, steps, capsys):
    box.data_ns = -1
    train()
    assert "was disabled on this rank" in capsys.readouterr().err
    box.data_ns, left = 0, len(marks(box))
    train()
    assert len(marks(box)) == left


def test_a_silent_box_stays_as_it_is(box, steps):
    box.silence()
    train()
    assert marks(box) == ()
