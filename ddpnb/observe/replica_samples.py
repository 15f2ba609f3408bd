"""Follows the samples of the ranks while they train: drops what agrees, keeps what differs.

Reading is incremental and costs the ranks nothing. Of each kind of sample the first disagreements
stay, with what came just before, however long the run takes.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ddpnb.diagnosis.divergence.digests import differing
from ddpnb.model.names import UNDECODABLE
from ddpnb.model.replicas import UNWRAPPED, Model, Sample
from ddpnb.model.samples import SampleReader, contents, step_of
from ddpnb.model.shared import shared_file

_MODEL_LIMIT = 8 << 20  # bytes of one model's description
_FIRST, _LAST, _ODD = 40, 8, 4  # turns that are kept of each kind: the first, the last, the first that differ
_OUTSTANDING = 2048  # turns that may wait for a rank that is late


class _Kept:
    """The rows of one kind of one model that are kept: turn -> rank -> row."""

    def __init__(self) -> None:
        self.waiting: dict[int, dict[int, bytes]] = defaultdict(dict)  # not there from all ranks yet
        self.rows: dict[int, dict[int, bytes]] = {}
        self.odd: set[int] = set()
        self.wanted: set[int] = set()  # as something else differed then

    def settle(self, complete: Callable[[dict[int, bytes]], bool], odd: Callable[[dict[int, bytes]], bool]) -> set[int]:
        """Look at the turns that are complete; the optimizer steps at which they differ for the first time."""
        steps: set[int] = set()
        for turn in sorted(self.waiting):
            rows = self.waiting[turn]
            if not complete(rows) and len(self.waiting) <= _OUTSTANDING:
                continue
            self.rows[turn] = self.waiting.pop(turn)
            if len(self.odd) < _ODD and odd(rows):
                # What came just before the first disagreement tells how it began.
                before = max((one for one in self.rows if one < turn), default=turn)
                self.odd |= {turn} | ({before} if not self.odd else set())
                steps.add(min(map(step_of, rows.values())))
        return steps

    def keep(self, steps: set[int]) -> None:
        """What the ranks did in these steps is wanted too: it tells by what they came to differ."""
        if steps:
            self.wanted |= {turn for turn, rows in self.rows.items() if steps & set(map(step_of, rows.values()))}

    def trim(self) -> None:
        """Let go of what agreed, but for the first and the last."""
        recent = [turn for turn in sorted(self.rows) if turn > _FIRST and turn not in self.odd | self.wanted]
        for turn in recent[:-_LAST]:
            del self.rows[turn]

    def of(self, rank: int) -> list[bytes]:
        return [rows[rank] for rows in (*self.rows.values(), *self.waiting.values()) if rank in rows]


class Follower:
    """Reads the samples and the models of the ranks of one run.

    Args:
        folder: where the files lie.
        ranks: the ranks.
        run: number of the run.
        string: gives, for a rank, the JSON behind a number of its black box.
    """

    def __init__(self, folder: str, ranks: Iterable[int], run: int, string: Callable[[int, int], Any]) -> None:
        self._folder, self._ranks, self._run, self._string = folder, list(ranks), run, string
        self._readers: dict[int, SampleReader] = {}
        self._models: dict[int, dict[int, Model]] = {rank: {} for rank in self._ranks}
        self._kept: dict[tuple[int, str], _Kept] = {}

    def take(self) -> None:
        """Read new samples."""
        for rank in self._ranks:
            reader = self._open(rank)
            if reader is None:
                continue
            self._read_models(rank)
            for row in reader.new_rows(self._run):
                (model, kind, turn), _ = contents(row)
                self._kept.setdefault((model, kind), _Kept()).waiting[turn][rank] = row
        steps: dict[int, set[int]] = defaultdict(set)
        for (model, _), kept in self._kept.items():
            members = next(
                (m[model].ranks for m in self._models.values() if model in m and m[model].ranks), self._ranks
            )
            wanted = len(set(members) & set(self._ranks))
            for step in kept.settle(lambda rows, wanted=wanted: len(rows) >= wanted, self._odd):
                steps[model] |= {step - 1, step}
        for (model, _), kept in self._kept.items():
            kept.keep(steps[model])
            kept.trim()

    def _odd(self, rows: dict[int, bytes]) -> bool:
        """Whether the ranks' samples of one turn differ in what should be alike."""
        if len({contents(row)[1] for row in rows.values()}) <= 1:
            return False
        decoded = {rank: self._decode(rank, row) for rank, row in rows.items()}
        return bool(differing({rank: sample for rank, sample in decoded.items() if sample is not None}))

    def samples(self, rank: int) -> tuple[Sample, ...]:
        """What is kept of this rank, in the order in which it came."""
        rows = [row for kept in self._kept.values() for row in kept.of(rank)]
        found = [sample for row in rows if (sample := self._decode(rank, row)) is not None]
        return tuple(sorted(found, key=lambda sample: sample.at_ns))

    def models(self, rank: int) -> tuple[Model, ...]:
        self._read_models(rank)
        return tuple(model for _, model in sorted(self._models[rank].items()))

    def _decode(self, rank: int, row: bytes) -> Sample | None:
        return self._readers[rank].decode(row, self._models[rank])

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
            number = max((one for one in known if (one >= UNWRAPPED) == (first > 0)), default=first - 1) + 1
            while (model := self._read_model(rank, number)) is not None:
                known[number] = model
                number += 1

    def _read_model(self, rank: int, number: int) -> Model | None:
        """What a rank has said of a model; an empty one if that makes no sense, None if it has said nothing."""
        path = os.path.join(self._folder, f"rank{rank}-run{self._run}-model{number}.json")
        try:
            if os.path.getsize(path) > _MODEL_LIMIT:
                raise ValueError("too large")
            with open(path, encoding="utf-8") as file:
                return Model.from_json(json.load(file))
        except FileNotFoundError:
            return None
        except (OSError, *UNDECODABLE):
            return Model(number)
