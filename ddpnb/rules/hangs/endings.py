"""Ranks that died or raised, kept apart from those that only lost a peer."""

from __future__ import annotations

import re
import signal
from dataclasses import replace

from ddpnb.facts.standings import last_site
from ddpnb.facts.waits import Wait
from ddpnb.model import phrases
from ddpnb.model.calls import NO_SITE, Site
from ddpnb.model.ending import Ending
from ddpnb.model.events.runs import Caller, ExceptionHandled
from ddpnb.model.events.startup import DestroyProcessGroup, InitProcessGroup, NewGroup
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.source.branches import handler_at
from ddpnb.texts import shortened

RANK_DEAD = FindingType("DDP311", "rank-dead")
RANK_RAISED = FindingType("DDP312", "rank-raised")

# What gloo, NCCL and the store report on a rank whose peer exited or never joined.
_CONSEQUENCE = re.compile(
    r"connection (was )?(closed|reset|refused|aborted)|broken pipe|timed? ?out|timeout"
    r"|remote (process|error)|peer|socket (closed|error)|failed to (recv|send|connect)"
    r"|communicator was aborted|store.*(get|wait|recv)|no longer (alive|connected)",
    re.IGNORECASE,
)
_TIMED_OUT = re.compile(r"[Tt]imed out (?:waiting|after) \d{1,12}ms")
# A lost peer, in the backend's own words.
_TRANSPORT = re.compile(r"gloo/transport/.*(closed|reset|timed? ?out)|ncclRemoteError", re.IGNORECASE | re.DOTALL)
_LOGGED = re.compile(f"{_TRANSPORT.pattern}|received errors while waiting for send/recv from rank", _TRANSPORT.flags)
REFUSAL = "CollectiveMismatch"  # what the fence raises
_HANDLED = 3  # exceptions in the evidence
_NETWORK_ERRORS = frozenset({"DistNetworkError", "DistStoreError", "DistBackendError"})


_DEFAULT_S = 600.0  # of NCCL


def _ran_out(record: RankRecord, ending: Ending) -> bool:
    """Whether the oldest call that a device waited in had reached its time-out when the rank ended: a watchdog aborts it then."""
    waited = next((call for call in record.in_flight if call.signature.asynchronous), None)
    if waited is None or not ending.at_ns:
        return False
    timeouts = [event.timeout_s for event in record.events(NewGroup) if event.name == waited.group.name]
    if str(waited.group) == "default_pg":
        timeouts = [event.timeout_s for event in record.events(InitProcessGroup)]
    seconds = timeouts[-1] if timeouts and timeouts[-1] is not None else _DEFAULT_S
    return ending.at_ns - waited.entered_ns >= seconds * 1e9


def is_consequence(record: RankRecord) -> bool:
    """Whether the failure of this rank is a secondary one, caused by another rank."""
    ending = record.ending
    if ending is None or ending.how != "raised":
        return ending is not None and ending.signal_name == "SIGABRT" and _ran_out(record, ending)
    inside = ending.frames[-1] if ending.frames else None
    if inside is not None and not inside.user and not re.search(r"[/\\](torch|ddpnb)[/\\]", inside.file):
        return False  # another library's connection, not the ranks' own
    at_start = any(event.state == "failed" for event in record.history)
    if (
        inside is not None
        and inside.user
        and not at_start
        and not re.search(r"gloo|nccl", ending.message, re.IGNORECASE)
    ):
        # Raised by the user's own statement, or by torch's C++ called straight from it.
        return ending.exception in _NETWORK_ERRORS and "EADDRINUSE" not in ending.message
    if ending.exception in _NETWORK_ERRORS:
        return _CONSEQUENCE.search(ending.message) is not None and "EADDRINUSE" not in ending.message
    if record.reported and not ending.exception and _LOGGED.search(ending.message):
        return True  # in words of the backend, outside of any exception
    if ending.exception not in ("RuntimeError", "TimeoutError", "ConnectionError", "ConnectionResetError"):
        return False
    if _TRANSPORT.search(ending.message):
        return True
    last = record.calls[-1] if record.calls else None
    # DDP waits in C++: its calls are left in flight when the wait fails.
    in_collective = bool(record.in_flight) or (last is not None and last.state.name in ("FAILED", "REFUSED"))
    return (in_collective or at_start) and _CONSEQUENCE.search(ending.message) is not None


def is_fence_stop(ending: Ending | None) -> bool:
    return ending is not None and ending.exception == REFUSAL


def handled_refusal(recording: Recording) -> bool:
    """Whether the script caught what refused its call, and continued: what it raised since follows from that."""
    return any(event.exception == REFUSAL for rank in recording.ranks for event in handled(recording, rank))


