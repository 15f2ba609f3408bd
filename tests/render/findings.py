"""Diagnoses to be shown: a usual one, and one whose every text comes from a hostile rank."""

from __future__ import annotations

from ddpnb.recording.calls import Call, CallState, Group, Signature, Site
from ddpnb.recording.findings import Diagnosis, Finding, Hint
from ddpnb.rules.finding_types import type_of
from tests.render import partings

SITE = Site("/home/user/train.py", 91, "main")
CALL = Call(
    3,
    Group((0, 1, 2, 3), label="default_pg"),
    57,
    Signature("all_reduce", ((1024,),), ("float32",)),
    SITE,
    CallState.WAITING,
)
USUAL = Finding(
    type_of("DDP301"),
    "Rank 1 never calls the all_reduce that ranks 0, 2 and 3 are blocked in.",
    (1,),
    (0, 2, 3),
    CALL,
    ((1, Site("/home/user/train.py", 95, "main")), (0, SITE)),
    ("Ranks 0, 2 and 3 are in all_reduce #57.", "Line 90 decides: if rank != 1."),
    "Let all ranks take the same path.",
)


def hang(*findings: Finding, **changes: object) -> Diagnosis:
    return Diagnosis("hang", findings or (USUAL,), settled=True, world_size=4, **changes)


def saying(text: str) -> Diagnosis:
    """Every text that a rank has a say in is ``text``."""
    site = Site(text, 7, text)
    call = Call(1, Group((0, 1), label=text), 1, Signature(text, dtypes=(text,)), site, CallState.WAITING)
    return hang(
        Finding(
            type_of("DDP312"),
            text,
            (1,),
            (0,),
            call,
            ((1, site),),
            (text,),
            text,
            hint=Hint(text, 7, text),
            parting=partings.saying(text),
        )
    )
