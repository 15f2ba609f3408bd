from __future__ import annotations

import gzip
import itertools
import pickle
import zipfile
from pathlib import Path

import pytest

from ddpnb.errors import UsageError
from ddpnb.recording.calls import CallState
from ddpnb.reports import files, flight_recorder, together
from ddpnb.reports.facts import Calls, Progress, WorldSize
from ddpnb.rules.diagnose import diagnose
from tests.reports.dumps import DEFAULT, FRAMES, START, TORCH, VERSIONS, call, calls, dump, facts, notes, write

WORLD = {"0": ("default_pg", [0, 1])}


def hang(rank: int) -> list[dict]:
    """Rank 0 waits in its third all-reduce, which rank 1 does not make."""
    made = [call(0, 1), call(1, 2, sizes=[[7]])]
    return [*made, call(2, 3, state="started")] if rank == 0 else made


@pytest.mark.parametrize(("version", "protocol"), list(itertools.product(VERSIONS, (2, 3, 4, 5))))
def test_versions(version, protocol, tmp_path):
    held = {rank: dump(hang(rank), version, WORLD) for rank in (0, 1)}
    made = calls(write(tmp_path, held, protocol=protocol))
    assert [one.seq for one in made[0]] == [1, 2, 3]
    assert [one.op for one in made[1]] == ["all_reduce"] * 2
    assert [one.state for one in made[0]] == [CallState.COMPLETED, CallState.COMPLETED, CallState.WAITING]
    last = made[0][-1]
    assert (last.group.ranks, last.group.ordinal, str(last.group)) == ((0, 1), 0, "default_pg")
    assert last.signature.shapes == ((4, 8),)
    assert last.signature.dtypes == (
        () if version[:3] in ("", "1.0", "1.1", "1.2", "1.4", "1.5", "2.0") else ("float32",)
    )
    assert (str(last.site), last.site.function, last.site.via) == (
        "/home/me/train.py:12",
        "average",
        "/home/me/train.py:30",
    )
    assert last.entered_ns == START + 100_000_000
    assert last.group.key == made[1][-1].group.key


@pytest.mark.parametrize("version", ["2.10", "2.4"])
def test_json(version, tmp_path):
    held = {rank: dump(hang(rank), version, WORLD, {"0": (3 - rank, -1, 2)}) for rank in (0, 1)}
    paths = write(tmp_path, held, protocol="json", name="fr_{}.json")
    made = calls(paths)
    assert [one.state.name for one in made[0]] == ["COMPLETED", "COMPLETED", "WAITING"]
    assert str(made[0][0].site) == "an unknown place"
    found = facts(paths)
    assert [fact.enqueued for fact in found if isinstance(fact, Progress)] == [3, 2]
    assert [fact.size for fact in found if isinstance(fact, WorldSize)] == [2]


def test_nothing_of_states_is_known_but_the_status(tmp_path):
    entries = [call(0, 1), call(1, 2)]
    for entry in entries:
        for key in ("state", "retired", "time_discovered_completed_ns"):
            del entry[key]
    made = calls(write(tmp_path, {0: dump(entries, config=WORLD, status={"0": (2, 2, 1)})}))
    assert [one.state.name for one in made[0]] == ["COMPLETED", "WAITING"]


def gloo(number: int, seq: int, name: str = "gloo:all_reduce", *, retired: bool = True, group=DEFAULT) -> dict:
    return call(number, seq, name, "scheduled", retired=retired, group=group)


def test_gloo(tmp_path):
    """Its state stays "scheduled", its config has no names: in flight is what is not retired."""
    sub = ("1", "undefined")
    held = {
        0: dump([gloo(0, 1), gloo(1, 1, "gloo:broadcast", group=sub), gloo(2, 2, retired=False)]),
        1: dump([gloo(0, 1)]),
        3: dump([gloo(0, 1), gloo(1, 1, "gloo:broadcast", group=sub), gloo(2, 2, retired=False)]),
    }
    for one in held.values():
        one["pg_config"] = {"": {"name": "", "desc": "", "ranks": "[]"}}
    paths = write(tmp_path, held, name="fr_{}")
    made = calls(paths)
    assert [one.state.name for one in made[0]] == ["COMPLETED", "COMPLETED", "WAITING"]
    assert [one.group.ranks for one in made[3]] == [(0, 1, 2, 3), (0, 3), (0, 1, 2, 3)]
    assert made[0][0].group == made[1][0].group
    assert "members of these process groups: 1." in notes(paths)[0]


