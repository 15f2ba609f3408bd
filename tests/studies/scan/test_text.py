"""A scan as text and as JSON: what a stranger reads."""

from __future__ import annotations

import json

from ddpnb.studies.scan import text as rendered
from ddpnb.studies.scan.scan import scan
from ddpnb.studies.scan.tally import Counted

TRAIN = """\
import torch
import torch.distributed as dist

def main(x):
    rank = dist.get_rank()
    for step in range(9):
        dist.all_reduce(x)
    if rank == 0:
        dist.barrier()
    work = dist.all_reduce(x, async_op=True)
    x /= 2
    work.wait()
"""
SAVE = """\
import torch.distributed as dist

def save(x):
    dist.barrier()
"""
SOURCES = {"/p/train.py": TRAIN}


def test_what_is_marked_comes_with_its_reason_and_its_cure():
    text = rendered.scan(scan(SOURCES, ["/p/train.py"]), width=90)
    assert text.startswith("ddpnb scan: 3 collective calls in 1 file\n\nRank-dependent collectives.")
    assert (
        "/p/train.py:8  only if rank == 0\n"
        "  - line 9 barrier\n"
        "  why: `rank` is `dist.get_rank()` (line 5).\n"
        "  Fix: Call it on all ranks" in text
    )
    assert "(DDP316)" in text
    assert "/p/train.py:10  all_reduce\n  why: `x` is changed at line 11, before wait()." in text
    assert text.endswith("2 more: no condition on the rank around the call (--all lists them).")
    assert "\x1b" not in text


def test_the_rest_is_listed_when_asked_for():
    text = rendered.scan(scan(SOURCES, ["/p/train.py"]), everything=True, width=90)
    assert (
        "/p/train.py\n  line 7   all_reduce  in main(); for step in range(9)\n  line 10  all_reduce  in main()" in text
    )


def test_lines_keep_to_the_width():
    sources = {
        "/p/train.py": TRAIN.replace("rank == 0", "rank == 0 and " + " and ".join(f"option{n}" for n in range(30)))
    }
    for width in (60, 80, 100):
        text = rendered.scan(scan({**SOURCES, **sources}, ["/p/train.py"]), everything=True, width=width)
        assert max(map(len, text.splitlines())) <= width


def test_nothing_to_say():
    assert rendered.scan(scan({"a.py": "x = 1\n"}, ["a.py"]), width=90).endswith("No collective calls found.")
    quiet = rendered.scan(scan({"a.py": SAVE}, ["a.py"]), width=90)
    assert quiet.endswith("1: no condition on the rank around the call (--all lists it).")
    assert "Possibly uneven" not in quiet


def test_a_file_that_does_not_parse_is_told():
    text = rendered.scan(scan({"a.py": "import torch\ndef f(:\n"}, ["a.py"]), width=90)
    assert "a.py:2: not scanned: invalid syntax" in text


def test_many_calls_of_one_decision_are_cut_short():
    body = "".join("    dist.barrier()\n" for _ in range(20))
    found = scan({"a.py": f"import torch.distributed as dist\nif dist.get_rank() == 0:\n{body}"}, ["a.py"])
    assert "and 12 more (--all)" in rendered.scan(found, width=90)
    assert rendered.scan(found, everything=True, width=90).count("barrier\n") == 20


def test_control_characters_of_the_source_do_not_reach_the_terminal():
    source = "import torch.distributed as dist\nif dist.get_rank() == '\\x1b[31m' or '\x1b[2J':\n    dist.barrier()\n"
    assert "\x1b" not in rendered.scan(scan({"a.py": source}, ["a.py"]), width=90)


def test_colours_on_a_terminal():
    assert "\x1b[31m" in rendered.scan(scan(SOURCES, ["/p/train.py"]), colour=True, width=90)


def test_json_holds_all_of_it():
    report = json.loads(json.dumps(rendered.to_json(scan(SOURCES, ["/p/train.py"]))))
    first = report["collectives"][0]
    assert (report["schema"], first["op"], first["file"], first["line"], first["doubt"]) == (
        1, "barrier", "/p/train.py", 9, "strong",
    )  # fmt: skip
    assert (first["decision"]["line"], first["decision"]["cause"]) == (8, "rank")
    assert report["unwaited"][0]["use_line"] == 11
    assert len(report["collectives"]) == 3


def test_counts_in_words():
    rows = [
        Counted("/p/a.py", 9, "barrier", ((0, 1), (1, 0), (2, 0), (3, 0)), unequal=True),
        Counted("/p/a.py", 5, "all_reduce", tuple((rank, 12) for rank in range(8)), unequal=False),
        Counted("/p/a.py", 7, "", ((0, 3), (1, 3)), unequal=False),
        Counted("/p/a.py", 8, "scatter", ((0, 0), (1, 0)), unequal=False),
    ]
    text = rendered.counts(rows, 8, whole=True, outcome="hang", width=90)
    assert text.splitlines() == [
        "Counted in a run on 8 ranks (hang):",
        "/p/a.py",
        "! line 9  barrier         1 by rank 0, 0 by ranks 1, 2 and 3",
        "  line 5  all_reduce      12 by each of ranks 0-7",
        "  line 7  (by a wrapper)  3 by each of ranks 0 and 1",
        "  1 call site was not reached.",
    ]
    assert "The run was long" in rendered.counts(rows, 8, whole=False, outcome="ok", width=90)
    assert "no collective was called" in rendered.counts([], 1, whole=True, outcome="ok", width=90)
