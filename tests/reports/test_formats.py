"""All formats together: texts of any kind never raise, and take no time."""

import random
import time

import pytest

from ddpnb.reports import formats, logs, together
from tests.reports import test_launchers, test_mismatches, test_nccl, test_ras, test_stack_dumps, test_watchdog
from tests.reports.reading import NOISE, every

_SAMPLES = "\n".join(
    (
        test_watchdog.timeout(3, prefix="[rank3]:[E x] "),
        "[rank3]:[E x] [PG ID 2 PG GUID 9(tp) Rank 1] Timeout at NCCL work: 57, last enqueued NCCL work: 60, last completed NCCL work: 56.",
        test_launchers.table(test_launchers.row(1, 0, -15, 25), root=test_launchers.row(0, 1, 1, 26)),
        test_nccl.init(0, 4) + test_nccl.call(0, 3),
        test_ras._HEAD + test_ras._COUNTS.format("AllReduce"),
        test_ras._json({0: 3, 1: 4}, (2,)),
        test_mismatches.mismatch(test_mismatches.fingerprint("ALLREDUCE"), "REDUCE"),
        test_stack_dumps.dump(100, *test_stack_dumps._IN_CALL),
        test_stack_dumps._FAULT.format("Aborted"),
        "[0, 2] started ALLREDUCE\n#57 started ranks:\n[1] finished collective #56, but didn't join collective #57",
        "[R0/2][4711] CHECKPOINT 9: wrap\n[DDP-DEBUG] [Rank 0] x",
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "x.py", line 3, in f\n[rank0]: ValueError: x',
        "wait timeout after 300000ms, keys: /default_pg/0//cpu//1/0\nOut of memory: Killed process 4 (python)",
        "=== Rank 0: http://n ===\n<h2>Rank 1: http://n</h2><pre>&lt;</pre>PARTIAL DATA: 1/2 workers responded\n  Rank 1: x",
    )
)


@pytest.mark.parametrize("seed", range(60))
def test_damaged_texts_never_raise(seed):
    """Pieces of all formats, cut, repeated and mixed, with digits that are too long and brackets that do not match."""
    source = random.Random(seed)
    lines = _SAMPLES.split("\n")
    source.shuffle(lines)
    pieces: list[str] = []
    for line in lines:
        cut = source.randrange(len(line) + 1)
        pieces += source.choice(
            [
                [line],
                [line[:cut]],
                [line[cut:]],
                [line[:cut], line[cut:]],
                [line, line],
                [line.replace("1", "9" * 25)],
                [line[::-1]],
            ]
        )
        if source.random() < 0.1:
            pieces.append("".join(chr(source.randrange(1, 0x3000)) for _ in range(30)))
    text = source.choice(["\n", "\n[rank1]: ", "\r\n", "\n3: "]).join(pieces)
    found = formats.facts_of(logs.read("rank1.log", text))
    together.recording(found)


@pytest.mark.parametrize("text", ["", "\n", "\0", "\ud800", "[" * 100_000, "x" * 10_000_000, "\n" * 300_000])
def test_texts_without_a_format(text):
    assert every(text) == []


@pytest.mark.full
def test_a_long_log_takes_a_few_seconds():
    text = "".join(f"[rank{rank}]: " + NOISE.replace("\n", f"\n[rank{rank}]: ") for rank in range(8)) * 4000
    start = time.process_time()
    facts = every(text + "\n" + _SAMPLES)
    assert time.process_time() - start < 15
    assert facts


@pytest.mark.parametrize("format_", formats.TEXT, ids=lambda format_: format_.name)
def test_each_format_is_described(format_):
    assert format_.name
    assert all(format_.marks)
