"""What a rank recorded of its data: data sets, samplers, loaders and the loops over them, read from its phases.

The facts come from a rank and are not trusted: invalid ones are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ddpnb.model.calls import NO_SITE, Site
from ddpnb.model.recording import Phase, RankRecord

Likeness = Literal["same", "reordered", "overlapping", "apart", "unknown"]
_DEPTH = 5
# A loader whose batches are far rarer than the optimizer's steps is used now and then, while another one is
# trained on.
_STEPS_PER_BATCH = 4


@dataclass(frozen=True, slots=True)
class Loader:
    """A data loader. ``length`` is its number of batches, where torch itself decides on it."""

    number: int
    kind: str = ""
    dataset: int = -1
    sampler: str = ""
    own: bool = True  # samples are chosen in the user's own way
    distributed: int | None = None  # number of its DistributedSampler
    length: int | None = None
    batch_size: int | None = None
    drop_last: bool = False
    workers: int = 0


@dataclass(frozen=True, slots=True)
class Pass:
    """One iteration of a DistributedSampler."""

    sampler: int = -1
    own: bool = True
    dataset: int = -1
    head: str = ""
    length: int | None = None
    epoch: int | None = None
    shuffle: bool | None = None
    seed: int | None = None
    rank: int | None = None
    replicas: int | None = None
    drop_last: bool | None = None
    samples: int | None = None
    told: int = 0  # calls of set_epoch before it

    @property
    def known(self) -> bool:
        """Whether torch's own sampler, with plain settings, decided."""
        settings = (self.epoch, self.shuffle, self.seed, self.rank, self.replicas)
        return not self.own and None not in settings

    @property
    def order(self) -> int | None:
        """What the permutation follows from; None: it does not shuffle."""
        return (self.seed or 0) + (self.epoch or 0) if self.shuffle else None


@dataclass(frozen=True, slots=True)
class Loop:
    """One iteration over a loader. ``batches`` and ``complete`` are known once it is over."""

    loader: Loader
    site: Site = NO_SITE
    step: int = 0  # optimizer steps of the run when it began
    steps: int = 0  # and in it
    batches: int | None = None
    complete: bool = False
    passed: Pass | None = None
    rng: str = ""  # digest of the generator's state when it began
    began_ns: int = 0
    ended_ns: int = 0  # 0: it is not over
    kinds: tuple[str, ...] = ()  # structures of its batches, once it is over

    @property
    def trains(self) -> bool:
        return self.steps > 0 and (self.batches is None or self.batches * _STEPS_PER_BATCH >= self.steps)


@dataclass(frozen=True, slots=True)
class Loading:
    """All of a rank's loops, in the order in which they began."""

    loops: tuple[Loop, ...] = ()
    datasets: Mapping[int, Mapping[str, Any]] = field(default_factory=dict[int, "Mapping[str, Any]"])
    joins: bool = False  # under Join, ranks may have different numbers of batches
    wrapped_ns: tuple[int, ...] = ()  # when models were wrapped

    @property
    def training(self) -> tuple[Loop, ...]:
        return tuple(loop for loop in self.loops if loop.trains)


def loading(record: RankRecord) -> Loading:
    loaders: dict[int, Loader] = {}
    datasets: dict[int, Mapping[str, Any]] = {}
    passes: dict[tuple[int, int], Pass] = {}
    loops: list[Phase] = []
    joins, wrapped = False, []
    for phase in record.phases:
        facts = phase.facts
        if phase.name == "loader" and (number := _int(facts.get("loader"))) is not None:
            loaders[number] = _loader(number, facts)
        elif phase.name == "dataset" and (number := _int(facts.get("dataset"))) is not None:
            datasets[number] = facts
        elif phase.name == "sampler":
            sampler, turn = _int(facts.get("sampler")), _int(facts.get("pass"))
            if sampler is not None and turn is not None:
                passes[sampler, turn] = _pass(facts)
        elif phase.name == "data loop":
            loops.append(phase)
        elif phase.name == "join":
            joins = joins or facts.get("enable") is not False
        elif phase.name == "model wrapped":
            wrapped.append(phase.began_ns)
    found = [_loop(phase, loaders, passes, record) for phase in loops]
    return Loading(tuple(loop for loop in found if loop is not None), datasets, joins, tuple(wrapped))


def _loader(number: int, facts: Mapping[str, Any]) -> Loader:
    dataset = _int(facts.get("dataset"))
    return Loader(
        number,
        str(facts.get("kind", ""))[:20],
        -1 if dataset is None else dataset,
        str(facts.get("sampler", "")).rpartition(".")[2][:80],
        facts.get("own") is not False,
        _int(facts.get("distributed")),
        _int(facts.get("length")),
        _int(facts.get("batch_size")),
        facts.get("drop_last") is True,
        _int(facts.get("num_workers")) or 0,
    )


