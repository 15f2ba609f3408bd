from __future__ import annotations

import pytest

from ddpnb.rules.messages.explain import explain, explain_text
from tests.rules.messages.told import inside, told

OUT_2_13 = (
    "CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 31.47 GiB of which 12.73 GiB is free. "
    "Including non-PyTorch memory, this process has 18.73 GiB memory in use. Of the allocated memory 9.08 GiB is allocated by "
    "PyTorch, and 9.35 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
OUT_SHARED = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 1 has a total capacty of 23.65 GiB of which 11.06 MiB is free. "
    "Process 4711 has 12.10 GiB memory in use. Process 4712 has 11.40 GiB memory in use. Of the allocated memory 11.90 GiB is "
    "allocated by PyTorch, and 194.87 MiB is reserved by PyTorch but unallocated."
)
OUT_1_12 = (
    "CUDA out of memory. Tried to allocate 2.26 GiB (GPU 0; 6.00 GiB total capacity; 781.59 MiB already allocated; 3.03 GiB "
    "free; 1.24 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb"
)
IDS = (
    "DistributedDataParallel device_ids and output_device arguments only work with single-device/multiple-device GPU modules "
    "or CPU modules, but got device_ids [0], output_device None, and module parameters {device(type='cpu')}."
)


def test_two_ranks_on_one_gpu():
    found = told(
        "NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1691, invalid usage (run with NCCL_DEBUG=WARN for "
        "details), NCCL version 2.19.3\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\n"
        "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 2000",
        "DistBackendError",
    )
    assert (found.code, found.culprits) == ("DDP201", (0, 1))


@pytest.mark.parametrize(
    ("message", "one", "other"),
    [
        ("Tensor on device cpu is not on the expected device meta!", "cpu", "meta"),
        (
            "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! (when checking "
            "argument for argument mat1 in method wrapper_CUDA_addmm)",
            "cuda:0",
            "cpu",
        ),
        (
            "Expected all tensors to be on the same device, but got index is on cpu, different from other tensors on cuda:0 "
            "(when checking argument in method wrapper_CUDA__index_select)",
            "cpu",
            "cuda:0",
        ),
        ("Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same", "cpu", "cuda"),
        (
            "module must have its parameters and buffers on device cuda:0 (device_ids[0]) but found one of them on device: cpu",
            "cuda:0",
            "cpu",
        ),
    ],
)
def test_tensors_on_two_devices(message, one, other):
    found = told(message)
    assert found.code == "DDP202"
    assert f"{one} and on {other}." in found.summary


def test_an_input_of_another_type_on_the_same_device_is_no_matter_of_devices():
    message = "Input type (torch.cuda.HalfTensor) and weight type (torch.cuda.FloatTensor) should be the same"
    assert explain(message, "RuntimeError") is None


def test_a_model_on_two_kinds_of_devices():
    found = told(
        "DistributedDataParallel's input module must be on the same type of devices, but input module parameters locate in "
        "{'meta', 'cpu'}.",
        "ValueError",
    )
    assert found.code == "DDP202"
    assert "cpu and meta" in found.summary


def test_meta_tensors_are_the_wrappers_business_only_there():
    message = "Tensor.item() cannot be called on meta tensors"
    assert explain(message, "RuntimeError") is None
    assert told(message, "RuntimeError", inside("torch/nn/parallel/distributed.py", "__init__")).code == "DDP202"


@pytest.mark.parametrize(
    "message", ["No backend type associated with device type cpu", "Tensors must be CUDA and dense"]
)
def test_host_tensors(message):
    assert told(message).code == "DDP203"


def test_device_ids():
    found = told(IDS, "ValueError")
    assert found.code == "DDP204"
    assert "device_ids=[0], but the model is on cpu" in found.summary
    assert told("device_ids can only be None or contain a single element.", "ValueError").code == "DDP204"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("CUDA error: invalid device ordinal\nCUDA kernel errors might be asynchronously reported", "GPU index"),
        ("No CUDA GPUs are available", "no GPU at all"),
        ("CUDA error: no CUDA-capable device is detected", "no GPU at all"),
        ("Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU", "no working NVIDIA driver"),
        ("CUDA driver initialization failed, you might not have a CUDA gpu.", "no working NVIDIA driver"),
        ("The NVIDIA driver on your system is too old (found version 12020). Please update", "it runs CUDA 12.2"),
        ("CUDA driver version is insufficient for CUDA runtime version", "an older CUDA"),
        ("CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing", "cannot be used"),
        ("Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized", "cannot be used"),
        ("CUDA error: no kernel image is available for execution on the device", "no kernels for this GPU"),
    ],
)
def test_devices_that_are_not_seen(message, words):
    found = told(message)
    assert found.code == "DDP208"
    assert words in found.summary


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (OUT_2_13, "GPU 0 is out of memory: 22.78 GiB more were requested, 12.73 GiB were free of 31.47 GiB."),
        (OUT_SHARED, "GPU 1 is out of memory: 20.00 MiB more were requested, 11.06 MiB were free of 23.65 GiB."),
        (OUT_1_12, "GPU 0 is out of memory: 2.26 GiB more were requested, 3.03 GiB were free of 6.00 GiB."),
        (
            "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
            "The device is out of memory.",
        ),
    ],
)
def test_a_gpu_without_memory(message, words):
    found = told(message, "OutOfMemoryError")
    assert (found.code, found.summary) == ("DDP205", words)


def test_memory_that_lies_idle_and_neighbours_are_remarked_on():
    assert any("9.35 GiB are reserved but unused" in text for text in told(OUT_2_13, "OutOfMemoryError").evidence)
    evidence = " ".join(told(OUT_SHARED, "OutOfMemoryError").evidence)
    assert "reserved" not in evidence
    assert "Process 4711 holds 12.10 GiB" in evidence


@pytest.mark.parametrize(
    ("message", "exception", "words"),
    [
        (
            "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
            "4000000000000000 bytes. Error code 12 (Cannot allocate memory)",
            "RuntimeError",
            "3.6 PiB",
        ),
        (
            "Unable to allocate 7.11 PiB for an array with shape (1000000000000000,) and data type float64",
            "MemoryError",
            "7.11 PiB",
        ),
        ("", "MemoryError", "Out of CPU memory."),
    ],
)
def test_a_processor_without_memory(message, exception, words):
    found = told(message, exception)
    assert found.code == "DDP205"
    assert words in found.summary


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[  123.4] NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, name=python, GPU has fallen off the bus.", "Xid 79"),
        ("kernel: NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, Ch 00000010, MMU Fault", "does not own"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "ECC"),
    ],
)
def test_a_device_that_failed(line, words):
    (found,) = explain_text(line)
    assert found.code == "DDP206"
    assert words in found.summary


@pytest.mark.parametrize(
    "message",
    ["CUDA error: device-side assert triggered", "CUDA error: an illegal memory access was encountered"],
)
def test_a_kernel_of_the_programs_own_is_not_the_devices_fault(message):
    assert explain(message, "RuntimeError") is None
