"""Environment variables: those that matter, those that are renamed or dangerous, those that are missing."""

from __future__ import annotations

import pytest

from ddpnb.world.host.variables import checks, several_hosts, those_that_matter

HARMLESS = {"HOME": "/home/ann", "PATH": "/bin", "EDITOR": "vi", "SLURM_JOB_USER": "ann"}


def test_what_matters():
    given = {
        "NCCL_DEBUG": "INFO",
        "RANK": "0",
        "SLURM_NNODES": "2",
        "TP_SOCKET_IFNAME": "eth0",
        "GLOO_SOCKET_IFNAME": "eth0",
    }
    assert those_that_matter(given | HARMLESS) == dict(sorted(given.items()))


def test_none():
    (check,) = checks(HARMLESS)
    assert (check.state, check.told) == ("ok", "none is set that matters to a distributed run")


def test_many_are_counted_and_kept():
    (check,) = checks({f"NCCL_X{number}": "1" for number in range(9)})
    assert (
        check.told.startswith("9 set: NCCL_X0=1, ") and check.told.endswith(" and 3 more") and len(check.details) == 9
    )


@pytest.mark.parametrize(
    ("name", "value", "words", "todo"),
    [
        ("NCCL_BLOCKING_WAIT", "1", "renamed to TORCH_NCCL_BLOCKING_WAIT", "Unset it"),
        ("CUDA_LAUNCH_BLOCKING", "1", "synchronous", "Unset it for training"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", "leaves the others hanging", "3 is the default"),
    ],
)
def test_renamed_or_dangerous_ones(name, value, words, todo):
    _, check = checks({name: value})
    assert (check.name, check.state, check.code) == (name, "warning", "DDP703")
    assert words in check.told and f"(its value: {value})" in check.told and todo in check.todo


def test_harmless_values():
    assert len(checks({"CUDA_LAUNCH_BLOCKING": "0", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"})) == 1


def test_a_part_of_the_rendezvous():
    *_, check = checks({"RANK": "1", "MASTER_ADDR": "node"})
    assert check.code == "DDP101" and "not WORLD_SIZE, MASTER_PORT" in check.told
    assert len(checks({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node", "MASTER_PORT": "1"})) == 1
    assert len(checks({"MASTER_ADDR": "node"})) == 1


@pytest.mark.parametrize(
    ("variables", "several"),
    [
        ({}, False),
        ({"WORLD_SIZE": "8"}, False),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}, False),
        ({"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, True),
        ({"SLURM_NNODES": "2"}, True),
        ({"SLURM_NNODES": "x"}, False),
    ],
)
def test_whether_a_job_has_several_hosts(variables, several):
    assert several_hosts(variables) == several
