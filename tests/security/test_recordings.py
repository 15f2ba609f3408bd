"""The sender of a recording, a log or a dump wants the memory and the time of the one who reads it.

All are read by a process that may have 1 GiB of memory and 60 s of processor time: a third of that on a calm machine.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddpnb.errors import UsageError
from ddpnb.recording import recording_file
from ddpnb.reports import formats, reading
from ddpnb.reports.logs import read
from ddpnb.world.loading import load
from tests.rules.recordings import Rank, line, record

CLEAN = Path(__file__).parents[1] / "recordings" / "readme.ddpnb"
HEAD, _, BODY = gzip.decompress(CLEAN.read_bytes()).partition(b"\n")
FIELDS = json.loads(HEAD)["fields"]
MEMORY, SECONDS = 1 << 30, 60
READ = f"""
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
from ddpnb.rules.diagnose import diagnose
from ddpnb.errors import UsageError
from ddpnb.world.loading import load
for path in sys.argv[1:]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + {SECONDS}, hard))
    try:
        outcome = "read: " + str(diagnose(load(path)))
    except UsageError as error:
        outcome = "refused: " + str(error)
    print(json.dumps(outcome), flush=True)
"""


def outcomes(*paths: Path) -> list[str]:
    """What comes of reading these files, one after another."""
    done = subprocess.run([sys.executable, "-c", READ, *map(str, paths)], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr[-2000:]
    return [json.loads(outcome) for outcome in done.stdout.splitlines()]


def packed(body: bytes, head: bytes = HEAD) -> bytes:
    return gzip.compress(head + b"\n" + body, 1)


def facts(raw: bytes) -> bytes:
    """A recording with this JSON among the facts of its host."""
    content = json.loads(BODY)
    content["recording"][FIELDS["Recording"].index("host")] = [["x", "@"]]
    return packed(json.dumps(content).encode().replace(b'"@"', raw))


def changed(**fields: Any) -> bytes:
    content = json.loads(BODY)
    for name, value in fields.items():
        content["recording"][FIELDS["Recording"].index(name)] = value
    return packed(json.dumps(content).encode())


def defaults(ranks: list[Any], size: int) -> bytes:
    """Ranks of which the file gives a number and nothing else."""
    head, content = json.loads(HEAD), json.loads(BODY)
    head["fields"]["RankRecord"] = ["rank"]
    content["recording"][FIELDS["Recording"].index("ranks")] = ranks
    content["recording"][FIELDS["Recording"].index("world_size")] = size
    return packed(json.dumps(content).encode(), json.dumps(head).encode())


def many_calls() -> bytes:
    """Calls of very many numbers in a group of very many ranks."""
    content = json.loads(BODY)
    for group in content["tables"]["Group"]:
        group[FIELDS["Group"].index("ranks")] = list(range(60_000))
    (_, first), *_ = content["recording"][FIELDS["Recording"].index("ranks")]
    place, call = FIELDS["RankRecord"].index("calls"), FIELDS["Call"]
    made = []
    for number in range(100_000):
        made.append([*first[place][0]])
        made[-1][call.index("number")], made[-1][call.index("seq")] = number, number + 1
    first[place] = made
    return packed(json.dumps(content).encode())


def many_groups() -> bytes:
    """A dump in which each entry is a call of another group."""
    entry = (
        b'{"profiling_name":"nccl:all_reduce","input_sizes":[[%s]],"collective_seq_id":1,"process_group":["%%d","x"]},'
    )
    entry = entry % b",".join(b"%d" % one for one in range(60))
    return b'{"entries":[' + b"".join(entry % one for one in range(200_000)) + b"0]}"


MEMBER = gzip.compress(b"", 1)
LONG_NAME = b"\x1f\x8b\x08\x08" + bytes(6) + b"a" * (4 << 20) + b"\0" + MEMBER[10:]
QUICK: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "lists": (".ddpnb", lambda: facts(b"[" + b"[]," * (1 << 23) + b"0]"), "refused.*more than 6,000,000 values"),
    "objects": (".ddpnb", lambda: facts(b"[" + b'{"a":0},' * (2 << 20) + b"0]"), "refused.*more than 6,000,000 values"),
    "depth": (".ddpnb", lambda: facts(b"[" * 1_000_000 + b"]" * 1_000_000), "refused"),
    "some depth": (".ddpnb", lambda: facts(b"[" * 900 + b"]" * 900), "read"),
    "digits": (".ddpnb", lambda: facts(b"9" * 1_000_000), "refused.*damaged"),
    "no numbers": (".ddpnb", lambda: facts(b"[NaN,Infinity,-Infinity,1e999]"), "read"),
    "one key": (".ddpnb", lambda: facts(b"{" + b",".join([b'"k":0'] * 100_000) + b"}"), "read"),
    "more ranks than there are": (".ddpnb", lambda: defaults([[rank, [rank]] for rank in range(200_000)], 4), "refused"),
    "a rank below 0": (".ddpnb", lambda: defaults([[-1, [-1]]], 4), "refused"),
    "ranks of other numbers": (".ddpnb", lambda: defaults([[0, [1]], [1, [0]]], 2), "refused"),
    "ranks without end": (".ddpnb", lambda: changed(world_size=1 << 62), "refused"),
    "a group of no ranks": (".ddpnb", lambda: packed(BODY.replace(b"[[0,1,2,3],", b"[[0,18446744073709551615],")), "refused"),
    "fewer than no rank": (".ddpnb", lambda: changed(world_size=-1), "refused"),
    "many ranks": (".ddpnb", lambda: changed(world_size=1 << 16), "read"),
    "members": (".ddpnb", lambda: MEMBER * 200_000, "refused"),
    "members of a log": (".gz", lambda: MEMBER * 200_000, "refused"),
    "a long name": (".ddpnb", lambda: LONG_NAME, "refused"),
    "a long name of a log": (".gz", lambda: LONG_NAME, "refused"),
    "an archive": (".zip", lambda: archive(zipfile.ZIP_BZIP2, 1), "refused.*not compressed by deflate"),
    "an archive of another kind": (".zip", lambda: archive(zipfile.ZIP_LZMA, 1), "refused.*not compressed by deflate"),
}  # fmt: skip
SLOW: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "as many lists as may be": (".ddpnb", lambda: facts(b"[" + b"[]," * 1_900_000 + b"0]"), "read"),
    "as many objects": (".ddpnb", lambda: facts(b"[" + b'{"a":0},' * 1_190_000 + b"0]"), "read"),
    "as many strings": (".ddpnb", lambda: facts(b"[" + b"".join(b'"%07d",' % one for one in range(5_900_000)) + b"0]"), "read"),
    "as many keys": (".ddpnb", lambda: facts(b"{" + b",".join(b'"%07d":0' % one for one in range(4_900_000)) + b"}"), "read"),
    "as many numbers": (".ddpnb", lambda: facts(b"[" + b"12345678901," * 5_000_000 + b"0]"), "read"),
    "as long a text": (".ddpnb", lambda: facts(b'"' + b"a" * (60 << 20) + b'\\ud83d\\ude00"'), "read"),
    "as many ranks": (".ddpnb", lambda: defaults([[rank, [rank]] for rank in range(65_000)], 65_000), "read"),
    "zeros": (".ddpnb", lambda: packed(bytes(1 << 29)), "refused.*too large"),
    "calls in a large group": (".ddpnb", many_calls, "read"),
    "empty lines": (".log", lambda: b"[rank0]: RuntimeError: x\n" + b"\n" * (64 << 20), "refused"),
    "short lines": (".log", lambda: b"[rank3]: x\n" * (6 << 20), "refused"),
    "one line": (".log", lambda: b"[rank0]: RuntimeError: " + b"x" * (64 << 20), "read"),
    "a large archive": (".zip", lambda: archive(zipfile.ZIP_DEFLATED, 300), "refused.*longer than logs of that size"),
    "entries": (".zip", lambda: archive(zipfile.ZIP_STORED, 60_000, b"x"), "refused.*more than 50000 files"),
    "groups of a dump": ("_rank_0.json", many_groups, "read"),
    "lists of a dump": ("_rank_0.json", lambda: b'{"entries":[{"profiling_name":"nccl:x","x":[' + b"[]," * (20 << 20) + b"0]}]}", "refused.*more memory"),
    "failure tables": (".log", lambda: varied("torchrun.log"), "read|refused"),
    "stacks": (".log", lambda: varied("stacks/py-spy.txt"), "read|refused"),
}  # fmt: skip


def archive(how: int, count: int, content: bytes = b"[rank1]: RuntimeError: boom\nline 12345\n" * (1 << 19)) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as made:
        for number in range(count):
            made.writestr(f"rank{number}.log", content if count > 1 else content[: 1 << 20])
    return file.getvalue()


def varied(name: str) -> bytes:
    """A real log, repeated with other numbers: 64 MiB."""
    text = (Path(__file__).parents[2] / "notebooks" / "reports" / name).read_bytes()
    rng = random.Random(0)
    parts: list[bytes] = []
    while sum(map(len, parts[:1])) * len(parts) < 64 << 20:
        parts.append(re.sub(rb"\d+", lambda match: str(rng.randrange(10 ** min(len(match[0]), 5))).encode(), text))
    return b"".join(parts)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """What comes of reading them, all by one process."""
    paths = [
        tmp_path_factory.mktemp("hostile") / f"{place}{ending}" for place, (ending, _, _) in enumerate(QUICK.values())
    ]
    for path, (_, content, _) in zip(paths, QUICK.values(), strict=True):
        path.write_bytes(content())
    return dict(zip(QUICK, outcomes(*paths), strict=True))


@pytest.mark.full
@pytest.mark.parametrize("name", QUICK)
def test_a_small_file_is_read_or_refused(quick, name):
    assert re.match(QUICK[name][2], quick[name], re.DOTALL)


@pytest.mark.full
@pytest.mark.parametrize("name", SLOW)
def test_a_large_file_is_read_or_refused(tmp_path, name):
    ending, content, expected = SLOW[name]
    path = tmp_path / f"hostile{ending}"
    path.write_bytes(content())
    assert path.stat().st_size < 80 << 20
    (outcome,) = outcomes(path)
    assert re.match(expected, outcome, re.DOTALL)


def test_what_is_refused_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(recording_file, "_MOST_VALUES", 100)
    with pytest.raises(UsageError, match="snapshot\\(\\) of fewer ranks"):
        load(CLEAN)


def test_a_recording_of_very_many_ranks_is_written_so_that_it_can_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr(recording_file, "_KEPT", 40)
    recording = record(*(_busy(rank) for rank in range(2)))
    recording.save(tmp_path / "many.ddpnb")
    read_again = load(tmp_path / "many.ddpnb")
    for rank, one in read_again.ranks.items():
        assert one.calls == recording.ranks[rank].calls[-20:]
        assert one.forgotten == 30
        assert one.begun_before(one.calls[-1]) == recording.ranks[rank].begun_before(recording.ranks[rank].calls[-1])


def _busy(rank: int) -> Any:
    one = Rank(rank, 2)
    for _ in range(50):
        one.calls("all_reduce", line(3))
    return one.finishes()


def test_a_log_that_takes_too_long_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "_SECONDS", -1)
    (tmp_path / "job.log").write_text("[rank0]: RuntimeError: boom\n")
    with pytest.raises(UsageError, match="takes longer than logs of that size"):
        load(tmp_path / "job.log")


def test_a_log_that_repeats_itself_is_refused(monkeypatch):
    monkeypatch.setattr(formats, "_MOST_FACTS", 3)
    text = "".join(
        f"[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]: RuntimeError: {rank}\n" for rank in range(9)
    )
    with pytest.raises(UsageError, match="repeats itself"):
        formats.facts_of(read("job.log", text))


def test_of_very_many_lines_the_last_are_read(monkeypatch):
    monkeypatch.setattr("ddpnb.reports.logs.MOST_LINES", 3)
    assert read("job.log", "a\nb\nc\nd\ne").text == "c\nd\ne"


def test_groups_of_a_recording_that_refer_to_each_other_are_refused(tmp_path):
    content = json.loads(BODY)
    content["tables"]["Site"] = [[0, 0, 0], [1, 1, 1]]
    (tmp_path / "x.ddpnb").write_bytes(packed(json.dumps(content).encode()))
    with pytest.raises(UsageError, match="damaged"):
        load(tmp_path / "x.ddpnb")
