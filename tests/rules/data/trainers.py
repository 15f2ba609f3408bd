"""Ranks that wrap a model and go over loaders."""

from __future__ import annotations

from dataclasses import replace

from tests.rules.recordings import Rank, Script, asked, record

WORLD = 4
SCRIPT = Script("""
    for epoch in range(3):
        for batch in loader:   # loop
            optimizer.step()
    for batch in held_out:     # evaluate
        model(batch)
    loader = DataLoader(data)  # made
""")
LOOP, EVALUATE, MADE = (SCRIPT.at(mark) for mark in ("loop", "evaluate", "made"))
RANDOM = "torch.utils.data.sampler.RandomSampler"
SEQUENTIAL = "torch.utils.data.sampler.SequentialSampler"


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


FILES = content(range(400))


def subset(indices, parent=9):
    return content(indices, "torch.utils.data.dataset.Subset", parts=[{"class": "user.Files", "dataset": parent}])


class Trainer:
    """A rank that wraps a model and goes over loaders."""

    def __init__(self, rank, world=WORLD, wraps=True):
        self.made = Rank(rank, world)
        self.rank, self.world, self.steps = rank, world, 0
        self.loaders = self.datasets = 0
        self.passes = {}
        if wraps:
            self.wraps()

    def wraps(self):
        self.made.phase("model wrapped", "done", wrapper="DistributedDataParallel")
        return self

    def dataset(self, described):
        number, self.datasets = self.datasets, self.datasets + 1
        self.made.phase("dataset", "done", dataset=number, **described)
        return number

    def loader(self, dataset=0, at=LOOP, **more):
        number, self.loaders = self.loaders, self.loaders + 1
        facts = {
            "kind": "map", "own": False, "length": 25, "batch_size": 4, "drop_last": False, "num_workers": 0,
            "sampler": SEQUENTIAL, "distributed": None, **more,
        }  # fmt: skip
        self.made.phase("loader", "done", at, loader=number, dataset=dataset, **facts)
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
            which = {"sampler": sampler.get("sampler", loader), "pass": self.passes[loader]}
            facts |= which if state == "done" else {}
        if state == "done":
            facts |= {"batches": batches, "steps": steps, "complete": True}
        self.steps += steps
        self.made.phase("data loop", state, at, **{**facts, **more})
        if sampler is not None:
            self.made.phase("sampler", "done", at, **{**told, **sampler, **which})
        return self

    def evaluates(self, dataset, times=3, **more):
        number = self.loader(self.dataset(dataset), EVALUATE, **more)
        for _ in range(times):
            self.loops(number, EVALUATE, steps=0)
        return self

    def distributed(self, dataset=None, **sampler):
        """One epoch over a loader with a DistributedSampler."""
        number = self.dataset(dataset or FILES)
        self.loader(number, distributed=0, sampler="torch.utils.data.distributed.DistributedSampler")
        return self.loops(sampler=sampler)

    def plain(self, dataset=None, rng="", **loader):
        """One epoch over a loader without one."""
        self.loader(self.dataset(dataset or content(range(100))), **loader)
        return self.loops(rng=rng)


def recorded(make, world=WORLD, finish=True, wraps=True):
    """``make`` makes something of each Trainer, which ends well."""
    trainers = [Trainer(rank, world, wraps) for rank in range(world)]
    for trainer in trainers:
        make(trainer)
        if finish:
            trainer.made.finishes()
    taken = record(*(trainer.made for trainer in trainers), script=SCRIPT)
    return replace(taken, ranks={rank: replace(one, steps=trainers[rank].steps) for rank, one in taken.ranks.items()})


def found(code, make, **more):
    return asked(code, recorded(make, **more))
