"""Versions: of this machine, and what does not fit."""

from __future__ import annotations

from importlib import metadata

import pytest

from ddpnb.world.host import software

FIRST = {
    "torch": "2.13.0+cu128",
    "python": "3.11.7",
    "cuda": "12.8",
    "nccl": "2.27.5",
    "cudnn": "9.10.2",
    "backends": ["gloo", "nccl"],
}


def test_the_versions_of_the_ranks():
    (check,) = software.of_ranks({1: FIRST, 0: FIRST}, "12.9")
    assert check.told == (
        f"torch 2.13.0+cu128, Python 3.11.7, ddpnb {metadata.version('ddpnb')}, CUDA 12.8, cuDNN 9.10.2, NCCL 2.27.5, backends: gloo, nccl"
    )
    assert software.of_ranks({}) == []
    used = FIRST | {"implementation": "cpu: ProcessGroupGloo, cuda: ProcessGroupNCCL2"}
    (check,) = software.of_ranks({0: used}, "12.9")
    assert check.told.endswith("backends: gloo, nccl, in use: cpu: ProcessGroupGloo, cuda: ProcessGroupNCCL2")


@pytest.mark.parametrize(
    ("cuda", "driver", "words"),
    [("12.8", "11.4", "built for CUDA 12.8, the driver runs CUDA 11.4"), ("", "12.4", "built without CUDA")],
)
def test_what_does_not_fit_the_driver(cuda, driver, words):
    check = software.of_ranks({0: FIRST | {"cuda": cuda}}, driver)[1]
    assert check.state == "warning" and words in check.told and check.todo


def test_a_driver_that_torch_cannot_use():
    seen = FIRST | {"unusable": "The NVIDIA driver on your system is too old (found version 12020). Please update\x1b"}
    assert len(software.of_ranks({0: seen})) == 1  # no driver: the section of GPUs says so
    check = software.of_ranks({0: seen}, "12.9")[1]
    assert (check.name, check.state, check.code) == ("CUDA", "warning", "DDP208") and check.told.isprintable()
    assert "install a build of torch for CUDA 12.2" in check.todo
    (_, other) = software.of_ranks({0: FIRST | {"unusable": "no reason"}}, "12.9")
    assert "nvidia-smi" in other.todo


def test_a_torch_that_was_not_tested():
    newer = software.of_ranks({0: FIRST | {"newer": True, "not_known": ["a", "b\x1b"]}})[1]
    assert newer.state == "unknown" and newer.told.isprintable()
    assert newer.told.startswith(
        "torch 2.13.0+cu128 is newer than all that ddpnb was tested with; with it is not known: a; b"
    )
    (_, old) = software.of_ranks({0: FIRST | {"newer": False, "not_known": ["reductions"]}})
    assert old.told == "torch 2.13.0+cu128; with it is not known: reductions" and "Update torch" in old.todo


def test_minor_versions_fit():
    assert len(software.of_ranks({0: FIRST}, "12.2")) == 1


def test_containers(tmp_path):
    assert software.container({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) in (
        "Kubernetes",
        "Docker",
        "Podman",
        "Apptainer",
    )
    assert software.container({"container": "podman"})


def test_this_machine():
    (check,) = software.checks()
    assert (
        check.section == "versions" and "torch" in check.details["packages"] and check.details["kernel"] in check.told
    )
