"""The same hang or failure under its most specific code.

The wait-for graph proves that a rank never calls a collective. The frames, the samples and the facts show whether that
is a forgotten call, a model that one rank ran alone, a logger that every rank started or a child that used the group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ddpnb.facts.standings import Standing
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import Recording
from ddpnb.rules.causes import (
    blocked,
    calls_on_one_rank,
    different_calls,
    exits,
    parted_in_library,
    startup,
    usage_errors,
)
from ddpnb.rules.environment import own_ranks
from ddpnb.rules.hangs import workers
from ddpnb.rules.hangs.blocked import BLOCKED_ELSEWHERE, RANK_FROZEN
from ddpnb.rules.hangs.endings import RANK_DEAD, RANK_RAISED
from ddpnb.rules.hangs.mismatch import ARGUMENT_MISMATCH, DTYPE_MISMATCH, OP_MISMATCH, SHAPE_MISMATCH
from ddpnb.rules.hangs.new_groups import SUBGROUP_MISMATCH
from ddpnb.rules.hangs.skipped_call import COLLECTIVE_MISSING
from ddpnb.rules.hangs.startup import RENDEZVOUS_UNREACHABLE, WORLD_INCOMPLETE
from ddpnb.rules.hangs.uneven_iterations import UNEVEN_ITERATIONS

Rule = Callable[[Recording, dict[int, Standing], Finding], Finding | None]
_MISMATCH = (OP_MISMATCH, SHAPE_MISMATCH, DTYPE_MISMATCH, ARGUMENT_MISMATCH)


def refine(recording: Recording, standings: dict[int, Standing], finding: Finding, patience: float) -> Finding:
    """The same hang or failure under its most specific code; ``finding`` itself when there is none."""
    if any(rank in standings and standings[rank].function for rank in finding.culprits):
        return finding  # what it waits for is known, and none of what follows
    for rule in _rules(patience).get(finding.type, ()):
        better = rule(recording, standings, finding)
        if better is not None:
            return better
    return finding


_WAITS = (
    calls_on_one_rank.not_synchronised,
    calls_on_one_rank.state_of_one,
    calls_on_one_rank.lone_forward,
    calls_on_one_rank.alone_in_model,
)


def _rules(patience: float) -> Mapping[FindingType, Sequence[Rule]]:
    """By the type of a finding: what may replace it, the most specific first."""
    return {
        **dict.fromkeys(
            _MISMATCH,
            (
                different_calls.other_model,
                different_calls.set_up_wrongly,
                different_calls.other_hook,
                different_calls.two_threads,
                different_calls.in_another_thread,
                calls_on_one_rank.state_of_one,
                calls_on_one_rank.lone_forward,
                parted_in_library.find,
            ),
        ),
        COLLECTIVE_MISSING: (
            different_calls.other_model,
            different_calls.two_threads,
            different_calls.in_another_thread,
            *_WAITS,
        ),
        UNEVEN_ITERATIONS: (calls_on_one_rank.not_synchronised, calls_on_one_rank.lone_forward),
        WORLD_INCOMPLETE: (startup.same_rank_twice, startup.other_backend),
        RENDEZVOUS_UNREACHABLE: (startup.same_rank_twice, startup.other_backend),
        SUBGROUP_MISMATCH: (startup.other_backend,),
        RANK_DEAD: (exits.killed_by_kernel, exits.quiet_exit, usage_errors.refused_arguments),
        RANK_RAISED: (
            own_ranks.joined_twice,
            startup.same_rank_twice,
            different_calls.other_model,
            different_calls.not_about_a_model,
            usage_errors.refused_arguments,
            exits.short_timeout,
            exits.explained,
            different_calls.set_up_wrongly,
        ),
        BLOCKED_ELSEWHERE: (
            own_ranks.waits_for_own,
            blocked.forked,
            partial(exits.too_soon, patience=patience),
            workers.stalled_worker,
            blocked.logger,
        ),
        RANK_FROZEN: (blocked.forked,),
    }
