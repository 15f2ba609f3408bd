"""The links between GPUs, as NVML tells of them."""

from __future__ import annotations

from itertools import combinations

import pytest

from ddpnb.world.host.topology import checks


def links(**pairs):
    """The links of these pairs of GPUs, both ways: ``_01="NV2"``."""
    names = sorted({number for pair in pairs for number in pair[1:]})
    assert len(pairs) == len([*combinations(names, 2)])
    both = {(pair[place], pair[3 - place]): link for pair, link in pairs.items() for place in (1, 2)}
    return {f"GPU{one}": {f"GPU{other}": both[one, other] for other in names if other != one} for one in names}


# Pairs of V100 with NVLink on two sockets
PAIRED = links(_01="NV2", _02="NODE", _03="SYS", _12="SYS", _13="SYS", _23="NV1")


def test_a_switch():
    (check,) = checks(links(_01="NV18", _02="NV18", _12="NV18"))
    assert (check.state, check.told, check.code) == ("ok", "NV18 (3 pairs)", "")
    assert check.details["linked"] == [["GPU0", "GPU1", "GPU2"]]


def test_slow_pairs_are_named_where_others_have_nvlink():
    (check,) = checks(PAIRED)
    assert (check.state, check.code) == ("warning", "DDP207")
    assert check.told.startswith(
        "GPU0-GPU2 NODE, GPU0-GPU3 SYS, GPU1-GPU2 SYS, GPU1-GPU3 SYS: no NVLink, across CPU sockets, across host bridges"
    )
    assert "CUDA_VISIBLE_DEVICES=0,1" in check.todo
    assert check.details["linked"] == [["GPU0", "GPU1"], ["GPU2", "GPU3"]]
    assert check.details["links"]["GPU3"]["GPU0"] == "SYS"


@pytest.mark.parametrize(
    ("link", "state"), [("SYS", "warning"), ("NODE", "ok"), ("PXB", "ok"), ("PHB", "ok"), ("PIX", "ok"), ("NV4", "ok")]
)
def test_links_of_two(link, state):
    (check,) = checks(links(_01=link))
    assert check.state == state and bool(check.code) == (state == "warning") == bool(check.todo)


@pytest.mark.parametrize("given", [{}, {"GPU0": {}}, links(_01="")])
def test_no_links_are_known(given):
    (check,) = checks(given)
    assert (check.state, check.told) == ("unknown", "the driver tells of no links")