CASES = {
    "missing": ("DDP301", (1,), "all_reduce #4"),
    "other": ("DDP302", (2,), "Rank 2 calls broadcast, ranks 0 and 1 call all_reduce."),
    "timeout": ("DDP301", (1,), "all_reduce #6"),
}


@pytest.mark.parametrize(("case", "kind"), list(itertools.product(CASES, ("pickle", "json"))))
def test_real_ranks(case, kind):
    """Dumps that hung ranks on gloo wrote (``files/make_gloo.py``)."""
    paths = sorted(str(path) for path in (Path(__file__).parent / "files/gloo").glob(f"{case}_rank_*.{kind}"))
    recording = together.recording(flight_recorder.read(files.find(paths)))
    finding = diagnose(recording).findings[0]
    code, culprits, called = CASES[case]
    assert (finding.code, finding.culprits) == (code, culprits)
    assert called in finding.summary
    waiting = recording.ranks[0].calls[-1]
    assert waiting.state is CallState.WAITING
    assert waiting.group.ranks == (0, 1, 2)
    assert str(waiting.site) == ("/opt/job/train.py:31" if kind == "pickle" else "an unknown place")
    sub = {call.group.ranks for call in recording.ranks[0].calls if call.op == "all_gather"}
    assert sub == {(0, 2)}


def test_what_gloo_retired_after_a_timeout_was_in_flight(tmp_path):
    """It is marked as what completed: but another member has not called it."""
    held = {rank: dump([gloo(n, n + 1) for n in range(3 - (rank == 2))], config={}) for rank in range(3)}
    paths = write(tmp_path, held)
    assert [made[-1].state.name for made in calls(paths).values()] == ["WAITING", "WAITING", "COMPLETED"]
    assert notes(paths) == [
        "all_reduce #3 of default_pg has ended on ranks 0-1, but was not called on rank 2: a time-out or an error ended it."
    ]


def test_of_several_in_flight_the_first_waits(tmp_path):
    """NCCL is asynchronous: behind the call that hangs others are queued. Start events say which one runs."""
    assert _in_flight(tmp_path, "scheduled") == ["COMPLETED", "WAITING", "ISSUED", "ISSUED", "ISSUED"]
    assert _in_flight(tmp_path, "started") == ["COMPLETED", "ISSUED", "ISSUED", "WAITING", "ISSUED"]


def _in_flight(folder, state: str) -> list[str]:
    config = {**WORLD, "1": ("tp", [0, 1])}
    entries = [
        call(0, 1),
        call(1, 2, state="scheduled"),
        call(2, 3, state="scheduled"),
        call(3, 1, state=state, group=("1", "tp")),
        call(4, 2, state="scheduled", group=("1", "tp")),
    ]
    made = calls(write(folder, {0: dump(entries, config=config)}))[0]
    assert [str(one.group) for one in made] == ["default_pg"] * 3 + ["tp"] * 2
    return [one.state.name for one in made]


def test_what_a_timeout_ended_was_in_flight(tmp_path):
    """A retired call without completion timed out, and one that took longer than its time-out ended with the abort."""
    late = [call(0, 1), call(1, 2, took_s=700.0), call(2, 3, took_s=699.0)]
    retired = [call(0, 1), call(1, 2, state="started", retired=True), call(2, 3, state="scheduled")]
    made = calls(write(tmp_path, {0: dump(late, config=WORLD), 1: dump(retired, config=WORLD)}))
    assert [one.state.name for one in made[0]] == ["COMPLETED", "WAITING", "ISSUED"]
    assert [one.state.name for one in made[1]] == ["COMPLETED", "WAITING", "ISSUED"]


