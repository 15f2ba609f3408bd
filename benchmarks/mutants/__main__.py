"""Which tests find small mistakes: ``python -m benchmarks.mutants [--lane fast] [--near] [--only NAME] [--json FILE]``.

Each mistake of ``mutants.py`` is made in a copy of the working tree, with an environment of its own, so that ranks import
that copy too. First the tests run that are near to it, then the others: in the fast lane (``pytest``), and where that
finds nothing in the full lane (``pytest --full``). A test counts only if it passes without the mistake. One that does
not end counts, and is marked. A whole lane takes minutes: most mistakes are found by the near tests.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.mutants.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
LANES: dict[str, list[str]] = {"fast": [], "full": ["--full"]}
LIMIT_S = 3600.0  # of one pytest
#: fails in each copy with a mistake
CHECK = "tests/test_benchmarks.py::test_each_mutant_fits_the_source"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - (.*))?$", re.MULTILINE)
_MARK = "MUTANTS_COPY"  # in the environment of all that a run starts


@dataclass(frozen=True)
class Result:
    """What found a mistake; ``lane`` is empty if nothing did."""

    name: str
    file: str
    lane: str = ""
    test: str = ""
    seconds: float = 0.0


def problems() -> list[str]:
    """What is wrong with the mistakes themselves: a text that is gone or not unique, tests that are gone."""
    found = [
        f"{name}: occurs twice" for name in {m.name for m in MUTANTS if [n.name for n in MUTANTS].count(m.name) > 1}
    ]
    for mutant in MUTANTS:
        count = (ROOT / "ddpnb" / mutant.file).read_text().count(mutant.old) if mutant.old else 0
        if count != 1 or mutant.old == mutant.new:
            found.append(f"{mutant.name}: its text occurs {count} times in ddpnb/{mutant.file}")
        found += [f"{mutant.name}: no tests/{one}" for one in mutant.near if not (ROOT / "tests" / one).exists()]
    return found


class Copy:
    """A copy of the working tree and of the environment, in a temporary folder."""

    def __init__(self, folder: str) -> None:
        self.root, self._log = Path(folder, "ddpnb"), Path(folder, "log")
        listed = subprocess.run(
            ["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        environment = self.root / ".venv"
        shutil.copytree(sys.prefix, environment, symlinks=True, copy_function=_link)
        site = next(environment.glob("lib/python*/site-packages"))
        for path in (environment / "pyvenv.cfg", *(environment / "bin").iterdir(), *site.glob("*.pth")):
            text = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            moved = text.replace(sys.prefix.encode(), bytes(environment)).replace(bytes(ROOT), bytes(self.root))
            if moved != text:  # a new file: the old one is shared
                path.with_suffix(".new").write_bytes(moved)
                path.with_suffix(".new").chmod(path.stat().st_mode)
                path.with_suffix(".new").replace(path)
        extension = environment / "share" / "jupyter" / "labextensions" / "ddpnb"
        shutil.rmtree(extension, ignore_errors=True)
        extension.symlink_to(self.root / "ddpnb" / "labextension")

    @contextmanager
    def mistaken(self, mutant: Mutant) -> Iterator[None]:
        """Inside, the copy has this mistake."""
        path = self.root / "ddpnb" / mutant.file
        text = path.read_text()
        try:
            path.write_text(text.replace(mutant.old, mutant.new))
            yield
        finally:
            path.write_text(text)

    def failing(self, *arguments: str) -> str:
        """The first test that fails; empty: none does."""
        command = [str(self.root / ".venv/bin/python"), "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        path = f"{self.root / '.venv/bin'}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "VIRTUAL_ENV": str(self.root / ".venv"), _MARK: str(self.root)}
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                [*command, "--deselect", CHECK, *arguments], cwd=self.root, env=environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                status = process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                self._end_all(process)
        said = self._log.read_text(errors="replace")
        if status in (0, 5):  # 5: no test was selected
            return ""
        if status == 4 or (status == 3 and "INTERNALERROR" not in said):
            raise SystemExit(f"pytest {' '.join(arguments)}:\n{said[-2000:]}")
        match = _FAILED.search(said)
        late = status is None or "Timeout" in (said if match is None else match[2] or "")
        return (match[1] if match else f"pytest ended with {status}") + (" (time-out)" if late else "")

    def _end_all(self, process: subprocess.Popen[bytes]) -> None:
        """End what the run has left: a mistake may leave anything."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for one in psutil.process_iter():
            with suppress(psutil.Error):
                if one.pid != os.getpid() and one.environ().get(_MARK) == str(self.root):
                    one.kill()
        process.wait()


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def found(copy: Copy, mutant: Mutant, lanes: Sequence[str], *, near_only: bool) -> Result:
    """Which test finds a mistake, and in which lane."""
    began = time.monotonic()
    near = [f"tests/{one}" for one in mutant.near]
    others = ["-n", "3", "--dist", "loadfile", *(f"--ignore={one}" for one in near)]
    stages = [(lane, where) for lane in lanes for where in ([near] if near_only else [near, others])]
    broken: list[str] = []  # tests that fail without the mistake too
    while stages:
        lane, where = stages[0]
        with copy.mistaken(mutant):
            test = copy.failing(*LANES[lane], *where, *(part for one in broken for part in ("--deselect", one)))
        name = test.removesuffix(" (time-out)")
        if not test:
            stages.pop(0)
        elif name.startswith("tests/") and copy.failing(*LANES[lane], name):
            print(f"{name} fails without a mistake: left out", file=sys.stderr, flush=True)
            broken.append(name)
        else:
            return Result(mutant.name, mutant.file, lane, test, round(time.monotonic() - began, 1))
    return Result(mutant.name, mutant.file, seconds=round(time.monotonic() - began, 1))


