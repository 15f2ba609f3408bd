"""Of a report: ranks that wait in calls, where no call that it shows is missing or differs."""

from __future__ import annotations

from collections.abc import Sequence

from ddpnb.facts.places import where
from ddpnb.facts.standings import Standing
from ddpnb.model import phrases
from ddpnb.model.calls import Call
from ddpnb.model.findings import Finding
from ddpnb.model.rank_state import RankState
from ddpnb.model.recording import Recording
from ddpnb.rules.hangs.endings import RANK_DEAD
from ddpnb.rules.hangs.group_order import GROUP_ORDER
from ddpnb.rules.hangs.silent_ranks import began
from ddpnb.rules.hangs.stacks_alone import SAME_COLLECTIVE
from ddpnb.rules.unattributed import LOOK_AT_FIRST

_FEW = 8
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


def find(recording: Recording, standing: dict[int, Standing]) -> list[Finding]:
    """DDP306 or DDP318."""
    return _crossed(recording, standing) or _same_call(recording, standing)


def unnamed(recording: Recording) -> list[Finding]:
    """DDP318 or DDP311: ranks whose call, or whose store, was lost, where the files say no more."""
    calls, stores = (
        tuple(rank for rank, record in sorted(recording.ranks.items()) if record.lost == what)
        for what in ("call", "store")
    )
    if calls:
        summary = f"An operation of NCCL timed out or failed on {phrases.ranks(calls)}: these files do not show which."
        remedy = (
            "Look for the line above in which the watchdog names it (WorkNCCL(SeqNum=..., OpType=...)). " + _COLLECT
        )
        return [Finding(SAME_COLLECTIVE, summary, (), calls, remedy=remedy, certainty="likely")]
    if stores:
        summary = (
            f"{phrases.ranks(stores, True)} lost the connection to the store: the process that serves it, rank 0 or the "
            "launcher, ended, or the network failed."
        )
        return [Finding(RANK_DEAD, summary, (), stores, remedy=LOOK_AT_FIRST, certainty="likely")]
    return []


def _crossed(recording: Recording, standing: dict[int, Standing]) -> list[Finding]:
    """DDP306: ranks wait in different groups, and of one at least the members are not known."""
    calls = {rank: one.call for rank, one in sorted(standing.items()) if one.state is RankState.WAITING and one.call}
    keys = {call.group.key for call in calls.values()}
    observed = set(recording.report.observed) if recording.report is not None else set[str]()
    if len(keys) < 2 or observed.isdisjoint(keys):
        return []
    ranks = tuple(calls)
    return [
        Finding(
            GROUP_ORDER,
            f"{phrases.ranks(ranks, True)} were blocked in different groups: "
            + ", ".join(f"{rank} in {call.title} of {call.group}" for rank, call in list(calls.items())[:_FEW])
            + ". Probably they wait for each other.",
            ranks,
            (),
            calls[ranks[0]],
            where(standing, ranks),
            tuple(
                f"Rank {rank} was in {phrases.in_call(call)}{phrases.at(standing[rank].site)}."
                for rank, call in list(calls.items())[:_FEW]
            ),
            "Call the collectives of different groups in the same order on all ranks.",
            certainty="likely",
        )
    ]


def _same_call(recording: Recording, standing: dict[int, Standing]) -> list[Finding]:
    """DDP318: ranks wait in calls, and no call that the report holds is missing or differs."""
    waiting = sorted(rank for rank, one in standing.items() if one.state is RankState.WAITING and one.call is not None)
    if not waiting:
        return []
    calls = {rank: call for rank in waiting if (call := standing[rank].call) is not None}
    first = min(calls, key=lambda rank: began(calls[rank]))
    call = calls[first]
    inside = [rank for rank, own in calls.items() if (own.group.key, own.seq) == (call.group.key, call.seq)]
    others = sorted(set(waiting) - set(inside))
    past = [rank for rank in others if calls[rank].group.key == call.group.key]
    everybody = not past and _all_called(recording, call, waiting)
    if past:
        seen = f", which {phrases.ranks(past)} completed: these files show no difference between the calls."
    elif everybody:
        seen = ", which all of its ranks have called: these files show no difference between the calls."
    else:
        seen = ": these files do not show whether other ranks have called it."
    return [
        Finding(
            SAME_COLLECTIVE,
            f"{phrases.ranks(inside, True)} {phrases.verb(inside, 'was', 'were')} blocked in {call.title} of {call.group}"
            f"{phrases.at(standing[first].site)}{seen}",
            (),
            tuple(waiting),
            call,
            where(standing, waiting),
            tuple(
                f"Rank {rank} was in {phrases.in_call(calls[rank])}{phrases.at(standing[rank].site)}."
                for rank in [*inside, *others][:_FEW]
            ),
            _BEYOND_CALLS if past or everybody else _COLLECT,
            certainty="likely",
        )
    ]


def _all_called(recording: Recording, call: Call, waiting: Sequence[int]) -> bool:
    """Whether all members of a call's group are among the waiting, as far as the members are known."""
    report = recording.report
    default = len(call.group.ranks) == recording.world_size
    known = report is not None and (report.world_size_known if default else call.group.key not in report.observed)
    return known and set(call.group.ranks) <= set(waiting)
