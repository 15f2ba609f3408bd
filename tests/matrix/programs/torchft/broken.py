# command: torchrun --standalone --nproc_per_node=2 broken.py
# plain: 1
# outcome: crash or hang
# expect: DDP301
# culprits: 1
"""As the DDP example of torchft, with a replica group for each rank: and a barrier in the default group that only one replica reaches."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo
from torchft.coordination import LighthouseServer
from torchft.process_group import ManagedProcessGroup

STEPS = 3


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=1, join_timeout_ms=2000) if rank == 0 else None
    address = [lighthouse.address() if lighthouse else None]
    dist.broadcast_object_list(address)
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)

    torch.manual_seed(0)
    model = nn.Linear(8, 2)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=20)),
        load_state_dict=model.load_state_dict,
        state_dict=model.state_dict,
        min_replica_size=1,
        replica_id=f"replica_{rank}",
        lighthouse_addr=address[0],
        store_addr="localhost",
        store_port=store.port,
        rank=0,
        world_size=1,
        timeout=timedelta(seconds=30),
    )
    ddp = DistributedDataParallel(manager, model)
    replicas = ManagedProcessGroup(manager)
    optimizer = Optimizer(manager, torch.optim.SGD(ddp.parameters(), lr=0.1))
    data = torch.arange(32.0).view(4, 8) / 32
    while manager.current_step() < STEPS:
        optimizer.zero_grad()  # asks for a quorum
        loss = ddp(data).pow(2).mean()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, group=replicas)
        if rank == 0:
            print(f"at step {manager.current_step()} of {manager.num_participants()} replicas")
    if manager.participating_rank() == 0:
        print(f"end: loss {loss.item():.6f}")
        dist.barrier()  # <- culprit
    manager.shutdown(wait=False)
    if lighthouse:
        lighthouse.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
