"""DDP318: ranks wait in one call, and nothing that is known of it differs."""

from __future__ import annotations

from collections.abc import Iterable

from ddpnb.recording import phrases
from ddpnb.recording.facts.reported_calls import began, members_known
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.stack_evidence import waiting_lines
from ddpnb.recording.facts.stops import Stop, Waits
from ddpnb.recording.findings import FindingType
from ddpnb.recording.rank_state import RankState
from ddpnb.rules.hangs.stack_lines import caveats
from ddpnb.rules.hangs.table import hang
from ddpnb.rules.rule import ERROR, Draft, family, in_calls, say, title

SAME_COLLECTIVE = FindingType("DDP318", "same-collective", after_patience=True)
_BEYOND_CALLS = (
    "Look for what the calls do not show: the network between the hosts (NCCL_DEBUG=INFO, NCCL_SOCKET_IFNAME), a device (dmesg "
    "for Xid, nvidia-smi -q), reduce operations that differ. Started with `ddpnb run --`, the job is recorded with its "
    "arguments and lines."
)
_COLLECT = (
    "Collect the output of all ranks, and their flight-recorder dumps (TORCH_FR_BUFFER_SIZE=2000, "
    "TORCH_NCCL_DUMP_ON_TIMEOUT=1; in older versions of torch TORCH_NCCL_TRACE_BUFFER_SIZE=2000): they show which of them did "
    "not make this call."
)


@hang(SAME_COLLECTIVE, needs=())
def same_collective(snap: Snapshot, stop: Stop) -> Draft:
    """All ranks are in one function at one line, and their stacks show no difference."""
    if stop.waits is not Waits.STACK:
        return _unexplained(snap, stop)
    first = stop.standings[stop.waiting[0]]
    return Draft(
        title(
            *(
                f"{phrases.ranks(stop.waiting, True)} are all blocked in {first.function}{at}: their stacks show no difference."
                for at in (phrases.at(first.site), f" at {first.site}", "")
            )
        ),
        remedy="Compare the sizes, dtypes and roots of the call and the number of earlier iterations on the ranks (their "
        "variables); look at the network between them (GLOO_SOCKET_IFNAME, NCCL_DEBUG=INFO). Started with "
        "`ddpnb run --`, the job is recorded, and the finding names the difference.",
        waiting=stop.waiting,
        evidence=(*waiting_lines(stop.standings, stop.waiting), *caveats(snap, stop, compared=True)),
        certainty="likely",
    )


def _unexplained(snap: Snapshot, stop: Stop) -> Draft:
    """Ranks wait for each other as far as their calls are known, and no difference between them is."""
    calls = stop.calls
    silent = tuple(rank for rank in snap.ranks if "path" in snap.unknown(rank))
    missing = [say("Of {ranks} no path is known.", ranks=silent)] if silent else []
    return Draft(
        say("{who} [is|are] blocked, and nothing that was recorded shows why.", stop.waiting),
        remedy=_BEYOND_CALLS,
        waiting=stop.waiting,
        evidence=(
            *in_calls(calls, stop.standings),
            *missing,
        ),
        collective=next(iter(calls.values()), None),
        certainty="likely",
        severity="warning",
    )


@family(SAME_COLLECTIVE, after=(ERROR, "DDP306"), needs=("calls",))
def no_difference(snap: Snapshot) -> Iterable[Draft]:
    """Ranks of a report wait in calls, and no call that it holds is missing or differs."""
    standings = snap.standings
    calls = {r: one.call for r, one in sorted(standings.items()) if one.state is RankState.WAITING and one.call}
    if not calls or snap.recording.report is None:
        return
    first = min(calls, key=lambda rank: began(calls[rank]))
    call = calls[first]
    inside = [rank for rank, own in calls.items() if (own.group.key, own.seq) == (call.group.key, call.seq)]
    others = phrases.besides(calls, inside)
    past = [rank for rank in others if calls[rank].group.key == call.group.key]
    everybody = not past and members_known(snap.recording, call) and set(call.group.ranks) <= calls.keys()
    if past:
        seen = f", which {phrases.ranks(past)} completed: no difference is known."
    elif everybody:
        seen = ", which all of its ranks have called: no difference is known."
    else:
        seen = ": these files do not show whether other ranks have called it."
    yield Draft(
        title(
            *(
                f"{phrases.ranks(inside, True)} {phrases.verb(inside, 'was', 'were')} blocked in {call.title}{of}{at}{seen}"
                for of, at in (
                    (f" of {call.group}", phrases.at(standings[first].site)),
                    (f" of {call.group}", ""),
                    ("", ""),
                )
            )
        ),
        remedy=_BEYOND_CALLS if past or everybody else _COLLECT,
        at=snap.at(calls),
        waiting=tuple(calls),
        evidence=in_calls({rank: calls[rank] for rank in (*inside, *others)}, standings, "was"),
        collective=call,
        certainty="likely",
    )


@family(SAME_COLLECTIVE, after=(ERROR, "DDP306"), needs=())
def unnamed_call(snap: Snapshot) -> Iterable[Draft]:
    """Ranks whose call timed out or failed, where the files say no more."""
    ranks = tuple(rank for rank, record in snap.ranks.items() if record.lost == "call")
    if ranks:
        yield Draft(
            f"An operation of the backend timed out or failed on {phrases.ranks(ranks)}, or a watchdog saw no progress: these files do "
            "not show in which call.",
            remedy=f"Look for the line above in which the watchdog names it (WorkNCCL(SeqNum=..., OpType=...)). {_COLLECT}",
            waiting=ranks,
            certainty="likely",
        )