def summary(results: Sequence[Result]) -> str:
    """How many are found, by lane."""
    every, fast = [one for one in results if one.lane], [one for one in results if one.lane == "fast"]
    late = [one for one in every if one.test.endswith("(time-out)")]
    lines = [
        f"{len(results)} mistakes in {len({one.file.partition('/')[0] for one in results})} folders and files of ddpnb/",
        f"all lanes find {len(every)} ({100 * len(every) / max(1, len(results)):.0f} %), {len(late)} of them by a time-out",
        f"the fast lane finds {len(fast)}: {100 * len(fast) / max(1, len(every)):.0f} % of what all lanes find",
        *(f"not found: {one.name} (ddpnb/{one.file})" for one in results if not one.lane),
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only check that each mistake can be made")
    parser.add_argument(
        "--lane", choices=LANES, default="full", help="fast: that one alone (default: the full one too)"
    )
    parser.add_argument("--near", action="store_true", help="only the tests that are near to each mistake")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this mistake; may be given again")
    parser.add_argument("--json", type=Path, metavar="FILE", help="results; those that it has already are kept")
    arguments = parser.parse_args()
    if wrong := problems():
        print("\n".join(wrong), file=sys.stderr)
        return 1
    if arguments.check:
        return 0
    lanes = ["fast"] if arguments.lane == "fast" else list(LANES)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # with what it has started
    kept = arguments.json is not None and arguments.json.exists()
    results = [Result(**one) for one in json.loads(arguments.json.read_text())] if kept else []
    had = {one.name for one in results}
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        copy = Copy(folder)
        for mutant in MUTANTS:
            if mutant.name in had or (arguments.only and mutant.name not in arguments.only):
                continue
            results.append(found(copy, mutant, lanes, near_only=arguments.near))
            one = results[-1]
            print(f"{one.name:45} {one.lane or '-':5} {one.seconds:7.1f} s  {one.test or 'not found'}", flush=True)
            if arguments.json is not None:
                arguments.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
    print(summary(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
