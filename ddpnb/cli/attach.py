"""``ddpnb attach``: list the jobs that run here, or say what the ranks of one are doing."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ddpnb.cli import add_results, show
from ddpnb.errors import UsageError
from ddpnb.recording.holds import HOW

if TYPE_CHECKING:
    from ddpnb.world.job import Job

HELP = "list the jobs that run here, or show what the ranks of one are doing"
_LOOK_S = 3.0  # beyond patience, for a job without a recorder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ddpnb attach [options] [FOLDER | PID]"
    parser.epilog = (
        "A job that was started without ddpnb is marked as not recorded: its stacks are read by py-spy for as long as "
        "patience, and the diagnosis says what follows from them. "
        "exit status: 0; 1 its processes cannot be read; 2 there is no such job, or it belongs to another user; "
        "3 the ranks hang"
    )
    add_results(parser)
    parser.add_argument(
        "--release", action="store_true", help="interrupt the ranks that hang: their program gets an exception"
    )
    parser.add_argument(
        "--patience", type=float, default=10.0, metavar="S",
        help="seconds that a rank may be blocked outside any collective before it counts as a hang (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--dap", action="store_true",
        help="start debugpy in the ranks, and write .vscode/launch.json, with which an IDE attaches to all of them",
    )  # fmt: skip
    group = parser.add_argument_group("debugging")
    group.add_argument(
        "--hold", metavar="WHERE",
        help="stop ranks before a line (train.py:40), a function (train_step()) or a collective (all_reduce), or at an uncaught "
        "exception (exception), and wait until they are stopped; they stay so when this command ends",
    )  # fmt: skip
    group.add_argument("--when", default="", metavar="EXPRESSION", help="only where this is true: --when 'step == 500'")
    group.add_argument(
        "--step",
        metavar="HOW",
        help="step held ranks: over, into, out, iteration or collective; or to a line (train.py:44)",
    )
    group.add_argument("--evaluate", metavar="EXPRESSION", help="print its value in the frame where each rank is")
    group.add_argument("--unhold", action="store_true", help="disarm all holds")
    group.add_argument("--resume", action="store_true", help="let held ranks continue, until a hold matches again")
    group.add_argument("--ranks", metavar="0,2", help="on these ranks only")
    group.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="S",
        help="how long --hold and --step wait (default: %(default)g)",
    )
    parser.add_argument("--stacks", action="store_true", help="print the stack of each rank, with its variables")
    parser.add_argument("target", nargs="?", metavar="FOLDER|PID", help="as ddpnb attach lists them; none: list them")


def run(arguments: argparse.Namespace) -> int:
    """List the jobs, or show one; returns the exit status."""
    from ddpnb.cli import claim, say
    from ddpnb.cli.run import save, show_diagnosis
    from ddpnb.render import as_text, stacks
    from ddpnb.render.views.merged_stacks import merge
    from ddpnb.rules.diagnose import diagnose
    from ddpnb.world import nccl_status, unprefixed
    from ddpnb.world.job import attach, jobs

    if arguments.target is None:
        found = jobs()
        for job in found:
            show(str(job))
        if not found:
            say("no job runs here. Start one: ddpnb run -- torchrun train.py")
        return 0
    claim(arguments.json, arguments.save)
    with attach(arguments.target, patience=arguments.patience) as job:
        if arguments.dap:
            show(str(job.debugpy()))
            return 0
        if _debug(job, arguments):
            return 0
        of_nccl = nccl_status.ask(job._found.ranks.values())
        if not job.recorded:
            say(f"this job is not recorded; reading its stacks for {arguments.patience:g} s")
            job.run.wait(arguments.patience + _LOOK_S)
        recording = job.snapshot()
        diagnosis = job.diagnosis
        if of_nccl is not None and not job.recorded:
            recording = unprefixed.joined(job._found, recording, of_nccl)
            diagnosis = diagnosis if recording.report is None else diagnose(recording, arguments.patience)
        show(str(job.status()))
        if of_nccl is not None:
            show("\n".join(f"{one.name}: {one.told}" for one in nccl_status.checks(of_nccl, diagnose=False)))
        if arguments.stacks:
            show(as_text.text(*stacks.document(merge(recording), whole=True)))
        show_diagnosis(diagnosis)
        status = 3 if diagnosis.outcome == "hang" else 0
        status = save(diagnosis, arguments.json, status)
        status = save(recording, arguments.save, status)
        if arguments.release:
            show(str(job.release()))
        return status


def _debug(job: Job, asked: argparse.Namespace) -> bool:
    """Hold, step and look, in this order, as asked for; whether anything was."""
    chosen: dict[str, Any] = {}
    if asked.ranks is not None:
        from ddpnb.notebook.magics.arguments import ranks

        try:
            chosen["ranks"] = ranks(asked.ranks)
        except argparse.ArgumentTypeError as error:
            raise UsageError(f"--ranks: {error}.") from None
    if not (asked.hold or asked.step or asked.evaluate or asked.unhold or asked.resume):
        if chosen or asked.when:
            raise UsageError("--ranks and --when go with --hold, --step, --evaluate or --resume.")
        return False
    if asked.unhold:
        job.unhold()
    if asked.hold:
        where: Any = {"exception": True} if asked.hold == "exception" else {"before": asked.hold}
        holding = job.hold(**where, **chosen, when=asked.when)
        show(str(holding))
        holding.wait(asked.timeout)
    if asked.step:
        how = {"how": asked.step} if asked.step in HOW else {"to": asked.step}
        job.step(**how, **chosen, timeout=asked.timeout)
    if asked.evaluate:
        show(str(job.evaluate(asked.evaluate, **chosen)))
    if asked.resume:
        job.resume(**chosen)
    show(str(job.status()))
    return True
