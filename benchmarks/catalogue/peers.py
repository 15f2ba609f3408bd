"""What plain PyTorch, and PyTorch with its own debugging switched on, say of the same scripts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.catalogue.cases import Case

RESULTS = Path(__file__).parent / "peers.json"
_LIMIT_S = 20
_ERROR = re.compile(r"^(?:\[rank\d+\]: )?(\w*(?:Error|Exception|Interrupt)\b.*)$", re.MULTILINE)


def run_peers(chosen: list[Case]) -> None:
    """Run every case under torchrun, plain and with DETAIL, and keep what happened."""
    known: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for case in chosen:
        told = {
            "plain": _torchrun(case, {}),
            "detail": _torchrun(case, {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
        }
        known[case.name] = told
        print(f"{case.name:48} plain: {told['plain'][:40]:40} DETAIL: {told['detail'][:60]}", flush=True)
        RESULTS.write_text(json.dumps(known, indent=0, sort_keys=True))


def _torchrun(case: Case, more: dict[str, str]) -> str:
    """``silent``, ``hang``, ``abort`` or the first error's line."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **case.environment, **more}
    torchrun = Path(sys.executable).parent / "torchrun"
    process = subprocess.Popen(
        [torchrun, "--standalone", "--nproc-per-node", str(case.ranks[0]), case.path],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment,
        start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "hang"
    if process.returncode == 0:
        return "silent"
    errors = [line for line in _ERROR.findall(output) if "ChildFailedError" not in line]
    signals = re.search(r"Signal \d+ \((\w+)\)", output)
    return errors[0][:200] if errors else f"abort {signals.group(1) if signals else process.returncode}"
