"""The codec: values by the types of fields, in the formats that are not tested with their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal

import pytest

from ddpnb.recording.calls import NO_SITE, Signature, Site
from ddpnb.recording.codec import JSON, WHOLE, written
from ddpnb.recording.names import UNDECODABLE


class Colour(IntEnum):
    RED = 1


@dataclass(frozen=True)
class Part:
    name: str
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Thing:
    part: Part
    parts: tuple[Part, ...] = ()
    pair: tuple[int, str] = (0, "")
    kind: Literal["a", "b"] = "a"
    colour: Colour = Colour.RED
    by_rank: Mapping[int, float] = field(default_factory=dict[int, float])
    anything: Any = None
    site: Site = NO_SITE
    maybe: bool | None = None


THING = Thing(
    Part("x", (1, 2)), (Part("y"),), (3, "z"), "b", Colour.RED, {2: 0.5}, {"q": [1]}, Site("t.py", 7, "main"), True
)


@pytest.mark.parametrize("thing", [THING, Thing(Part("x"))])
def test_what_is_written_is_read(thing):
    assert WHOLE.read(Thing, written(thing)) == thing
    assert written(thing)["by_rank"] == {str(rank): value for rank, value in thing.by_rank.items()}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("part", None), ("part", {"name": 3, "sizes": []}), ("part", {"name": "x"}), ("part", []), ("parts", "abc"),
        ("parts", {}), ("pair", [1]), ("pair", [1, "a", 2]), ("pair", 3), ("kind", "c"), ("kind", []), ("colour", 2), ("colour", True),
        ("colour", 1.0), ("by_rank", {"x": 1}), ("by_rank", [[1, 2]]), ("by_rank", {"1": "x"}), ("site", {"file": "t.py"}),
        ("site", 3), ("maybe", 1), ("maybe", "yes"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(name, value):
    with pytest.raises(UNDECODABLE):
        WHOLE.read(Thing, {**written(THING), name: value})


def test_a_rank_may_leave_fields_out_and_its_texts_are_bounded():
    assert JSON.read(Signature, {}) == Signature("?")
    read = JSON.read(
        Signature, {"op": "a\x1b" + "b" * 9999, "agreed": "c" * (1 << 20), "shapes": [[2, "3"]], "more": 1}
    )
    assert read.op.isprintable() and len(read.op) == 400 and len(read.agreed) == 16 << 10 and read.shapes == ((2, 3),)
    for wrong in ({"shapes": [["s0"]]}, {"shapes": 3}, {"root": 0.5}, {"device": None}, {"shapes": [[1 << 63]]}):
        with pytest.raises(UNDECODABLE):
            JSON.read(Signature, wrong)
