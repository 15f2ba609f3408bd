"""DDP201-208: where tensors are, how much memory there was, what the device itself says."""

from __future__ import annotations

import re

from ddpnb.rules.messages.explained import Explained, Raised, size

_DUPLICATE = re.compile(r"Duplicate GPU detected ?: rank (\d{1,9}) and rank (\d{1,9}) both on CUDA device (\w{1,20})")
_OWN_GPU = (
    'Give each rank its own GPU: torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before the first use of CUDA, '
    "and no more processes on a machine than it has GPUs."
)


def shared(raised: Raised) -> Explained | None:
    if match := _DUPLICATE.search(raised.text):
        first, second = sorted((int(match[1]), int(match[2])))
        return Explained(
            "DDP201",
            f"Ranks {first} and {second} use the same GPU (bus id {match[3]}).",
            _OWN_GPU,
            culprits=(first, second),
        )
    return None


_TWO_DEVICES = (
    re.compile(
        r"Expected all tensors to be on the same device, but found at least two devices, ([\w:]{1,20}) and ([\w:]{1,20})!"
    ),
    re.compile(
        r"Expected all tensors to be on the same device, but got [\w ]{1,60}? is on ([\w:]{1,20}), different from other "
        r"tensors on ([\w:]{1,20})"
    ),
    re.compile(r"Tensor on device ([\w:]{1,20}) is not on the expected device ([\w:]{1,20})!"),
    re.compile(r"module must have its parameters and buffers on device ([\w:]{1,20}) .{0,60}?on device: ([\w:]{1,20})"),
)
_ONE_TYPE = re.compile(r"must be on the same type of devices, but input module parameters locate in \{([^}]{1,100})\}")
_INPUT_TYPE = re.compile(r"Input type \(([\w.]{1,60})\) and (?:weight|bias) type \(([\w.]{1,60})\) should be the same")


def wrong_device(raised: Raised) -> Explained | None:
    text = raised.text
    for pattern in _TWO_DEVICES:
        if match := pattern.search(text):
            return _apart(match[1].rstrip(":"), match[2].rstrip(":"))
    if match := _INPUT_TYPE.search(text):
        kinds = ["cuda" if "cuda" in name else "cpu" for name in (match[1], match[2])]
        return _apart(*kinds) if kinds[0] != kinds[1] else None
    if match := _ONE_TYPE.search(text):
        places = " and ".join(sorted(part.strip().strip("'\"") for part in match[1].split(",")))
        return Explained(
            "DDP202",
            f"The model's parameters are on different kinds of devices: {places}.",
            "Move the whole model to the rank's device before wrapping: model.to(device).",
            _meta(places),
        )
    if "Tensor.item() cannot be called on meta tensors" in text and raised.passes("torch/nn/parallel/distributed"):
        return Explained(
            "DDP202",
            "The wrapped model has parameters on the meta device, where they have no values.",
            "Give them storage before wrapping: model.to_empty(device=device), then load or initialise them.",
        )
    return None


def _apart(device: str, other: str) -> Explained:
    return Explained(
        "DDP202",
        f"One operation got tensors on {device} and on {other}.",
        "Move model and batch to the rank's device: model.to(device), batch.to(device, non_blocking=True). Create tensors "
        "in forward on the device of their input (torch.zeros(..., device=x.device)); register constants of a module as "
        "buffers (register_buffer), which move with it.",
        _meta(f"{device} {other}"),
    )


def _meta(devices: str) -> tuple[str, ...]:
    return ("Tensors on meta have a shape, but no values: use to_empty, then load them.",) if "meta" in devices else ()


def host_tensor(raised: Raised) -> Explained | None:
    text = raised.text
    if "No backend type associated with device type cpu" in text or re.search(r"Tensors? must be CUDA and dense", text):
        return Explained(
            "DDP203",
            "A CPU tensor was passed to a process group that supports only GPU tensors.",
            'Move it first (tensor.to(device)), or create the group for both: dist.init_process_group("cpu:gloo,cuda:nccl").',
        )
    return None


_IDS = re.compile(
    r"but got device_ids ([^\n]{1,80}?), output_device ([^\n]{1,40}?), and module parameters \{([^}\n]{1,200})\}"
)


def device_ids(raised: Raised) -> Explained | None:
    text = raised.text
    remedy = (
        "DistributedDataParallel(model.to(device), device_ids=[local_rank]) for one GPU per rank; no device_ids for a "
        "model on the CPU or on several GPUs."
    )
    if "device_ids can only be None or contain a single element" in text:
        return Explained("DDP204", "DistributedDataParallel got several device_ids: a rank uses one GPU.", remedy)
    if "device_ids and output_device arguments only work with" in text:
        match = _IDS.search(text)
        places = sorted(set(re.findall(r"type='(\w{1,20})'(?:, index=(\d{1,4}))?", match[3]))) if match else []
        on = " and ".join(kind + (f":{index}" if index else "") for kind, index in places)
        said = f"device_ids={match[1]}" if match else "device_ids"
        return Explained(
            "DDP204",
            f"DistributedDataParallel got {said}, but the model is on {on or 'another device'}.",
            remedy,
        )
    return None


