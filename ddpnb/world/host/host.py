"""All checks of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial

from ddpnb.recording.checks import SECTIONS, Check
from ddpnb.world.host import gpus, kernel_log, network, ports, resources, software, variables


def checks(ranks: int) -> list[Check]:
    """Check this machine for this number of ranks, in the order of the sections.

    It runs dmesg or journalctl, and asks NVML, where they are. A check that fails itself is unknown; the others follow.
    """
    environment = dict(os.environ)
    parts: dict[str, Callable[[], Sequence[Check]]] = {
        "system": software.checks,
        "variables": partial(variables.checks, environment),
        "resources": partial(resources.checks, ranks, environment),
        "kernel log": kernel_log.checks,
        "network": partial(network.checks, environment),
        "ports": partial(ports.checks, environment),
        "GPUs": gpus.checks,
    }
    found: list[Check] = []
    for name, part in parts.items():
        try:
            found += part()
        except Exception as error:  # what a system answers may be anything
            found.append(Check(name, "unknown", f"this check failed: {type(error).__name__}: {error}"))
    return sorted(found, key=lambda check: SECTIONS.index(check.section))
