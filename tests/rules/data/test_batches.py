"""What is said, and what must not be said, of the data that ranks are trained on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.model.calls import NO_SITE
from ddpnb.model.events.data import DataLoop, LoaderSeen
from ddpnb.model.recording import Recording
from ddpnb.model.replicas import Model, Sample
from ddpnb.rules.data import batches as data
from tests.rules.recordings import Rank, Script, record

WORLD = 4
SCRIPT = Script("""
    for epoch in range(3):
        for batch in loader:   # loop
            optimizer.step()
    for batch in held_out:     # evaluate
        model(batch)
""")
LOOP, EVALUATE = SCRIPT.at("loop"), SCRIPT.at("evaluate")


def content(values, kind="user.Files", **more):
    """A data set of these rows, described as the engine does."""
    hashes = [int(value) * 2654435761 % (1 << 32) for value in values]
    rows = {
        "n": len(hashes),
        "order": str(hash(tuple(hashes))),
        "bag": str(sorted(hashes)),
        "sketch": sorted(set(hashes))[:48],
        "top": max(values),
    }
    return {"class": kind, "rows": rows, **more}


def subset(indices, parent=9):
    return content(indices, "torch.utils.data.dataset.Subset", parts=[{"class": "user.Files", "dataset": parent}])


class Trainer:
    """A rank that wraps a model and goes over loaders."""

    def __init__(self, rank, world=WORLD, wraps=True):
        self.made = Rank(rank, world)
        self.rank, self.world, self.steps = rank, world, 0
        self.loaders, self.datasets, self.passes = {}, 0, {}
        if wraps:
            self.made.phase("model wrapped", "done", wrapper="DistributedDataParallel")

    def dataset(self, described):
        number, self.datasets = self.datasets, self.datasets + 1
        self.made.phase("dataset", "done", dataset=number, **described)
        return number

    def loader(self, dataset=0, at=LOOP, **more):
        number = len(self.loaders)
        known = {"kind": "map", "own": False, "length": 25, "batch_size": 4, "drop_last": False, "num_workers": 0}
        self.loaders[number] = {
            **known, "sampler": "torch.utils.data.sampler.SequentialSampler", "distributed": None, **more
        }  # fmt: skip
        self.made.phase("loader", "done", at, loader=number, dataset=dataset, **self.loaders[number])
        return number

    def loops(self, loader=0, at=LOOP, batches=25, steps=None, sampler=None, state="done", **more):
        """One loop; ``sampler`` are the facts of its DistributedSampler's pass."""
        steps = batches if steps is None else steps
        facts = {"loader": loader, "step": self.steps, "rng": ""}
        if sampler is not None:
            self.passes[loader] = self.passes.get(loader, 0) + 1
            told = {
                "own": False, "dataset": 0, "head": "", "length": 400, "epoch": 0, "shuffle": True, "seed": 0,
                "rank": self.rank, "num_replicas": self.world, "drop_last": False, "num_samples": 100, "told": 0,
            }  # fmt: skip
            number = sampler.pop("sampler", loader)
            which = {"sampler": number, "pass": self.passes[loader]}
            facts |= which if state == "done" else {}
        if state == "done":
            facts |= {"batches": batches, "steps": steps, "complete": True}
        self.steps += steps
        self.made.phase("data loop", state, at, **{**facts, **more})
        if sampler is not None:
            self.made.phase("sampler", "done", at, **{**told, **sampler, **which})
        return self

    def distributed(self, dataset=None, **sampler):
        """One epoch over a loader with a DistributedSampler."""
        number = self.dataset(dataset or content(range(400)))
        self.loader(number, distributed=0, sampler="torch.utils.data.distributed.DistributedSampler")
        return self.loops(sampler=sampler)

    def plain(self, dataset=None, **loader):
        """One epoch over a loader without one."""
        rng = loader.pop("rng", "")
        self.loader(self.dataset(dataset or content(range(100))), **loader)
        return self.loops(rng=rng)


