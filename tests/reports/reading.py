"""What the tests of text formats share: facts of a text, by kind."""

from __future__ import annotations

from pathlib import Path

from ddpnb.reports import formats, logs
from ddpnb.reports.facts import Fact

_POSTED = Path(__file__).parent / "posted"
OLD_WATCHDOG, XID, NCCL, PY_SPY, STORE = (
    (_POSTED / f"of_{name}.txt").read_text() for name in ("old_watchdog", "xid", "nccl", "py_spy", "store")
)

NOISE = (
    "Epoch 3:  41%|####      | 410/1000 [01:02<01:30, 6.5it/s, loss=2.31]\nINFO 2024-05-01 12:00:00 step 410 lr 3e-4\n"
)
ANSI = "\x1b[31m{}\x1b[0m"


def read(format_, text: str, path: str = "train.log") -> list[Fact]:
    return list(format_.read(logs.read(path, text)))


def of(kind, facts):
    return [fact for fact in facts if isinstance(fact, kind)]


def every(text: str, path: str = "train.log") -> list[Fact]:
    return [fact for found in formats.facts_of(logs.read(path, text)) for fact in found.facts]
