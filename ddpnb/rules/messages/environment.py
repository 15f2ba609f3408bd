"""DDP101, 106, 109: how a process is started: its environment, its backend, its parent."""

from __future__ import annotations

import re

from ddpnb.rules.messages.explained import Explained, Raised

_VARIABLES = (
    r"(RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_RANK|NODE_RANK|MASTER_ADDR|MASTER_PORT"
    r"|SLURM_[A-Z_]{1,30}|OMPI_COMM_WORLD_[A-Z_]{1,20}|PMI_(?:RANK|SIZE))"
)
_LAUNCHER = (
    "Start the script with a launcher, which sets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for every "
    "process: torchrun --nproc-per-node=2 train.py (or ddpnb run -n 2 train.py)."
)
_ENVIRONMENT_OF = re.compile(rf"(?:environ|getenv|_get_env)[^\n]{{0,60}}?[\"']{_VARIABLES}[\"']")
_NOT_SET = re.compile(r"environment variable (\w{1,60}) expected, but not set")
_PARAMETER = re.compile(
    r"Error initializing torch\.distributed using \w{1,20}:// rendezvous: ([\w ]{1,30}) parameter missing"
)
_LITERAL = re.compile(r"(?:invalid literal for int\(\) with base 10|could not convert string to float): (.{0,200})")
_PORT = re.compile(r"port must have value from 0 to 65535 but was (-?\d{1,20})")
_REPLICA = re.compile(r"Invalid rank (-?\d{1,9}), rank should be in the interval \[0, (-?\d{1,9})\]")


def environment(raised: Raised) -> Explained | None:
    text = raised.text
    if match := _NOT_SET.search(text):
        return _unset(match[1])
    if match := _PARAMETER.search(text):
        return Explained(
            "DDP101",
            f"init_process_group got an init_method without {match[1]}.",
            "Pass rank= and world_size= together with init_method, or leave all three to the launcher.",
        )
    if raised.exception in ("KeyError", "") and (match := re.fullmatch(rf"(?:KeyError: )?'{_VARIABLES}'", text)):
        return _unset(match[1])
    used = _ENVIRONMENT_OF.search(raised.user_line) or _ENVIRONMENT_OF.search(_last_line(raised))
    if raised.exception == "TypeError" and used and "not 'NoneType'" in text:
        return _unset(used[1])
    if raised.exception == "ValueError" and (match := _LITERAL.fullmatch(text)):
        name = used[1] if used else "RANK (or WORLD_SIZE, MASTER_PORT)" if _in_rendezvous(raised) else ""
        return _unreadable(name, match[1].strip("'")) if name else None
    if match := _PORT.search(text):
        return _unreadable("MASTER_PORT", match[1], "a port (0 to 65535)")
    if "TCPStore world size cannot be 0" in text:
        return _unreadable("WORLD_SIZE", "0", "a number of ranks")
    if match := _REPLICA.search(text):
        return Explained(
            "DDP101",
            f"The sampler got rank {match[1]} of {int(match[2]) + 1} replicas: the rank is out of range.",
            "Leave num_replicas and rank of DistributedSampler to the process group, or take both from the same "
            "source (RANK with WORLD_SIZE, never LOCAL_RANK with WORLD_SIZE).",
        )
    return None


def _in_rendezvous(raised: Raised) -> bool:
    return bool(raised.frames) and "distributed/rendezvous" in raised.frames[-1].file.replace("\\", "/")


def _last_line(raised: Raised) -> str:
    return raised.line(raised.frames[-1]) if _in_rendezvous(raised) else ""


def _unset(name: str) -> Explained:
    return Explained("DDP101", f"The environment variable {name} is not set.", _LAUNCHER)


def _unreadable(name: str, value: str, wanted: str = "a number") -> Explained:
    return Explained(
        "DDP101",
        f"The environment has {name}={value!r}, but {wanted} is required.",
        "Correct it where it is set (job script, container, .env file), or let the launcher set it.",
    )


_NOT_BUILT = re.compile(r"Distributed package doesn't have (\w{1,20}) ?built.in")
_UNKNOWN = re.compile(
    r"(?:Unknown (?:c10d )?backend(?: type)?|Invalid backend:?) '?(\w{1,40})|Unsupported distributed backend:? '?(\w{1,40})"
)
_NO_BACKEND = re.compile(r"No backend type associated with device type (\w{1,20})")


def backend(raised: Raised) -> Explained | None:
    text = raised.text
    if match := _NOT_BUILT.search(text):
        name = match[1].strip().lower()
        return Explained(
            "DDP106",
            f"This build of torch has no {name} backend.",
            'dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo") on every rank'
            + (", or install the CUDA build of torch." if name == "nccl" else "."),
        )
    if "ProcessGroupNCCL is only supported with GPUs" in text or "nccl2 requires at least one CUDA device" in text:
        return Explained(
            "DDP106",
            "The backend is nccl, but this process sees no GPU.",
            'Use gloo where there is no GPU: dist.init_process_group("nccl" if torch.cuda.is_available() else '
            '"gloo"); or make sure that CUDA_VISIBLE_DEVICES is not empty.',
        )
    if (match := _UNKNOWN.search(text)) and (raised.exception in ("", "AssertionError", "ValueError", "RuntimeError")):
        name = (match[1] or match[2]).lower()
        return Explained(
            "DDP106",
            f"There is no backend {name} in this build of torch.",
            "Use gloo (CPU), nccl (NVIDIA and AMD GPUs), xccl (Intel GPUs) or mpi, as the build has them.",
        )
    if (match := _NO_BACKEND.search(text)) and match[1] != "cpu":
        return Explained(
            "DDP106",
            f"The group has no backend for tensors on {match[1]}.",
            'Create the group for both kinds of tensors: dist.init_process_group("cpu:gloo,cuda:nccl").',
        )
    if "Torch not compiled with CUDA enabled" in text:
        return Explained(
            "DDP106",
            "This build of torch has no CUDA support.",
            "Install the CUDA build of torch, or choose the device with "
            '"cuda" if torch.cuda.is_available() else "cpu".',
        )
    return None


def forked(raised: Raised) -> Explained | None:
    """DDP109: what a forked child cannot do."""
    if "Cannot re-initialize CUDA in forked subprocess" in raised.text:
        what = "A forked child uses CUDA, which its parent had initialised."
    elif "Unable to handle autograd's threading in combination with fork" in raised.text:
        what = "A forked child runs a backward pass, and so did its parent before the fork."
    else:
        return None
    return Explained(
        "DDP109",
        what,
        'Spawn the child instead: multiprocessing.get_context("spawn"), or DataLoader(..., '
        'multiprocessing_context="spawn"); and use devices and process groups in the parent only.',
    )


RULES = (environment, backend, forked)
