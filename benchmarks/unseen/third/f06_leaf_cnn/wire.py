"""Gradient compression for the ring: links that leave the rack use a narrower format."""
import torch
import torch.distributed as dist


def attach_compression(ddp_model):
    rank, world = dist.get_rank(), dist.get_world_size()
    hop = (rank + 1) % world - rank               # the closing edge of the ring is the long one
    wire = torch.bfloat16 if hop < 0 else torch.float32

    def reduce_bucket(state, bucket):
        flat = bucket.buffer()
        sent = flat.to(wire).to(flat.dtype).div_(world)
        pending = dist.all_reduce(sent, async_op=True).get_future()

        def decode(future):
            mean = future.value()[0]
            return mean.to(wire).to(mean.dtype)

        return pending.then(decode)

    ddp_model.register_comm_hook(state=None, hook=reduce_bucket)
    return wire
