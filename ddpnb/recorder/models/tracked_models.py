"""The models that are followed: those that are wrapped with DDP, and the parameters of optimizers that no wrapper holds."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ddpnb.recorder.collectives.groups import Groups
from ddpnb.recorder.events.hooks import place
from ddpnb.recorder.models.device_copies import to_host
from ddpnb.recorder.models.optimizers import held_by
from ddpnb.recorder.models.tracked_model import MAX_TENSORS, Watched, facts_of, named_tensors, names_from_frames, specs
from ddpnb.recorder.stacks.digests import HASH
from ddpnb.recording.events import Event
from ddpnb.recording.events.models import ModelNotDescribed
from ddpnb.recording.files import private
from ddpnb.recording.replicas import UNWRAPPED

_BESIDE = 4  # optimizers whose parameters are followed beside the first: a program may make one for each batch
_LOOKS = 64  # steps of an optimizer in which parts of it have no gradient


class Followed:
    """Whom the replica watch follows in this run, and what earlier cells have left.

    Args:
        groups: the process groups of this rank.
        folder: where descriptions of models go.
        rank: this rank.
        emit: records an event.
        resumed: called with a wrapper or optimizer of an earlier run, and its model, when it is used again.
        number_of: of an optimizer; -1: it was not seen when it was made.
    """

    def __init__(
        self,
        groups: Groups,
        folder: str,
        rank: int,
        emit: Callable[[Event], None],
        resumed: Callable[[Any, Watched], None] = lambda *_: None,
        number_of: Callable[[Any], int] = lambda _: -1,
    ) -> None:
        self._number_of = number_of
        self._resumed = resumed
        self._groups = groups
        self._folder = folder
        self._rank = rank
        self._emit = emit
        self._run = 0
        self._count = 0
        self._adopted = self._beside = 0
        self.watched: weakref.WeakKeyDictionary[Any, Watched] = weakref.WeakKeyDictionary()
        self._earlier: weakref.WeakKeyDictionary[Any, Watched] = weakref.WeakKeyDictionary()  # of earlier cells
        # Optimizers of which parts had no gradient yet: how often they were looked at, and how many parts.
        self._idle: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
        self._of_optimizer: weakref.WeakKeyDictionary[Any, tuple[int, list[Watched]]] = weakref.WeakKeyDictionary()
        self._told: dict[str, Any] = {}  # of the model that is being wrapped
        self._last: Callable[[], Watched | None] = lambda: None

    # -- life

    def new_run(self) -> None:
        """Follow nobody yet."""
        self.watched.clear()
        self._of_optimizer.clear()
        self._idle.clear()
        self.last = None
        self._count = 0
        self._adopted = self._beside = 0

    def begin(self, run: int) -> None:
        """What is described belongs to this run from here on."""
        self._run = run

    def remember(self) -> None:
        """What runs have made lives on: it can still be compared, and used again."""
        self._earlier.update(self.watched)

    def forget(self) -> None:
        """Nothing of what was is of use to the next run."""
        self._earlier.clear()

    @property
    def last(self) -> Watched | None:
        """The one that ran forward last, as long as the program has it."""
        return self._last()

    @last.setter
    def last(self, watched: Watched | None) -> None:
        self._last = weakref.ref(watched) if watched is not None else lambda: None

    # -- what they hold

    def living(self) -> list[Watched]:
        """The models of this run, and those of earlier cells whose numbers it has not used."""
        own = list(self.watched.values())
        numbers = {watched.number for watched in own}
        return [*own, *(one for one in self._unused() if one.number not in numbers)]

    def unwrapped(self) -> list[Watched]:
        """The models of this run that no wrapper holds."""
        return [watched for watched in self.watched.values() if watched.number >= UNWRAPPED]

    def _unused(self) -> list[Watched]:
        """The models of earlier runs that are not used in this one."""
        return [one for owner, one in list(self._earlier.items()) if owner not in self.watched]

    def end_of_run(self, name: str, place: dict[str, Any]) -> None:
        """A run ends whose state the next one may share: note what the models hold."""
        for watched in list(self.watched.values()):
            watched.end_of_run(self._run, name, place, watched.steps)
        for watched in self._unused():
            watched.end_of_run(self._run, name, place, 0)

    @property
    def optimizers(self) -> list[Any]:
        """The optimizers that hold their parameters, as far as they have made a step."""
        return list(self._of_optimizer)

    def exact(self) -> list[dict[str, Any]]:
        """The exact digests and norms of every model that lives."""
        return [watched.exact() for watched in self.living()]

    def values(self, model: int, name: str, most: int) -> bytes:
        """The first ``most`` elements of a tensor of a model that lives, as float32; empty if there is none."""
        for watched in self.living():
            if watched.number == model and name in watched.names:
                tensor = watched.tensors[watched.names.index(name)]
                if tensor is None:
                    continue
                with torch.no_grad():
                    flat = to_host(tensor.detach())
                    flat = flat.reshape(-1)[:most].to("cpu", torch.float32).contiguous()
                return ctypes.string_at(flat.data_ptr(), flat.numel() * flat.itemsize)
        return b""

    def let_go(self, tensors: list[Any], again: list[Callable[[], None]]) -> None:
        """Hold no weak references to these tensors either, until what is added to ``again`` is called."""
        for watched in [*self.watched.values(), *self._earlier.values()]:
            again += watched.let_go(tensors)

    # -- who they are

    def next_number(self) -> int:
        """The number of a model that is about to be wrapped."""
        number = self._free(self._count)
        self._count = number + 1
        return number

    def _free(self, number: int) -> int:
        """This number, or the next one that no model of this run has."""
        used = {watched.number for watched in self.watched.values()}
        while number in used:
            number += 1
        return number

    def wrapped(self, ddp: Any) -> Watched:
        """Follow the model that was wrapped last."""
        watched = self.watched[ddp] = Watched(self._count - 1, named_tensors(ddp.module))
        watched.told = self._told
        return watched

    def follow(self, owner: Any) -> Watched | None:
        """The model of a wrapper or optimizer, if it is known: one of an earlier run is followed again from its first use on.

        It has its old number, which a new model may have taken meanwhile; ``made`` tells it from others.
        """
        watched = self.watched.get(owner)
        if watched is None and (before := self._earlier.get(owner)) is not None:
            made = before.told.get("options", {}).get("made") or [
                before.ends[0].run if before.ends else 0,
                before.number,
            ]
            watched = self.watched[owner] = before.again(self._free(before.number))
            watched.told = before.told | {
                "number": watched.number,
                "options": before.told.get("options", {}) | {"made": made},
            }
            self._write(watched.number, watched.told)
            self._resumed(owner, watched)
        return watched

    def save(
        self, number: int, wrapper: str, module: str, known: Any, tensors: list[dict[str, Any]], options: dict[str, Any]
    ) -> None:
        """Write what a model is made of, where the launcher finds it."""
        self._told = {
            "number": number,
            "wrapper": wrapper,
            "module": module,
            "group": known.key if known is not None else "",
            "ranks": list(known.identity.ranks) if known is not None else [],
            "tensors": tensors[:MAX_TENSORS],
            "hash": HASH,
            "options": options,
            "site": place(3).to_json(),
        }
        self._write(number, self._told)

    def _write(self, number: int, told: dict[str, Any]) -> None:
        path = os.path.join(self._folder, f"rank{self._rank}-run{self._run}-model{number}.json")
        try:
            with open(path + ".part", "w", opener=private) as file:
                json.dump(told, file, default=str)
            os.replace(path + ".part", path)
        except OSError as error:  # no room: the rest of the watch continues
            self._emit(ModelNotDescribed(number=number, error=error.strerror or ""))
            print(
                f"ddpnb: {self._folder}: {error.strerror}. The replicas of {told['module']} are not compared on this rank.",
                file=sys.stderr,
            )

    def of(self, optimizer: Any) -> list[Watched]:
        """The models whose parameters this optimizer holds."""
        count = sum(len(group["params"]) for group in optimizer.param_groups)
        known = self._of_optimizer.get(optimizer)
        if known is None or known[0] != count or optimizer in self._idle:
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            held = {id(parameter) for parameter in parameters}
            if known is not None and known[0] == count:
                self._describe_optimizer(optimizer, parameters, held, known[1])
                return known[1]
            self._idle.pop(optimizer, None)
            self._follow_holders(held)
            models = [watched for watched in self.watched.values() if watched.ids & held]
            if optimizer not in self.watched and (not self.watched or self._beside <= _BESIDE):
                followed = set[int]().union(*(watched.ids for watched in models))
                adopted = self._adopt(optimizer, [p for p in parameters if id(p) not in followed])
                self._beside += len(adopted)
                models += adopted
            known = self._of_optimizer[optimizer] = (count, models)
            self._describe_optimizer(optimizer, parameters, held, models)
        return known[1]

    def _follow_holders(self, held: set[int]) -> None:
        """Models of earlier runs that hold these parameters are in use again."""
        if not any(watched.ids & held for watched in self.watched.values()):
            for owner, before in list(self._earlier.items()):
                if before.ids & held:
                    self.follow(owner)

    def _adopt(self, optimizer: Any, parameters: list[Any]) -> list[Watched]:
        """What no wrapper holds is followed as the optimizer's: somebody may average its gradients by hand, or nobody does."""
        sharded = any(hasattr(p, "device_mesh") for p in parameters)
        parameters = [p for p in parameters if not hasattr(p, "device_mesh")]
        if not dist.is_initialized() or dist.get_world_size() < 2 or not parameters:
            return []
        names = names_from_frames(parameters)
        named = [(names.get(id(p), f"parameter {number}"), p) for number, p in enumerate(parameters)]
        known = self._groups.get(dist.group.WORLD)
        number = self._free(UNWRAPPED + self._adopted)
        self._adopted = number - UNWRAPPED + 1
        tensors = facts_of(specs(named, []))
        self.save(number, "", type(optimizer).__name__, known, tensors, {"sharded": sharded})
        watched = self.watched[optimizer] = Watched(number, (named, []))
        watched.told = self._told
        self.last = self.last or watched
        return [watched]

    def _describe_optimizer(self, optimizer: Any, parameters: list[Any], held: set[int], models: list[Watched]) -> None:
        """Does it hold what is trained? Recorded once, and again as long as more of what it holds beside that has a gradient."""
        looks, least = self._idle.pop(optimizer, (0, -1))
        number = self._number_of(optimizer)
        wrapped = [watched for watched in self.watched.values() if watched.number < UNWRAPPED]
        holds = [watched for watched in models if watched.number < UNWRAPPED or not wrapped]
        seen = [
            held_by(optimizer, parameters, held, watched, followed=bool(holds), number=number)
            for watched in holds or wrapped or self.watched.values()
        ]
        idle = sum(one.idle or 0 for one in seen)
        if idle and looks < _LOOKS:
            self._idle[optimizer] = looks + 1, idle
        for one in seen if least < 0 or idle < least else ():
            self._emit(one)
