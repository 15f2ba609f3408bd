"""Fields of dumps that hold anything at all."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddpnb.errors import UsageError
from ddpnb.reports.dumps.entries import columns
from ddpnb.reports.pickles import Refused, loads
from tests.reports.dumps import call, calls

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=8),
    lambda inside: (
        st.lists(inside, max_size=4)
        | st.tuples(inside, inside)
        | st.dictionaries(st.text(max_size=4) | st.integers(), inside, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = sorted(call(0, 1)) + ["seq_id", "time_created_us"]
ENTRIES = st.lists(
    st.builds(
        lambda changed, number: {**call(number, number + 1), **changed},
        st.dictionaries(st.sampled_from(FIELDS), PLAIN, max_size=4),
        st.integers(0, 5),
    )
    | PLAIN,
    max_size=6,
)
DUMPS = st.dictionaries(
    st.sampled_from(["version", "pg_config", "pg_status", "nccl_comm_state", "rank", "x"]), PLAIN, max_size=4
).flatmap(lambda held: ENTRIES.map(lambda entries: {**held, "entries": entries}))


@pytest.mark.full
@settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
@given(DUMPS | PLAIN)
def test_fields_of_any_type(held):
    """Every field may hold anything."""
    try:
        columns(loads(pickle.dumps(held, 2)))
    except Refused:
        pass


@settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))
@given(DUMPS)
def test_fields_of_any_type_as_calls(tmp_path_factory, held):
    path = tmp_path_factory.mktemp("fields") / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps(held, 2))
    try:
        for made in calls(path).values():
            for one in made:
                assert str(one.site)
                assert one.title
                assert str(one.group)
    except UsageError:
        pass
