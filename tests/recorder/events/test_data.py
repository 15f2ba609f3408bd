"""What is recorded of loaders and samplers, and that nobody is the worse for it. Real loaders, this process."""

from __future__ import annotations

import copy
import gc
import pathlib
import pickle
import weakref

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Sampler,
    SequentialSampler,
    Subset,
    TensorDataset,
)

from ddpnb.recorder.events import data, dataset_fingerprint
from ddpnb.recorder.events.data import Data
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recording.blackbox import BoxReader
from ddpnb.recording.events.data import DataLoop, DatasetSeen, LoaderMade, LoaderSeen, SamplerMade, SamplerPass
from ddpnb.recording.events.runs import HooksDetached


@pytest.fixture
def hooks(tmp_path):
    found = Data(BlackBox(str(tmp_path / "rank0.box"), 0))
    found.install()
    yield found
    found.remove()


@pytest.fixture
def step():
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.grad = torch.ones(1)
    return optimizer.step


def recorded(hooks, kind):
    found = BoxReader(hooks.box.memory).events()
    assert not [event for event in found if isinstance(event, HooksDetached)]
    return [event for event in found if isinstance(event, kind)]


def has(event, wanted):
    return {name: getattr(event, name) for name in wanted} == wanted


def drain(loader):
    """All batches; ``list`` would ask for the length first."""
    return [batch for batch in loader]  # noqa: C416


NUMBERS = TensorDataset(torch.arange(20.0))


