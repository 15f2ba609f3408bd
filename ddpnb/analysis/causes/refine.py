"""The same stop or failure under its most telling name.

The wait-for graph says that a rank will never come. Whether that is a forgotten call, a model that
one rank ran alone, a logger that every rank started or a child that used the group, is told by the
frames, the samples and the facts.
"""

from __future__ import annotations

from ddpnb.analysis.causes import absent, disagreeing, elsewhere, ended, startup
from ddpnb.analysis.waiting import workers
from ddpnb.analysis.waiting.standing import Standing
from ddpnb.model.findings import Finding
from ddpnb.model.recording import Recording

_MISMATCH = ("DDP302", "DDP303", "DDP304", "DDP305")


def refine(recording: Recording, standings: dict[int, Standing], finding: Finding) -> Finding:
    """The same stop or failure under its most telling name; ``finding`` itself when there is none."""
    for rule in _RULES.get(finding.code, ()):
        better = rule(recording, standings, finding)
        if better is not None:
            return better
    return finding


_WAITS = (absent.not_synchronised, absent.state_of_one, absent.lone_forward, absent.alone_in_model)
_RULES = {
    **dict.fromkeys(
        _MISMATCH,
        (
            disagreeing.other_model,
            disagreeing.set_up_wrongly,
            disagreeing.other_hook,
            disagreeing.two_threads,
            disagreeing.in_another_thread,
            absent.state_of_one,
            absent.lone_forward,
        ),
    ),
    "DDP301": (disagreeing.other_model, disagreeing.two_threads, disagreeing.in_another_thread, *_WAITS),
    "DDP308": (absent.not_synchronised, absent.lone_forward),
    "DDP102": (startup.same_rank_twice, startup.other_backend),
    "DDP104": (startup.same_rank_twice, startup.other_backend),
    "DDP108": (startup.other_backend,),
    "DDP311": (ended.killed_by_kernel, ended.quiet_exit),
    "DDP312": (
        startup.same_rank_twice,
        disagreeing.other_model,
        ended.short_timeout,
        ended.explained,
        disagreeing.set_up_wrongly,
    ),
    "DDP313": (elsewhere.forked, ended.too_soon, workers.stalled_worker, elsewhere.logger),
    "DDP314": (elsewhere.forked,),
}
