"""``ddpnb export``: a recording as another file: a script that hangs as it does, a trace, a picture, a page."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpnb.recording.recording import Recording

HELP = "write a recording as a script that hangs as it does, a trace for Perfetto, a picture or an HTML page"
_PICTURES = (".png", ".svg", ".pdf")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from ddpnb.cli.reenact import add_reports

    parser.usage = "ddpnb export [options] PATH... -o FILE"
    parser.epilog = (
        "The end of FILE says what it becomes: .json or .json.gz a trace for ui.perfetto.dev; .png, .svg or .pdf the time line; "
        ".html a page to share; anything else a script for torchrun, without ddpnb. A page holds local variables, output and source: "
        "see SECURITY.md."
    )
    add_reports(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the file to write")
    parser.add_argument(
        "--timeout",
        type=int,
        default=90,
        metavar="S",
        help="of a script: seconds after which its calls give up, and it ends (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the file; returns the exit status."""
    from ddpnb.cli import say
    from ddpnb.recording.names import one_line
    from ddpnb.texts import shell_word

    path, name = arguments.output, one_line(arguments.output)
    kind = path.lower().removesuffix(".gz")
    if kind.endswith((".json", ".html", ".htm", *_PICTURES)):
        from ddpnb.world.loading import load

        recording = load(arguments.paths)
        if kind.endswith(".json"):
            recording.to_perfetto(path)
            say(f"wrote {name}. Open it in https://ui.perfetto.dev (it stays on this machine).")
        elif kind.endswith(_PICTURES):
            _draw(recording, path)
            say(f"wrote {name}.")
        else:
            recording.to_html(path)
            say(f"wrote {name}. It holds local variables, output and source: read it before you send it to somebody.")
        return 0
    from ddpnb.studies.reenactment.reenact import export

    size = export(arguments.paths, path, ranks=arguments.ranks, timeout=arguments.timeout)
    say(f"wrote {name}. Run it: torchrun --nproc-per-node {size} {shell_word(path)}")
    return 0


def _draw(recording: Recording, path: str) -> None:
    from ddpnb.recording.files import write_whole
    from ddpnb.render.figures import canvas

    write_whole(path, canvas.drawn(recording.plot(), canvas.kind_of(path)))