def ranks(make, world=WORLD):
    """``make`` makes something of a Trainer, which ends well."""
    found = []
    for rank in range(world):
        trainer = Trainer(rank, world)
        make(trainer)
        found.append(trainer)
    return found


def recorded(trainers, finish=True, **more):
    for trainer in trainers:
        if finish:
            trainer.made.finishes()
    taken = record(*(trainer.made for trainer in trainers), script=SCRIPT)
    known = {rank: replace(one, steps=trainers[rank].steps) for rank, one in taken.ranks.items()}
    return replace(taken, ranks=known, **more)


def found(make, **more):
    return data.find(recorded(ranks(make), **more))


def codes(findings):
    return [(one.code, one.severity, list(one.culprits)) for one in findings]


# -- nothing is said


def test_as_it_should_be():
    def trains(trainer):
        trainer.distributed(told=1)
        trainer.loops(sampler={"epoch": 1, "told": 2})

    assert found(trains) == []


def test_evaluation_may_be_alike_everywhere():
    def evaluates(trainer):
        trainer.distributed()
        loader = trainer.loader(trainer.dataset(content(range(50))), EVALUATE)
        for _ in range(3):
            trainer.loops(loader, EVALUATE, steps=0)

    assert found(evaluates) == []


def test_a_loader_that_is_looked_into_now_and_then_is_not_trained_on():
    def looks(trainer):
        trainer.loader(trainer.dataset(content(range(50))), EVALUATE)
        trainer.loops(0, EVALUATE, batches=5, steps=100)

    assert found(looks) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.plain(kind="iterable"),
        lambda t: t.plain(own=True),
        lambda t: t.plain(sampler="torch.utils.data.sampler.RandomSampler"),
        lambda t: t.plain(sampler="torch.utils.data.sampler.RandomSampler", rng=f"state {t.rank}"),
        lambda t: t.plain(sampler="torch.utils.data.sampler.WeightedRandomSampler"),
        lambda t: t.plain({"class": "user.Files", "rows": None}),
        lambda t: t.plain(content(range(100 * t.rank, 100 * t.rank + 100))),
        lambda t: t.plain(subset(range(t.rank, 400, 4))),
        lambda t: t.plain(length=25 if t.rank else 26),
    ],
    ids=["iterable", "own", "random", "other state", "weighted", "unknown content", "shards", "subsets", "length"],
)
def test_without_a_sampler_only_what_is_certain(change):
    assert found(change) == []


@pytest.mark.parametrize(
    "sampler",
    [
        lambda t: {"own": True, "rank": 0},
        lambda t: {"rank": None},
        lambda t: {"seed": "<Tensor>"},
        lambda t: {"num_replicas": 1, "rank": 0, "seed": t.rank},  # everybody draws from all of it
        lambda t: {"shuffle": False, "seed": t.rank},
        lambda t: {"drop_last": t.rank == 0},  # the number of samples is the same
    ],
    ids=["own", "no rank", "odd seed", "one replica", "seed without shuffle", "drop_last"],
)
def test_samplers_of_which_nothing_is_certain(sampler):
    assert found(lambda t: t.distributed(**sampler(t))) == []


def test_data_of_its_own_on_every_rank():
    assert found(lambda t: t.distributed(content(range(1000 * t.rank, 1000 * t.rank + 400)))) == []


def test_no_model_is_wrapped():
    trainers = [Trainer(rank, wraps=False).plain() for rank in range(WORLD)]
    assert data.find(recorded(trainers)) == []


