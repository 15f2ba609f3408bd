"""Faults: what can be injected, when it is triggered, and the finding that is expected.

Only the descriptions are here, so that a launcher can check and show them without torch. A rank implements them
(``recorder.faults``), except for those of the environment, which are variables.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ddpnb.errors import UsageError
from ddpnb.recording import arguments
from ddpnb.recording.calls import check_operation

Place = Literal["door", "environment", "data", "model"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kind of fault, apart from the conditions."""

    name: str
    default: Any
    what: str


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    ``finding``: the code that is expected where it is triggered in a training that is the same on all ranks;
    ``also``: codes that may be found instead, depending on the calls around it.
    """

    name: str
    place: Place
    what: str
    finding: str
    also: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    ops: tuple[str, ...] = ()  # the operations that it applies to; empty: all
    needs: str = ""  # what a script must have, where many do not
    late: bool = False  # it is found only in a training that has made some steps
    passes: bool = False  # the finding is there only as long as the fault has its effect

    @property
    def begins(self) -> dict[str, Any]:
        """The conditions with which a form begins: in the training, since the first calls of a script are its start-up's."""
        if self.place == "door" and (not self.ops or "all_reduce" in self.ops):
            return {"op": "all_reduce", "step": _SOME}
        return {"step": _SOME} if self.late else {}


_SOME = 3  # optimizer steps
_REDUCING = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor")
_ROOTED = ("broadcast", "reduce", "gather", "gather_into_tensor", "scatter")

