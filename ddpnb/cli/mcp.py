"""``ddpnb mcp``: the verbs of the debugger as tools for an agent."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from ddpnb import __version__
from ddpnb.cli import show
from ddpnb.errors import UsageError

HELP = "serve the debugger's verbs to an agent, by the Model Context Protocol (MCP)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ddpnb mcp [--control] [--evaluate] | ddpnb mcp --skill"
    parser.epilog = (
        "The server speaks MCP on its standard input and output: an agent's configuration starts it. It only looks, unless it is "
        "started with --control. What it starts ends with it. exit status: 0 the client is gone; 2 usage error, or the "
        "package mcp is not installed"
    )
    parser.add_argument(
        "--control", action="store_true", help="the agent may also run, hold, step, release and bisect jobs"
    )
    parser.add_argument(
        "--evaluate", action="store_true", help="expressions of the agent may run on ranks, with all their side effects"
    )
    parser.add_argument(
        "--skill", action="store_true", help="print the order of questions as a skill file for agents, and exit"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until the client goes away; returns the exit status."""
    if arguments.skill:
        from ddpnb.agents.skill import skill

        show(skill())
        return 0
    if find_spec("mcp") is None:
        raise UsageError("ddpnb mcp needs the package mcp.", 'Install it: pip install "ddpnb[mcp]"')
    from ddpnb.agents.server import serve

    serve(control=arguments.control, evaluate=arguments.evaluate, version=__version__)
    return 0
