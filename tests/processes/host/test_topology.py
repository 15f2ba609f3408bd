"""The matrix of nvidia-smi topo -m, from samples written by hand after the formats of several drivers."""

from __future__ import annotations

import pytest

from ddpnb.processes.host.answers import Answer
from ddpnb.processes.host.topology import checks, parse

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""
# Four H100 with NVSwitch, driver 550: the head is underlined
SWITCHED = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tNV18\tNV18\tPIX\tSYS\t0-47\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tNV18\tNV18\tNODE\tSYS\t0-47\t0\t\tN/A\n"
    "GPU2\tNV18\tNV18\t X \tNV18\tSYS\tPIX\t48-95\t1\t\tN/A\n"
    "GPU3\tNV18\tNV18\tNV18\t X \tSYS\tNODE\t48-95\t1\t\tN/A\n"
    "NIC0\tPIX\tNODE\tSYS\tSYS\t X \tSYS\t\t\t\t\n"
    "NIC1\tSYS\tSYS\tPIX\tNODE\tSYS\t X \t\t\t\t\n"
    f"{LEGEND}\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n"
)
# Pairs of V100 with NVLink on two sockets, driver 470
PAIRED = (
    "\tGPU0\tGPU1\tGPU2\tGPU3\tmlx5_0\tCPU Affinity\tNUMA Affinity\n"
    "GPU0\t X \tNV2\tNODE\tSYS\tPIX\t0-19,40-59\t0\n"
    "GPU1\tNV2\t X \tSYS\tSYS\tPIX\t0-19,40-59\t0\n"
    "GPU2\tNODE\tSYS\t X \tNV1\tSYS\t20-39,60-79\t1\n"
    "GPU3\tSYS\tSYS\tNV1\t X \tSYS\t20-39,60-79\t1\n"
    f"mlx5_0\tPIX\tPIX\tSYS\tSYS\t X \t\t\n{LEGEND}"
)
# Two consumer GPUs, in columns of blanks
BLANKS = "        GPU0    GPU1    CPU Affinity    NUMA Affinity\nGPU0     X      PHB     0-15            N/A\nGPU1    PHB      X      0-15            N/A\n"


def test_a_switch():
    found = parse(SWITCHED)
    assert found.gpus == ["GPU0", "GPU1", "GPU2", "GPU3"] and found.nics == {"NIC0": "mlx5_0", "NIC1": "mlx5_1"}
    assert found.links["GPU1"] == {"GPU0": "NV18", "GPU2": "NV18", "GPU3": "NV18", "NIC0": "NODE", "NIC1": "SYS"}
    assert found.links["NIC0"]["GPU0"] == "PIX"
    assert found.affinity["GPU2"] == {"CPU Affinity": "48-95", "NUMA Affinity": "1"}
    (check,) = checks(Answer(SWITCHED))
    assert (check.state, check.told, check.code) == ("ok", "NV18 (6 pairs)", "")


def test_slow_pairs_are_named_where_others_have_nvlink():
    (check,) = checks(Answer(PAIRED))
    assert (check.state, check.code) == ("warning", "DDP207")
    assert check.told.startswith(
        "GPU0-GPU2 NODE, GPU0-GPU3 SYS, GPU1-GPU2 SYS, GPU1-GPU3 SYS: no NVLink, across CPU sockets, across host bridges"
    )
    assert "CUDA_VISIBLE_DEVICES=0,1" in check.todo
    assert check.details["linked"] == [["GPU0", "GPU1"], ["GPU2", "GPU3"]]
    assert parse(PAIRED).links["mlx5_0"]["GPU3"] == "SYS"


def test_blanks():
    assert parse(BLANKS).links == {"GPU0": {"GPU1": "PHB"}, "GPU1": {"GPU0": "PHB"}}
    assert parse(BLANKS).affinity["GPU0"] == {"CPU Affinity": "0-15"}
    (check,) = checks(Answer(BLANKS))
    assert (check.state, check.told) == ("ok", "PHB (1 pair)")


@pytest.mark.parametrize(
    ("link", "state"), [("SYS", "warning"), ("NODE", "ok"), ("PXB", "ok"), ("PIX", "ok"), ("NV4", "ok")]
)
def test_links_of_two(link, state):
    (check,) = checks(Answer(BLANKS.replace("PHB", link)))
    assert check.state == state and bool(check.code) == (state == "warning") == bool(check.todo)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "\tGPU0\tGPU1\n",
        "\tGPU0\tGPU1\nGPU0\tX\n",
        LEGEND,
        "\tGPU0\tGPU1\nGPU0\tX\twhat\nGPU1\twhat\tX\n",
    ],
)
def test_no_matrix(text):
    (check,) = checks(Answer(text, "nvidia-smi did not answer within 10 s"))
    assert (check.state, check.told) == ("unknown", "nvidia-smi did not answer within 10 s")
