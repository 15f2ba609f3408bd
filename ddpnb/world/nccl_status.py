"""What NCCL itself says of a running job, asked at the RAS port of its processes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import psutil

from ddpnb.ranks import nccl_ras
from ddpnb.recording.checks import Check
from ddpnb.recording.names import one_line
from ddpnb.reports import facts, logs, ras
from ddpnb.texts import shortened

_NAME, _SECTION = "NCCL RAS", "GPUs"
_PLACES, _SHOWN = 4, 12
_DIAGNOSIS = re.compile(r"NCCL DIAG \[(OK|INFO)\] {0,4}([^\n]{1,500})")
_VERSION = re.compile(r'"nccl_version": "([\w.+-]{1,40})"|NCCL version ([\w.+-]{1,40})')
_TODO = "Ask again after a minute (ncclras -v): what stays so is an error. See the output of these ranks."
_SILENT = (
    "NCCL before 2.24 has no such service, and NCCL_RAS_ENABLE=0 switches it off; NCCL_RAS_ADDR says where it listens."
)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer about the processes that were asked for.

    Args:
        host, port: who gave it.
        text: as NCCL wrote it.
        found: the facts in it.
    """

    host: str
    port: int
    text: str
    found: tuple[facts.Fact, ...]

    @property
    def messages(self) -> list[str]:
        """What NCCL reports of ranks: no answer, errors."""
        return [fact.text for fact in self.found if isinstance(fact, facts.Message)]

    @property
    def path(self) -> str:
        return f"{self.host}:{self.port}"

    def still(self, earlier: Answer | None) -> facts.Found:
        """The facts, without the calls of ranks if any has launched one since an earlier answer: counts race then."""
        kept = self.found
        if earlier is None or not ras.unchanged(earlier.text, self.text):
            kept = tuple(fact for fact in kept if not isinstance(fact, (facts.CallSeen, facts.Progress)))
        return facts.Found(self.path, ras.NAME, kept)


def ask(pids: Iterable[int]) -> Answer | None:
    """The state of the job of these processes; None: none of them answers. Several jobs may share one port."""
    known = set(pids)
    for where in _places(known):
        text = nccl_ras.status(where)
        if text and known & ras.processes(text):
            return Answer(*where, text, tuple(ras.read(logs.read("", text))))
    return None


def checks(answer: Answer | None, *, diagnose: bool) -> list[Check]:
    """An answer in a few lines; ``diagnose``: NCCL may also compare GPUs and settings of the ranks now."""
    if answer is None:
        return [Check(_NAME, "unknown", "does not answer for these processes", section=_SECTION, todo=_SILENT)]
    version = next(iter(_VERSION.findall(answer.text)), ("", ""))
    size = max((fact.size for fact in answer.found if isinstance(fact, facts.WorldSize)), default=0)
    said = f"NCCL {''.join(version) or 'of an unknown version'} answers at {answer.path} for {size} rank{'s' * (size != 1)}"
    messages = answer.messages
    if messages:
        more = f" and {len(messages) - _SHOWN} more" if len(messages) > _SHOWN else ""
        said += f": {one_line(' '.join(messages[:_SHOWN]))}{more}"
    found = [Check(_NAME, "warning" if messages else "ok", said, section=_SECTION, todo=_TODO if messages else "")]
    lines = _DIAGNOSIS.findall(nccl_ras.diagnostics((answer.host, answer.port))) if diagnose else []
    wrong = [shortened(one_line(text), 300) for state, text in lines if state != "OK"]
    if lines:
        said = (
            "; ".join(wrong[:_SHOWN])
            or f"its {len(lines)} checks of GPUs, drivers, links and settings found no difference"
        )
        todo = "These are differences between ranks: some are wanted. `ncclras -D` shows all." if wrong else ""
        found.append(Check("diagnostics", "warning" if wrong else "ok", said, section=_SECTION, todo=todo))
    return found


def _places(pids: Iterable[int]) -> list[tuple[str, int]]:
    """The addresses that the environments of these processes give."""
    found: dict[tuple[str, int], None] = {}
    for pid in sorted(pids):
        try:
            environment: Mapping[str, str] = psutil.Process(pid).environ()
        except (psutil.Error, OSError):  # it has ended, or belongs to another user
            continue
        if (where := nccl_ras.address(environment)) is not None:
            found[where] = None
    return list(found)[:_PLACES]