def test_ranks_in_smaller_groups_may_share_a_shard():
    """Tensor parallel: ranks 0 and 1 are one replica, 2 and 3 the other."""

    def parallel(trainer):
        trainer.made.makes_group([0, 2] if trainer.rank in (0, 2) else [1, 3])
        trainer.distributed(num_replicas=2, rank=trainer.rank // 2)

    assert found(parallel) == []


def test_models_tell_the_groups():
    def model(*members):
        return (Model(0, "DistributedDataParallel", ranks=members),)

    taken = recorded(ranks(lambda t: t.distributed(num_replicas=2, rank=t.rank // 2)))
    apart = {
        rank: replace(one, models=model(*((0, 2) if rank in (0, 2) else (1, 3)))) for rank, one in taken.ranks.items()
    }
    assert data.find(replace(taken, ranks=apart)) == []
    by_hand = {rank: replace(one, models=(Model(0, "", ranks=(0, 1, 2, 3)),)) for rank, one in taken.ranks.items()}
    assert data.find(replace(taken, ranks=by_hand)) == []


def test_a_batch_of_which_each_rank_takes_its_part():
    taken = recorded(ranks(lambda t: t.plain()))
    inputs = {
        rank: replace(one, samples=(Sample(0, "forward", 1, facts={"inputs_hash": float(rank + 1)}),))
        for rank, one in taken.ranks.items()
    }
    assert data.find(replace(taken, ranks=inputs)) == []


@pytest.mark.parametrize(
    "facts",
    [
        {"loader": "x", "step": None},
        {"loader": 10**40, "batches": float("nan"), "steps": "many", "complete": 1},
        {"loader": 0, "sampler": [], "pass": {}, "line": "a", "file": 3, "batches": -5, "steps": -5},
    ],
)
def test_nonsense_from_a_rank(facts):
    def odd(trainer):
        trainer.made.phase("dataset", "done", dataset=0, rows=[1], parts={"a": 1})
        trainer.made.phase("dataset", "done", dataset=0, **{"class": 3, "rows": {"sketch": [None, "a"], "order": 7}})
        trainer.made.phase("loader", "done", loader=0, dataset="0", sampler=7)
        trainer.made.phase("sampler", "done", sampler=0, rank="first", **{"pass": 1})
        trainer.made.phase("data loop", "done", **facts)

    assert data.find(recorded(ranks(odd))) == []
    assert data.find(Recording(0, {})) == []


# -- DDP501


def test_same_batches_in_order():
    (finding,) = found(lambda t: t.plain())
    assert codes([finding]) == [("DDP501", "error", [0, 1, 2, 3])]
    assert finding.where == tuple((rank, LOOP) for rank in range(4))
    assert "25 batches of 4" in " ".join(finding.evidence)


def test_same_batches_shuffled_by_the_same_seed():
    kind = "torch.utils.data.sampler.RandomSampler"
    assert codes(found(lambda t: t.plain(sampler=kind, rng="state"))) == [("DDP501", "error", [0, 1, 2, 3])]


def test_one_loader_is_shared_out():
    """With a second one that each rank has its part of, the batches are not the same."""

    def two(trainer):
        trainer.plain()
        loader = trainer.loader(trainer.dataset(content(range(400))), distributed=1)
        trainer.loops(loader, sampler={"sampler": 1, "dataset": 1})

    assert found(two) == []


def test_every_sampler_claims_the_first_shard():
    assert codes(found(lambda t: t.distributed(rank=0))) == [("DDP501", "error", [0, 1, 2, 3])]


def test_samplers_for_one_replica():
    (finding,) = found(lambda t: t.distributed(rank=0, num_replicas=1))
    assert codes([finding]) == [("DDP501", "error", [0, 1, 2, 3])]
    assert finding.remedy.startswith("Omit num_replicas= and rank=")  # there is a sampler already


def test_inputs_that_agree_are_told():
    taken = recorded(ranks(lambda t: t.plain()))
    sample = Sample(0, "forward", 1, facts={"inputs_hash": 7.0})
    alike = {rank: replace(one, samples=(sample,)) for rank, one in taken.ranks.items()}
    (finding,) = data.find(replace(taken, ranks=alike))
    assert "same inputs" in finding.evidence[-1]


# -- DDP503


@pytest.mark.parametrize(
    ("sampler", "word", "culprits"),
    [
        (lambda t: {"seed": 1 if t.rank == 2 else 0}, "seed", [2]),
        (lambda t: {"seed": t.rank}, "seed", []),
        (lambda t: {"epoch": 5 if t.rank == 1 else 0}, "epoch", [1]),
        (lambda t: {"shuffle": t.rank != 3}, "shuffle=False", [3]),
        (lambda t: {"num_replicas": 8 if t.rank == 1 else 4}, "parts", [1]),
        (lambda t: {"length": 401 if t.rank == 1 else 400}, "401", [1]),
        (lambda t: {"num_samples": 99 if t.rank == 1 else 100}, "99", [1]),
        (lambda t: {"rank": 0 if t.rank == 1 else t.rank}, "the same shards", [1]),
        (lambda t: {"num_replicas": 2, "rank": t.rank % 2}, "the same shards", [2, 3]),
    ],
    ids=["one seed", "seed of rank", "epoch", "shuffle", "replicas", "length", "samples", "rank twice", "of the node"],
)
def test_samplers_that_do_not_fit(sampler, word, culprits):
    (finding,) = found(lambda t: t.distributed(**sampler(t)))
    assert codes([finding]) == [("DDP503", "error", culprits)]
    assert word in finding.summary
    assert finding.where[0] == ((culprits or [0])[0], LOOP) and len(finding.where) == 4
    assert finding.sides == (() if culprits else ((0,), (1,), (2,), (3,)))


MADE = SCRIPT.at("evaluate")


@pytest.mark.parametrize(
    ("odd", "place"),
    [({"seed": 1}, MADE), ({"shuffle": False}, MADE), ({"num_replicas": 8}, MADE), ({"epoch": 5}, LOOP)],
    ids=["seed", "shuffle", "replicas", "epoch"],
)
def test_a_setting_points_to_where_the_sampler_was_made(odd, place):
    def trains(trainer):
        given = {
            "rank": trainer.rank,
            "num_replicas": 4,
            "seed": 0,
            "shuffle": True,
            **(odd if trainer.rank == 1 else {}),
        }
        trainer.made.phase("sampler made", "done", MADE, number=3, **given)
        trainer.distributed(made=3, **given)

    (finding,) = found(trains)
    assert codes([finding]) == [("DDP503", "error", [1])]
    assert set(finding.where) == {(rank, place) for rank in range(4)}


def test_a_setting_that_was_changed_after_the_sampler_was_made_does_not():
    def trains(trainer):
        trainer.made.phase("sampler made", "done", MADE, number=3, seed=0)
        trainer.distributed(made=3, seed=int(trainer.rank == 1))

    (finding,) = found(trains)
    assert finding.where[0] == (1, LOOP) and (0, MADE) in finding.where


def test_a_loader_without_a_sampler_points_to_where_it_was_made():
    def trains(trainer):
        trainer.made.phase("loader made", "done", MADE, number=0)
        trainer.plain(made=0)

    (finding,) = found(trains)
    assert finding.where == tuple((rank, MADE) for rank in range(4))


def test_another_order_of_the_same_files():
    (finding,) = found(lambda t: t.distributed(content(range(400) if t.rank else range(399, -1, -1))))
    assert codes([finding]) == [("DDP503", "error", [0])]
    assert "the same samples in a different order" in finding.summary


def test_a_stale_copy():
    (finding,) = found(lambda t: t.distributed(content(range(400) if t.rank != 2 else range(30, 430))))
    assert codes([finding]) == [("DDP503", "error", [2])]


def test_random_split_without_a_seed():
    """Each rank keeps other four fifths of the data set."""
    (finding,) = found(lambda t: t.distributed(subset([n for n in range(500) if n % 5 != t.rank])))
    assert codes([finding]) == [("DDP503", "error", [])]
    assert finding.sides == ((0,), (1,), (2,), (3,))


def test_a_later_epoch_differs():
    def trains(trainer):
        trainer.distributed(told=1)
        trainer.loops(sampler={"epoch": 1 if trainer.rank else 0, "told": 2})

    assert codes(found(trains))[0] == ("DDP503", "error", [0])


def test_a_rank_that_has_begun_the_next_epoch_in_a_hang():
    def trains(trainer):
        trainer.loader(trainer.dataset(content(range(400))), distributed=0)
        trainer.loops(state="open", sampler={"told": 1})
        if trainer.rank == 2:
            trainer.loops(state="open", steps=0, sampler={"epoch": 1, "told": 2})

    assert found(trains) == []


def test_one_trains_on_what_another_evaluates_on():
    def splits(trainer):
        held = {n for n in range(500) if n % 5 == trainer.rank}
        for kept in (subset([n for n in range(500) if n not in held]), subset(sorted(held))):
            trainer.loader(trainer.dataset(kept), sampler="torch.utils.data.sampler.RandomSampler")
        trainer.loops(0, rng=f"{trainer.rank}").loops(1, EVALUATE, steps=0)

    (finding,) = found(splits)
    assert codes([finding]) == [("DDP503", "error", [])]
    assert finding.sides == ((0,), (1,), (2,), (3,))
    assert finding.summary.endswith("the ranks split the data set differently.")


def test_one_split_for_all_is_no_leak():
    def splits(trainer):
        for kept in (subset(range(100, 500)), subset(range(100))):
            trainer.loader(trainer.dataset(kept), sampler="torch.utils.data.sampler.RandomSampler")
        trainer.loops(0, rng=f"{trainer.rank}").loops(1, EVALUATE, steps=0)

    assert found(splits) == []


def test_parts_of_different_splits_overlap():
    def takes(trainer):
        kept = [(n * (trainer.rank * 2 + 3)) % 401 for n in range(100 * trainer.rank, 100 * trainer.rank + 100)]
        trainer.plain(subset(kept), sampler="torch.utils.data.sampler.RandomSampler", rng=f"{trainer.rank}")

    (finding,) = found(takes)
    assert finding.code == "DDP503" and len(finding.culprits) > 1


# -- DDP502


def epochs(*sampler):
    def trains(trainer):
        trainer.distributed(**dict(sampler[0]))
        for facts in sampler[1:]:
            trainer.loops(sampler=dict(facts))

    return trains


def test_epoch_is_never_set():
    (finding,) = found(epochs({}, {}, {}))
    assert codes([finding]) == [("DDP502", "warning", [0, 1, 2, 3])]
    assert "not called" in finding.summary and "3 consecutive epochs" in finding.evidence[0]
    assert finding.where[0] == (0, LOOP)


def test_epoch_is_set_to_the_same_value():
    (finding,) = found(epochs({"told": 1}, {"told": 2}))
    assert finding.code == "DDP502" and "was set to 0 each time" in finding.summary


def test_a_sampler_that_is_made_anew():
    (finding,) = found(epochs({"sampler": 0}, {"sampler": 1}))
    assert finding.code == "DDP502"


@pytest.mark.parametrize(
    "second",
    [
        {"epoch": 1, "told": 1},
        {"epoch": 1},  # set by hand
        {"seed": 1, "sampler": 1},
        {"shuffle": False},
        {"own": True},
        {"head": "changed"},
        {"dataset": 3},
        {"length": 300},
    ],
)
def test_epochs_that_differ(second):
    assert found(epochs({"shuffle": second.get("shuffle", True)}, second)) == []


def test_epochs_of_another_model():
    def twice(trainer):
        trainer.distributed(told=1)
        trainer.made.phase("model wrapped", "done", wrapper="DistributedDataParallel")
        trainer.loops(sampler={"told": 2})

    assert found(twice) == []


def test_evaluation_without_set_epoch():
    def evaluates(trainer):
        trainer.distributed()
        loader = trainer.loader(trainer.dataset(content(range(50))), EVALUATE, distributed=1)
        for _ in range(3):
            trainer.loops(loader, EVALUATE, steps=0, sampler={"sampler": 1, "dataset": 1})

    assert found(evaluates) == []


def test_a_trial_that_was_broken_off():
    def tries(trainer):
        trainer.loader(trainer.dataset(content(range(400))), distributed=0)
        trainer.loops(batches=3, sampler={"told": 1}, complete=False)
        trainer.loops(sampler={"told": 2})

    assert found(tries) == []


def test_two_loaders_side_by_side():
    """zip(first, second): two loops over one permutation, in one epoch."""

    def both(trainer):
        trainer.distributed()
        trainer.loader(0, distributed=1)
        trainer.loops(1, sampler={"sampler": 1})
        history = trainer.made._history
        end = history[-1].ended_ns + 1
        history[:] = [replace(e, ended_ns=end) if isinstance(e, DataLoop) else e for e in history]

    assert found(both) == []


# -- DDP504


def uneven(trainer, **more):
    trainer.distributed()
    history = trainer.made._history
    history[:] = [replace(event, **more) if isinstance(event, LoaderSeen) else event for event in history]


def test_uneven_numbers_of_batches_are_known_before_they_hurt():
    trainers = ranks(lambda t: uneven(t, length=24 if t.rank == 1 else 25))
    assert codes(data.find(recorded(trainers, finish=False))) == [("DDP504", "warning", [1])]
    finding = data.uneven_shards(recorded(trainers, finish=False))
    assert finding is not None and finding.where[0] == (1, LOOP)
    assert "24 batches" in finding.summary and "has 25" not in finding.summary and "25" in finding.summary


def test_uneven_but_all_went_well():
    assert found(lambda t: uneven(t, length=24 if t.rank == 1 else 25)) == []


def test_uneven_under_join():
    def joins(trainer):
        trainer.made.phase("join", "done", enable=True)
        uneven(trainer, length=24 if trainer.rank == 1 else 25)

    assert data.uneven_shards(recorded(ranks(joins), finish=False)) is None


def test_uneven_before_the_first_step():
    def stands(trainer):
        trainer.loader(trainer.dataset({"class": "x"}), length=10 + trainer.rank, sampler="own.Sampler")
        trainer.loops(state="open", steps=0)

    finding = data.uneven_shards(recorded(ranks(stands), finish=False))
    assert finding is not None and finding.culprits == (0,) and finding.waiting == ()


def test_uneven_batches_that_nobody_could_count():
    def stands(trainer):
        trainer.loader(trainer.dataset({"class": "x"}), length=None, kind="iterable")
        trainer.loops(batches=10, state="done" if trainer.rank == 2 else "open")

    taken = recorded(ranks(stands), finish=False)
    assert data.uneven_shards(taken) is None
    finding = data.uneven_shards(taken, stopped=True)
    assert finding is not None and finding.culprits == (2,) and "more" in finding.summary


# -- DDP506


def test_shared_memory_is_low():
    shm = {"shm_free": 3 << 20, "shm_total": 64 << 20}
    assert codes(found(lambda t: t.distributed(), host=shm)) == []
    (finding,) = found(lambda t: (t.distributed(), t.loader(num_workers=2), t.loops(1)) and None, host=shm)
    assert codes([finding]) == [("DDP506", "note", [0, 1, 2, 3])]
    plenty = {**shm, "shm_free": 60 << 20}
    assert found(lambda t: (t.distributed(), t.loader(num_workers=2), t.loops(1)) and None, host=plenty) == []


# -- many ranks


def test_a_thousand_ranks():
    world = 1000
    trainers = []
    shared = content(range(400))
    for rank in range(world):
        trainers.append(Trainer(rank, world).distributed(shared, num_replicas=world, seed=int(rank == 700)))
    (finding,) = data.find(recorded(trainers))
    assert finding.culprits == (700,) and len(finding.evidence) <= 8


def test_places_that_are_not_known():
    trainers = ranks(lambda t: t.plain())
    for trainer in trainers:
        trainer.made._history = [replace(event, site=NO_SITE) for event in trainer.made._history]
    (finding,) = data.find(recorded(trainers))
    assert finding.where == ()


def test_data_sets_that_ranks_drew_for_themselves_overlap():
    """Each rank took a part of its own permutation: of a tensor of indices, which is no Subset."""

    def takes(trainer):
        kept = [(n * (trainer.rank * 2 + 3)) % 401 for n in range(100 * trainer.rank, 100 * trainer.rank + 100)]
        trainer.plain(
            content(kept, "torch.Tensor"), sampler="torch.utils.data.sampler.RandomSampler", rng=f"{trainer.rank}"
        )

    (finding,) = found(takes)
    assert (finding.code, finding.severity, finding.certainty) == ("DDP503", "warning", "likely")
    assert len(finding.culprits) > 1 and "different data sets of 100 samples each that overlap" in finding.summary


def test_of_parts_that_overlap_with_one_ranks_alone_that_rank_is_named():
    def takes(trainer):
        first = 100 * trainer.rank
        kept = range(first, first + 100) if trainer.rank < 3 else range(50, 350, 3)
        trainer.plain(
            content(kept, "user.Shard"), sampler="torch.utils.data.sampler.RandomSampler", rng=f"{trainer.rank}"
        )

    (finding,) = found(takes)
    assert (finding.code, finding.culprits) == ("DDP503", (3,))


def test_data_sets_of_other_sizes_were_not_meant_to_be_parts():
    def takes(trainer):
        kept = range(50 * trainer.rank, 100 + 60 * trainer.rank)
        trainer.plain(
            content(kept, "user.Shard"), sampler="torch.utils.data.sampler.RandomSampler", rng=f"{trainer.rank}"
        )

    assert found(takes) == []


def loops_over(trainer, heads):
    trainer.loader(trainer.dataset({"class": "user.Files"}), own=True, sampler="user.Blocks", length=None)
    return trainer.loops(heads=heads)


def test_batches_of_ones_own_sampler_that_are_the_same_on_all_ranks():
    (finding,) = found(lambda trainer: loops_over(trainer, [5.0, 6.0, 7.0, 8.0]))
    assert (finding.code, finding.culprits, finding.certainty) == ("DDP501", (0, 1, 2, 3), "likely")


@pytest.mark.parametrize("heads", [[5.0, 5.0, 5.0, 5.0], [5.0, 6.0], [5.0, 6.0, 7.0, 0.0], []], ids=str)
def test_batches_that_prove_nothing(heads):
    assert found(lambda trainer: loops_over(trainer, heads)) == []


def test_other_batches_on_each_rank():
    assert found(lambda trainer: loops_over(trainer, [5.0 + trainer.rank, 16.0, 27.0, 38.0])) == []


def test_ranks_that_share_their_inputs_on_purpose_may_have_the_same_batches():
    def parallel(trainer):
        loops_over(trainer, [5.0, 6.0, 7.0, 8.0])
        trainer.made.event("replicated tensor", number=1, ranks=[0, 1, 2, 3], digest="a", shape=[4])

    assert found(parallel) == []


def test_a_sharded_model_makes_its_ranks_replicas():
    def sharded(trainer, op):
        trainer.made = Rank(trainer.rank, trainer.world).calls(op, LOOP)
        loops_over(trainer, [5.0, 6.0, 7.0, 8.0])

    assert codes(found(lambda trainer: sharded(trainer, "reduce_scatter_tensor"))) == [
        ("DDP501", "warning", [0, 1, 2, 3])
    ]
    assert found(lambda trainer: sharded(trainer, "all_reduce")) == []
