"""Ranks that look for each other in stores of their own making."""

from __future__ import annotations

import pytest

from tests.rules.recordings import Rank, Script, diagnose, record

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


def standing(number, port, seconds=60.0, mark="makes", master=False):
    rank = Rank(number, 3)
    if mark == "makes":
        rank.phase("store made", "open", OWN.at(mark, "connect"), host="127.0.0.1", port=port, is_master=master)
    return rank.idles(seconds, OWN.at(mark, "connect"))


def test_each_at_a_port_of_its_own():
    (found,) = diagnose(record(*(standing(n, 4000 + n, master=n == 0) for n in range(3)), script=OWN)).errors
    assert (found.code, found.culprits, found.waiting) == ("DDP104", (), ())
    assert {site.line for _, site in found.where} == {OWN.line("makes")}
    assert found.sides == ((0,), (1,), (2,))
    assert "they use different ports" in found.summary
    assert (found.certainty, found.hint) == ("proven", None)
    assert found.evidence[1] == "Rank 1: TCPStore at 127.0.0.1:4001."
    assert found.evidence[3] == "Rank 0 is to listen there (is_master=True)."


def test_the_one_with_another_port():
    (found,) = diagnose(record(*(standing(n, 4001 if n == 2 else 4000) for n in range(3)), script=OWN)).errors
    assert (found.culprits, found.waiting) == ((2,), (0, 1))


@pytest.mark.parametrize(("master", "certainty"), [(False, "proven"), (True, "likely")])
def test_one_port_makes_no_sides(master, certainty):
    ranks = (standing(n, 4000, master=master and n == 1) for n in range(3))
    (found,) = diagnose(record(*ranks, script=OWN)).errors
    assert (found.culprits, found.waiting, found.sides, found.certainty) == ((), (0, 1, 2), (), certainty)
    assert "port" not in found.summary and ("No rank is to listen there" in found.evidence[-1]) != master


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
