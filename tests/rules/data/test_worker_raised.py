"""Exceptions of a DataLoader's worker, in the worker's words."""

from __future__ import annotations

import pytest

from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.rules.data.worker_raised import worker_raised
from ddpnb.rules.hangs.endings import RANK_RAISED, endings
from ddpnb.rules.rule import findings_of
from tests.rules.recordings import FILE, Rank, diagnose, line, record

TORCH = "/venv/lib/python3.13/site-packages/torch/utils/data/_utils/worker.py"
CAUGHT = f"""Caught KeyError in DataLoader worker process 1.
Original Traceback (most recent call last):
  File "{TORCH}", line 375, in _worker_loop
    data = fetcher.fetch(index)
  File "{FILE}", line 12, in __getitem__
    return decode(n)
KeyError: 'picture 21'
"""


def found(message, waits=True):
    other = Rank(0, 2).waits("all_reduce", line(6)) if waits else Rank(0, 2).finishes()
    taken = record(other, Rank(1, 2).raises("KeyError", message, line(5)))
    (failure,) = findings_of(taken, endings)
    draft = worker_raised(Snapshot(taken), failure)
    drafts = [draft.finding((RANK_RAISED,))] if draft is not None else []
    assert [one.summary for one in diagnose(taken).errors] == [
        one.summary for one in drafts or [failure]
    ]  # the engine asks it too
    return drafts


@pytest.mark.parametrize(("waits", "end"), [(True, "; rank 0 waits for it."), (False, ".")])
def test_the_message_and_the_line_of_the_worker(waits, end):
    (one,) = found(CAUGHT, waits)
    assert (one.code, one.certainty, one.culprits) == ("DDP312", "proven", (1,))
    assert one.summary == f"DataLoader worker process 1 of rank 1 raised KeyError: 'picture 21'{end}"
    assert (one.where[0][1].line, one.where[0][1].function, one.where[1]) == (12, "__getitem__", (1, line(5)))


def test_another_thread_of_torch():
    (one,) = found(CAUGHT.replace("DataLoader worker process 1", "pin memory thread for device 0"))
    assert one.summary.startswith("Pin memory thread for device 0 of rank 1 raised KeyError: 'picture 21'")
    assert "num_workers" not in one.remedy


@pytest.mark.parametrize("message", ["'picture 21'", "Caught KeyError in DataLoader worker process 1.", ""], ids=str)
def test_other_exceptions(message):
    assert found(message) == []


def test_a_worker_whose_lines_are_all_of_libraries():
    (one,) = found(CAUGHT.replace(FILE, TORCH))
    assert one.where[0] == (1, line(5))
