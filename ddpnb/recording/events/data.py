"""Events of data sets, loaders, samplers and loops over data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ddpnb.recording.events.base import Event, Facts, event, fact, record


@record
class Rows(Facts):
    """A fingerprint of ``n`` rows: ``order`` of the same rows in the same order, ``bag`` in any order.

    ``sketch``: the smallest hashes of rows. ``top``: the largest index, where the rows are indices.
    """

    n: int = -1
    order: str = ""
    bag: str = ""
    sketch: tuple[int, ...] = ()
    top: int = -1


@event("dataset")
class DatasetSeen(Event):
    """A data set, or a part of one; ``left_out``: parts that are not listed."""

    number: int = fact("dataset", -1)
    class_name: str = fact("class", "")
    rows: Rows | None = None
    parts: tuple[DatasetSeen, ...] = ()
    left_out: int = 0


@event("loader made")
class LoaderMade(Event):
    """Where a data loader was made. ``number``: of what this rank has made of samplers and loaders."""

    number: int = -1
    class_name: str = fact("class", "")


@event("sampler made")
class SamplerMade(Event):
    """Where a DistributedSampler was made, and what for. ``number``: as for loaders."""

    number: int = -1
    class_name: str = fact("class", "")
    rank: int | None = None
    num_replicas: int | None = None
    seed: int | None = None
    shuffle: bool | None = None
    drop_last: bool | None = None


@event("loader")
class LoaderSeen(Event):
    """A data loader. ``own``: samples are chosen in the user's own way. ``made``: the number of its ``LoaderMade``.

    ``length``: its number of batches, where torch itself decides on it. ``distributed``: number of its
    DistributedSampler.
    """

    number: int = fact("loader", -1)
    made: int = -1
    class_name: str = fact("class", "")
    kind: str = ""  # map or iterable
    dataset: int = -1
    sampler: str = ""  # its class
    own: bool = True
    distributed: int | None = None
    length: int | None = None
    generator: int | None = None  # its seed
    context: str = ""  # how workers are started
    batch_size: int | None = None
    drop_last: bool = False
    num_workers: int = 0
    timeout: float = 0.0

    @property
    def sampler_name(self) -> str:
        return self.sampler.rpartition(".")[2]


@event("sampler")
class SamplerPass(Event):
    """One iteration of a DistributedSampler. ``told``: calls of ``set_epoch`` before it, the last with ``set_epoch``.

    ``made``: the number of its ``SamplerMade``.
    """

    sampler: int = -1
    made: int = -1
    turn: int = fact("pass", -1)
    class_name: str = fact("class", "")
    own: bool = True
    dataset: int = -1
    head: str = ""
    length: int | None = None
    told: int = 0
    set_epoch: int | None = None
    epoch: int | None = None
    shuffle: bool | None = None
    seed: int | None = None
    rank: int | None = None
    num_replicas: int | None = None
    drop_last: bool | None = None
    num_samples: int | None = None

    @property
    def known(self) -> bool:
        """Whether torch's own sampler, with plain settings, decided."""
        settings = (self.epoch, self.shuffle, self.seed, self.rank, self.num_replicas)
        return not self.own and None not in settings

    @property
    def order(self) -> int | None:
        """What the permutation follows from; None: it does not shuffle."""
        return (self.seed or 0) + (self.epoch or 0) if self.shuffle else None


@event("data loop")
class DataLoop(Event):
    """One iteration over a loader. How many ``batches`` it had is known once it is over.

    ``step``: optimizer steps of the run when it began; ``steps``: those in it. ``kinds``: structures of its batches, each
    with the first batch that had it. ``heads``: digests of the beginning of each of its first batches, 0 where nothing could be
    looked at. ``rng``: digest of the generator's state when it began.
    """

    loader: int = -1
    turn: int = 0
    step: int = 0
    rng: str = ""
    batches: int | None = None
    steps: int | None = None
    complete: bool = False
    kinds: Mapping[str, int] = field(default_factory=dict[str, int])
    heads: tuple[float, ...] = ()
    sampler: int | None = None
    passed: int | None = fact("pass", None)


@event("join")
class JoinEntered(Event):
    """``Join``: ranks may have different numbers of batches."""

    enable: bool = True


@event("replicated tensor")
class ReplicatedTensor(Event):
    """A local tensor that ``DTensor.from_local`` took as the same on all of these ranks.

    ``number``: of those that this rank has made with these ranks, from 1; the first ones are recorded. ``digest``: of its
    beginning, with its type and shape.
    """

    number: int = 0
    ranks: tuple[int, ...] = ()
    digest: str = ""
    shape: tuple[int, ...] = ()
