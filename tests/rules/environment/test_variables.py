"""Environment variables that are renamed, contradictory or dangerous; and those that are fine."""

from __future__ import annotations

import pytest

from ddpnb.model.findings import Hint
from ddpnb.rules.environment import variables
from ddpnb.rules.rules import environment
from tests.rules.environment.jobs import INIT, recorded, the_finding
from tests.rules.recordings import Script


@pytest.mark.parametrize(
    ("variable", "value", "word"),
    [
        ("NCCL_BLOCKING_WAIT", "1", "TORCH_NCCL_BLOCKING_WAIT"),
        ("NCCL_ASYNC_ERROR_HANDLING", "1", "deprecated"),
        ("TORCH_NCCL_BLOCKING_WAIT", "1", "watchdog"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", "hanging"),
        ("CUDA_LAUNCH_BLOCKING", "1", "debugging"),
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL", "slower"),
        ("NCCL_P2P_DISABLE", "1", "direct"),
        ("TORCH_NCCL_ENABLE_MONITORING", "0", "watchdog"),
        ("PYTORCH_CUDA_ALLOC_CONF", "garbage_collection_threshold:0.6|x", "PYTORCH_ALLOC_CONF"),
    ],
)
@pytest.mark.parametrize("ranks", [(0, 1, 2, 3), (2,)], ids=str)
def test_variables_that_somebody_will_regret(variable, value, word, ranks):
    found = the_finding(recorded(lambda r: r.environment(**({variable: value} if r.rank in ranks else {}))))
    assert (found.code, found.severity, found.culprits) == ("DDP703", "warning", ranks)
    assert found.summary.startswith(f"{variable}={value} ")
    assert word in found.summary


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CUDA_LAUNCH_BLOCKING", "0"),
        ("TORCH_NCCL_BLOCKING_WAIT", "0"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"),
        ("TORCH_DISTRIBUTED_DEBUG", "INFO"),
        ("NCCL_DEBUG", "INFO"),
        ("OMP_NUM_THREADS", "1"),
        ("MASTER_ADDR", "127.0.0.1"),
    ],
)
def test_variables_that_are_fine(variable, value):
    assert environment(recorded(lambda r: r.environment(**{variable: value}))) == []


def test_two_variables_that_contradict_each_other():
    both = {"TORCH_NCCL_BLOCKING_WAIT": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}
    assert "contradicts" in the_finding(recorded(lambda r: r.environment(**both))).summary


def test_what_the_environment_was_when_the_rank_joined_counts():
    taken = recorded(lambda r: r.environment(CUDA_LAUNCH_BLOCKING="1").environment(CUDA_LAUNCH_BLOCKING="0"))
    assert environment(taken) == []
    assert variables.environment(taken.ranks[0]) == {"CUDA_LAUNCH_BLOCKING": "0"}


def test_other_values_on_other_ranks_are_findings_of_their_own():
    taken = recorded(lambda r: r.environment(NCCL_BLOCKING_WAIT=str(r.rank % 2)))
    assert [(one.code, one.culprits) for one in environment(taken)] == [("DDP703", (0, 2)), ("DDP703", (1, 3))]


def test_the_only_line_that_may_set_the_variable_is_a_guess():
    script = Script("""
        import os
        # os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
        os.environ["CUDA_LAUNCH_BLOCKING"] = "1"   # set
    """)
    found = the_finding(recorded(lambda r: r.environment(CUDA_LAUNCH_BLOCKING="1"), script=script))
    assert found.where == tuple((number, INIT) for number in range(4))
    assert found.hint == Hint(script.file, script.line("set"), "this line may set CUDA_LAUNCH_BLOCKING")


def test_without_such_a_line_there_is_no_guess():
    found = the_finding(recorded(lambda r: r.environment(CUDA_LAUNCH_BLOCKING="1")))
    assert found.hint is None
    assert found.where == tuple((number, INIT) for number in range(4))
