"""How the states of ranks look."""

from __future__ import annotations

from ddpnb.recording.rank_state import RankState
from ddpnb.render.markup import icon
from ddpnb.render.palette import COLOURS
from ddpnb.render.rank_states import FAILED, LOOKS


def test_every_state_has_words_of_its_own_an_icon_and_a_role():
    looks = [*LOOKS.values(), FAILED]
    assert set(LOOKS) == set(RankState)
    assert len({look.words for look in looks}) == len(looks)
    for look in looks:
        assert icon(look.icon)
        assert look.role in {*COLOURS, "faint"}
