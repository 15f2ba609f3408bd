"""DDP311, DDP312: ranks that died or raised, kept apart from those that only lost a peer."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ddpnb.recording import phrases
from ddpnb.recording.calls import Site
from ddpnb.recording.events.runs import Caller
from ddpnb.recording.facts.endings import ended_after, handled, is_consequence
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.standings import last_site
from ddpnb.recording.facts.stops import Awaited, Stop, failures
from ddpnb.recording.findings import Finding, FindingType
from ddpnb.recording.messages.explain import explain
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.rules.hangs.startup import WORLD_INCOMPLETE
from ddpnb.rules.hangs.table import hang
from ddpnb.rules.rule import ERROR, Draft, after_verb, each, family, refine, say, title, waited_for
from ddpnb.texts import shortened

LOOK_AT_FIRST = (
    "Look at the output of the rank that ended first (its exit status, a traceback, the kernel's log), and at the network "
    "(NCCL_DEBUG=INFO, the counters of the interface)."
)
RANK_DEAD = FindingType("DDP311", "rank-dead")
RANK_RAISED = FindingType("DDP312", "rank-raised")

_NOT_PARSED = ("SyntaxError", "IndentationError", "TabError")
_HANDLED = 3  # exceptions in the evidence
_PEER = re.compile(r"remote peer ([\w.-]{1,200})<\d{1,5}>|closed by peer \[([\w.:-]{1,200})\]:\d{1,5}")  # NCCL, gloo


@family(RANK_DEAD, RANK_RAISED, after=(ERROR,), needs=())
def lost_ranks(snap: Snapshot) -> Iterable[Draft]:
    """Of a report that shows no cause: the ranks that lost a peer."""
    if snap.recording.report is None or snap.given is None:
        return
    then = Snapshot(snap.given, snap.patience)
    for stop in failures(snap.given, then.standings, {}, consequences=True):
        alone = then.ranks.among(stop.gone).values()
        raised = stop.awaited is Awaited.RAISED and all(map(is_consequence, alone))
        yield lost_a_peer(then.recording, stop.gone) if raised else endings(then, stop)


@refine(
    RANK_DEAD,
    refines=("DDP312",),
    after=("DDP103", "DDP301", "DDP317", "DDP401", "DDP403", "DDP404", "DDP707"),
    needs=(),
)
def lost_connection(snap: Snapshot, finding: Finding) -> Draft | None:
    """Of a report: ranks that raised only since another one did not answer."""
    raised = snap.ranks.among(finding.culprits)
    if snap.recording.report is None or not raised or not all(map(is_consequence, raised.values())):
        return None
    return replace(lost_a_peer(snap.recording, finding.culprits), instead=finding)


@family(RANK_DEAD, after=(ERROR, "DDP301", "DDP306", "DDP313", "DDP318"), needs=())
def lost_the_store(snap: Snapshot) -> Iterable[Draft]:
    """Ranks lost the connection to the store, or a launcher ended them, and nothing says why."""
    report = snap.recording.report
    ranks = tuple(rank for rank, record in snap.ranks.items() if record.lost == "store")
    if ranks:
        yield Draft(
            say(
                "{who} lost the connection to the store: the process that serves it, rank 0 or the launcher, ended, or the "
                "network failed.",
                ranks,
            ),
            remedy=LOOK_AT_FIRST,
            waiting=ranks,
            certainty="likely",
        )
    elif report is not None and any(ending.code == -signal.SIGTERM for ending in report.endings):
        ended = [rank for rank, code in report.statuses if code == -signal.SIGTERM]
        yield Draft(
            "A launcher ended its processes (SIGTERM), as it does after the failure of one: these files do not show which.",
            remedy=LOOK_AT_FIRST,
            evidence=[say("{who} [was|were] ended by SIGTERM.", ended)] if ended else (),
            certainty="likely",
        )


@hang(RANK_DEAD, RANK_RAISED, needs=())
def endings(snap: Snapshot, stop: Stop) -> Draft:
    """Ranks died or raised, apart from those that only lost a peer: these failed alike."""
    recording, ranks, waiting, waits = snap.recording, stop.gone, stop.waiting, stop.waits_for
    records = [recording.ranks[rank] for rank in ranks]
    ending = records[0].ending
    assert ending is not None
    died = ending.how in ("died", "ended")
    call = waits[waiting[0]].standing.call if waiting and waiting[0] in waits else None
    evidence = [*after_verb({rank: _how(recording.ranks[rank]) for rank in ranks})]
    unjoined = records[0].unjoined is not None
    if unjoined:
        evidence.append(say("Its process had not joined: of all ranks only {who} [is|are] missing.", ranks))
    if ending.parent and ending.signal_name in ("SIGTERM", "SIGKILL"):
        evidence.append(f"Its parent, {shortened(ending.parent, 200)}, lived on: it may have sent the signal.")
    if call is not None:
        held = [rank for rank in waiting if rank in waits]
        evidence.append(
            say("{who} [is|are] blocked in {call}{at}.", held, call=phrases.in_call(call), at=phrases.at(call.site))
        )
    then = ended_after(recording, ranks) if ending.code != -signal.SIGTERM else set[int]()
    if then:
        evidence.append(say("{who} [was|were] ended (SIGTERM) after that.", sorted(then)))
    if stop.lost:
        evidence.append(f"{phrases.ranks(stop.lost, True)} lost the connection (secondary failure).")
    evidence += _handled_before(recording) if ending.how == "raised" else []
    concerned = [recording.ranks[rank].ending for rank in (*ranks, *waiting)]
    if not died and all(one is None or one.how == "exited" for one in concerned):
        evidence += _unnamed_exceptions(recording)
    everywhere = len(ranks) == len(recording.ranks) > 1 and ending.how == "raised" and ending.exception != "Released"
    did = _what(records[0], phrases.verb(ranks, "was", "were"))
    if ending.how == "raised" and ending.exception and len({_what(record) for record in records}) > 1:
        did = f"raised {ending.exception}"  # each with a message of its own: see the evidence
    others_wait = waited_for(ranks, waiting)
    failed = {rank for rank, one in recording.ranks.items() if one.ending is not None and not one.ending.well}
    report = recording.report
    unsure = report is not None and not set(ranks).isdisjoint(report.unsure)
    # Of a report: another one failed before, or it is not known which was the first.
    followed = report is None or not (set(ranks) & set(report.unordered) or _is_later(recording, ending.at_ns))
    # What a library raised follows from what the user's code did before; that code's own traceback says it itself.
    of_library = bool(ending.frames) and not ending.frames[-1].user
    return Draft(
        title(
            *(
                phrases.sentence(f"{phrases.ranks(ranks, True)} {what}{rest}")
                for what, rest in ((did, others_wait), (_cut(did), others_wait), (did, ""), (_cut(did), ""))
            )
        ),
        ranks,
        "Start with the first rank that fails, or with what they have in common: none of them waits for another."
        if everywhere and ending.exception not in _NOT_PARSED
        else LOOK_AT_FIRST
        if stop.secondary
        else _remedy(records[0], waited_for=bool(waiting), others_failed=followed and failed - then > set(ranks)),
        {
            rank: waits[rank].standing.site if rank in waits and rank in waiting else last_site(recording.ranks[rank])
            for rank in (*ranks, *waiting)
        },
        waiting,
        evidence=evidence,
        kind=RANK_DEAD if died else replace(RANK_RAISED, ways_part=of_library),
        collective=call,
        certainty="likely"
        if stop.secondary or unsure or unjoined or all(record.unrecorded for record in records)
        else "proven",
    )


def _is_later(recording: Recording, at_ns: int) -> bool:
    """Whether another rank is known to have failed before."""
    return any(
        one.ending is not None and not one.ending.well and one.ending.at_ns < at_ns for one in recording.ranks.values()
    )


_MESSAGE = 10  # words of a message in a title
_SOURCE = re.compile(r"(?<=: )\[[^\]\n]{1,300}\.(?:cc|cpp|cu|h|hpp):\d+\] *")
_FEW = 8


def _cut(did: str) -> str:
    """What a rank raised, without the line of torch's source and with the first words of the message."""
    name, colon, message = _SOURCE.sub("", did, count=1).partition(": ")
    words = message.split()
    return f"{name}{colon}{' '.join(words[:_MESSAGE])}{'...' if len(words) > _MESSAGE else ''}"