def before_the_signal(recording: Recording) -> Recording:
    """The same, as the ranks were before a launcher ended them with SIGTERM, as it does once another one has failed.

    One that had destroyed its process group counts as finished: it closed its connections, so that another failed which still
    needs it. One for which another had waited until a time-out was still at work.
    """
    failed = {
        rank: record.ending
        for rank, record in recording.ranks.items()
        if record.ending is not None and not record.ending.well and record.ending.code != -signal.SIGTERM
    }
    first = min((ending.at_ns for ending in failed.values()), default=0)
    timed_out = [at for ending in failed.values() if (at := timed_out_ns(ending))]
    ended = {
        rank: (record, record.ending)
        for rank, record in recording.ranks.items()
        if record.ending is not None
        and record.ending.code == -signal.SIGTERM
        and failed
        and first <= record.ending.at_ns
    }
    before = {
        rank: replace(record, ending=replace(ending, how="finished", code=0) if _has_left(record) else None)
        for rank, (record, ending) in ended.items()
        if _has_left(record) or (timed_out and min(timed_out) == first)
    }
    return replace(recording, ranks={**recording.ranks, **before}) if before else recording


def timed_out_ns(ending: Ending | None) -> int:
    """When a wait of a rank timed out, which ended it; 0 if none did."""
    fired = ending is not None and ending.how == "raised" and _TIMED_OUT.search(ending.message[:20_000])
    return ending.at_ns if ending is not None and fired else 0


def _has_left(record: RankRecord) -> bool:
    """Whether it has destroyed its process group, and called nothing since."""
    left = [one.began_ns for one in record.events(DestroyProcessGroup) if one.everything]
    return bool(left) and not record.in_flight and all(call.entered_ns <= left[-1] for call in record.calls)


def _ended_after(recording: Recording, lost: list[int]) -> set[int]:
    """The ranks that a launcher has ended (SIGTERM) since a watchdog aborted another one: no cause of it."""
    endings = {rank: record.ending for rank, record in recording.ranks.items() if record.ending is not None}
    aborted = min((endings[rank].at_ns for rank in lost if endings[rank].how == "died"), default=None)
    if aborted is None:
        return set()
    return {rank for rank, one in endings.items() if one.code == -signal.SIGTERM and one.at_ns >= aborted}


def find(recording: Recording, waits: dict[int, Wait], consequences: bool = False) -> list[Finding]:
    """A finding per independent failure, the earliest first; consequences are left out unless asked for."""
    lost = [rank for rank, record in sorted(recording.ranks.items()) if is_consequence(record)]
    told = set() if consequences else set(lost) | _ended_after(recording, lost)
    needed = frozenset[int]().union(*{wait.missing for wait in waits.values()})
    # A process that exited with status 0 (os._exit) has failed if others needed it.
    roots = {
        rank: record.ending
        for rank, record in recording.ranks.items()
        if record.ending is not None
        and (not record.ending.well or (record.ending.how == "died" and (bool(lost) or rank in needed)))
        and rank not in told
        and not is_fence_stop(record.ending)
    }
    groups: dict[tuple[object, ...], list[int]] = {}
    # A launcher ends the others with SIGTERM once one has failed.
    for rank in sorted(roots, key=lambda r: (roots[r].code == -signal.SIGTERM, roots[r].at_ns)):
        ending = roots[rank]
        frame = ending.innermost_user
        key = (ending.how, ending.code, ending.exception, frame and frame.site)
        groups.setdefault(key, []).append(rank)
    alike: dict[frozenset[int], list[int]] = {}  # those that wait for the same ranks
    for rank, wait in waits.items():
        alike.setdefault(wait.missing, []).append(rank)
    return [_finding(recording, sorted(ranks), waits, alike, lost) for ranks in groups.values()]


def _finding(
    recording: Recording,
    ranks: list[int],
    waits: dict[int, Wait],
    alike: dict[frozenset[int], list[int]],
    consequences: list[int],
) -> Finding:
    record = recording.ranks[ranks[0]]
    ending = record.ending
    assert ending is not None
    failed = set(ranks)
    lost = [rank for rank in consequences if rank not in failed]
    waiting = {rank for missing, ones in alike.items() if not missing.isdisjoint(ranks) for rank in ones}
    waiting = sorted(waiting.union(lost))
    call = waits[waiting[0]].standing.call if waiting and waiting[0] in waits else None
    where = [(rank, last_site(recording.ranks[rank])) for rank in ranks]
    where += [(rank, _site_of(recording, waits, rank)) for rank in waiting]
    died = ending.how in ("died", "ended")
    evidence = [_how(rank, recording.ranks[rank]) for rank in ranks[:8]]
    if ending.parent and ending.signal_name in ("SIGTERM", "SIGKILL"):
        evidence.append(f"Its parent, {shortened(ending.parent, 200)}, lived on: it may have sent the signal.")
    if call is not None:
        held = [rank for rank in waiting if rank in waits]
        evidence.append(
            f"{phrases.ranks(held, True)} {phrases.verb(held, 'is', 'are')} blocked in {phrases.in_call(call)}{phrases.at(call.site)}."
        )
    if lost:
        evidence.append(f"{phrases.ranks(lost, True)} lost the connection (secondary failure).")
    evidence += _handled_before(recording) if ending.how == "raised" else []
    everywhere = len(ranks) == len(recording.ranks) > 1 and ending.how == "raised" and ending.exception != "Released"
    summary = f"{phrases.ranks(ranks, True)} {_what(record, phrases.verb(ranks, 'was', 'were'))}"
    if waiting:
        summary += f"; {phrases.ranks(waiting)} {phrases.verb(waiting, 'waits', 'wait')} for {phrases.verb(ranks, 'it', 'them')}"
    # What a library raised follows from what the user's code did before; that code's own traceback says it itself.
    of_library = bool(ending.frames) and not ending.frames[-1].user
    return Finding(
        RANK_DEAD if died else replace(RANK_RAISED, ways_part=of_library),
        phrases.sentence(summary),
        tuple(ranks),
        tuple(waiting),
        call,
        tuple((rank, site) for rank, site in where if site != NO_SITE),
        tuple(evidence),
        "Start with the first rank that fails, or with what they have in common: none of them waits for another."
        if everywhere
        else _remedy(record, waited_for=bool(waiting)),
    )


