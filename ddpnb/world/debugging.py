"""Start debugpy in ranks, and write the launch configuration with which an IDE attaches to all of them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from ddpnb.errors import CannotWrite, UsageError, WorldError
from ddpnb.recording import arguments, phrases, verbs
from ddpnb.recording.files import write_whole
from ddpnb.render.document import Block, Paragraph, Table
from ddpnb.render.shown import Shown
from ddpnb.world import jsonc
from ddpnb.world.ranks import Ranks

_LOOPBACK = "127.0.0.1"
_TICK_S = 0.1
_ALL = "ddpnb: all ranks"
_NAME = "ddpnb: rank "
_LONGEST = 1 << 20  # characters of a configuration that is read
_NEW = '{\n    "version": "0.2.0"\n}\n'


@dataclass(frozen=True, slots=True, repr=False)
class Debugging(Shown):
    """The result of ``debugpy()``: ``ports``: rank -> port on the loopback address; ``file``: the configuration.

    ``note``: why it is another file than was meant; empty: it is not.
    """

    ports: Mapping[int, int] = field(default_factory=dict[int, int])
    file: str = ""
    note: str = ""
    _label: ClassVar[str] = "debugpy on each rank"

    def _document(self) -> list[Block]:
        rows = [(str(rank), f"{_LOOPBACK}:{port}") for rank, port in self.ports.items()]
        how = f'{self.file} is written. In VS Code choose "{_ALL}" under Run and Debug, and press F5.'
        return [Table(self._label, ("rank", "debugpy"), rows), *(Paragraph(one) for one in (how, self.note) if one)]


def start(
    ranks: Ranks, wanted: int | Iterable[int] | None, file: str | os.PathLike[str] | None, timeout: float
) -> Debugging:
    """See ``World.debugpy``."""
    arguments.seconds("timeout", timeout)
    path = os.path.abspath(os.fsdecode(file)) if file is not None else os.path.abspath(".vscode/launch.json")
    with ranks.opened():
        chosen = ranks.chosen(wanted)
        if not ranks.processes.recorded:
            raise UsageError(
                "this job is not recorded: no rank can be asked for debugpy.",
                "Start it with ddpnb run -- COMMAND; or attach debugpy yourself: python -m debugpy --listen 0 --pid PID.",
            )
        ranks.send_all(verbs.Hold())  # suspends time-outs: ranks will wait for one that is stopped
    ports = _ports(ranks, chosen, timeout)
    written, note = _write(path, ports)
    return Debugging(ports, written, note)


def _ports(ranks: Ranks, chosen: Sequence[int], timeout: float) -> dict[int, int]:
    """The port of each of these ranks, once debugpy listens there.

    Raises:
        WorldError: it does not start on one of them.
    """
    deadline = time.monotonic() + timeout
    while True:
        answers = ranks.ask(chosen, verbs.Debugpy())
        refused = {rank: answer.error for rank, answer in answers.items() if answer.error}
        if refused:
            rank, why = next(iter(refused.items()))
            raise WorldError(
                f"rank {rank} cannot start debugpy: {why}.", "Install debugpy in the environment of the ranks."
            )
        waiting = [rank for rank in chosen if rank not in answers or not answers[rank].port]
        if not waiting:
            return {rank: answers[rank].port for rank in chosen}
        ranks.check_alive(waiting)
        if time.monotonic() >= deadline:
            raise WorldError(
                f"debugpy did not start on {phrases.ranks(waiting)} within {timeout:g} s.",
                "world.status() shows what they do; a longer timeout may help.",
            )
        time.sleep(_TICK_S)


def _write(path: str, ports: Mapping[int, int]) -> tuple[str, str]:
    """Write the configuration, into what the file has already; the path that was written, and a note.

    Raises:
        CannotWrite: it cannot be written.
    """
    own = [_attach(rank, port) for rank, port in ports.items()]
    compound = {"name": _ALL, "configurations": [one["name"] for one in own], "stopAll": True}
    known, note = _known(path), ""
    if known is None:
        root, extension = os.path.splitext(path)
        path, whole = f"{root}.ddpnb{extension}", path
        known = _NEW
        note = f"{whole} is left as it is, since it cannot be read: copy the configurations from {path}."
    merged = jsonc.with_entries(known, "configurations", own, _is_own)
    merged = jsonc.with_entries(merged, "compounds", [compound], _is_own)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    except OSError as error:
        raise CannotWrite(f"cannot write {path}: {error.strerror}.", "Give another file.") from None
    write_whole(path, merged)
    return path, note


def _attach(rank: int, port: int) -> dict[str, Any]:
    return {
        "name": f"{_NAME}{rank}",
        "type": "debugpy",
        "request": "attach",
        "connect": {"host": _LOOPBACK, "port": port},
        "justMyCode": True,
        "subProcess": False,
    }


def _known(path: str) -> str | None:
    """What the file has, with its comments; that of a new one if there is none; None: it is something else."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            text = file.read(_LONGEST)
        known = jsonc.read(text) if text.strip() else jsonc.read(text := _NEW)
    except FileNotFoundError:
        return _NEW
    except (OSError, ValueError, RecursionError):
        return None
    lists = ("configurations", "compounds")
    return text if all(isinstance(known.get(name, []), list) for name in lists) else None


def _is_own(entry: Any) -> bool:
    name = str(cast("dict[str, Any]", entry).get("name", "")) if isinstance(entry, dict) else ""
    return name == _ALL or (name.startswith(_NAME) and name.removeprefix(_NAME).isdecimal())
