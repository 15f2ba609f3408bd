"""What somebody has put into a form: understood, or refused with what to write instead."""

from __future__ import annotations

import pytest

from ddpnb.errors import UsageError
from ddpnb.notebook import asked
from ddpnb.recording.faults import KINDS


@pytest.mark.parametrize(
    ("written", "ranks"),
    [
        ("", None),
        ("  ", None),
        ("all", None),
        ("0", (0,)),
        ("0,2", (0, 2)),
        (" 0 - 3 , 8 ", (0, 1, 2, 3, 8)),
        ("3,1,3,0-2", (3, 1, 0, 2)),
        ("7-7", (7,)),
        ("999999", (999999,)),
    ],
)
def test_ranks(written, ranks):
    assert asked.ranks({"ranks": written}) == ranks


def test_without_the_field_all_ranks_are_meant():
    assert asked.ranks({}) is None


@pytest.mark.parametrize(
    "written", ["x", "1;2", "-1", "1-", "1--2", "0,,1", ",", "1.5", "0x1", "9999999", "rank 1", "None", "1\n2;", "a" * 4000]
)  # fmt: skip
def test_what_names_no_ranks_is_refused_with_what_to_write(written):
    with pytest.raises(UsageError, match="is not a list of ranks") as refused:
        asked.ranks({"ranks": written})
    assert "0-3,8" in str(refused.value)


def test_a_range_that_goes_backwards_is_refused():
    """It would name nobody, and nothing would happen."""
    with pytest.raises(UsageError, match="'5-3' contains no ranks"):
        asked.ranks({"ranks": "0,5-3"})


@pytest.mark.parametrize("written", ["0-999999", ",".join(["0-99999"] * 400)])
def test_huge_ranges_are_refused_before_they_are_laid_out(written):
    with pytest.raises(UsageError, match="contains too many ranks"):
        asked.ranks({"ranks": written})


@pytest.mark.parametrize(("written", "number"), [("", None), ("  ", None), ("1", 1), (" 12 ", 12), ("999999999", 999999999)])  # fmt: skip
def test_whole_numbers(written, number):
    assert asked.whole({"n": written}, "n") == number
    assert asked.whole({}, "n") is None


@pytest.mark.parametrize("written", ["0", "-1", "x", "1.5", "1e3", "9" * 10, "²", "1 2", "\x00"])
def test_what_is_no_whole_number_is_refused(written):
    with pytest.raises(UsageError, match="seq must be a whole number from 1"):
        asked.whole({"seq": written}, "seq")


def test_the_least_may_be_zero():
    assert asked.whole({"step": "0"}, "step", 0) == 0


# -- faults


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_with_its_parameters_and_conditions(kind):
    own = {f"value:{one.name}": "3" if isinstance(one.default, (int, float)) else "three" for one in kind.parameters}
    door = {"op": (kind.ops or ("all_reduce",))[0], "seq": "5"} if kind.place == "door" else {}
    found = asked.described({"kind": kind.name, "step": "2", **door, **own})
    assert found.kind == kind.name and found.step == 2
    assert (found.op, found.seq) == ((door["op"], 5) if door else ("", None))
    assert found.values == {
        one.name: 3 if isinstance(one.default, (int, float)) else "three" for one in kind.parameters
    }


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_not_changed_is_not_given(kind):
    defaults = {f"value:{one.name}": str(one.default) for one in KINDS[kind].parameters}
    assert asked.described({"kind": kind, "op": "", "seq": "", "step": "", **defaults}).values == {}


@pytest.mark.parametrize(("written", "value"), [("2.5", 2.5), ("-1", -1), ("1e3", 1000.0), (" 7 ", 7)])
def test_numbers_are_numbers(written, value):
    assert asked.described({"kind": "delay", "value:seconds": written}).values == {"seconds": value}


@pytest.mark.parametrize(
    "written", ["soon", "nan", "1e999", "-1e999", "()", "'5'", "(" * 3999, "-" * 3999 + "1", "1; 2"]
)
def test_a_text_where_a_number_belongs_is_refused(written):
    with pytest.raises(UsageError, match="seconds of the fault 'delay' must be a number"):
        asked.described({"kind": "delay", "value:seconds": written})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "no fault selected"),
        ({"kind": "no such"}, "no fault selected"),
        ({"kind": "skip", "seq": "x"}, "seq must be a whole number from 1"),
        ({"kind": "skip", "seq": "0"}, "seq must be a whole number from 1"),
        ({"kind": "skip", "step": "-1"}, "step must be a whole number from 0"),
        ({"kind": "skip", "op": "allreduce"}, "unknown operation 'allreduce'"),
        ({"kind": "other root", "op": "all_reduce"}, "does not apply to all_reduce"),
        ({"kind": "nan loss", "op": "all_reduce"}, "it takes no op, seq or group"),
    ],
)
def test_what_cannot_be_is_refused(values, words):
    with pytest.raises(UsageError, match=words):
        asked.described(values)


def test_what_the_kind_does_not_take_is_no_matter():
    assert asked.described({"kind": "skip", "value:seconds": "3", "other": "x"}).values == {}