_NO_DEVICE = re.compile(
    r"invalid device ordinal|No CUDA GPUs are available|no CUDA-capable device is detected|Invalid device id"
    r"|No HIP GPUs are available"
)


def visible(raised: Raised) -> Explained | None:
    if match := _NO_DEVICE.search(raised.text):
        none = "No " in match[0] or "no CUDA" in match[0]
        return Explained(
            "DDP208",
            "This process sees no GPU at all." if none else "This process requested a GPU index that it does not see.",
            "Compare torch.cuda.device_count() with LOCAL_RANK: CUDA_VISIBLE_DEVICES must list as many GPUs as there are "
            "processes on this machine, and be set before CUDA is first used. Devices are counted from 0 among those listed.",
        )
    return None


_NO_DRIVER = re.compile(
    r"Found no NVIDIA driver on your system|CUDA driver initialization failed, you might not have a CUDA gpu"
)
_OLD_DRIVER = re.compile(
    r"NVIDIA driver on your system is too old(?: \(found version (\d{4,6})\))?"
    r"|CUDA driver version is insufficient for CUDA runtime version"
)
_UNUSABLE = re.compile(
    r"CUDA unknown error - this may be due to an incorrectly set up environment|Error 802: system not yet initialized"
    r"|system not yet initialized"
)
_NO_KERNELS = re.compile(r"no kernel image is available for execution on the device")
_CHECK = "Until then, gloo runs on CPUs."


def driver(raised: Raised) -> Explained | None:
    """DDP208: a GPU that cannot be used, whatever the program does."""
    text = raised.text
    if _NO_DRIVER.search(text):
        return Explained(
            "DDP208",
            "This torch was built for CUDA, and there is no working NVIDIA driver.",
            "Install or load the driver (nvidia-smi must list the GPUs); a container must be given them (docker run --gpus "
            f"all, the NVIDIA container toolkit). {_CHECK}",
        )
    if match := _OLD_DRIVER.search(text):
        number = int(match[1] or 0)  # 12020
        newest = f"CUDA {number // 1000}.{number % 1000 // 10}" if number else "an older CUDA"
        return Explained(
            "DDP208",
            f"The NVIDIA driver is too old for this torch: it runs {newest}.",
            f"Update the driver, or install a build of torch for {newest} (pytorch.org). {_CHECK}",
        )
    if _UNUSABLE.search(text):
        return Explained(
            "DDP208",
            "The NVIDIA driver is there, and CUDA cannot be used.",
            "Check nvidia-smi and the kernel log (sudo dmesg -T | grep -iE 'nvrm|xid'); load nvidia-uvm; machines with "
            "NVSwitch need the fabric manager (systemctl status nvidia-fabricmanager). Set CUDA_VISIBLE_DEVICES before the "
            f"program starts, and only to GPUs that are there. {_CHECK}",
        )
    if _NO_KERNELS.search(text):
        return Explained(
            "DDP208",
            "This build of torch has no kernels for this GPU.",
            "Compare torch.cuda.get_arch_list() with torch.cuda.get_device_capability(), and install a build for this "
            "architecture (pytorch.org).",
        )
    return None


_OUT_OF_MEMORY = re.compile(
    r"\b(CUDA|HIP|XPU|NPU|MPS)(?: backend)? out of memory\b|CUDA error: out of memory|[Cc]uda failure(?: 2)? '?out of memory"
)
_QUANTITY = r"(\d{1,12}(?:\.\d{1,4})? ?(?:bytes|[KMGT]i?B))"
_ASKED = re.compile(rf"Tried to allocate (?:more than )?{_QUANTITY}")
_FREE = re.compile(rf"of which {_QUANTITY} is free|{_QUANTITY} free")
_TOTAL = re.compile(rf"total capac(?:i)?ty of {_QUANTITY}|{_QUANTITY} total capacity")
_HELD = re.compile(rf"{_QUANTITY} (?:is allocated by PyTorch|already allocated)")
_IDLE = re.compile(rf"{_QUANTITY} is reserved by PyTorch but unallocated")
_GPU = re.compile(r"\(?GPU (\d{1,4})\b")
_OTHERS = re.compile(rf"Process (\d{{1,10}}) has {_QUANTITY} memory in use")
_HOST = re.compile(
    r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate (\d{1,25}) bytes"
)
_NUMPY = re.compile(r"Unable to allocate ([\d.]{1,20} [KMGTPE]iB) for an array with shape (\([\d, ]{1,200}\))")
_LESS = (
    "Smaller batches with gradient accumulation, torch.utils.checkpoint, mixed precision, or sharding (FSDP); under "
    "torch.no_grad() nothing is kept for backward. If only one rank runs out, look at what only it holds: a longer "
    "sample, outputs kept from step to step (loss.item()), everything loaded with map_location to its device."
)