class Lines(IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return iter(range(self.count))

    def __len__(self):
        raise AssertionError("len was called")


class Squares(Dataset):
    """Pickled for spawned workers: it must be importable."""

    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return index * index


class Shy(Dataset):
    """A data set that cannot be counted or asked for anything."""

    def __getitem__(self, index):
        return index

    def __len__(self):
        raise AssertionError("len was called")

    def __getattr__(self, name):
        if name == "__getitems__":  # torch itself asks for this one
            raise AttributeError(name)
        raise AssertionError(f"asked for {name}")


class Evens(Sampler):
    def __iter__(self):
        return iter(range(0, 10, 2))

    def __len__(self):
        raise AssertionError("len was called")


class Permuted(DistributedSampler):
    def __iter__(self):
        return iter(list(super().__iter__())[::-1])


# -- what is recorded


def test_a_training_loop(hooks, step):
    sampler = DistributedSampler(NUMBERS, num_replicas=2, rank=1, seed=7, drop_last=True)
    loader = DataLoader(NUMBERS, batch_size=4, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch + 3)
        for _ in loader:
            step()
    assert [p.state for p in recorded(hooks, DataLoop)] == ["done", "done"]
    loops = recorded(hooks, DataLoop)
    assert [(one.batches, one.steps, one.complete, one.passed) for one in loops] == [
        (3, 3, True, 1),
        (3, 3, True, 2),
    ]
    assert loops[0].site.file == __file__ and [one.step for one in loops] == [0, 3]
    passes = recorded(hooks, SamplerPass)
    assert [(one.epoch, one.set_epoch, one.told, one.turn) for one in passes] == [
        (3, 3, 1, 1),
        (4, 4, 2, 2),
    ]
    wanted = {"rank": 1, "num_replicas": 2, "seed": 7, "shuffle": True, "drop_last": True, "length": 20, "own": False}
    assert has(passes[0], wanted) and passes[0].num_samples == 10
    (loader_seen,) = recorded(hooks, LoaderSeen)
    wanted = {"length": 3, "batch_size": 4, "kind": "map", "own": False, "distributed": 0, "num_workers": 0}
    assert has(loader_seen, wanted)
    assert len(recorded(hooks, DatasetSeen)) == 1


class OwnSampler(DistributedSampler):
    def __init__(self, dataset):
        super().__init__(dataset, num_replicas=4, rank=2, shuffle=False)


def test_where_samplers_and_loaders_are_made(hooks):
    sampler = OwnSampler(NUMBERS)
    loader = DataLoader(NUMBERS, batch_size=4, sampler=sampler)
    drain(loader)
    made, loader_made = recorded(hooks, SamplerMade)[0], recorded(hooks, LoaderMade)[0]
    assert has(made, {"rank": 2, "num_replicas": 4, "seed": 0, "shuffle": False, "drop_last": False})
    assert made.class_name.endswith("OwnSampler") and made.site.function == "__init__"
    assert loader_made.site.function == "test_where_samplers_and_loaders_are_made"
    assert recorded(hooks, SamplerPass)[0].made == made.number
    assert recorded(hooks, LoaderSeen)[0].made == loader_made.number != made.number


def test_loaders_in_a_loop_do_not_fill_the_box(hooks):
    kept = [DataLoader(NUMBERS) for _ in range(3 * data.MADE)]
    assert len(recorded(hooks, LoaderMade)) == data.MADE
    hooks.new_run()
    drain(kept[0])
    assert recorded(hooks, LoaderSeen)[0].made == -1  # made in an earlier cell


class Boxed(Dataset):
    """Pictures, of which those from number 6 on have a box."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return {"image": torch.zeros(3), "name": f"{index}.png", **({"box": torch.zeros(4)} if index > 5 else {})}


def test_kinds_of_batches(hooks):
    drain(DataLoader(NUMBERS, batch_size=3))
    drain(DataLoader(Boxed(), batch_size=2))
    found = [one.kinds for one in recorded(hooks, DataLoop)]
    plain = "{image: float32[2d], name: (str, ...)"
    assert found == [{"(float32[1d])": 1}, {plain + "}": 1, plain + ", box: float32[2d]}": 4}]


def test_digests_of_the_first_batches(hooks):
    drain(DataLoader(NUMBERS, batch_size=3))
    drain(DataLoader(NUMBERS, batch_size=3))
    drain(DataLoader(NUMBERS, batch_size=3, sampler=list(reversed(range(len(NUMBERS))))))
    one, again, other = (loop.heads for loop in recorded(hooks, DataLoop))
    assert len(set(one)) == len(one) == min(4, -(-len(NUMBERS) // 3))
    assert one == again and set(one).isdisjoint(other) and all(one)


def test_a_loop_that_is_left_early(hooks, step):
    loader = DataLoader(NUMBERS, batch_size=4)
    for _ in range(2):
        for _ in loader:
            step()
            break
    gc.collect()
    hooks.finish()
    found = [(one.batches, one.steps, one.complete) for one in recorded(hooks, DataLoop)]
    assert found == [(1, 1, False), (1, 1, False)]


def test_a_loop_that_goes_on_is_open(hooks, step):
    batches = iter(DataLoader(NUMBERS, batch_size=4))
    next(batches)
    assert [p.state for p in recorded(hooks, DataLoop)] == ["open"]
    hooks.finish()
    assert [p.state for p in recorded(hooks, DataLoop)] == ["done"]
    assert len(list(batches)) == 4  # it goes on as if nothing had been


def test_iterable(hooks):
    assert len(drain(DataLoader(Lines(10), batch_size=4))) == 3
    assert recorded(hooks, DataLoop)[0].batches == 3
    assert recorded(hooks, LoaderSeen)[0].kind == "iterable" and recorded(hooks, LoaderSeen)[0].length is None


def test_persistent_workers_have_one_iterator(hooks):
    loader = DataLoader(NUMBERS, batch_size=5, num_workers=1, persistent_workers=True)
    for _ in range(3):
        assert len(list(loader)) == 4
    del loader
    assert [(one.batches, one.turn) for one in recorded(hooks, DataLoop)] == [(4, 1), (4, 2), (4, 3)]


def test_the_same_random_numbers_are_known_to_be_the_same(hooks):
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        list(DataLoader(NUMBERS, shuffle=True))
        list(DataLoader(NUMBERS, shuffle=True, generator=torch.Generator().manual_seed(seed)))
    found = [one.rng for one in recorded(hooks, DataLoop)]
    assert found[0] == found[2] != found[4] and found[1] == found[3] != found[5] and all(found)


def test_what_is_recorded_is_bounded(hooks):
    for _ in range(200):
        next(iter(DataLoader(NUMBERS)))
    loader = DataLoader(NUMBERS, sampler=DistributedSampler(NUMBERS, num_replicas=1, rank=0))
    for _ in range(200):
        next(iter(loader))
    assert len(recorded(hooks, DataLoop)) <= data.LOOPS
    assert len(recorded(hooks, LoaderSeen)) <= data.LOADERS
    assert len(recorded(hooks, SamplerPass)) <= data.PASSES_EACH
    assert len(recorded(hooks, DatasetSeen)) == 1


def test_a_new_run_begins_anew(hooks):
    list(DataLoader(NUMBERS))
    hooks.new_run()
    list(DataLoader(NUMBERS))
    assert [one.loader for one in recorded(hooks, DataLoop)] == [0, 0]


# -- what must not change


@pytest.mark.parametrize(
    "loader",
    [
        lambda: DataLoader(Shy(), sampler=Evens()),
        lambda: DataLoader(Shy(), batch_sampler=BatchSampler(Evens(), 2, False)),
        lambda: DataLoader(Shy(), batch_sampler=[[1, 2], [3]]),
        lambda: DataLoader(Lines(5), batch_size=None),
        lambda: DataLoader(list(range(7)), batch_size=2),
        lambda: DataLoader({0: 1.0, 1: 2.0}),
        lambda: DataLoader(NUMBERS, sampler=Permuted(NUMBERS, num_replicas=2, rank=0)),
    ],
    ids=["sampler", "batch sampler", "lists", "iterable", "list", "dict", "sub-class"],
)
def test_loaders_of_every_kind_deliver_the_same(hooks, loader):
    watched = [repr(batch) for batch in drain(loader())]
    hooks.remove()
    assert watched == [repr(batch) for batch in drain(loader())]
    assert recorded(hooks, DataLoop)[0].complete
    hooks.install()


def test_ways_of_choosing_that_are_not_torchs_are_told_apart(hooks):
    drain(DataLoader(NUMBERS, sampler=Evens()))
    list(DataLoader(NUMBERS, batch_sampler=[[1]]))
    list(DataLoader(NUMBERS, sampler=Permuted(NUMBERS, num_replicas=2, rank=0)))
    list(DataLoader(NUMBERS, sampler=SequentialSampler(NUMBERS)))
    loaders = recorded(hooks, LoaderSeen)
    assert [one.own for one in loaders] == [True, True, False, False]
    assert [one.length for one in loaders] == [None, None, None, 20]
    assert [one.own for one in recorded(hooks, SamplerPass)] == [True]


def test_exceptions_pass(hooks):
    class Bad(Dataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            if index == 1:
                raise KeyError("gone")
            return index

    batches = iter(DataLoader(Bad()))
    assert next(batches) == 0
    with pytest.raises(KeyError, match="gone"):
        next(batches)


def test_objects_are_left_as_they_are(hooks, step):
    dataset = Squares(["a", "b", "c", "d"])
    sampler = DistributedSampler(dataset, num_replicas=2, rank=0)
    loader = DataLoader(dataset, sampler=sampler)
    before = [sorted(vars(thing)) for thing in (dataset, sampler, loader)]
    sampler.set_epoch(1)
    list(loader)
    assert before == [sorted(vars(thing)) for thing in (dataset, sampler, loader)]
    for thing in (dataset, sampler, loader):
        assert type(pickle.loads(pickle.dumps(thing))) is type(thing)
    assert len(list(copy.deepcopy(loader))) == 2
    assert list(pickle.loads(pickle.dumps(sampler))) == list(sampler)


@pytest.mark.parametrize(
    "context", ["fork", *(pytest.param(one, marks=pytest.mark.full) for one in ("spawn", "forkserver"))]
)
def test_workers(hooks, context):
    dataset = Squares([str(number) for number in range(6)])
    loader = DataLoader(dataset, batch_size=2, num_workers=1, multiprocessing_context=context)
    assert torch.cat(list(loader)).tolist() == [0, 1, 4, 9, 16, 25]
    assert recorded(hooks, DataLoop)[0].batches == 3
    assert context in recorded(hooks, LoaderSeen)[0].context.lower()


def test_a_forked_child_records_nothing(hooks):
    hooks.box.silence()
    assert len(list(DataLoader(NUMBERS, batch_size=5))) == 4
    DistributedSampler(NUMBERS, num_replicas=1, rank=0).set_epoch(2)
    assert BoxReader(hooks.box.memory).events() == ()


def test_a_failure_of_ours_is_not_the_users(hooks, monkeypatch, capsys):
    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(dataset_fingerprint, "describe", broken)
    assert len(list(DataLoader(NUMBERS))) == 20
    assert "a hook failed and was disabled" in capsys.readouterr().err
    assert DataLoader.__iter__.__module__ == "torch.utils.data.dataloader"
    assert len(list(DataLoader(NUMBERS))) == 20


def test_big_things_are_let_go(hooks):
    dataset = TensorDataset(torch.zeros(10))
    loader = DataLoader(dataset, sampler=DistributedSampler(dataset, num_replicas=1, rank=0))
    next(iter(loader))
    alive = [weakref.ref(dataset), weakref.ref(loader), weakref.ref(loader.sampler)]
    del dataset, loader
    gc.collect()
    assert [reference() for reference in alive] == [None, None, None]


# -- what a data set holds


def rows(dataset):
    return dataset_fingerprint.describe(dataset, lambda _: 0).rows


def test_order_and_content_are_told_apart():
    files = [f"/data/{number % 7}/{number}.png" for number in range(500)]
    one, other = rows(Squares(files)), rows(Squares(files[::-1]))
    assert one.order != other.order and one.bag == other.bag and one.sketch == other.sketch
    fewer = rows(Squares([*files[:-1], "/data/0/new.png"]))
    assert fewer.bag != one.bag and len(set(fewer.sketch) & set(one.sketch)) > 40
    assert rows(Squares([f"/elsewhere/{path}" for path in files])) == one  # a copy in the rank's own folder
    assert rows(Squares([pathlib.Path(path) for path in files])) == one


@pytest.mark.parametrize(
    "values",
    [
        lambda: torch.arange(300).float().reshape(100, 3),
        lambda: torch.arange(300).reshape(100, 3).numpy(),
        lambda: [(f"{n}.png", n % 3) for n in range(100)],
        lambda: [{"path": f"{n}.png", "label": n} for n in range(100)],
        lambda: range(100),
    ],
    ids=["tensor", "array", "tuples", "records", "range"],
)
def test_columns_of_every_kind(values):
    found = rows(Squares(values()))
    assert found.n == 100 and found == rows(Squares(values())) and len(found.sketch) == dataset_fingerprint.SKETCH


class Named(Dataset):
    """Its attributes are called as nobody else calls them."""

    def __init__(self, entries, words=()):
        self.words = words
        self.entries_of_mine = entries

    def __len__(self):
        return len(self.entries_of_mine)

    def __getitem__(self, index):
        return index


def test_a_text_for_each_sample_counts_whatever_it_is_called(hooks):
    files = [f"{number}.png" for number in range(40)]
    known = [
        dataset_fingerprint.describe(Named(some, ("cat", "dog")), lambda _: 0, 40).rows for some in (files, files[::-1])
    ]
    assert known[0].order != known[1].order and known[0].bag == known[1].bag
    labelled = [(name, number % 3) for number, name in enumerate(files)]
    assert dataset_fingerprint.describe(Named(labelled), lambda _: 0, 40).rows.sketch
    assert dataset_fingerprint.describe(Named(files), lambda _: 0).rows is None  # nobody knows its length
    assert dataset_fingerprint.describe(Named(list(range(40))), lambda _: 0, 40).rows is None  # it may be anything
    for make in (lambda data: None, lambda data: DistributedSampler(data, num_replicas=2, rank=0)):
        data = Named(files)
        drain(DataLoader(data, sampler=make(data)))
    assert [one.rows.order for one in recorded(hooks, DatasetSeen)] == [known[0].order] * 2


@pytest.mark.parametrize(
    "values",
    [[object()], [torch.zeros(2)], {"a": 1}, [], None, iter([1]), torch.zeros(4, 3).t(), torch.zeros(())],
    ids=["objects", "tensors", "dict", "empty", "none", "iterator", "transposed", "scalar"],
)
def test_what_cannot_be_told_is_not(values):
    assert rows(Squares(values)) is None


def test_of_labels_nothing_is_told_but_their_order():
    found = rows(Squares([number % 3 for number in range(100)]))
    assert not found.bag and not found.sketch and found.order


def test_subsets_and_concatenations():
    one = dataset_fingerprint.describe(Subset(NUMBERS, [3, 1, 2]), lambda _: 5)
    assert (one.rows.n, one.rows.top, one.parts[0].number) == (3, 3, 5)
    both = dataset_fingerprint.describe(ConcatDataset([NUMBERS, NUMBERS]), lambda _: 5)
    assert both.rows is None and len(both.parts) == 2
    nested = NUMBERS
    for _ in range(50):
        nested = Subset(nested, [0, 1])
    assert dataset_fingerprint.describe(nested, lambda _: 0)


def test_no_code_of_the_users_is_run():
    found = dataset_fingerprint.describe(Shy(), lambda _: 0)
    assert found.class_name.endswith("Shy") and found.rows is None
    assert dataset_fingerprint.head(Shy()) == ""
