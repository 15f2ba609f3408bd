"""Members of groups as runs: short in files, and one tuple for all that name the same."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpnb.recording import members
from ddpnb.recording.calls import Group
from ddpnb.recording.names import UNDECODABLE
from ddpnb.recording.strings import STRING_LIMIT

MANY = 16_384


@given(
    st.lists(st.integers(0, 1000), max_size=40)
    | st.builds(range, st.integers(0, 9), st.integers(0, 900), st.integers(1, 9))
)
def test_any_members_are_read_as_they_were_written(ranks):
    shown = json.loads(json.dumps(members.written(tuple(ranks))))
    assert members.read(shown) == tuple(ranks)


@pytest.mark.parametrize(
    "ranks",
    [range(MANY), range(3, MANY, 8), [*range(0, MANY, 2), *range(1, MANY, 2)], [r for r in range(MANY) if r != 17]],
    ids=["all", "every eighth", "two halves", "all but one"],
)
def test_a_group_of_very_many_ranks_fits_into_a_black_box(ranks):
    group = Group(tuple(ranks), 1, "3", "dp")
    text = json.dumps(group.to_json()).encode()
    assert len(text) < 200 < STRING_LIMIT < len(str(list(range(MANY))))
    again = Group.from_json(json.loads(text))
    assert again == group and (again.name, again.label) == ("3", "dp")
    assert again.ranks is group.ranks  # thousands of ranks name it: one list


def test_few_members_stay_a_list_that_can_be_read():
    assert Group((0, 1, 2)).to_json()["ranks"] == [0, 1, 2]


@pytest.mark.parametrize("runs", [5, [[0]], [["a", 1, 1]], [[0, 9, 0]], [[0, 1 << 40, 1]], [[0, 1 << 17, 1]]])
def test_what_are_no_members_is_refused(runs):
    with pytest.raises(UNDECODABLE):
        members.read({"runs": runs})
