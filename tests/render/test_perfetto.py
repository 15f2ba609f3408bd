"""The trace for Perfetto: as the Trace Event Format has it, and as its importer reads it."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import replace

import pytest

from ddpnb.errors import UsageError
from ddpnb.recording.calls import Call, CallState, Signature
from ddpnb.recording.marks import Mark
from ddpnb.recording.recording import Process, RankRecord, Recording
from ddpnb.recording.replicas import Sample
from ddpnb.render import perfetto
from tests.rules.recordings import Rank, diagnose, line, record, world_group

WORLD = world_group(2)
MS = 1_000_000


def hang():
    made = record(
        Rank(0, 2).calls("all_reduce", line(5)).waits("all_reduce", line(6)),
        Rank(1, 2).calls("all_reduce", line(5)).passes(1, 'a "name"\n', line(7)).raises("ValueError", "no", line(9)),
    )
    ranks = {rank: replace(one, process=Process(memory=5_000_000)) for rank, one in made.ranks.items()}
    return replace(made, ranks=ranks, taken_ns=max(made.last_progress_ns, 1) + 50 * MS)


def call(number, begin, end, op="all_reduce", state=CallState.COMPLETED, seq=0, **more):
    return Call(number, WORLD, seq or number + 1, Signature(op, agreed=op, **more), line(5), state, entered_ns=begin * MS, done_ns=end * MS)  # fmt: skip


def of(*ranks, taken=100):
    return Recording(2, {n: RankRecord(n, calls=calls) for n, calls in enumerate(ranks)}, taken_ns=taken * MS)


def read(recording):
    trace = json.loads("".join(perfetto.events(recording, diagnose(recording))))
    return trace["traceEvents"]


def slices(events, name=""):
    return [one for one in events if one["ph"] == "X" and one["name"].startswith(name)]


def names(events, kind):
    return {(one["pid"], one.get("tid")): one["args"]["name"] for one in events if one["name"] == kind}


REQUIRED = {
    "M": {"name", "ph", "pid", "args"}, "X": {"name", "ph", "ts", "pid", "tid", "dur"}, "C": {"name", "ph", "ts", "pid", "args"},
    "i": {"name", "ph", "ts", "pid", "tid", "s"},
}  # fmt: skip


def check(events):
    """What the format asks for, and what the importer of Perfetto needs to draw it."""
    assert {one["ph"] for one in events} <= {*REQUIRED}
    owners: dict[int, int] = {}
    for one in events:
        assert REQUIRED[one["ph"]] <= {*one}
        if "tid" in one:
            assert owners.setdefault(one["tid"], one["pid"]) == one["pid"], "a track has one number in the whole trace"
    timed = [one for one in events if one["ph"] != "M"]
    assert [one["ts"] for one in timed] == sorted(one["ts"] for one in timed)
    assert min(one["ts"] for one in timed) >= 0
    tracks = defaultdict(list)
    for one in slices(events):
        assert one["dur"] >= 0
        opened = tracks[one["tid"]]
        while opened and opened[-1] <= one["ts"]:
            opened.pop()
        assert not opened or one["ts"] + one["dur"] <= opened[-1] + 1e-6, "slices of a track are in each other"
        opened.append(one["ts"] + one["dur"])
    flows = defaultdict(list)
    for one in slices(events):
        if "bind_id" in one:
            flows[one["bind_id"]].append((one.get("flow_in", False), one.get("flow_out", False)))
    for parts in flows.values():
        assert parts[0] == (False, True) and parts[-1] == (True, False)
        assert all(part == (True, True) for part in parts[1:-1])
    return flows


def test_the_trace_of_a_hang():
    made = hang()
    events = read(made)
    flows = check(events)
    assert names(events, "process_name") == {(1000, None): "rank 0", (1001, None): "rank 1"}
    assert {"default_pg", "phases", "optimizer steps"} <= {*names(events, "thread_name").values()}
    assert len(flows) == 1, "of the all_reduce that both called"
    (stuck,) = slices(events, "all_reduce #2")
    assert stuck["args"]["state"] == "waiting" and "bind_id" not in stuck
    waiting = slices(events, "waiting")[-1]
    assert (waiting["ts"], waiting["dur"]) == (stuck["ts"], stuck["dur"])
    assert waiting["args"] == {"for": "1 missing rank"}
    marks = [one["name"] for one in events if one["ph"] == "i"]
    assert any(name.startswith("DDP") for name in marks) and "ValueError: no" in marks
    assert any(name.startswith('1: a "name"') for name in marks)
    assert {one["args"]["value"] for one in events if one["name"] == "memory, MB"} == {5.0}


def test_a_call_waits_until_the_last_rank_has_come():
    events = read(of((call(0, 10, 40),), (call(0, 30, 41),)))
    check(events)
    (waiting,) = slices(events, "waiting")
    assert (waiting["ts"], waiting["dur"], waiting["args"]) == (0, 20_000, {"for": "rank 1"})


def test_calls_that_overlap_have_tracks_of_their_own():
    events = read(of(tuple(call(n, 10 + n, 50 + n) for n in range(40)), (call(0, 1, 2),)))
    tracks = [name for name in names(events, "thread_name").values() if name.startswith("default_pg")]
    assert tracks[:3] == ["default_pg", "default_pg (2)", "default_pg (3)"] and len(tracks) == 16 + 1
    check(read(of(tuple(call(n, 10 + 5 * n, 22 + 5 * n) for n in range(40)), ())))


def test_who_waits_for_the_root_and_for_whom_the_root_waits():
    def late(op):
        made = of((call(0, 30, 50, op, root=0),), (call(0, 10, 50, op, root=0),))
        return {one["pid"]: one["args"]["for"] for one in slices(read(made), "waiting")}

    assert late("broadcast") == {1_000_001: "rank 0"}
    assert late("gather") == {}
    early = of((call(0, 10, 50, "gather", root=0),), (call(0, 30, 31, "gather", root=0),))
    assert {one["pid"]: one["args"]["for"] for one in slices(read(early), "waiting")} == {1_000_000: "rank 1"}


def test_a_send_and_its_receive_are_one_flow():
    def message(op, peer):
        one = replace(call(0, 10 + peer, 20, op, seq=0), seq=0, peer=peer, turn=1)
        return (replace(one, signature=Signature(op, agreed=op)),)

    events = read(of(message("send", 1), message("recv", 0)))
    assert len(check(events)) == 1
    assert sorted(one["name"] for one in slices(events)) == ["recv from 0", "send to 1"]


def test_calls_that_do_not_match_are_not_one_collective():
    events = read(of((call(0, 10, 40),), (call(0, 30, 41, "barrier"),)))
    assert not check(events)


def test_steps_are_slices_between_marks():
    marks = tuple(Mark(n, kind, at * MS, steps=n) for n, (kind, at) in enumerate([("begin", 1), ("step", 11), ("backward", 15), ("step", 31)]))  # fmt: skip
    events = read(Recording(1, {0: RankRecord(0, 77, marks=marks)}, taken_ns=40 * MS))
    check(events)
    assert [(one["name"], one["dur"]) for one in slices(events)] == [("step 1", 10_000), ("step 3", 20_000)]
    assert {one["pid"] for one in events} == {77}, "process IDs that are known and unique are shown"


def test_what_is_recorded_is_not_trusted():
    nasty = '"},{"ph":"M\u2028\x1b[31m' + "x" * 5000
    bad = replace(call(0, 10, 40, nasty), group=replace(WORLD, label=nasty), site=replace(line(5), file=nasty), done_ns=1 << 80, entered_ns=5 * MS)  # fmt: skip
    never = replace(call(1, 0, 0), entered_ns=-5, issued_ns=1 << 70)
    events = read(of((bad, never), (call(0, 10, 20),)))
    check(events)
    assert all(len(json.dumps(one)) < 2000 for one in events)
    assert "\x1b" not in json.dumps(events, ensure_ascii=False)


def test_the_file_is_compressed_if_its_name_says_so(tmp_path):
    made = hang()
    made.to_perfetto(tmp_path / "trace.json")
    made.to_perfetto(tmp_path / "trace.json.gz")
    plain = (tmp_path / "trace.json").read_bytes()
    assert gzip.decompress((tmp_path / "trace.json.gz").read_bytes()) == plain
    assert json.loads(plain)["displayTimeUnit"] == "ms"


def test_without_times_there_is_no_trace_and_an_earlier_file_stays(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text("earlier")
    with pytest.raises(UsageError, match="no times"):
        of((replace(call(0, 0, 0), entered_ns=0, done_ns=0),), (), taken=0).to_perfetto(path)
    assert path.read_text() == "earlier" and [*tmp_path.iterdir()] == [path]


def test_what_an_earlier_run_has_left_is_not_the_begin_of_this_one():
    plain = of([call(0, 10, 20)], [call(0, 10, 30)])
    held = Sample(0, "earlier", 1, at_ns=MS, facts={"run": "In[5]"})
    ranks = {number: replace(one, samples=(held,)) for number, one in plain.ranks.items()}
    assert read(replace(plain, ranks=ranks)) == read(plain)


def test_a_compilation_has_the_name_of_its_function():
    rank = (
        Rank(0, 2)
        .phase("compilation", "open", line(3, "forward"))
        .phase("compilation", "open", line(3, "forward"), part="lazy backward")
    )
    events = read(replace(record(rank), taken_ns=10_000 * MS))
    check(events)
    assert [one["name"] for one in slices(events, "compilation")] == [
        "compilation of forward",
        "compilation of forward (lazy backward)",
    ]
