"""The script of a re-enactment."""

import ast
from dataclasses import replace

import pytest

from ddpnb.recording.calls import CallState, Group, Signature, Site
from ddpnb.recording.stacks import Frame
from ddpnb.studies.reenactment.planning import plan_of
from ddpnb.studies.reenactment.script import script_of
from tests.rules.recordings import Rank, line, record, recorded
from tests.studies.reenactment import programs
from tests.studies.reenactment.programs import KINDS, body, recording_of, script

HEAD = ['rank = int(os.environ["RANK"])', 'dist.init_process_group("gloo", timeout=TIMEOUT)']


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_script_is_python(kind):
    ast.parse(script(kind))


def test_an_uneven_loop_stays_a_loop():
    assert body(script(programs.uneven)) == [
        *HEAD,
        "for _ in range(8 if rank == 1 else 9):",
        "    dist.all_reduce(torch.ones(4))",
        "leave()",
    ]


def test_ranks_that_all_end_wait_for_nobody():
    text = script(programs.healthy)
    assert body(text) == [
        *HEAD,
        "for _ in range(5):",
        "    dist.all_reduce(torch.ones(4))",
        "dist.destroy_process_group()",
    ]
    assert "# No rank waits for another one: the script completes." in text
    assert "\nimport time\n" not in text


def test_no_folder_of_the_recorded_machine_is_named():
    recording = recording_of(programs.never_called)
    plan = plan_of(recording)
    assert plan.expected is not None
    assert " /home/user/train.py:4" in plan.expected.summary
    text = script_of(plan)
    assert " train.py:4" in text
    assert "/home/user" not in text


def test_a_call_that_was_left_out_stands_before_the_next_one():
    assert body(script(programs.skipped)) == [
        *HEAD,
        "for _ in range(3):",
        "    dist.all_reduce(torch.ones(4))",
        "    dist.barrier()",
        "if rank != 1:",
        "    dist.all_reduce(torch.ones(4))",
        "dist.barrier()",
    ]


def test_other_operations_are_branches_of_one_decision():
    assert body(script(programs.other_operation))[3:] == [
        "if rank != 2:",
        "    dist.all_reduce(torch.ones(4))",
        "else:",
        "    dist.broadcast(torch.ones(4), src=0)",
    ]


def test_groups_are_crossed():
    assert body(script(programs.crossed))[2:] == [
        "group_1 = dist.new_group([0, 1], timeout=TIMEOUT)",
        "group_2 = dist.new_group([0, 1], timeout=TIMEOUT)",
        "if rank in (2, 3):",
        "    leave()",
        "    return",
        "if rank == 0:",
        "    dist.all_reduce(torch.ones(4), group=group_1)",
        "else:",
        "    dist.all_reduce(torch.ones(4), group=group_2)",
    ]


def test_calls_in_flight_are_issued_and_not_waited_for():
    text = body(script(programs.several_in_flight))
    assert "works.append(dist.all_reduce(torch.ones(9), async_op=True))" in text
    assert text[-1] == "dist.barrier()"


def test_a_call_waited_for_after_others_were_issued():
    def make(me):
        if me.rank == 1:
            return me.finishes()
        me.calls("all_reduce", line(3), state=CallState.WAITING)
        me.issues("all_reduce", line(3))
        return me.idles(5, line(3))

    text = body(script(make, 2))
    assert text[-2:] == ["for work in works:", "    work.wait()"]
    assert "return" in text[5]


def test_the_lines_name_their_places_and_the_calls_of_the_recording():
    text = script(programs.uneven)
    assert "# train.py:2: all_reduce #1 of default_pg to all_reduce #9 of default_pg" in text
    assert "# Ranks 0, 2 and 3 wait in all_reduce #9 of default_pg." in text
    assert "torchrun --nproc-per-node 4 repro.py" in text


def test_the_head_says_who_stands_for_whom():
    text = script(programs.tensor_and_data_parallel, 512)
    assert "5 ranks stand for 512:" in text
    assert "rank 3: rank 17\n" in text


def test_an_exception_is_raised_with_its_text_as_a_literal():
    assert "raise RuntimeError(\"ValueError: bad 'record'\\n\\u2028\")" in script(programs.raised)


EVIL = "x\nimport os; os._exit(9)\r#\u2028\x0b\"'''\\"


