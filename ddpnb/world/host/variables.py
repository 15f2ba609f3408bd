"""The environment variables that matter to a distributed run."""

from __future__ import annotations

from collections.abc import Mapping

from ddpnb.recording import protocol
from ddpnb.recording.checks import Check
from ddpnb.rules.environment import variables as rules
from ddpnb.rules.environment.variables import DEPRECATED_VARIABLE
from ddpnb.texts import shortened

_MORE = (
    "TP_",
    "TORCHELASTIC_",
    "UCX_",
    "FI_",
    "OMPI_COMM_WORLD_",
    "PMI_",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
)
_SLURM = frozenset(
    f"SLURM_{name}"
    for name in (
        "JOB_ID", "JOB_NODELIST", "JOB_NUM_NODES", "NNODES", "NODELIST", "NODEID", "NTASKS", "NTASKS_PER_NODE", "NPROCS", "PROCID",
        "LOCALID", "CPUS_PER_TASK", "GPUS_ON_NODE", "GPUS_PER_TASK", "STEP_GPUS", "JOB_GPUS", "LAUNCH_NODE_IPADDR", "GPU_BIND",
    )
)  # fmt: skip
_RENDEZVOUS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_SHOWN, _LONGEST, _MOST = 6, 40, 200
_SECTION = "environment variables"


def those_that_matter(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables by name, bounded."""
    beginnings = (*protocol.ENVIRONMENT, *_MORE)
    chosen = sorted(name for name in variables if name.startswith(beginnings) or name in _SLURM)
    return {name: variables[name][:1000] for name in chosen[:_MOST]}


def checks(variables: Mapping[str, str]) -> list[Check]:
    """What is set, what is missing, and what is renamed, contradictory or dangerous (DDP703)."""
    chosen = those_that_matter(variables)
    shown = [shortened(f"{name}={value}", _LONGEST) for name, value in list(chosen.items())[:_SHOWN]]
    more = f" and {len(chosen) - _SHOWN} more" if len(chosen) > _SHOWN else ""
    told = f"{len(chosen)} set: {', '.join(shown)}{more}" if chosen else "none is set that matters to a distributed run"
    found = [Check("variables", "ok", told, section=_SECTION, details=chosen)]
    for name, value in chosen.items():
        said = rules.says(name, value, chosen)
        if said is not None:
            text = f"{said[0]} (its value: {shortened(value, _LONGEST)})"
            found.append(Check(name, "warning", text, DEPRECATED_VARIABLE.code, _SECTION, said[1], {name: value}))
    missing = [name for name in _RENDEZVOUS if not variables.get(name)]
    if missing and variables.get("RANK"):
        told = f"RANK is set, but not {', '.join(missing)}: init_process_group() by the environment fails"
        todo = "Start the script with torchrun or ddpnb run, which set all of them, or unset RANK."
        found.append(Check("rendezvous", "warning", told, "DDP101", _SECTION, todo))
    return found


def several_hosts(variables: Mapping[str, str]) -> bool:
    """Whether the job that these variables describe has ranks on other machines too."""

    def number(name: str) -> int:
        value = variables.get(name, "")
        return int(value) if value.isdecimal() else 0

    local = number("LOCAL_WORLD_SIZE")
    nodes = max(map(number, ("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "GROUP_WORLD_SIZE")))
    return nodes > 1 or 0 < local < number("WORLD_SIZE")
