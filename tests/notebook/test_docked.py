"""A panel beside the notebook: one for live ranks; where the page has none, it is shown in the cell."""

from __future__ import annotations

import pytest

import ddpnb
from ddpnb.errors import UsageError
from ddpnb.notebook.docked import docked
from ddpnb.notebook.panel import Panel
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.recording.recording import RankRecord, Recording

RECORDING = Recording(2, {0: RankRecord(0), 1: RankRecord(1)})


class Ranks:
    size, closed = 4, False


def made():
    return Panel((Fragment("<p>a</p>", "a"), Fragment("<p>b</p>", "b")))


def test_live_ranks_have_one_panel_that_is_shown_again():
    world, other = Ranks(), Ranks()
    first, second = (docked(world, "right", made, live=True) for _ in range(2))
    assert first.inner is second.inner
    assert first._dock.panel == second._dock.panel and first._dock.number != second._dock.number
    assert first._dock.child == first.inner.box.model_id
    assert first._dock.title == "ddpnb: 4 ranks"
    assert docked(other, "left", made, live=True).inner is not first.inner


def test_a_closed_world_keeps_no_panel():
    world = Ranks()
    first = docked(world, "right", made, live=True)
    world.closed = True
    docked(Ranks(), "right", made, live=True)
    assert docked(world, "right", made, live=True).inner is not first.inner


def test_a_panel_that_is_not_updated_any_more_is_replaced_in_its_place():
    class Dies(Panel):
        ended = False

    world = Ranks()
    first = docked(world, "right", lambda: Dies(()), live=True)
    assert docked(world, "right", made, live=True).inner is first.inner
    first.inner.ended = True
    second = docked(world, "right", made, live=True)
    assert second.inner is not first.inner and second._dock.panel == first._dock.panel
    assert second._dock.child != first._dock.child
    assert docked(world, "right", made, live=True).inner is second.inner


def test_a_recording_has_a_panel_for_each_call():
    first, second = (ddpnb.show(RECORDING, where="split-right") for _ in range(2))
    assert first._dock.panel != second._dock.panel
    assert "nothing is running" in first.text
    assert type(ddpnb.show(RECORDING)).__name__ == "Recorded"


def test_a_page_without_such_panels_shows_it_in_the_cell():
    shown = docked(Ranks(), "right", made, live=True)
    assert shown.box.children == (shown._dock,) and shown.text == "a\n\nb"
    shown._dock._handle_custom_msg({"action": "here", "values": {}}, [])
    assert shown.box.children == (shown._dock, *shown.inner.box.children)


@pytest.mark.parametrize("where", ["top", "", None, 3])
def test_there_are_five_places(where):
    with pytest.raises(UsageError, match="'here', 'right', 'left', 'bottom', 'split-right'"):
        ddpnb.show(RECORDING, where=where)