def test_first_collective_timed_out(tmp_path):
    made = calls(write(tmp_path, {0: dump([call(0, 1, state="scheduled", retired=True)], config=WORLD)}))
    assert [one.state.name for one in made[0]] == ["WAITING"]


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("nccl:_all_gather_base", "all_gather_into_tensor"),
        ("nccl:_reduce_scatter_base", "reduce_scatter_tensor"),
        ("nccl:all_reduce_barrier", "barrier"),
        ("nccl:allreduce_coalesced", "all_reduce_coalesced"),
        ("nccl:all_to_all", "all_to_all"),
        ("nccl:alltoall_base", "all_to_all_single"),
        ("ncclx:all_gather_single", "all_gather_into_tensor"),
        ("xccl:reduce", "reduce"),
        ("hccl:broadcast", "broadcast"),
        ("nccl:_broadcast_oop", "broadcast"),
        ("nccl:new_window", "new_window"),
        ("", "?"),
    ],
)
def test_operations(name, op, tmp_path):
    made = calls(write(tmp_path, {0: dump([call(0, 1), call(1, 2, name)], config=WORLD)}))[0]
    assert (made[1].op, made[1].seq) == (op, 2)


def test_dtypes(tmp_path):
    names = ["Float", "BFloat16", "Long", "Half", "Bool", "ComplexFloat", "Float8_e4m3fn", "Byte"]
    entries = [call(n, n + 1, dtype=name) for n, name in enumerate(names)]
    made = calls(write(tmp_path, {0: dump(entries, config=WORLD)}))[0]
    assert [one.signature.dtypes[0] for one in made] == [
        "float32", "bfloat16", "int64", "float16", "bool", "complex64", "float8_e4m3fn", "uint8",
    ]  # fmt: skip


def test_messages_have_global_peers(tmp_path):
    """The numbers in "send 0->1" are ranks in the group."""
    config = {"0": ("default_pg", [0, 1, 2, 3]), "2": ("pp", [1, 3])}
    group = ("2", "pp")
    held = {
        1: dump([call(0, 0, "nccl:send 0->1", group=group, p2p=1), call(1, 0, "nccl:recv 0<-1", "started", group=group, p2p=2)], config=config),
        3: dump([call(0, 0, "nccl:recv 1<-0", group=group, p2p=1), call(1, 1, state="started")], config=config),
    }  # fmt: skip
    made = calls(write(tmp_path, held))
    assert [(one.title, one.seq, one.turn) for one in made[1]] == [("send to 3", 0, 1), ("recv from 3", 0, 1)]
    assert [(one.title, one.seq, one.turn) for one in made[3]] == [("recv from 1", 0, 1), ("all_reduce #1", 1, 0)]
    assert made[1][1].state is CallState.WAITING


def test_messages_of_rings_that_were_overwritten_are_aligned(tmp_path):
    """The last completed send and its receive are one message, whatever each ring still holds."""
    send = [call(100 + n, 0, "nccl:send 0->1", p2p=n, state="completed" if n < 5 else "started") for n in range(6)]
    receive = [call(203 + n, 0, "nccl:recv 1<-0", p2p=n) for n in range(2)]
    made = calls(write(tmp_path, {0: dump(send, config=WORLD), 1: dump(receive, config=WORLD)}))
    assert made[0][4].turn == made[1][1].turn == 5
    assert made[0][5].turn == 6


def test_batches_of_messages_have_the_state_of_their_end(tmp_path):
    """The parts of a batch stay "scheduled"; the entry that closes it is no call."""
    parts = [("nccl:send 0->1", "completed"), ("nccl:recv 0<-1", "completed")]
    entries = [call(n, 0, name, "scheduled", p2p=1, retired=False) for n, (name, _) in enumerate(parts)]
    entries += [call(2, 0, "nccl:coalesced", "completed", p2p=1, sizes=[])]
    entries += [call(3 + n, 0, name, "scheduled", p2p=2, retired=False) for n, (name, _) in enumerate(parts)]
    entries += [call(5, 0, "nccl:coalesced", "started", p2p=2, sizes=[])]
    made = calls(write(tmp_path, {0: dump(entries, config=WORLD)}))[0]
    assert [(one.op, one.state.name) for one in made] == [
        ("send", "COMPLETED"), ("recv", "COMPLETED"), ("send", "WAITING"), ("recv", "WAITING"),
    ]  # fmt: skip


