"""Mutations of real files, and everything that ddpnb does with a file of a stranger.

``python -m tests.security.mutations KIND FIRST LAST`` tries these seeds and prints what went wrong.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ddpnb import texts
from ddpnb.errors import UsageError
from ddpnb.render import card
from ddpnb.render.explanation import explain
from ddpnb.render.nouns import save_html, save_perfetto
from ddpnb.render.report import sources
from ddpnb.rules.diagnose import diagnose
from ddpnb.studies.reenactment.planning import plan_of
from ddpnb.studies.reenactment.script import script_of
from ddpnb.world.loading import load
from tests.security.test_exported_scripts import check

HERE = Path(__file__).parent
RECORDINGS = sorted((HERE.parent / "recordings").glob("*/*.ddpnb"))
DUMPS = sorted((HERE.parent / "reports" / "files" / "gloo").glob("*_rank_*"))
LOGS = sorted((HERE.parents[1] / "notebooks" / "reports").glob("**/*.[lt][ox][gt]"))
SLOW_S = 20  # of one file and of all that is done with it
INTEGERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    255,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    1 << 40,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
    -(1 << 63),
)
FLOATS = (0.0, -1.0, 1e-300, 1e300, float("inf"), float("-inf"), float("nan"), 0.5)
TEXTS = (
    "", "0", "x\ny", "\x1b[2J\x07", "\u202eevil\u2066", "\ud800", "\0", "<script>alert(1)</script>", "'\"><img src=x onerror=y>",
    "{0}{x!r:>{y}}%s%n", "all_reduce", "recv_any_source", "default_pg", "../../../../etc/passwd", "/dev/zero", "x" * 20_000, "a b" * 999,
    "# coding:utf-7", "__import__('os').system('x')", "train.py", "_", "9" * 400, "\u2028\u2029\x85\x0c", "&lt;", "[[[", "((((", "\\",
)  # fmt: skip
LINES = (
    "[rank3]:[E1] ", "Traceback (most recent call last):\n", '  File "x.py", line 3, in f\n', "RuntimeError: \x1b[31m\u202eboom\n",
    "rank      : 99999 (local_rank: 0)\n  exitcode  : -9 (pid: 1)\n", "Root Cause (first observed failure):\n", "WORLD_SIZE=999999\n",
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=18446744073709551615, OpType=ALLREDUCE, NumelIn=99999999999999, "
    "NumelOut=1, Timeout(ms)=600000) ran for 600001 milliseconds before timing out.\n", "\0" * 50, "{" * 300, "[" * 300, "\xff\xfe", "\r" * 9,
)  # fmt: skip


class Slow(BaseException):
    """What is done with a file takes longer than it may."""


def recording(rng: random.Random, path: str) -> None:
    """A recording in which some values are others of the same type, lists are longer or shorter, indices are others."""
    head, _, body = gzip.decompress(rng.choice(RECORDINGS).read_bytes()).partition(b"\n")
    content = json.loads(body)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        _change(rng, content["tables"] if rng.random() < 0.4 else content["recording"])
    Path(path).write_bytes(gzip.compress(head + b"\n" + json.dumps(content).encode(), 1))


def _change(rng: random.Random, value: Any) -> None:
    """Descend to a random place, and put something else there."""
    while isinstance(value, (list, dict)) and value:
        key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        held = value[key]
        if isinstance(held, (list, dict)) and held and rng.random() < 0.93:
            value = held
            continue
        if isinstance(held, list):
            value[key] = rng.choice(([], held * 2, held * 40, held[:-1], held[::-1], [held[-1:] * 3 if held else 0]))
        elif isinstance(held, dict):
            value[key] = rng.choice(({}, {"\ud800": held}, dict.fromkeys(TEXTS, 1)))
        elif isinstance(held, bool):
            value[key] = not held
        elif isinstance(held, int):
            value[key] = rng.choice((*INTEGERS, held + 1, held - 1, -held))
        elif isinstance(held, float):
            value[key] = rng.choice(FLOATS)
        elif isinstance(held, str):
            value[key] = rng.choice((*TEXTS, held + rng.choice(TEXTS), held[:1]))
        else:
            value[key] = rng.choice((None, 1, "x", [], {}, 0.5))
        return


def dump(rng: random.Random, path: str) -> None:
    """A dump: bytes of a pickle, or values of JSON."""
    source = rng.choice(DUMPS)
    data = bytearray(source.read_bytes())
    if source.suffix == ".json" and rng.random() < 0.8:
        content = json.loads(data)
        for _ in range(rng.choice((1, 2, 8))):
            _change(rng, content)
        data = bytearray(json.dumps(content).encode())
    else:
        for _ in range(rng.choice((1, 1, 3, 30))):
            _spoil(rng, data)
    Path(path).write_bytes(data)


def log(rng: random.Random, path: str) -> None:
    """A log: lines that are repeated, exchanged, cut, or of another kind."""
    lines = rng.choice(LOGS).read_bytes().splitlines(True)
    for _ in range(rng.choice((1, 3, 10, 40))):
        place = rng.randrange(len(lines))
        at = rng.choice(("repeat", "drop", "swap", "put", "spoil", "number"))
        if at == "repeat":
            lines[place:place] = lines[place : place + rng.randrange(1, 9)] * rng.choice((1, 2, 300))
        elif at == "drop" and len(lines) > 3:
            del lines[place : place + rng.randrange(1, 4)]
        elif at == "swap":
            other = rng.randrange(len(lines))
            lines[place], lines[other] = lines[other], lines[place]
        elif at == "put":
            lines.insert(place, rng.choice((*LINES, *TEXTS)).encode("utf-8", "surrogatepass"))
        elif at == "spoil":
            lines[place] = bytes(_spoil(rng, bytearray(lines[place] or b"x")))
        else:
            number = str(rng.choice(INTEGERS)).encode()
            lines[place] = re.sub(rb"\d+", lambda match, number=number: rng.choice((number, match[0])), lines[place])
    Path(path).write_bytes(b"".join(lines)[: 4 << 20])


def _spoil(rng: random.Random, data: bytearray) -> bytearray:
    place, end = rng.randrange(len(data) + 1), rng.randrange(1, 40)
    data[place : place + rng.choice((0, 1, end))] = rng.choice(
        (b"", rng.randbytes(end), bytes(data[:end]), b"\xff" * end)
    )
    return data


def use(path: str) -> None:
    """Do all that ddpnb does with a file of a stranger. A refusal is an answer; any other exception is a defect.

    Raises:
        AssertionError: an output holds what it must not.
    """
    outputs: list[str] = []
    try:
        read = load(path)
    except UsageError as error:
        _check(str(error))
        return
    diagnosis = diagnose(read)
    outputs += [str(diagnosis), card.text(diagnosis), sources(read), str(explain(diagnosis))]
    outputs.append(diagnosis.to_markdown().replace("@\u200b", "@"))  # so that nobody is mentioned
    json.dumps(diagnosis.to_json(), allow_nan=True)
    folder = os.path.dirname(path)
    page = os.path.join(folder, "page.html")
    save_html(read, page, diagnosis)
    shown = Path(page).read_text()
    assert (
        "<script>alert" not in shown
        and "<img src=x" not in shown
        and not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", shown)
    )
    with contextlib.suppress(UsageError):  # there are no times
        save_perfetto(read, os.path.join(folder, "trace.json"))
        json.loads(Path(folder, "trace.json").read_bytes())
    with contextlib.suppress(UsageError):  # there is nothing to re-enact
        check(script_of(plan_of(read), path, file=path))
    read.save(os.path.join(folder, "again.ddpnb"))
    for text in outputs:
        _check(text)


def _check(text: str) -> None:
    assert texts.printable(text) == text, ascii(text)


MUTATIONS: dict[str, Callable[[random.Random, str], None]] = {"recording": recording, "dump": dump, "log": log}
NAMES = {"recording": "x\u202e coding:utf-7 .ddpnb", "dump": "nccl_trace_rank_0", "log": "$(x)\u202egol.log"}


def attempts(kind: str, seeds: range) -> Iterator[tuple[int, str]]:
    """The seeds of which the file makes ddpnb fail, with what was raised."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, NAMES[kind])
        signal.signal(signal.SIGVTALRM, _late)
        for seed in seeds:
            MUTATIONS[kind](random.Random(seed), path)
            signal.setitimer(signal.ITIMER_VIRTUAL, SLOW_S)
            try:
                use(path)
            except (Exception, Slow):
                yield seed, traceback.format_exc()
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _late(*_: Any) -> None:
    raise Slow


if __name__ == "__main__":
    for seed, why in attempts(sys.argv[1], range(int(sys.argv[2]), int(sys.argv[3]))):
        print(f"== {seed}\n{why}", flush=True)
