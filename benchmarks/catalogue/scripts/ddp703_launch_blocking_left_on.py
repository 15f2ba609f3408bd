# expect: DDP703
# ranks: 2 4
# culprits: range(n)
# outcome: ok
# plain: S
# env: CUDA_LAUNCH_BLOCKING=1
# env: TORCH_NCCL_BLOCKING_WAIT=1
# env: TORCH_NCCL_ASYNC_ERROR_HANDLING=3
"""The environment comes from the job file, where somebody was looking for a bug last month."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)

model = DistributedDataParallel(nn.GRU(4, 8, batch_first=True))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(6):
    signal = torch.randn(3, 10, 4)
    output, _ = model(signal)
    loss = (output[..., :4] - signal.roll(-1, 1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

total = loss.detach().clone()
dist.all_reduce(total)
if rank == 0:
    print(f"mean loss {total.item() / dist.get_world_size():.4f}")
dist.destroy_process_group()
