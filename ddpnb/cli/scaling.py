"""``ddpnb run --scaling 1,2,4``: the same script with increasing numbers of ranks."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddpnb.errors import UsageError

if TYPE_CHECKING:
    from ddpnb.recording.timing.scaling import Scaled
    from ddpnb.world.plain_run import PlainRun

_MOST_RANKS = 4096
_WORST = ("ok", "divergence", "crash", "hang")  # from good to bad


def sizes(text: str) -> tuple[int, ...]:
    """The world sizes of ``--scaling``, in ascending order, each once.

    Raises:
        UsageError: something else than positive whole numbers between commas.
    """
    hint = "Give world sizes between commas: --scaling 1,2,4."
    numbers: set[int] = set()
    for part in text.split(","):
        number = part.strip()
        if not (number.isascii() and number.isdigit() and len(number) <= len(str(_MOST_RANKS))):
            raise UsageError(f"--scaling takes whole numbers of ranks, not {part!r}.", hint)
        if not 1 <= int(number) <= _MOST_RANKS:
            raise UsageError(f"--scaling: a world needs 1 to {_MOST_RANKS} ranks, not {number}.", hint)
        numbers.add(int(number))
    return tuple(sorted(numbers))


def run(arguments: argparse.Namespace) -> int:
    """Run the script once per world size and compare; returns the exit status of the worst run.

    Raises:
        UsageError: options that do not go together.
    """
    wanted = sizes(arguments.scaling)
    if arguments.nproc is not None:
        raise UsageError("--scaling gives the numbers of ranks: leave out -n.")
    if arguments.json is not None or arguments.save is not None:
        raise UsageError("--json and --save write the result of one run: they cannot be combined with --scaling.")
    if arguments.lines or arguments.lines_of:
        raise UsageError("--lines shows one run: it cannot be combined with --scaling.")
    from ddpnb.cli import claim
    from ddpnb.cli import run as cli_run
    from ddpnb.ranks import devices, machine
    from ddpnb.recording.account import Account
    from ddpnb.recording.findings import Outcome
    from ddpnb.recording.timing.scaling import compare
    from ddpnb.render import card
    from ddpnb.render.figures.canvas import kind_of
    from ddpnb.render.scaling import scaling

    if arguments.plot is not None:
        kind_of(arguments.plot)
        claim(arguments.plot)
    devices.plan(wanted[-1], arguments.backend)  # more ranks than fit: reported before anything runs
    # A world of one would compute with all cores, as torchrun has it, and the others with one per rank.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    running: list[PlainRun] = []
    done: list[tuple[int, Account, Outcome, float]] = []
    statuses: dict[str, int] = {}
    try:
        for size in wanted:
            folder = os.path.join(arguments.log_dir, f"{size}ranks") if arguments.log_dir is not None else None
            with cli_run.start(arguments, size, folder, shown=False) as job:
                running[:] = [job]
                result = job.run
                with cli_run.reported_when_interrupted(lambda: running[0], arguments):
                    diagnosis = result.wait().diagnosis
                if diagnosis.outcome != "ok":
                    print(f"ddpnb: on {size} rank{'s' * (size > 1)}:", file=sys.stderr)
                    card.show(diagnosis)
                account = result.account
                done.append((size, account, diagnosis.outcome, diagnosis.timing.get("run_s", 0.0)))
                statuses.setdefault(diagnosis.outcome, result.exit_status)
                if arguments.account:
                    print(f"on {size} rank{'s' * (size > 1)}:\n{account}\n", flush=True)
    finally:
        if done:
            rows = compare(done)
            print(scaling(rows, machine.cores()), flush=True)
            if arguments.plot is not None:
                _draw(rows, arguments.plot)
    return statuses[max(statuses, key=_WORST.index)]


def _draw(rows: Sequence[Scaled], path: str) -> None:
    """Write the curve; what goes wrong there is not the outcome of the runs."""
    from ddpnb.cli import say
    from ddpnb.errors import CannotWrite
    from ddpnb.recording.files import write_whole
    from ddpnb.render.figures import canvas, over_time

    try:
        write_whole(path, canvas.drawn(over_time.scaling(rows), canvas.kind_of(path)))
    except CannotWrite as error:
        say(str(error))
