"""The doctor's report as text."""

from __future__ import annotations

from ddpnb.recording.checks import Check, CollectiveTime
from ddpnb.render.checkup import summary, text, times

WELL = Check("cores", "ok", "8 cores for 2 ranks", todo="not shown", details={"cores": 8.0, "names": ["a"]})
SLOW = Check(
    "links", "warning", "GPU0-GPU1 SYS", "DDP207", "GPUs", "Choose others.", {"links": {"GPU0": {"GPU1": "SYS"}}}
)
DARK = Check("kernel log", "unknown", "not readable here", todo="sudo dmesg")
TIMES = (
    CollectiveTime("barrier", 0, {0: (0.0002,), 1: (0.0001,)}),
    CollectiveTime("all_reduce", 64 << 20, {0: (0.25, 0.25), 1: (0.2, 0.2)}),
)


def report(**more):
    return text("OK: fine", (WELL, DARK, SLOW), "step  rank 0", TIMES, "2 ranks, gloo, cpu", **more)


def test_sections_with_what_to_do():
    assert report().splitlines()[:13] == [
        "ddpnb: OK: fine; of the checks: 1 warning, 1 unknown",
        "",
        "machine",
        "  ✓  cores       8 cores for 2 ranks",
        "  ?  kernel log  not readable here",
        "                 → sudo dmesg",
        "",
        "GPUs",
        "  !  links       GPU0-GPU1 SYS  [DDP207]",
        "                 → Choose others.",
        "",
        "start-up",
        "  step  rank 0",
    ]
    assert "2 ranks, gloo, cpu; algbw and busbw as in nccl-tests" in report()


def test_details():
    shown = report(verbose=True)
    assert "cores: 8.0" in shown and 'names: ["a"]' in shown and '{"GPU0": {"GPU1": "SYS"}}' in shown
    assert "8.0" not in report()


def test_bandwidths():
    rows = [line.split() for line in times(TIMES).splitlines()]
    assert rows[1] == ["barrier", "1", "0.2", "ms", "0.1", "ms", "to", "0.2", "ms"]
    assert rows[2][1:] == [
        "64",
        "MiB",
        "2",
        "250",
        "ms",
        "200",
        "ms",
        "to",
        "250",
        "ms",
        "256",
        "MiB/s",
        "256",
        "MiB/s",
    ]
    alone = CollectiveTime("all_reduce", 4096, {0: (1.0,)})
    assert times((alone,)).splitlines()[1].split()[-2:] == ["4", "KiB/s"]


def test_all_is_well():
    assert summary((WELL,)) == "" and summary((DARK,)) == "; of the checks: 1 unknown"


def test_texts_of_a_system_are_harmless():
    bad = Check("disk", "warning", "a\x1b[31mb\nc", details={"free": {"/x\x07": 1}})
    assert "\x1b" not in text("h", (bad,), "", (), "", verbose=True) and "\x07" not in text(
        "h", (bad,), "", (), "", verbose=True
    )