_KINDS = (
    # -- at the door: a call of this rank differs from those of the others
    Kind("skip", "door", "the call is skipped and looks complete", "DDP301", ("DDP302", "DDP303", "DDP308")),
    Kind("extra call", "door", "the call is made twice", "DDP301", ("DDP302", "DDP303", "DDP308")),
    Kind("delay", "door", "the call is made late", "DDP315", passes=True, parameters=(Parameter("seconds", 5.0, "how late"),)),
    Kind("swap", "door", "the call is made after the next one of its group", "DDP309", ("DDP301", "DDP302", "DDP303", "DDP305")),
    Kind("other op", "door", "a different operation is called", "DDP302", ("DDP301",)),
    Kind("other shape", "door", "a tensor has one extra element", "DDP303", ("DDP301", "DDP302")),
    Kind(
        "other dtype", "door", "the tensors have a different dtype", "DDP304",
        parameters=(Parameter("dtype", "float64", "the dtype"),),
    ),
    Kind("other root", "door", "a different rank is the root", "DDP305", ops=_ROOTED),
    Kind(
        "other reduction", "door", "a different reduce operation", "DDP305",
        parameters=(Parameter("reduction", "another", "sum, product, min, max"),), ops=("all_reduce",),
    ),
    Kind("other layout", "door", "a matrix is column-major in memory", "DDP305", ops=("all_reduce", "broadcast"), needs="a call with a matrix"),
    Kind("other group", "door", "the call is made in a different group of this rank", "DDP306", ("DDP301", "DDP302"), needs="a second process group"),
    Kind("nan", "door", "an element of a tensor with several is NaN before the call", "DDP414", ops=_REDUCING),
    Kind(
        "corrupt", "door", "one of several elements of the result is changed on this rank", "DDP409", ("DDP405",),
        parameters=(Parameter("amount", 1.0, "what is added"),), ops=("all_reduce", "broadcast"),
    ),
    Kind("raise", "door", "the call raises an exception", "DDP312", parameters=(Parameter("message", "injected", "its text"),)),
    Kind("kill", "door", "the process is killed by a signal", "DDP311", parameters=(Parameter("signal", 9, "the signal"),)),
    Kind("freeze", "door", "the process is stopped (SIGSTOP)", "DDP314"),
    Kind("hold gil", "door", "native code holds the GIL", "DDP314"),
    Kind("block", "door", "the rank waits for a lock that is never released", "DDP313"),
    # -- in the data
    Kind("shorter shard", "data", "the data loader yields fewer batches, from then on", "DDP504", ("DDP308",),
         parameters=(Parameter("batches", 2, "how many fewer"),), needs="a DataLoader"),
    Kind("same shard", "data", "the DistributedSampler uses rank 0's shard, from then on", "DDP501", ("DDP503",), needs="a DistributedSampler"),
    Kind("epoch not set", "data", "set_epoch does nothing, from then on", "DDP502", ("DDP503",), needs="a DistributedSampler and a call of set_epoch"),
    Kind("other shuffle", "data", "the DistributedSampler shuffles with a different seed, from then on", "DDP503", needs="a DistributedSampler"),
    Kind("reseeded", "data", "torch.manual_seed gets a different seed", "DDP503", needs="data that torch.manual_seed decides"),
    Kind("stalled worker", "data", "a DataLoader worker is stopped (SIGSTOP) while it has a batch to deliver", "DDP507", needs="a DataLoader with workers"),
    Kind("killed worker", "data", "a DataLoader worker is killed while it has a batch to deliver", "DDP505", needs="a DataLoader with workers"),
    Kind("bad sample", "data", "a batch of the data loader contains a NaN", "DDP508", needs="a DataLoader"),
    # -- in the model
    Kind("perturb parameter", "model", "one element of the first parameter is changed before a forward", "DDP405",
         parameters=(Parameter("amount", 0.5, "what is added"),)),
    Kind("perturb buffer", "model", "one element of the first buffer is changed before a forward", "DDP406",
         parameters=(Parameter("amount", 0.5, "what is added"),), needs="a model with buffers"),
    Kind("unused parameter", "model", "a forward does not use the last parameter", "DDP401", ("DDP402",)),
    Kind("frozen parameter", "model", "the last parameter is frozen after wrapping", "DDP415", ("DDP401",)),
    Kind("thawed parameter", "model", "the last frozen parameter is unfrozen after wrapping", "DDP415", needs="a model with frozen parameters"),
    Kind("extra parameter", "model", "the wrapped model has one extra parameter", "DDP403"),
    Kind("other order", "model", "the wrapped model has two parameters in swapped order", "DDP404"),
    Kind("other precision", "model", "the wrapped model has parameters of a different dtype", "DDP404",
         parameters=(Parameter("dtype", "bfloat16", "the dtype"),)),
    Kind("converted batchnorm", "model", "the wrapped model has SyncBatchNorm instead of BatchNorm", "DDP412", needs="a model with BatchNorm"),
    Kind("other hook", "model", "the wrapper has a communication hook: gradients are sent as float16", "DDP416"),
    Kind("bypassed forward", "model", "the module is called without its DDP wrapper", "DDP407"),
    Kind("skipped synchronisation", "model", "a forward and its backward run under no_sync", "DDP408"),
    Kind("lone forward", "model", "the model runs an extra forward after the optimizer step", "DDP411", needs="a model whose buffers are broadcast"),
    Kind("scaled gradient", "model", "the loss is multiplied before backward, from then on", "DDP409",
         parameters=(Parameter("factor", 2.0, "by how much"),)),
    Kind("nan loss", "model", "the loss is NaN before backward", "DDP414", late=True),
    Kind("other learning rate", "model", "the learning rate is multiplied after a step, from then on", "DDP410",
         parameters=(Parameter("factor", 2.0, "by how much"),)),
    # -- in the environment: before start-up
    Kind(
        "variable", "environment", "a variable has a different value", "DDP101", ("DDP703", "DDP704", "DDP110"),
        parameters=(Parameter("name", "WORLD_SIZE", "of the variable"), Parameter("value", "", "its value")),
    ),
    Kind(
        "missing variable", "environment", "an environment variable is not set", "DDP101",
        parameters=(Parameter("name", "RANK", "of the variable"),),
    ),
    Kind("duplicate rank", "environment", "the process claims the rank of another process", "DDP103",
         parameters=(Parameter("rank", 0, "that it claims"),)),
    Kind("wrong port", "environment", "the rank connects to the store at a wrong port", "DDP104"),
    Kind("wrong address", "environment", "the host name of the store is wrong", "DDP104", ("DDP110",),
         parameters=(Parameter("address", "node-7.invalid", "where it looks"),)),
    Kind("wrong interface", "environment", "gloo and NCCL use a network interface that does not exist", "DDP110",
         parameters=(Parameter("interface", "ib9", "its name"),)),
    Kind("world size", "environment", "the world size is one more than the number of ranks", "DDP102", ("DDP101",)),
    Kind("many threads", "environment", "torch uses more threads than there are cores", "DDP704",
         parameters=(Parameter("threads", 64, "of each rank"),)),
    Kind("other version", "environment", "the rank reports a different torch version", "DDP107",
         parameters=(Parameter("version", "2.4.0", "that it claims"),)),
    Kind("deprecated variable", "environment", "a variable that is renamed, ignored or dangerous", "DDP703"),
)  # fmt: skip