def test_a_batch_of_collectives_is_one_call(tmp_path):
    entries = [call(0, 1)]
    entries += [call(1 + n, 2, "nccl:all_reduce", "scheduled", retired=False, sizes=[[n + 1]]) for n in range(3)]
    entries += [call(4, 2, "nccl:coalesced", "started", sizes=[]), call(5, 3, state="scheduled")]
    made = calls(write(tmp_path, {0: dump(entries, config=WORLD)}))[0]
    assert [(one.op, one.seq, one.state.name) for one in made] == [
        ("all_reduce", 1, "COMPLETED"), ("all_reduce_coalesced", 2, "WAITING"), ("all_reduce", 3, "ISSUED"),
    ]  # fmt: skip
    assert made[1].signature.shapes == ((1,), (2,), (3,))


def test_groups_with_equal_members_are_told_apart_by_their_names(tmp_path):
    config = {"0": ("default_pg", [0, 1]), "10": ("b", [0, 1]), "9": ("a", [0, 1])}
    one = [call(0, 1, group=("10", "b")), call(1, 1, group=("9", "a")), call(2, 1)]
    other = [call(0, 1, group=("9", "a")), call(1, 1, group=("10", "b"))]
    made = calls(write(tmp_path, {0: dump(one, config=config), 1: dump(other, config={"9": config["9"]})}))
    assert [(str(own.group), own.group.ordinal) for own in made[0]] == [("b", 2), ("a", 1), ("default_pg", 0)]
    assert made[1][1].group == made[0][0].group
    assert made[1][0].group == made[0][1].group


