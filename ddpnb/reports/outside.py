"""What launchers and schedulers say of a job that they ended or started again: no fault of a rank."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

from ddpnb.recording.ending import Ending
from ddpnb.reports.facts import NOBODY, Ended, EndedOutside, Fact, Restarted
from ddpnb.reports.logs import Log

MARKS = (
    "CANCELLED", "TIME LIMIT", "death signal", "SignalException", "closing signal", "OOMKilled", "Evicted", "DeadlineExceeded", "reempt",
    "TERM_", "walltime", "Received SIG", "KeyboardInterrupt", "attempts left", "restart", "Ctrl-C", "interruption",
)  # fmt: skip

_RESTARTED = re.compile(
    r"Worker group \w{1,20}\. \d{1,6}/\d{1,6} attempts left; will restart worker group|Restarting worker group"
    r"|will restart worker group|\[\w{1,40}\] Restarting workers|restart_count=[1-9]\d{0,5}\b|restart attempt [1-9]\d{0,5}\b"
)
_SIGNAL = r"(?P<signal>SIG[A-Z0-9]{2,8}|\d{1,2})\b"
_NAMES = {"1": "SIGHUP", "2": "SIGINT", "15": "SIGTERM", "9": "SIGKILL", "3": "SIGQUIT"}
_CANCELLED = "Slurm cancelled the job (scancel, or because a task of it had failed)"  # it writes the same of both
#: who ended the job, the most telling first
_ENDED = tuple(
    (re.compile(pattern), sentence)
    for pattern, sentence in (
        (r"DUE TO TIME LIMIT", "Slurm ended the job at its time limit"),
        (r"TERM_RUNLIMIT|job killed after reaching LSF run time limit", "LSF ended the job at its time limit"),
        (r"PBS: job killed: walltime[^\n]{0,60}|walltime \d{1,10} exceeded limit", "PBS ended the job at its time limit"),
        (r"DUE TO PREEMPTION|DUE to PREEMPTION", "Slurm preempted the job"),
        (r"DUE TO NODE FAILURE", "Slurm ended the job because a node failed"),
        (r"DeadlineExceeded", "Kubernetes ended the job at its deadline"),
        (r"(?:Reason|reason|STATUS)\W{1,8}Evicted\b|The node was low on resource", "Kubernetes evicted a pod of the job"),
        (r"(?:Reason|reason)\W{1,8}Preempt(?:ed|ing|ionByScheduler)\b|[Ss]pot instance interruption|[Pp]reemption notice"
         r"|instance (?:was|is being) preempted", "A scheduler preempted the job"),
        (r"TERM_OWNER|TERM_ADMIN", "The job was ended by its owner or an administrator (LSF)"),
        (r"(?:STEP|JOB) [\w.+]{1,40} ON [^\n]{1,200} CANCELLED AT [^\n]{1,40}", _CANCELLED),
        (r"srun: (?:interrupt|sending Ctrl-C)", "Somebody interrupted the job (Ctrl-C)"),
        (rf"got signal: {_SIGNAL}|closing signal (?P<closing>SIGHUP|SIGINT)\b", "The launcher received {signal}{why}"),
        (r"Received \d{1,2} death signal", "The launcher received a signal that ends it"),
        (rf"^(?:\[rank: \d{{1,6}}\] )?Received {_SIGNAL}", "The processes received {signal}{why}"),
    )
)  # fmt: skip
_WHY = {
    "SIGHUP": ": its terminal was closed (nohup, tmux and sbatch keep a job)",
    "SIGINT": ": somebody pressed Ctrl-C",
    "SIGTERM": " from outside: a scheduler, a container or a person ended it",
}
_FOR_MEMORY = re.compile(r"(?:Reason|reason)\W{1,20}OOMKilled|\bOOMKilled\b")


def read(log: Log) -> Iterator[Fact]:
    """Who ended the job, where its ranks were started again, and containers that were killed for memory."""
    for match in _RESTARTED.finditer(log.text):
        yield Restarted(log.quoted(match.start()))
    found = [(match, sentence) for pattern, sentence in _ENDED if (match := pattern.search(log.text)) is not None]
    if found:
        match, sentence = found[0]
        name, first = _name(match), min(match.start() for match, _ in found)
        who = sentence.format(signal=name, why=_WHY.get(name, ""))
        yield EndedOutside(who, any(sentence != _CANCELLED for _, sentence in found), log.quoted(first))
    if (match := _FOR_MEMORY.search(log.text)) is not None:
        yield Ended(NOBODY, Ending("died", -signal.SIGKILL, message="OOMKilled"), at=log.quoted(match.start()))


def _name(match: re.Match[str]) -> str:
    said = match.groupdict()
    name = said.get("signal") or said.get("closing") or ""
    return _NAMES.get(name, name)