def handled(recording: Recording, rank: int) -> list[ExceptionHandled]:
    """The exceptions that handlers of a rank caught, in their order; of a file without text, what may have been one."""
    found: dict[tuple[object, ...], ExceptionHandled] = {}
    for event in recording.ranks[rank].events(ExceptionHandled):
        source = recording.sources.get(event.site.file, "")
        handler = handler_at(source, event.site.line)
        if handler is not None or not source:
            found.setdefault((event.exception, event.raised, event.site.file, handler or event.site.line), event)
    return list(found.values())


def _handled_before(recording: Recording) -> list[str]:
    """The exceptions that handlers of some ranks caught, and those of others did not: a failure may follow from them."""
    caught: dict[tuple[str, Caller, Site], list[int]] = {}
    for rank in sorted(recording.ranks):
        for event in handled(recording, rank):
            caught.setdefault((event.exception, event.raised, event.site), []).append(rank)
    return [
        f"Before, {phrases.ranks(ranks)} handled {name} at {site}, raised at {Site(raised.file, raised.line, raised.function)}."
        for (name, raised, site), ranks in caught.items()
        if len(ranks) < len(recording.ranks)
    ][:_HANDLED]


def _site_of(recording: Recording, waits: dict[int, Wait], rank: int):  # noqa: ANN202
    return waits[rank].standing.site if rank in waits else last_site(recording.ranks[rank])


def _what(record: RankRecord, was: str = "was") -> str:
    ending = record.ending
    assert ending is not None
    if ending.how == "raised":
        # The first line; where it only announces the next one ("backend='inductor' raised:"), that too.
        first, _, rest = ending.message.strip().partition("\n")
        message = shortened(
            f"{first} {rest.strip().partition(chr(10))[0].strip()}" if first.endswith(":") else first, 200
        )
        named = f"raised {ending.exception}" if ending.exception else "reported"
        return named + (f": {message}" if message else "")
    if ending.how == "ended":
        return str(ending)
    if ending.how == "exited" and ending.frames and not record.reported:  # else the status alone is known
        code = ending.code if ending.asked is None else ending.asked
        return f'called sys.exit("{ending.message}")' if ending.message else f"called sys.exit({code})"
    if ending.how == "exited":
        return str(ending)
    return f"{was} killed ({ending.signal_name})" if ending.code < 0 else f"exited with status {ending.code}"


def _how(rank: int, record: RankRecord) -> str:
    ending = record.ending
    assert ending is not None
    text = phrases.sentence(
        f"Rank {rank} {_what(record).removesuffix('.')}" + (phrases.at(last_site(record)) if ending.frames else "")
    )
    if ending.how == "died" and record.calls:
        text += f" Its last call was {record.calls[-1].title}{phrases.at(record.calls[-1].site)}."
    return text


def _remedy(record: RankRecord, *, waited_for: bool) -> str:
    ending = record.ending
    assert ending is not None
    if ending.exception == "Released":
        return "world.rebuild() creates a new process group, which wrapped models use."
    if ending.how == "raised":
        return f"Start with {f'the {ending.exception}' if ending.exception else 'this error'}: those of the other ranks follow from it."
    if ending.how == "exited" and record.reported:
        return "Look at the end of the output: Python exits with status 1 after an exception."
    if ending.how == "exited" and waited_for:
        return "All ranks must exit together: reduce the decision over all ranks, then exit."
    if ending.signal_name == "SIGKILL":
        return (
            "SIGKILL comes from another process (its parent, a scheduler, a person), or from the kernel where memory runs out "
            "(see dmesg, and the memory limit of the container)."
        )
    if ending.signal_name == "SIGABRT" and record.reported:
        return (
            "Look at the end of the output: SIGABRT follows a time-out of NCCL's watchdog, which writes it there, or a crash in "
            "native code."
        )
    if ending.signal_name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL"):
        return "It crashed in native code: the stacks of all threads are at the end of its log."
    return "Look at the end of this rank's log."
