"""``ddpnb scan``: the collectives of a script and its modules, and which of them some ranks may not call."""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import sys
import tokenize
from collections.abc import Iterator, Mapping
from typing import Any

from ddpnb.cli import claim, show
from ddpnb.errors import UsageError
from ddpnb.recording.files import similar, write_whole

HELP = "find collectives that some ranks may not call, by static analysis of the source"
_LARGEST = 2 << 20  # bytes of a file
_MOST = 1000  # files
_MARKERS = ("pyproject.toml", "setup.py", "setup.cfg", ".git", ".hg")
_NOT_OURS = frozenset({"site-packages", "dist-packages", "node_modules", "__pycache__"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ddpnb scan [options] SCRIPT...\n       ddpnb scan --run N [options] SCRIPT [-- ARGS...]"
    parser.epilog = (
        "The result is inferred from the source alone. Exit status: 0 whatever it finds; 1 failure; 2 usage error."
    )
    parser.add_argument("--all", action="store_true", help="also list the collectives that all ranks call")
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON")
    parser.add_argument(
        "--run", type=int, metavar="N", help="also run the script on N local ranks and count the calls of each rank"
    )
    parser.add_argument("--backend", metavar="B", help="with --run: nccl or gloo")
    parser.add_argument("scripts", metavar="SCRIPT", nargs="+", help="training script; with --run also its arguments")


def run(arguments: argparse.Namespace) -> int:
    """Scan the scripts; returns the exit status."""
    from ddpnb.render.terminal import wants_colour
    from ddpnb.studies.scan import text as rendered
    from ddpnb.studies.scan.scan import scan

    if arguments.run is not None and arguments.run < 1:
        raise UsageError(f"--run needs a number of ranks, not {arguments.run}.")
    given = arguments.scripts if arguments.run is None else arguments.scripts[:1]
    scripts = [_checked(path) for path in dict.fromkeys(given)]
    claim(arguments.json)
    result = scan(Files(scripts), scripts)
    show(rendered.scan(result, everything=arguments.all, colour=wants_colour(sys.stdout)))
    report = rendered.to_json(result)
    if arguments.run is not None:
        show("")
        report["run"] = _counted(result, arguments)
    if arguments.json is not None:
        write_whole(arguments.json, json.dumps(report, indent=1) + "\n")
    return 0


def _counted(result: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the script and count how often each rank calls each collective."""
    from ddpnb.studies.scan import text as rendered
    from ddpnb.studies.scan.tally import joined, tally
    from ddpnb.world.launching import launch

    with launch(arguments.run, backend=arguments.backend) as world:
        going = world.run(arguments.scripts[0], *arguments.scripts[1:], leave_after_crash=True)
        going.wait()
        recording, outcome = going.recording, going.outcome
    if recording is None:
        raise UsageError("the run produced no recording.")
    counted = tally(recording)
    rows = joined(result.sites, counted.counts, counted.members)
    show("\n" + rendered.counts(rows, recording.world_size, whole=counted.whole, outcome=outcome))
    if outcome != "ok":
        show(f"To diagnose this outcome ({outcome}): ddpnb run -n {arguments.run} {shlex.join(arguments.scripts)}")
    return {"outcome": outcome, "world_size": recording.world_size, "whole": counted.whole,
            "counts": rendered.counts_json(rows)}  # fmt: skip


def _checked(path: str) -> str:
    """The absolute path of a script that can be read.

    Raises:
        UsageError: it does not exist, is a folder, is too large or cannot be read.
    """
    hint = f"The working directory is {os.getcwd()}."
    if os.path.isdir(path):
        raise UsageError(f"{path!r} is a folder.", "Name the script or scripts to start from.")
    if not os.path.isfile(path):
        raise UsageError(f"the script {path!r} does not exist.", similar(path, hint))
    if not os.access(path, os.R_OK):
        raise UsageError(f"the script {path!r} cannot be read.", "Check its permissions.")
    if os.path.getsize(path) > _LARGEST:
        raise UsageError(f"the script {path!r} is larger than {_LARGEST >> 20} MiB.", "Is it a script?")
    return os.path.abspath(path)


class Files(Mapping[str, str]):
    """The Python files of the scripts' project, read when they are asked for.

    The project is what lies under the folder of a script, or under the nearest folder above it that
    looks like the root of a project; installed packages and environments within are not part of it.
    """

    def __init__(self, scripts: list[str]) -> None:
        self._texts: dict[str, str | None] = {}
        self._count = 0
        self._folders = {_root(os.path.dirname(script)): True for script in scripts}  # whether they are the project's

    def __getitem__(self, path: str) -> str:
        if path not in self._texts:
            known = self._count < _MOST and os.path.isfile(path) and self._is_own(os.path.dirname(path))
            self._texts[path] = _text(path) if known else None
            self._count += self._texts[path] is not None
        text = self._texts[path]
        if text is None:
            raise KeyError(path)
        return text

    def __iter__(self) -> Iterator[str]:
        return (path for path, text in self._texts.items() if text is not None)

    def __len__(self) -> int:
        return self._count

    def _is_own(self, folder: str) -> bool:
        if folder not in self._folders:
            installed = os.path.basename(folder) in _NOT_OURS or os.path.exists(os.path.join(folder, "pyvenv.cfg"))
            above = os.path.dirname(folder)
            self._folders[folder] = not installed and above != folder and self._is_own(above)
        return self._folders[folder]


def _root(folder: str) -> str:
    """The nearest folder that looks like a project's root; without one, the folder above all packages."""
    here = folder
    for _ in range(6):
        if any(os.path.exists(os.path.join(here, marker)) for marker in _MARKERS):
            return here
        above = os.path.dirname(here)
        if above == here:
            break
        here = above
    while os.path.exists(os.path.join(folder, "__init__.py")):
        folder = os.path.dirname(folder)
    return folder


def _text(path: str) -> str | None:
    """A file as Python would read it; None if it is too large or cannot be read."""
    try:
        if os.path.getsize(path) > _LARGEST:
            return None
        with open(path, "rb") as file:
            raw = file.read(_LARGEST + 1)
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        return io.TextIOWrapper(io.BytesIO(raw), encoding, errors="replace").read()
    except (OSError, SyntaxError, LookupError):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read(_LARGEST)
        except OSError:
            return None