def _unnamed_exceptions(recording: Recording) -> list[str]:
    """What may have made ranks exit of which only the exit status is known."""
    unnamed = recording.report.endings if recording.report is not None else ()
    return [
        phrases.sentence(f"A rank that the files do not name raised {shortened(str(ending).split(chr(10), 1)[0], 300)}")
        for ending in unnamed
        if ending.how == "raised"
    ][:_FEW]


def lost_a_peer(recording: Recording, waiting: Sequence[int]) -> Draft:
    """Ranks lost their connection to another rank, of which the report does not say which, or why it ended."""
    said = {rank: ending for rank in waiting if (ending := recording.ranks[rank].ending) is not None}
    hosts = {frozenset(one[1] or one[2] for one in _PEER.finditer(end.message[:20_000])) for end in said.values()}
    peer = f" at {next(iter(*hosts))}" if len(hosts) == 1 and all(len(one) == 1 for one in hosts) else ""
    lost = Draft(
        title(
            *(
                f"{phrases.ranks(waiting, True)} lost the connection to another rank{at}: that one ended, or the network "
                "between them failed."
                for at in (peer, "")
            )
        ),
        remedy=LOOK_AT_FIRST,
        waiting=waiting,
        evidence=each(
            said, lambda rank: phrases.sentence(f"Rank {rank}: {shortened(str(said[rank]).removeprefix(': '), 300)}")
        ),
        kind=RANK_DEAD,
        certainty="likely",
    )
    known = [explain(one.message, one.exception, frames=one.frames, traceback=one.traceback) for one in said.values()]
    never = next((one for one in known if one is not None and one.code == WORLD_INCOMPLETE.code), None)
    if never is None or None in known:
        return lost
    return replace(lost, summary=never.summary, remedy=never.remedy, kind=WORLD_INCOMPLETE)


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


def _how(record: RankRecord) -> str:
    """From the verb on."""
    ending = record.ending
    assert ending is not None
    text = phrases.sentence(_what(record).removesuffix(".") + (phrases.at(last_site(record)) if ending.frames else ""))
    if ending.how == "died" and record.calls:
        text += f" Its last call was {record.calls[-1].title}{phrases.at(record.calls[-1].site)}."
    return text


def _remedy(record: RankRecord, *, waited_for: bool, others_failed: bool) -> str:
    ending = record.ending
    assert ending is not None
    if ending.exception == "Released":
        return "world.rebuild() creates a new process group, which wrapped models use."
    if ending.exception in _NOT_PARSED:
        return "Correct that line: Python cannot parse it."
    if ending.how == "raised":
        first = f"Start with {f'the {ending.exception}' if ending.exception else 'this error'}"
        if others_failed:
            return f"{first}: those of the other ranks follow from it."
        return f"{first}: the ranks that wait for it have not failed." if waited_for else f"{first}."
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
