"""Ranks that look for each other in stores of their own making."""

from __future__ import annotations

import pytest

from ddpnb.diagnosis.diagnose import diagnose
from ddpnb.model.findings import Hint
from ddpnb.model.stacks import Frame
from tests.diagnosis.recordings import Rank, Script, record

OWN = Script(
    """
    def connect(cfg):
        store = dist.TCPStore(cfg["host"], cfg["port"], 3, cfg["rank"] == 0)  # makes
        dist.init_process_group("gloo", store=store)

    def wait(path):
        while not os.path.exists(path):
            time.sleep(1)  # waits
    """
)


def standing(number, port, seconds=60.0, mark="makes", name="cfg"):
    told = f"{{'host': '127.0.0.1', 'port': {port}}}" if name == "cfg" else str(port)
    frame = Frame(OWN.file, OWN.line(mark), "connect", True, {name: told})
    return Rank(number, 3).idles(seconds, OWN.at(mark, "connect")).has_stack(frame)


@pytest.mark.parametrize("name", ["cfg", "master_port"])
def test_each_at_a_port_of_its_own(name):
    (found,) = diagnose(record(*(standing(n, 4000 + n, name=name) for n in range(3)), script=OWN)).errors
    assert (found.code, found.culprits, found.waiting) == ("DDP104", (), ())
    assert {site.line for _, site in found.where} == {OWN.line("makes")}
    assert found.sides == ((0,), (1,), (2,))
    assert "they use different ports" in found.summary
    assert found.certainty == "likely"
    assert found.hint == Hint(
        OWN.file, OWN.line("makes"), "this line creates a store; its port is the value of a variable named port"
    )
    assert found.evidence[1] == "A port variable of rank 1 at that line is 4001."


def test_the_one_with_another_port():
    (found,) = diagnose(record(*(standing(n, 4001 if n == 2 else 4000) for n in range(3)), script=OWN)).errors
    assert (found.culprits, found.waiting) == ((2,), (0, 1))


@pytest.mark.parametrize("ports", [("", "", ""), (4000, 4000, ""), (4000, 4001, ""), (4000, 4000, 4000)])
def test_ports_that_are_not_all_known_or_do_not_differ_make_no_sides(ports):
    (found,) = diagnose(record(*(standing(n, port) for n, port in enumerate(ports)), script=OWN)).errors
    assert (found.culprits, found.waiting, found.sides) == ((), (0, 1, 2), ())
    assert "port" not in found.summary and found.evidence == () and "port" not in found.hint.reason


def test_one_that_came_late_may_still_be_found():
    """Torch looks ever more rarely for a store that was not there."""
    for late, codes in ((20.0, []), (40.0, ["DDP104"])):
        ranks = [standing(0, 4000, seconds=late), *(standing(n, 4000 + n, seconds=late + 25) for n in (1, 2))]
        found = diagnose(record(*ranks, script=OWN)).errors
        assert [one.code for one in found if one.code == "DDP104"] == codes


def test_no_verdict_while_somebody_may_come():
    others = [standing(n, 4000 + n) for n in range(2)]
    for last in (Rank(2, 3).computes(), standing(2, 4002, seconds=1.0), standing(2, 4002, mark="waits")):
        assert "DDP104" not in {found.code for found in diagnose(record(*others, last, script=OWN)).errors}
