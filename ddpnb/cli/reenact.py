"""``ddpnb reenact``: a recorded hang again, on live ranks."""

from __future__ import annotations

import argparse
import sys

HELP = "re-enact a recorded hang on live ranks of this machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ddpnb reenact [options] PATH..."
    parser.epilog = (
        "The ranks make the calls of the recording, in its order, with small tensors on the CPU. exit status: as for ddpnb run: 3 "
        "a hang or mismatch; 0 the ranks completed; 2 usage error, or nothing to re-enact; that of the script if it crashed"
    )
    add_reports(parser)
    parser.add_argument("--keep", action="store_true", help="leave the ranks alive, until Ctrl-C, to look at them")
    parser.add_argument("--json", metavar="FILE", help="write the diagnosis of the live ranks as JSON")
    parser.add_argument("--save", metavar="FILE", help="write a recording of the live ranks, which ddpnb.load() reads")


def add_reports(parser: argparse.ArgumentParser) -> None:
    """The recording, and on how many ranks."""
    parser.add_argument(
        "-n", "--ranks", type=int, default=8, metavar="N",
        help="at most so many ranks; a larger job is represented by a few ranks of each kind (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("paths", nargs="+", metavar="PATH", help="what ddpnb.load() reads")


def run(arguments: argparse.Namespace) -> int:
    """Re-enact it; returns the exit status."""
    from contextlib import ExitStack

    from ddpnb import interrupts
    from ddpnb.cli import say, show
    from ddpnb.cli.run import claim_results, save
    from ddpnb.reenacting import reenact
    from ddpnb.render import reenactment as render
    from ddpnb.render.terminal import wants_colour

    claim_results(arguments)
    with ExitStack() as stack:
        with interrupts.put_off():  # once ranks run, they are ended
            live = stack.enter_context(reenact(arguments.paths, ranks=arguments.ranks, wait=False))
        live.wait()
        status = save(live.run.diagnosis, arguments.json, live.run.exit_status)
        status = save(live.run.recording or live.world.snapshot(), arguments.save, status)
        show(render.text(live.plan, live.agreement, live.run.diagnosis, colour=wants_colour(sys.stdout)))
        if arguments.keep and live.run.outcome == "hang":
            say(f"the ranks are kept; they run {live.script}. Look at one: ddpnb attach {live.world.pids()[0]}")
            say("They end with Ctrl-C here.")
            live.wait_for_interrupt()
        return status