def memory(raised: Raised) -> Explained | None:
    text = raised.text
    if match := _HOST.search(text):
        return _host_memory(size(int(match[1])))
    if match := _NUMPY.search(text):
        return _host_memory(match[1], (f"The array would have the shape {match[2]}.",))
    if raised.exception == "MemoryError":
        return _host_memory("")
    if "CUBLAS_STATUS_ALLOC_FAILED" in text or "CUDNN_STATUS_ALLOC_FAILED" in text:
        return Explained("DDP205", "The GPU had no memory left for a library's workspace.", _LESS)
    if not _OUT_OF_MEMORY.search(text):
        return None
    asked, free, total, held, idle = (_first(p, text) for p in (_ASKED, _FREE, _TOTAL, _HELD, _IDLE))
    gpu = _GPU.search(text)
    device = f"GPU {gpu[1]}" if gpu else "The device"
    summary = f"{device} is out of memory"
    if asked:
        summary += (
            f": {asked} more were requested"
            + (f", {free} were free" if free else "")
            + (f" of {total}" if total else "")
        )
    evidence = [f"This process's tensors hold {held}." if held else ""]
    evidence += [
        f"{idle} are reserved but unused (fragmentation): try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
        if idle and _large(idle)
        else ""
    ]
    evidence += [f"Process {pid} holds {much} of the same GPU." for pid, much in _OTHERS.findall(text)[:4]]
    return Explained("DDP205", summary + ".", _LESS, tuple(filter(None, evidence)))


def _host_memory(asked: str, evidence: tuple[str, ...] = ()) -> Explained:
    return Explained(
        "DDP205",
        "Out of CPU memory" + (f": one allocation requested {asked}." if asked else "."),
        "Look at where the size comes from: a length or an index from the data, a dense pairwise matrix, one-hot vectors. "
        "All ranks of a machine share its memory, and so does a container's limit.",
        evidence,
    )


def _first(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return next(filter(None, match.groups()), "") if match else ""


def _large(quantity: str) -> bool:
    return quantity.endswith("GiB") or (quantity.endswith("MiB") and float(quantity.partition(" ")[0]) >= 512)


XID = re.compile(r"NVRM: Xid \(PCI:([\w:.]{1,20})\): (\d{1,4})")
XIDS = {
    13: "a kernel of the program made an illegal access",
    31: "a kernel of the program accessed memory that it does not own",
    48: "its memory has an error that cannot be corrected (ECC)",
    63: "a page of its memory was retired or remapped",
    64: "a page of its memory could not be retired",
    74: "a link to another GPU (NVLink) failed",
    79: "it has fallen off the bus",
    92: "its memory has many corrected errors",
    94: "its memory has an error that cannot be corrected (ECC), within one process",
    95: "its memory has an error that cannot be corrected (ECC)",
    119: "its own processor (GSP) does not answer",
    120: "its own processor (GSP) failed",
}
PROGRAMS = (13, 31)
_BROKEN = re.compile(
    r"uncorrectable ECC error|GPU has fallen off the bus|GPU is lost|uncorrectable NVLink error"
    r"|Invalid access of peer GPU memory over nvlink or a hardware error|hardware stack error"
)


_DIAGNOSIS = re.compile(
    r"NCCL DIAG \[INFO\] {0,4}(?:p2p: (read|write) mismatch srcRank=(\d{1,7}) .{0,80}?dstRank=(\d{1,7}) .{0,80}?path=(\w{1,20})"
    r"|(ECC: uncorrected volatile errors|NVLink: inactive link\(s\)) on rank\(s\) \{([\d,. ]{1,200})\}?)"
)


def fault(raised: Raised) -> Explained | None:
    """DDP206. A plain illegal access is the program's error, and no rule matches it."""
    replace = (
        "Stop using the GPU (nvidia-smi -q -d ECC,ROW_REMAPPER; reset or reboot the node, and report it if it happens "
        "again), and resume from the last checkpoint."
    )
    if match := XID.search(raised.text):
        number = int(match[2])
        what = XIDS.get(number, "see NVIDIA's list of Xid errors")
        remedy = replace
        if number in PROGRAMS:
            remedy = (
                "Run again with CUDA_LAUNCH_BLOCKING=1 to see the operation; try another GPU to rule out the device."
            )
        return Explained("DDP206", f"The driver reports Xid {number} for the GPU at {match[1]}: {what}.", remedy)
    if match := _DIAGNOSIS.search(raised.text):
        what = (
            f"{match[5]} on ranks {match[6]} of a communicator"
            if match[5]
            else (
                f"wrong data over the link ({match[4]}) between the GPUs of ranks {match[2]} and {match[3]} of a communicator"
            )
        )
        return Explained("DDP206", f"NCCL's diagnostics found {what}.", replace)
    if match := _BROKEN.search(raised.text):
        return Explained("DDP206", f"The GPU itself failed: {match[0]}.", replace)
    return None


RULES = (shared, wrong_device, host_tensor, device_ids, driver, visible, memory, fault)