def test_one_name_for_several_groups(tmp_path):
    """Split groups have names that are only told apart by their members."""
    held = {
        rank: dump([call(0, 1, group=("5f2a", "tp"))], config={"5f2a": ("tp", [rank // 2 * 2, rank // 2 * 2 + 1])})
        for rank in range(4)
    }
    made = calls(write(tmp_path, held))
    assert [made[rank][0].group.ranks for rank in range(4)] == [(0, 1), (0, 1), (2, 3), (2, 3)]
    recording = together.recording(flight_recorder.read(files.find([str(tmp_path)])))
    assert recording.report is not None
    assert recording.report.observed == ()


def test_old_versions_count_groups_in_each_process(tmp_path):
    """In 1.x a group has another number on each rank."""
    zero = dump([call(0, 1, group=("2", ""))], "1.4", {"0": ("", [0, 1, 2]), "1": ("", [0, 2]), "2": ("", [0, 1])})
    one = dump([call(0, 1, group=("1", ""))], "1.4", {"0": ("", [0, 1, 2]), "1": ("", [0, 1])})
    made = calls(write(tmp_path, {0: zero, 1: one}))
    assert made[0][0].group == made[1][0].group
    assert made[0][0].group.ranks == (0, 1)


def test_old_versions_count_messages_and_collectives_together(tmp_path):
    """Rank 2 has sent nothing, so that the same all-reduce has another number there."""
    sent = [call(0, 1), call(1, 2, "nccl:send 0->1", p2p=2), call(2, 3), call(3, 4, state="started")]
    other = [call(0, 1), call(1, 2), call(2, 3, state="started")]
    config = {"0": ("", [0, 1, 2])}
    made = calls(write(tmp_path, {0: dump(sent, "1.4", config), 2: dump(other, "1.4", config)}))
    assert [one.seq for one in made[0]] == [1, 0, 2, 3]
    assert [one.seq for one in made[2]] == [1, 2, 3]


def test_the_stack_of_the_call_that_a_rank_waits_in(tmp_path):
    found = facts(write(tmp_path, {rank: dump(hang(rank), config=WORLD) for rank in (0, 1)}))
    stacks = [fact.stack for fact in found if isinstance(fact, Calls)]
    assert [frame.function for frame in stacks[0].frames] == ["<module>", "main", "average", "wrapper", "all_reduce"]
    assert [frame.user for frame in stacks[0].frames] == [True, True, True, False, False]
    assert stacks[1] is None


def test_site(tmp_path):
    """The innermost frame of the user's code; a library's where there is none; nothing where there are no Python frames."""
    library = {"name": "backward", "filename": "/venv/lib/python3.11/site-packages/deepspeed/engine.py", "line": 5}
    module = {"name": "forward", "filename": "/opt/pytorch/torch/nn/modules/module.py", "line": 9}
    native = {"name": "c10d::all_reduce", "filename": "/opt/pytorch/torch/csrc/distributed/c10d/Ops.cpp", "line": 7}
    stacks = [[native, FRAMES[0], library, module, FRAMES[3]], [native, FRAMES[0], library], [native], []]
    notebook = {"name": "<module>", "filename": "<ipython-input-3-aa>", "line": 1}
    stacks.append([FRAMES[0], notebook])
    entries = [call(n, n + 1, frames=stack) for n, stack in enumerate(stacks)]
    made = calls(write(tmp_path, {0: dump(entries, config=WORLD)}))[0]
    assert [str(one.site) for one in made] == [
        "/home/me/train.py:30",
        "/venv/lib/python3.11/site-packages/deepspeed/engine.py:5",
        "an unknown place",
        "an unknown place",
        "<ipython-input-3-aa>:1",
    ]
    assert TORCH not in {one.site.file for one in made}


def test_a_ring_that_was_overwritten(tmp_path):
    entries = [call(5000 + n, 4000 + n) for n in range(3)]
    found = facts(write(tmp_path, {0: dump(entries, config=WORLD)}))
    assert [fact.forgotten for fact in found if isinstance(fact, Calls)] == [5000]
    assert found[0].calls[0].number == 5000


def test_of_several_dumps_of_a_rank_the_newest_counts(tmp_path):
    old, new = tmp_path / "a", tmp_path / "b"
    old.mkdir()
    new.mkdir()
    paths = write(new, {0: dump(hang(0), config=WORLD)}) + write(old, {0: dump(hang(1), config=WORLD)})
    assert len(calls(paths)[0]) == 3
    assert notes(paths) == [f"There are 2 dumps of rank 0: taken is the newest, {paths[0]}."]


def test_the_rank_is_in_the_content(tmp_path):
    path = tmp_path / "dump.pickle"
    path.write_bytes(pickle.dumps({**dump(hang(0), config=WORLD), "rank": 1}))
    assert set(calls(path)) == {1}
    path.write_bytes(pickle.dumps(dump([call(0, 0, "nccl:send 1->0", p2p=1)], config=WORLD)))
    assert set(calls(path)) == {1}


def test_a_rank_that_is_not_known(tmp_path):
    path = tmp_path / "dump-2026-11-23.pickle"
    path.write_bytes(pickle.dumps(dump(hang(0), config=WORLD)))
    with pytest.raises(UsageError, match="nccl_trace_rank_0"):
        facts(path)


def test_compressed_and_archived(tmp_path):
    content = pickle.dumps(dump(hang(0), config=WORLD), 2)
    (tmp_path / "rank0.pickle.gz").write_bytes(gzip.compress(content))
    assert len(calls(tmp_path / "rank0.pickle.gz")[0]) == 3
    with zipfile.ZipFile(tmp_path / "dumps.zip", "w") as archive:
        archive.writestr("rank1.pickle", content)
    assert len(calls(tmp_path / "dumps.zip")[1]) == 3


def test_a_damaged_dump_among_others_is_noted(tmp_path):
    paths = write(tmp_path, {rank: dump(hang(rank), config=WORLD) for rank in (0, 1)})
    with open(paths[1], "r+b") as file:
        file.truncate(500)
    assert set(calls(paths)) == {0}
    assert "is cut off or damaged" in notes(paths)[0]


def test_progress_is_reported(tmp_path):
    paths = write(tmp_path, {rank: dump(hang(rank), config=WORLD) for rank in range(2)})
    seen: list[tuple[int, int]] = []
    flight_recorder.read(files.find(paths), lambda ready, every: seen.append((ready, every)))
    assert seen == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    "head",
    [
        b"\x80\x02}(X\x07\x00\x00\x00version",
        b"\x80\x04\x95\x00",
        b'{"comm_lib_version":"","entries":[',
        b'{\n "entries": [{"collective_seq_id": 1',
        b'[{"pg_id": 0, "profiling_name": "nccl:all_reduce"',
        b'\xef\xbb\xbf{"version": "2.3", "pg_config": {}',
    ],
)
def test_recognises(head):
    assert flight_recorder.recognises(head)


@pytest.mark.parametrize(
    "head", [b"", b"[rank0]: Traceback", b'{"name": "x"}', b"PK\x03\x04", b"[1, 2, 3]", b"\x7fELF"]
)
def test_does_not_recognise(head):
    assert not flight_recorder.recognises(head)