def _pass(facts: Mapping[str, Any]) -> Pass:
    dataset = _int(facts.get("dataset"))
    sampler = _int(facts.get("sampler"))
    return Pass(
        -1 if sampler is None else sampler,
        facts.get("own") is not False,
        -1 if dataset is None else dataset,
        str(facts.get("head", ""))[:64],
        _int(facts.get("length")),
        _int(facts.get("epoch")),
        _bool(facts.get("shuffle")),
        _int(facts.get("seed")),
        _int(facts.get("rank")),
        _int(facts.get("num_replicas")),
        _bool(facts.get("drop_last")),
        _int(facts.get("num_samples")),
        _int(facts.get("told")) or 0,
    )


def _loop(
    phase: Phase, loaders: Mapping[int, Loader], passes: Mapping[tuple[int, int], Pass], record: RankRecord
) -> Loop | None:
    facts = phase.facts
    loader = loaders.get(number) if (number := _int(facts.get("loader"))) is not None else None
    if loader is None:
        return None
    ended = phase.state != "open"
    began = _int(facts.get("step")) or 0
    steps = _int(facts.get("steps")) if ended else record.steps - began
    sampler, turn = _int(facts.get("sampler")), _int(facts.get("pass"))
    if not ended and loader.distributed is not None:  # which pass it is was not recorded: the latest
        sampler, turn = loader.distributed, max((t for s, t in passes if s == loader.distributed), default=0)
    return Loop(
        loader,
        _site(facts),
        began,
        max(0, steps or 0),
        _int(facts.get("batches")),
        facts.get("complete") is True,
        passes.get((sampler, turn)) if sampler is not None and turn is not None else None,
        str(facts.get("rng", ""))[:64],
        phase.began_ns,
        phase.ended_ns if ended else 0,
        _kinds(facts.get("kinds")),
    )


def _kinds(value: Any) -> tuple[str, ...]:
    return tuple(str(kind)[:300] for kind, _ in zip(value, range(8), strict=False)) if isinstance(value, dict) else ()


def _site(facts: Mapping[str, Any]) -> Site:
    line = _int(facts.get("line"))
    if line is None or "file" not in facts:
        return NO_SITE
    return Site(str(facts["file"]), line, str(facts.get("function", "?")))


def _int(value: Any) -> int | None:
    return value if type(value) is int and -(1 << 63) <= value < 1 << 63 else None


def _bool(value: Any) -> bool | None:
    return bool(value) if type(value) in (bool, int) else None


# -- what two ranks' data sets have in common


# The least alike part decides; rows of small numbers may be common by chance, positions may not.
_WEIGHT: tuple[Likeness, ...] = ("apart", "overlapping", "reordered", "unknown", "same")
_SHARE, _SHARE_OF_POSITIONS = 0.1, 0.03


def likeness(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None, depth: int = 0) -> Likeness:
    """How similar the data sets of two ranks are."""
    if not one or not other or depth > _DEPTH or one.get("class") != other.get("class"):
        return "unknown"
    mine, theirs = _list(one.get("parts")), _list(other.get("parts"))
    found: set[str] = set()
    if one.get("rows") is not None or other.get("rows") is not None:
        least = _SHARE_OF_POSITIONS if is_subset(one) else _SHARE
        found.add(_rows_alike(_mapping(one.get("rows")), _mapping(other.get("rows")), least))
    elif not mine:
        return "unknown"
    found.update(likeness(_mapping(a), _mapping(b), depth + 1) for a, b in zip(mine, theirs, strict=False))
    if "parts" in one and (len(mine) != len(theirs) or one.get("left_out") or other.get("left_out")):
        found.add("unknown")
    for kind in _WEIGHT:
        if kind in found:
            return kind
    return "unknown"


def is_subset(dataset: Mapping[str, Any]) -> bool:
    return str(dataset.get("class", "")) == "torch.utils.data.dataset.Subset"


def _rows_alike(one: Mapping[str, Any], other: Mapping[str, Any], least: float) -> Likeness:
    if not one.get("order") or not other.get("order"):
        return "unknown"
    if one["order"] == other["order"]:
        return "same"
    if one.get("bag") and one.get("bag") == other.get("bag"):
        return "reordered"
    share = common(one, other)
    if share is None:
        return "unknown"
    return "overlapping" if share >= least else "apart"


def common(one: Mapping[str, Any], other: Mapping[str, Any]) -> float | None:
    """The estimated share of rows that two data sets have in common, of all rows in either.

    Of the smallest hashes of both together, those that are in both.
    """
    mine, theirs = _sketch(one), _sketch(other)
    if mine is None or theirs is None:
        return None
    size = max(len(mine), len(theirs))
    smallest = sorted(set(mine) | set(theirs))[:size]
    shared = sum(1 for value in smallest if value in mine and value in theirs)
    return shared / len(smallest) if shared > 1 else 0.0


def _sketch(rows: Mapping[str, Any]) -> list[int] | None:
    values = rows.get("sketch")
    if not isinstance(values, list) or not values:
        return None
    return [value for value in values[:256] if type(value) is int] or None  # pyright: ignore[reportUnknownVariableType]


def _list(value: Any) -> list[Any]:
    return value[:16] if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