KINDS: dict[str, Kind] = {kind.name: kind for kind in _KINDS}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, and when it is triggered: at the first occasion that matches all conditions.

    Args:
        kind: name of a kind.
        op, seq, site, group: the calls it applies to, as for a hold (only faults at the door).
        step: not before the rank has made this number of optimizer steps.
        probability: of being triggered at each occasion; random numbers are determined by ``seed`` and the rank.
        times: at most this often; None: no limit.
        values: the parameters of the kind.
    """

    kind: str
    op: str = ""
    seq: int | None = None
    site: str = ""
    group: str = ""
    step: int | None = None
    probability: float = 1.0
    seed: int = 0
    times: int | None = 1
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in KINDS:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _unknown(self.kind)
        if not isinstance(self.values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"values must be a dict of parameters, not {arguments.short(self.values)}.")
        _check(self.description, {name: getattr(self, name) for name in _FIELDS[1:]})

    @property
    def description(self) -> Kind:
        return KINDS[self.kind]

    @property
    def finding(self) -> str:
        """The code of the expected finding."""
        return self.description.finding

    def value(self, name: str) -> Any:
        """The value of a parameter, or its default."""
        defaults = {one.name: one.default for one in self.description.parameters}
        return self.values.get(name, defaults[name])

    def __str__(self) -> str:
        parts = [self.kind]
        parts += [f"{name}={self.values[name]!r}" for name in self.values]
        parts += [f"of {self.op}"] if self.op else []
        parts += [f"#{self.seq}"] if self.seq else []
        parts += [f"at {self.site}"] if self.site else []
        parts += [f"in group {self.group}"] if self.group else []
        parts += [f"after {self.step} steps"] if self.step else []
        parts += [f"with probability {self.probability:g}"] if self.probability < 1 else []
        return " ".join(parts)

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _FIELDS} | {"values": dict(self.values)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Fault:
        """The inverse of ``to_json``.

        Raises:
            UsageError: it is not a known fault.
        """
        given = {name: value[name] for name in _FIELDS if name in value}
        values = value.get("values")
        return fault(given.pop("kind", ""), **given, **(dict(values) if isinstance(values, Mapping) else {}))  # pyright: ignore[reportUnknownArgumentType]


PRETENDED_VERSION = "DDPNB_PRETENDED_TORCH"  # a rank reports this version instead of its own
_FIELDS = ("kind", "op", "seq", "site", "group", "step", "probability", "seed", "times")


def fault(kind: str, **given: Any) -> Fault:
    """A fault of this kind; everything that is not a condition is a parameter of the kind.

    Raises:
        UsageError: unknown kind, condition, parameter or operation, or an invalid value.
    """
    description = KINDS.get(str(kind).replace("_", " "))
    if description is None:
        raise _unknown(kind)
    conditions = {name: given.pop(name) for name in _FIELDS[1:] if name in given}
    known = {one.name: one for one in description.parameters}
    for name, value in given.items():
        if name not in known:
            takes = f"It takes: {', '.join(known)}." if known else "It takes none."
            raise UsageError(f"the fault {kind!r} has no parameter {name!r}.", takes)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300
        if isinstance(known[name].default, (int, float)) and not is_number:
            raise UsageError(f"{name} of the fault {kind!r} must be a number, not {arguments.short(value)}.")
        if not isinstance(value, (str, int, float)):
            raise UsageError(f"{name} of the fault {kind!r} must be a string, not {arguments.short(value)}.")
    _check(description, conditions)
    return Fault(description.name, **conditions, values=given)


def _unknown(kind: object) -> UsageError:
    near = difflib.get_close_matches(str(kind), KINDS, 1, 0.5) if isinstance(kind, str) else []
    hint = f"Did you mean {near[0]!r}?" if near else f"Known faults: {', '.join(KINDS)}."
    return UsageError(f"unknown fault {arguments.short(kind)}.", hint)


def _check(kind: Kind, conditions: Mapping[str, Any]) -> None:
    name = kind.name
    if kind.place != "door" and any(conditions.get(one) for one in ("op", "seq", "group")):
        raise UsageError(f"the fault {name!r} does not apply to calls: it takes no op, seq or group.")
    op = conditions.get("op", "")
    if op != "":
        check_operation(op)
        if kind.ops and op not in kind.ops:
            raise UsageError(f"the fault {name!r} does not apply to {op}.", f"It applies to: {', '.join(kind.ops)}.")
    for one in ("seq", "step", "times"):
        if conditions.get(one) is not None:
            arguments.whole(one, conditions[one], int(one != "step"))
    arguments.whole("seed", conditions.get("seed", 0), -(2**31))
    for one in ("op", "site", "group"):
        arguments.text(one, conditions.get(one, ""))
    chance = conditions.get("probability", 1.0)
    if not isinstance(chance, (int, float)) or isinstance(chance, bool) or not 0 < chance <= 1:
        raise UsageError(f"probability must be above 0 and at most 1, not {arguments.short(chance)}.")


def variables(fault: Fault, unused_port: int, size: int) -> dict[str, str | None]:
    """The variables that a fault of the environment sets; None: removes. Empty for other faults.

    ``unused_port``: a port on which no process listens (another job may use the port after MASTER_PORT).
    """
    if fault.kind == "variable":
        return {str(fault.value("name")): str(fault.value("value"))}
    if fault.kind == "missing variable":
        return {str(fault.value("name")): None}
    if fault.kind == "wrong port":
        return {"MASTER_PORT": str(unused_port)}
    if fault.kind == "world size":
        return {"WORLD_SIZE": str(size + 1)}
    if fault.kind == "deprecated variable":
        return {"NCCL_BLOCKING_WAIT": "1"}
    names, parameter = _SETS.get(fault.kind, ((), ""))
    return {name: str(fault.value(parameter)) for name in names}


_SETS = {  # the variables, and the parameter that is their value
    "duplicate rank": (("RANK",), "rank"),
    "wrong address": (("MASTER_ADDR",), "address"),
    "wrong interface": (("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), "interface"),
    "many threads": (("OMP_NUM_THREADS",), "threads"),
    "other version": ((PRETENDED_VERSION,), "version"),
}
