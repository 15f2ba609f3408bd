"""Environment variables that are renamed, contradictory or dangerous; and those that are fine."""

from __future__ import annotations

import pytest

from ddpnb.recording.findings import Hint
from ddpnb.rules.environment import variables
from tests.rules.environment.jobs import INIT, recorded
from tests.rules.recordings import Script, asked


def found(make, **more):
    return asked("DDP703", recorded(make, **more))


@pytest.mark.parametrize(
    ("variable", "value", "word"),
    [
        ("NCCL_BLOCKING_WAIT", "1", "TORCH_NCCL_BLOCKING_WAIT"),
        ("NCCL_ASYNC_ERROR_HANDLING", "1", "deprecated"),
        ("TORCH_NCCL_BLOCKING_WAIT", "1", "watchdog"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", "hanging"),
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL", "slower"),
        ("PYTORCH_CUDA_ALLOC_CONF", "garbage_collection_threshold:0.6|x", "PYTORCH_ALLOC_CONF"),
    ],
)
@pytest.mark.parametrize("ranks", [(0, 1, 2, 3), (2,)], ids=str)
def test_variables_that_somebody_will_regret(variable, value, word, ranks):
    (one,) = found(lambda r: r.environment(**({variable: value} if r.rank in ranks else {})))
    assert (one.severity, one.culprits, dict(one.where)) == ("warning", ranks, dict.fromkeys(ranks, INIT))
    assert one.summary.startswith(f"{variable}={value} ") and word in one.summary


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CUDA_LAUNCH_BLOCKING", "0"),
        ("TORCH_NCCL_BLOCKING_WAIT", "0"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"),
        ("TORCH_DISTRIBUTED_DEBUG", "INFO"),
        ("OMP_NUM_THREADS", "1"),
    ],
)
def test_variables_that_are_fine(variable, value):
    assert found(lambda r: r.environment(**{variable: value})) == []


def test_two_variables_that_contradict_each_other():
    both = {"TORCH_NCCL_BLOCKING_WAIT": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}
    (one,) = found(lambda r: r.environment(**both))
    assert "contradicts" in one.summary


def test_what_the_environment_was_when_the_rank_joined_counts():
    taken = recorded(lambda r: r.environment(CUDA_LAUNCH_BLOCKING="1").environment(CUDA_LAUNCH_BLOCKING="0"))
    assert asked("DDP703", taken) == []
    assert variables.environment(taken.ranks[0]) == {"CUDA_LAUNCH_BLOCKING": "0"}


def test_other_values_on_other_ranks_are_findings_of_their_own():
    assert [one.culprits for one in found(lambda r: r.environment(NCCL_BLOCKING_WAIT=str(r.rank % 2)))] == [
        (0, 2),
        (1, 3),
    ]


def test_the_only_line_that_may_set_the_variable_is_a_guess():
    script = Script("""
        import os
        # os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
        os.environ["CUDA_LAUNCH_BLOCKING"] = "1"   # set
    """)
    hint = Hint(script.file, script.line("set"), "this line may set CUDA_LAUNCH_BLOCKING")
    assert [found(lambda r: r.environment(CUDA_LAUNCH_BLOCKING="1"), script=one)[0].hint for one in (script, None)] == [
        hint,
        None,
    ]
