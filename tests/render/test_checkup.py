"""The doctor's report as text."""

from __future__ import annotations

import pytest

from ddpnb.recording.checks import Check, CollectiveTime
from ddpnb.render import as_html, as_text
from ddpnb.render.checkup import document, summary, times
from ddpnb.render.document import Table
from tests.render.reading import HOSTILE, Reading, harmless

WELL = Check("cores", "ok", "8 cores for 2 ranks", todo="not shown", details={"cores": 8.0, "names": ["a"]})
SLOW = Check(
    "links", "warning", "GPU0-GPU1 SYS", "DDP207", "GPUs", "Choose others.", {"links": {"GPU0": {"GPU1": "SYS"}}}
)
DARK = Check("kernel log", "unknown", "not readable here", todo="sudo dmesg")
_TAGS = "div span svg path b h2 ul li details summary p table thead tbody tr th td".split()
TIMES = (
    CollectiveTime("barrier", 0, {0: (0.0002,), 1: (0.0001,)}),
    CollectiveTime("all_reduce", 64 << 20, {0: (0.25, 0.25), 1: (0.2, 0.2)}),
)


STARTED = [Table("start-up", ("step", "rank 0"), [("store", "1 s")])]


def shown(**more):
    return document("OK: fine", (WELL, DARK, SLOW), STARTED, TIMES, "2 ranks, gloo, cpu", **more)


def report(**more):
    return as_text.text(*shown(**more))


def test_sections_with_what_to_do():
    assert report().splitlines()[:13] == [
        "ddpnb: OK: fine; of the checks: 1 warning, 1 unknown",
        "",
        "machine",
        "  ✓  cores       8 cores for 2 ranks",
        "  ?  kernel log  not readable here",
        "    → sudo dmesg",
        "",
        "GPUs",
        "  !  links       GPU0-GPU1 SYS  [DDP207]",
        "    → Choose others.",
        "",
        "start-up",
        "  step   rank 0",
    ]
    assert "2 ranks, gloo, cpu; algbw and busbw as in nccl-tests" in report()


def test_details():
    shown = report(verbose=True)
    assert "cores: 8.0" in shown and 'names: ["a"]' in shown and '{"GPU0": {"GPU1": "SYS"}}' in shown
    assert "8.0" not in report()


def test_bandwidths():
    rows = [line.split() for line in as_text.text(times(TIMES)).splitlines()]
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
    assert as_text.text(times((alone,))).splitlines()[1].split()[-2:] == ["4", "KiB/s"]


def test_all_is_well():
    assert summary((WELL,)) == "" and summary((DARK,)) == "; of the checks: 1 unknown"


def test_texts_of_a_system_are_harmless():
    bad = Check("disk", "warning", "a\x1b[31mb\nc", details={"free": {"/x\x07": 1}})
    shown = as_text.text(*document("h", (bad,), [], (), "", verbose=True))
    assert "\x1b" not in shown and "\x07" not in shown


def test_a_page_says_the_same_and_unfolds_the_details():
    page = Reading(as_html.html(*shown()))
    for words in ("OK: fine", "kernel log", "not readable here", "→ sudo dmesg", "[DDP207]", "64 MiB", "rank 0"):
        assert words in page.text
    assert len(page.all("details")) == 2 and len(page.all("svg")) == 3 and len(page.all("table")) == 2


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("verbose", [True, False])
def test_texts_of_a_system_stay_text_on_a_page(hostile, verbose):
    bad = Check(hostile, "warning", hostile, "DDP207", todo=hostile, details={hostile: {hostile: hostile}})
    shown = document("h", (bad,), [], TIMES, "d", verbose=verbose)
    assert {name for name, _ in harmless(as_html.html(*shown)).tags} <= set(_TAGS)
