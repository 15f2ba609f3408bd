"""Follows the samples of the ranks while they train: drops what agrees, keeps what differs.

Reading is incremental and costs the ranks nothing. Of each kind of sample the first disagreements
stay, with what came just before, however long the run takes.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from ddpnb.recording.facts.digests import differing
from ddpnb.recording.names import UNDECODABLE
from ddpnb.recording.replicas import UNWRAPPED, Model, Sample, model_of
from ddpnb.recording.samples import SampleReader, contents, loss_of, step_of
from ddpnb.recording.shared import shared_file

_MODEL_LIMIT = 8 << 20  # bytes of one model's description
_FIRST, _LAST, _DIFFERING = 40, 8, 4  # turns that are kept of each kind: the first, the last, the first that differ
_WAITING = 2048  # turns that may wait for a rank that is late


class _Series:
    """The rows of one kind of one model: turn -> rank -> row."""

    def __init__(self) -> None:
        self.waiting: dict[int, dict[int, bytes]] = defaultdict(dict)  # still without those of some ranks
        self.rows: dict[int, dict[int, bytes]] = {}
        self._differing: set[int] = set()
        self._wanted: set[int] = set()  # because samples of another kind differ in the same step

    def compare(self, members: int, differ: Callable[[dict[int, bytes]], bool]) -> set[int]:
        """Compare the turns that all ``members`` have; the optimizer steps at which they differ for the first time."""
        steps: set[int] = set()
        for turn in sorted(self.waiting):
            rows = self.waiting[turn]
            if len(rows) < members and len(self.waiting) <= _WAITING:
                continue
            self.rows[turn] = self.waiting.pop(turn)
            if len(self._differing) < _DIFFERING and differ(rows):
                # The turn before the first disagreement shows how it began.
                before = max((earlier for earlier in self.rows if earlier < turn), default=turn)
                self._differing |= {turn} | ({before} if not self._differing else set())
                steps.add(min(map(step_of, rows.values())))
        return steps

    def keep(self, steps: set[int]) -> None:
        """Keep the turns of these steps too: they show why the ranks came to differ."""
        if steps:
            self._wanted |= {turn for turn, rows in self.rows.items() if steps & set(map(step_of, rows.values()))}

    def trim(self) -> None:
        """Drop the turns that agree, except the first and the last ones."""
        recent = [turn for turn in sorted(self.rows) if turn > _FIRST and turn not in self._differing | self._wanted]
        for turn in recent[:-_LAST]:
            del self.rows[turn]

    def of(self, rank: int) -> list[bytes]:
        """The rows of this rank."""
        return [rows[rank] for rows in (*self.rows.values(), *self.waiting.values()) if rank in rows]


class ReplicaSamples:
    """Reads the samples and the models of the ranks of one run.

    Args:
        folder: where the files are.
        ranks: the ranks.
        run: number of the run.
        string: gives, for a rank, the JSON behind a number of its black box.
        loss: called with the model, the rank, the time and the value of each loss that was sampled.
    """

    def __init__(
        self,
        folder: str,
        ranks: Iterable[int],
        run: int,
        string: Callable[[int, int], Any],
        loss: Callable[[int, int, int, float], None] = lambda *_: None,
    ) -> None:
        self._folder, self._ranks, self._run, self._string, self._loss = folder, list(ranks), run, string, loss
        self._readers: dict[int, SampleReader] = {}
        self._models: dict[int, dict[int, Model]] = {rank: {} for rank in self._ranks}
        self._series: dict[tuple[int, str], _Series] = {}

    def read(self) -> None:
        """Read new samples."""
        for rank in self._ranks:
            reader = self._open(rank)
            if reader is None:
                continue
            self._read_models(rank)
            for row in reader.new_rows(self._run):
                (model, kind, turn), _ = contents(row)
                self._know(rank, model)
                self._series.setdefault((model, kind), _Series()).waiting[turn][rank] = row
                if (told := loss_of(row)) is not None:
                    self._loss(told[0], rank, *told[1:])
        steps: dict[int, set[int]] = defaultdict(set)
        for (model, _), series in self._series.items():
            members = next(
                (m[model].ranks for m in self._models.values() if model in m and m[model].ranks), self._ranks
            )
            for step in series.compare(len(set(members) & set(self._ranks)), self._differ):
                steps[model] |= {step - 1, step}
        for (model, _), series in self._series.items():
            series.keep(steps[model])
            series.trim()

    def _differ(self, rows: dict[int, bytes]) -> bool:
        """Whether the ranks' samples of one turn differ in values that should be equal."""
        if len({contents(row)[1] for row in rows.values()}) <= 1:
            return False
        decoded = {rank: self._decode(rank, row) for rank, row in rows.items()}
        return bool(differing({rank: sample for rank, sample in decoded.items() if sample is not None}))

    def samples(self, rank: int) -> tuple[Sample, ...]:
        """The samples of this rank that are kept, by time."""
        rows = [row for series in self._series.values() for row in series.of(rank)]
        samples = [sample for row in rows if (sample := self._decode(rank, row)) is not None]
        return tuple(sorted(samples, key=lambda sample: sample.at_ns))

    def models(self, rank: int) -> tuple[Model, ...]:
        """The models of this rank."""
        self._read_models(rank)
        return tuple(model for _, model in sorted(self._models[rank].items()))

    def _decode(self, rank: int, row: bytes) -> Sample | None:
        sample = self._readers[rank].decode(row, self._models[rank])
        if sample is None or not self._incomparable(sample.model):
            return sample
        facts = {name: value for name, value in sample.facts.items() if name != "inputs_hash"}
        return replace(sample, facts=facts, digests={})

    def _incomparable(self, model: int) -> bool:
        """Whether the ranks compute different kinds of digests of a model: only some have xxhash."""
        return len({one.hash for models in self._models.values() if (one := models.get(model)) and one.hash}) > 1

    def _open(self, rank: int) -> SampleReader | None:
        reader = self._readers.get(rank)
        if reader is None:
            try:
                file = shared_file(os.path.join(self._folder, f"rank{rank}.samples"))
                reader = self._readers[rank] = SampleReader(file, partial(self._string, rank))
            except (OSError, ValueError):
                return None
        return reader

    def _read_models(self, rank: int) -> None:
        known = self._models[rank]
        for first in (0, UNWRAPPED):
            number = max((model for model in known if (model >= UNWRAPPED) == (first > 0)), default=first - 1) + 1
            while (model := self._read_model(rank, number)) is not None:
                known[number] = model
                number += 1

    def _know(self, rank: int, number: int) -> None:
        """Read the description of a model that the rank has used, whatever numbers there are before its own."""
        if number not in self._models[rank] and (model := self._read_model(rank, number)) is not None:
            self._models[rank][number] = model

    def _read_model(self, rank: int, number: int) -> Model | None:
        """A rank's description of a model; an empty one if it is invalid, None if there is none or it cannot be read now."""
        path = os.path.join(self._folder, f"rank{rank}-run{self._run}-model{number}.json")
        try:
            if os.path.getsize(path) > _MODEL_LIMIT:
                raise ValueError("too large")
            with open(path, encoding="utf-8") as file:
                return model_of(json.load(file))
        except OSError:  # a file more would fail like this one
            return None
        except UNDECODABLE:
            return Model(number)
