"""The half of a hand-written Recording that is about training: models, samples of their replicas, events.

    Rank(0).wraps().trains(2, script.at("step")).forward(script.at("step"), odd={"fc.weight": 9})

Everything agrees on all ranks unless it is said to be odd; only inputs and losses are each rank's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Self

from ddpnb.recording.calls import NO_SITE, Group, Site
from ddpnb.recording.marks import Mark
from ddpnb.recording.replicas import Digest, Model, Sample, TensorSpec
from ddpnb.recording.samples import tensor_name, unit_names


def tensor(name: str, shape: tuple[int, ...] = (4,), dtype: str = "float32", **more: Any) -> TensorSpec:
    """A parameter, unless ``buffer=True``."""
    return TensorSpec(name, shape, dtype, **more)


NET = (tensor("fc.weight"), tensor("fc.bias"))
NORMED = (
    *NET,
    tensor("bn.weight", kind="BatchNorm1d"),
    tensor("bn.running_mean", buffer=True, kind="BatchNorm1d"),
    tensor("bn.running_var", buffer=True, kind="BatchNorm1d"),
)
INPUTS = "Tensor float32 2d"


class Training:
    """What a rank does to its models; ``Rank`` adds all else. Every method gives the rank back."""

    rank: int
    world: int
    _steps: int

    def __init__(self) -> None:
        self._models: list[Model] = []
        self._samples: list[Sample] = []
        self._stepped: Counter[int] = Counter()  # optimizer steps of each model
        self._since: dict[int, Counter[str]] = {}  # forwards and backwards of each since then
        self._drift: dict[str, int] = {}
        self._marks: list[Mark] = [Mark(0, "begin", 0)]

    def phase(self, name: str, state: Any, at: Site = NO_SITE, /, **facts: Any) -> Self:
        raise NotImplementedError

    def _now(self) -> int:
        raise NotImplementedError

    # -- models, and samples of their replicas

    def wraps(self, *tensors: TensorSpec, at: Site = NO_SITE, state: str = "done", **more: Any) -> Self:
        """Wrapped a model; ``more``: number, wrapper, module, group, anything else is an option of the wrapper."""
        self._model(tensors, at, {"wrapper": "DistributedDataParallel", "module": "Net", **more})
        self.phase("model wrapped", state, at, wrapper=self._models[-1].wrapper)
        return self.sample("updated", at, model=self._models[-1].number) if state == "done" else self

    def adopts(self, *tensors: TensorSpec, at: Site = NO_SITE, **more: Any) -> Self:
        """Trains a model without a wrapper: it is known since its first optimizer step."""
        self._model(tensors, at, {"wrapper": "", "module": "SGD", **more})
        return self

    def _model(self, tensors: tuple[TensorSpec, ...], at: Site, told: dict[str, Any]) -> None:
        members = told.pop("group", None) or Group(tuple(range(self.world)), label="default_pg")
        fields = {"number": len(self._models), **told}
        named = {name: fields.pop(name) for name in ("number", "wrapper", "module")}
        self._models.append(
            Model(**named, group=members.key, ranks=members.ranks, tensors=tensors or NET, options=fields, site=at)
        )

    def sample(
        self,
        kind: str,
        at: Site = NO_SITE,
        *,
        model: int = 0,
        odd: Mapping[str, int | None] | None = None,
        **facts: Any,
    ) -> Self:
        """Any sample. ``odd``: digests by tensor or part that are this rank's own; None leaves one out."""
        fields = {
            "turn": facts.pop("turn", 1 + sum((s.model, s.kind) == (model, kind) for s in self._samples)),
            "step": facts.pop("step", self._stepped[model]),
            "at_ns": facts.pop("at_ns", self._now()),
        }
        digests = self._digests(model, kind, fields["step"], fields["turn"], odd or {})
        self._samples.append(Sample(model, kind, site=at, facts=facts, digests=digests, **fields))
        return self

    def _digests(self, model: int, kind: str, step: int, turn: int, odd: Mapping[str, int | None]) -> dict[str, Digest]:
        described = next((one for one in self._models if one.number == model), None)
        if described is None or kind not in ("forward", "gradients", "updated", "earlier", "start"):
            return {}
        buffers = {one.name for one in described.buffers}
        own = {**(self._drift if kind != "gradients" else {}), **odd}
        found = {}
        for place, unit in enumerate(unit_names(described.tensors)):
            name = tensor_name(unit)
            if name in buffers and kind != "forward":
                continue
            # Parameters are those after the step before; buffers change with every forward.
            usual = 1000 * (turn if name in buffers else step + 1) + place + 500 * (kind == "gradients")
            value = own.get(unit, own.get(name, usual))
            if value is not None:
                found[unit] = Digest(value, float(value))
        return found

    def drifts(self, odd: Mapping[str, int]) -> Self:
        """From now on these tensors hold something of this rank's own."""
        self._drift.update(odd)
        return self

    def forward(
        self, at: Site = NO_SITE, *, model: int = 0, odd: Mapping[str, int] | None = None, **facts: Any
    ) -> Self:
        since = self._since.setdefault(model, Counter())
        told = {
            "sync": 1.0, "training": 1.0, "buffers_synced": 1.0, "inputs_finite": 1.0, "inputs": INPUTS,
            "inputs_hash": float(10_000 * self._steps + self.rank + 1), **facts,
        }  # fmt: skip
        since["forwards"] += 1
        since["synced"] += told["sync"] == 1.0
        return self.sample("forward", at, model=model, odd=odd, **{"forwards": float(since["forwards"]), **told})

    def backward(self, at: Site = NO_SITE, *, model: int = 0, factors: tuple[float, ...] = (), **facts: Any) -> Self:
        self._since.setdefault(model, Counter())["backwards"] += 1
        told = {"inputs_finite": 1.0, "loss": 0.5 + self.rank / 8, "graph": "MseLoss mean", **facts}
        scaled = {f"factor {number}": factor for number, factor in enumerate(factors, 1)}
        return self.sample("backward", at, model=model, **told, **scaled)

    def gradients(
        self, at: Site = NO_SITE, *, model: int = 0, odd: Mapping[str, int] | None = None, **facts: Any
    ) -> Self:
        """Just before the optimizer's step; ``facts`` may hold its settings (lr, momentum)."""
        since = self._since.pop(model, Counter())
        told = {**{name: float(since[name]) for name in ("forwards", "synced", "backwards")}, "bypass": 0.0, "lr": 0.1}
        return self.sample("gradients", at, model=model, odd=odd, **{**told, "optimizer": "SGD", **facts})

    def updated(self, at: Site = NO_SITE, *, model: int = 0, odd: Mapping[str, int] | None = None) -> Self:
        self._stepped[model] += 1
        self._marks.append(Mark(len(self._marks), "step", self._now(), steps=sum(self._stepped.values())))
        return self.sample("updated", at, model=model, odd=odd)

    def trains(self, steps: int = 1, at: Site = NO_SITE, *, model: int = 0) -> Self:
        """So many usual steps; a model without a wrapper has no forward that is seen."""
        wrapped = any(one.number == model and one.wrapper for one in self._models)
        for _ in range(steps):
            if wrapped:
                self.forward(at, model=model)
            self.backward(at, model=model).gradients(at, model=model).updated(at, model=model)
        return self

    def clips(self, norm: float, at: Site = NO_SITE, *, max_norm: float = 1.0, model: int = 0) -> Self:
        return self.sample("clip", at, model=model, norm=norm, max_norm=max_norm)

    def scales(self, scale: float, at: Site = NO_SITE, *, model: int = 0, **facts: Any) -> Self:
        return self.sample("scale", at, model=model, scale=scale, **facts)

    # -- events

    def event(self, name: str, at: Site = NO_SITE, /, **facts: Any) -> Self:
        return self.phase(name, "done", at, **facts)

    def loads(self, what: str = "model", at: Site = NO_SITE, **facts: Any) -> Self:
        """Loaded a state into a model, an optimizer or a scaler."""
        return self.event("state loaded", at, **{"what": what, "class": "Net", "wrapped": False, "keys": [], **facts})

    def reads_checkpoint(self, at: Site = NO_SITE, path: str = "/home/user/last.pt") -> Self:
        return self.event("checkpoint read", at, path=path, keys=["model"], epoch=3)

    def hooks(self, hook: str, at: Site = NO_SITE, state: str = "NoneType") -> Self:
        return self.event("comm hook", at, hook=hook, state=state)

    def converts(self, layers: int, at: Site = NO_SITE, *, wrapped: bool = False) -> Self:
        return self.event("sync batchnorm", at, layers=layers, wrapped=wrapped)

    def optimizes(self, at: Site = NO_SITE, **facts: Any) -> Self:
        """Made an optimizer and stepped it for the first time; it holds what is trained, unless ``facts`` say otherwise."""
        told = {"optimizer": "SGD", "model": 0, "parameters": 2, "strangers": 0, "missing": [], "copies": False}
        return self.event("optimizer", at, **{**told, **facts})

    def replaces(self, *names: str, at: Site = NO_SITE, model: int = 0) -> Self:
        return self.event("parameters replaced", at, model=model, names=list(names))

    def environment(self, **variables: str) -> Self:
        return self.event("environment", **variables)

    def threads(self, count: int, at: Site = NO_SITE) -> Self:
        return self.event("threads", at, threads=count)

    def loader(self, at: Site = NO_SITE, **facts: Any) -> Self:
        return self.event("loader", at, **{"loader": 0, "dataset": 0, "num_workers": 0, **facts})
