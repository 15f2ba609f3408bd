"""``ddpnb run``: run a torchrun script on all ranks and diagnose hangs, crashes and divergence."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from ddpnb import interrupts
from ddpnb.cli import add_ranks, claim, complain, ranks, scaling
from ddpnb.errors import CannotWrite, UsageError
from ddpnb.files import check_folder

if TYPE_CHECKING:
    from ddpnb.control.doctor import Checkup
    from ddpnb.model.findings import Diagnosis
    from ddpnb.model.recording import Recording

HELP = "run a torchrun script on N local ranks and diagnose hangs, crashes and divergence"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ddpnb run [options] SCRIPT [ARGS...]"
    parser.epilog = (
        "exit status: 0 success on all ranks; 1 ddpnb itself failed, or the diagnosis could not be written; "
        "2 usage error; 3 hang or mismatch; 4 completed, but the ranks diverged; the script's own if it crashed; "
        "128+n terminated by signal n (130 Ctrl-C, 143 SIGTERM, 129 terminal closed)"
    )
    add_ranks(parser)
    parser.add_argument(
        "--patience", type=float, default=10.0, metavar="S",
        help="seconds a rank may be blocked outside any collective before it counts as hung (default: 10)",
    )  # fmt: skip
    parser.add_argument(
        "--fence",
        choices=("raise", "warn", "off"),
        default="raise",
        help="what to do when ranks call mismatching collectives (default: raise)",
    )
    parser.add_argument(
        "--debug", action="store_true", help="set TORCH_DISTRIBUTED_DEBUG=INFO, NCCL_DEBUG=INFO and the like"
    )
    parser.add_argument(
        "--log-dir",
        metavar="DIR",
        help="write each rank's complete output to DIR/rank0.log ...; existing logs are renamed to rank0.log.1 ...",
    )
    parser.add_argument(
        "--json", metavar="FILE", help="write the diagnosis as JSON (after Ctrl-C its outcome is interrupted)"
    )
    parser.add_argument("--save", metavar="FILE", help="write a recording of the ranks, which ddpnb.load() reads")
    parser.add_argument("--account", action="store_true", help="print where each rank's time went")
    parser.add_argument(
        "--scaling", metavar="N,N", help="run with each of these numbers of ranks and compare, e.g. --scaling 1,2,4"
    )
    parser.add_argument("script", metavar="SCRIPT", help="training script, as for torchrun")
    parser.add_argument("args", nargs=argparse.REMAINDER, metavar="ARGS", help="arguments for SCRIPT")


def run(arguments: argparse.Namespace) -> int:
    """Run the script; returns the exit status."""
    # Checked before anything starts: a wrong path should not cost four seconds.
    from ddpnb.control.run_requests import check_script, check_terms
    from ddpnb.render import card
    from ddpnb.world import launch

    check_script(arguments.script)
    if arguments.log_dir is not None:
        check_folder(arguments.log_dir)
    if arguments.scaling is not None:
        return scaling.run(arguments)
    check_terms(arguments.fence, arguments.patience)
    size = ranks(arguments)
    results = [path for path in (arguments.json, arguments.save) if path is not None]
    if len({os.path.realpath(path) for path in results}) < len(results):
        raise UsageError("--json and --save name the same file.", "Give each its own file.")
    claim(*results)
    with launch(
        size, backend=arguments.backend, fence=arguments.fence, patience=arguments.patience, debug=arguments.debug
    ) as world:
        going = world.run(arguments.script, *arguments.args, log_dir=arguments.log_dir, leave_after_crash=True)
        try:
            going.wait()
        except (KeyboardInterrupt, SystemExit):  # Ctrl-C or another signal: print what is known, then exit
            interrupts.notice()
            diagnosis = going._monitor.interrupted()
            save(diagnosis, arguments.json)
            save(going.recording, arguments.save)
            with suppress(OSError, ValueError):  # the signal may say that the terminal was closed
                card.show(diagnosis)
            raise
        diagnosis = going.diagnosis
        status = save(diagnosis, arguments.json, going.exit_status)
        status = save(going.recording, arguments.save, status)
        with suppress(OSError, ValueError):
            if diagnosis.outcome != "ok" or diagnosis.findings:
                card.show(diagnosis)
            if arguments.account:
                print(going.account, file=sys.stderr, flush=True)
        return status


def save(result: Diagnosis | Checkup | Recording | None, path: str | None, status: int = 0) -> int:
    """Write the result if a path is given; returns the exit status, which is never 0 if writing failed."""
    if path is None or result is None:
        return status
    try:
        result.save(path)
    except CannotWrite as error:
        complain(error)
        return status or 1
    return status
