"""What torch.compile did on a rank, in sentences."""

from __future__ import annotations

import re

from ddpnb.recording import phrases
from ddpnb.recording.events.runs import Compilation
from ddpnb.texts import shortened

_NUMBER = re.compile(r"^\d+/\d+: ")  # with which torch begins a reason: of the graph whose guard failed
_BRANCH = "generic_jump"  # torch's word for a branch on the value of a tensor

WARM_UP = (
    "Give the group a time-out above the longest compilation, at least until all ranks have compiled (a step on dummy data, then "
    "a barrier); or give all ranks one cache that is filled before (TORCHINDUCTOR_CACHE_DIR)."
)


def named(one: Compilation) -> str:
    """``forward (model.py:18)``, ``the backward of forward (model.py:18)``, ``what train.py:7 calls``."""
    name = f"what {one.site} calls" if one.library else f"{one.site.function} ({one.site})"
    return f"the {one.part.removeprefix('lazy ')} of {name}" if one.part else name


def described(one: Compilation, now_ns: int = 0) -> str:
    """What was compiled, how often, how long, and why, from the verb on; ``now_ns``: until when, if it is not over."""
    times = f" for the {_ordinal(one.number)} time" if one.again else ""
    is_open = one.state == "open"
    text = f"{'has been compiling' if is_open else 'compiled'} {named(one)}{times}"
    took = (now_ns if is_open else one.ended_ns) - one.began_ns
    cache = ", not in the cache" if one.misses else ", from the cache" if one.hits else ""
    if took > 0:
        text += f" {'for' if is_open else 'in'} {took / 1e9:.1f} s{cache}"
    if one.reason:
        text += f", because of a guard: {shortened(_NUMBER.sub('', one.reason), 200)}"
    for cut in one.breaks:
        why = "a branch on the value of a tensor" if cut.why.startswith(_BRANCH) else shortened(cut.why, 100)
        text += f"; the graph broke at {cut.file}:{cut.line} ({why})"
    if one.given_up:
        text += f"; torch gave it up: {shortened(one.given_up, 150)}"
    return phrases.sentence(text)


def _ordinal(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")
