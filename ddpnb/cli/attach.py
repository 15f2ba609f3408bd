"""``ddpnb attach``: list the jobs that run here, or say what the ranks of one are doing."""

from __future__ import annotations

import argparse

from ddpnb.cli import show

HELP = "list the jobs that run here with ddpnb, or show what the ranks of one are doing"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ddpnb attach [options] [FOLDER | PID]"
    parser.epilog = "exit status: 0; 2 there is no such job, or it belongs to another user; 3 the ranks hang"
    parser.add_argument("--json", metavar="FILE", help="write the diagnosis as JSON")
    parser.add_argument("--save", metavar="FILE", help="write a recording of the ranks, which ddpnb.load() reads")
    parser.add_argument(
        "--release", action="store_true", help="interrupt the ranks that hang: their program gets an exception"
    )
    parser.add_argument("--stacks", action="store_true", help="print the stack of each rank, with its variables")
    parser.add_argument("target", nargs="?", metavar="FOLDER|PID", help="as ddpnb attach lists them; none: list them")


def run(arguments: argparse.Namespace) -> int:
    """List the jobs, or show one; returns the exit status."""
    from ddpnb.cli import claim, say
    from ddpnb.cli.run import save, show_diagnosis
    from ddpnb.job import attach, jobs
    from ddpnb.render import stacks
    from ddpnb.views.merged_stacks import merge

    if arguments.target is None:
        found = jobs()
        for job in found:
            show(str(job))
        if not found:
            say("no job runs here with ddpnb. Start one: ddpnb run -- torchrun train.py")
        return 0
    claim(arguments.json, arguments.save)
    with attach(arguments.target) as job:
        recording = job.snapshot()
        diagnosis = job.diagnosis
        show(str(job.status()))
        if arguments.stacks:
            show(stacks.text(merge(recording)))
        show_diagnosis(diagnosis)
        status = 3 if diagnosis.outcome == "hang" else 0
        status = save(diagnosis, arguments.json, status)
        status = save(recording, arguments.save, status)
        if arguments.release:
            show(str(job.release()))
        return status