def test_no_text_of_a_recording_becomes_code():
    """Names of files, functions, groups, operations and types come from strangers."""
    recording = recording_of(programs.raised)
    ranks = {}
    for number, one in recording.ranks.items():
        calls = tuple(
            replace(
                call,
                site=Site(EVIL, 3, EVIL),
                group=Group(call.group.ranks, 0, EVIL, EVIL),
                tag=1 << 200,
                signature=replace(call.signature, op=EVIL, dtypes=(EVIL,), reduce_op=EVIL, layout=EVIL, agreed=EVIL),
            )
            for call in one.calls
        )
        ending = replace(one.ending, exception=EVIL, message=EVIL) if one.ending is not None else None
        ranks[number] = replace(one, calls=calls, ending=ending)
    text = script_of(plan_of(replace(recording, ranks=ranks)), EVIL, file=EVIL)
    assert text.isascii()
    tree = ast.parse(text)
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "_exit"]
    (evil,) = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and "import os" in str(node.value)]
    assert isinstance(evil.value, str)  # the message of the exception
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert {alias.name for node in imports for alias in node.names} <= {
        "os", "signal", "threading", "time", "timedelta", "torch", "torch.distributed",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("op", "more", "expected"),
    [
        ("all_gather_into_tensor", {}, "dist.all_gather_into_tensor(torch.ones(8), torch.ones(4))"),
        ("reduce_scatter_tensor", {"reduce_op": "max"},
         "dist.reduce_scatter_tensor(torch.ones(4), torch.ones(8), op=dist.ReduceOp.MAX)"),
        ("gather", {"root": 1}, "dist.gather(torch.ones(4), [torch.ones(4) for _ in range(2)] if rank == 1 else None, dst=1)"),
        ("all_to_all_single", {"in_splits": (1, 3), "out_splits": (1, 3)},
         "dist.all_to_all_single(torch.ones(4), torch.ones(4), [1, 3], [1, 3])"),
        ("monitored_barrier", {}, "dist.monitored_barrier(timeout=TIMEOUT)"),
        ("all_reduce", {"layout": "strides [1, 2]"}, "dist.all_reduce(torch.ones(2, 2).t())"),
    ],
)  # fmt: skip
def test_operations(op, more, expected):
    recording = record(Rank(0, 2).waits(op, line(3), **more), Rank(1, 2).finishes())
    assert expected in body(script_of(plan_of(recording)))


def test_an_unknown_operation_has_a_stand_in_that_is_named():
    signature = Signature("hsdp_sync", ((4,),), ("float32",), agreed="hsdp_sync")
    recording = record(Rank(0, 2).waits("x", line(3), signature=signature), Rank(1, 2).finishes())
    text = script_of(plan_of(recording))
    assert "# all_reduce stands for hsdp_sync." in text
    assert "dist.all_reduce(torch.ones(4))" in text


@pytest.mark.parametrize(("code", "expected"), [(-9, "os.kill(os.getpid(), signal.SIGKILL)"), (7, "os._exit(7)")])
def test_signals_and_statuses_end_a_rank(code, expected):
    assert expected in script(lambda me: me.dies(code) if me.rank == 1 else me.waits("all_reduce", line(3)), 2)


def test_a_rank_that_only_waits_outside():
    text = script(programs.elsewhere)
    assert "threading.Event().wait()" in text
    assert "import threading" in text


def test_a_rank_in_a_group_in_python_waits_outside_too():
    """Its calls are not known: it stands for itself."""

    def in_group(me):
        found = programs.elsewhere(me)
        unseen = Frame(line(8).file, 8, "allreduce", unseen="Managed (a group in Python)")
        return found.has_stack(unseen) if me.rank == 1 else found

    assert body(script(in_group)) == body(script(programs.elsewhere))


def test_recorded_of_many_ranks_is_short():
    assert len(body(script(programs.tensor_and_data_parallel, 512))) < 20


def test_it_is_the_same_each_time():
    assert script_of(plan_of(recorded(programs.crossed))) == script_of(plan_of(recorded(programs.crossed)))


def test_what_ranks_at_fault_call_instead_comes_after_what_they_left_out():
    def make(me):
        for _ in range(8):
            me.calls("all_reduce", programs.LOOP.at("reduce")).calls("barrier", programs.LOOP.at("barrier"))
        me.calls("all_reduce", programs.LOOP.at("reduce"))
        if me.rank == 1:
            return me.waits("all_reduce", programs.LOOP.at("reduce"))
        return me.waits("barrier", programs.LOOP.at("barrier"))

    assert body(script(make))[-4:] == [
        "dist.all_reduce(torch.ones(4))",
        "if rank != 1:",
        "    dist.barrier()",
        "dist.all_reduce(torch.ones(4))",
    ]


def test_a_loop_of_which_an_iteration_is_begun_again():
    def make(me):
        me.calls("all_reduce", programs.LOOP.at("reduce")).calls("broadcast", line(50), root=0)
        return me.finishes() if me.rank == 1 else me.waits("all_reduce", programs.LOOP.at("reduce"))

    plan = plan_of(recorded(make, 2, programs.LOOP))
    uneven = replace(plan.expected, type=plan_of(recording_of(programs.uneven)).expected.type)
    plan = replace(plan, diagnosis=replace(plan.diagnosis, findings=(uneven,)))
    assert "for _ in range(1 if rank == 1 else 2):" in body(script_of(plan))


def test_a_stopped_rank_stops():
    text = script(lambda me: me.stops(60, line(4)) if me.rank == 1 else me.waits("all_reduce", line(3)), 2)
    assert "os.kill(os.getpid(), signal.SIGSTOP)" in text
