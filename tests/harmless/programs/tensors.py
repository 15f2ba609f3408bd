"""Collectives on tensors of every type and layout, whether gloo takes them or not."""

import time

import torch
import torch.distributed as dist

TYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
    torch.float8_e4m3fn, torch.float8_e5m2,
]


def values(*tensors):
    """Their bytes, exactly."""
    found = []
    for tensor in tensors:
        tensor = (tensor.to_dense() if tensor.is_sparse else tensor).detach().resolve_conj().contiguous()
        found.append(bytes(tensor.reshape(-1).view(torch.uint8).tolist()).hex() if tensor.numel() else f"{tuple(tensor.shape)}")
    return " ".join(found)


def attempt(name, call):
    try:
        result = values(*call())
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        result = f"{type(error).__name__}: {str(error).splitlines()[0][:80]}"
    print(f"rank {dist.get_rank()} {name}: {result}", flush=True)


def numbers(dtype, *shape):
    """Small values that differ between ranks."""
    count = torch.Size(shape).numel()
    return (torch.arange(count).reshape(shape) % 3 + dist.get_rank()).to(torch.float32).to(dtype)


def all_reduce(tensor, op=dist.ReduceOp.SUM):
    dist.all_reduce(tensor, op)
    return [tensor]


def of_type(dtype):
    size, rank = dist.get_world_size(), dist.get_rank()
    mine = numbers(dtype, 4)

    def broadcast():
        dist.broadcast(given := mine.clone(), src=1)
        return [given]

    def all_gather():
        dist.all_gather(parts := [torch.zeros(4).to(dtype) for _ in range(size)], mine)
        return parts

    def all_gather_into_tensor():
        dist.all_gather_into_tensor(whole := torch.zeros(4 * size).to(dtype), mine)
        return [whole]

    def reduce_scatter_tensor():
        dist.reduce_scatter_tensor(part := torch.zeros(2).to(dtype), mine)
        return [part]

    def all_to_all_single():
        dist.all_to_all_single(got := torch.zeros(4).to(dtype), mine)
        return [got]

    def send_and_receive():
        if rank == 0:
            dist.send(mine, dst=1)
            return [mine]
        dist.recv(got := torch.zeros(4).to(dtype), src=0)
        return [got]

    for call in (broadcast, all_gather, all_gather_into_tensor, reduce_scatter_tensor, all_to_all_single, send_and_receive):
        attempt(f"{dtype} {call.__name__}", call)
    for op in ("SUM", "MAX", "PRODUCT", "BAND", "AVG"):
        attempt(f"{dtype} all_reduce {op}", lambda op=op: all_reduce(mine.clone(), getattr(dist.ReduceOp, op)))


class Named(torch.Tensor):
    """A user's class of tensors."""


def layouts():
    whole = numbers(torch.float32, 4, 6)
    yield "one number", whole[0, 0].clone()
    yield "a number in the middle", whole[1, 1]
    yield "no element", torch.zeros(0)
    yield "no row", torch.zeros(0, 5)
    yield "no column", torch.zeros(5, 0)
    yield "transposed", whole.clone().t()
    yield "some rows", whole.clone()[1:3]
    yield "channels last", numbers(torch.float32, 2, 3, 4, 5).to(memory_format=torch.channels_last)
    yield "conjugated", numbers(torch.complex64, 3).conj()
    yield "a view as real numbers", torch.view_as_real(numbers(torch.complex64, 3))
    yield "sparse", torch.sparse_coo_tensor(torch.tensor([[dist.get_rank(), 2]]), torch.tensor([1.0, 2.0]), (4,))
    yield "sparse rows", torch.eye(3).to_sparse_csr()
    yield "nested", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    yield "for oneDNN", torch.ones(2, 2).to_mkldnn()
    yield "a parameter", torch.nn.Parameter(whole.clone(), requires_grad=False)
    yield "with a gradient", whole.clone().requires_grad_()
    yield "a class of the user's", whole.clone().as_subclass(Named)
    yield "quantized", torch.quantize_per_tensor(whole, 0.1, 0, torch.quint8)
    yield "one of 16 dimensions", numbers(torch.float32, *[1] * 15, 3)
    with torch.inference_mode():
        yield "for inference", torch.ones(3)


dist.init_process_group("gloo")
for dtype in TYPES:
    of_type(dtype)
for name, tensor in layouts():
    attempt(name, lambda tensor=tensor: all_reduce(tensor))
objects = [None, None]
dist.all_gather_object(objects, {"rank": dist.get_rank(), "deep": [(), {"ß": b"\0"}], "large": "x" * 100_000})
print(f"rank {dist.get_rank()} {[(one['rank'], one['deep'], len(one['large'])) for one in objects]}", flush=True)
time.sleep(0.5)  # gloo's threads let go of the last tensors: an interpreter that ends meanwhile is aborted
dist.destroy_process_group()
