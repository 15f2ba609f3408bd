"""Small multi-head detector; every loss term is averaged over the ranks for the log."""
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from model import Detector, synthetic_batch

IMAGES, PER_RANK = 480, 4
LOG_EVERY = 5


def parse_losses(losses):
    log_vars = OrderedDict()
    for name, value in losses.items():
        log_vars[name] = value.mean()
    total = sum(v for k, v in log_vars.items() if "loss" in k)
    log_vars["loss"] = total
    return total, log_vars


def reduce_log_vars(log_vars, world):
    reduced = OrderedDict()
    for name, value in log_vars.items():
        everywhere = torch.zeros(world)
        dist.all_gather_into_tensor(everywhere, value.detach().reshape(1))
        reduced[name] = everywhere.mean().item()
    return reduced


def batches(rank, world):
    ids = list(range(IMAGES))
    chunks = [ids[i:i + PER_RANK] for i in range(0, IMAGES, PER_RANK)]
    usable = len(chunks) // world * world
    for i in range(rank, usable, world):
        yield chunks[i]


class Runner:
    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(3)
        self.model = DDP(Detector(), find_unused_parameters=True)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)
        self.history = []

    def train_iter(self, image_ids):
        x, target = synthetic_batch(image_ids)
        losses = self.model(x, target)
        total, log_vars = parse_losses(losses)
        self.optimizer.zero_grad()
        total.backward()
        self.optimizer.step()
        self.history.append(reduce_log_vars(log_vars, self.world))

    def run(self):
        for it, image_ids in enumerate(batches(self.rank, self.world)):
            self.train_iter(image_ids)
            if self.rank == 0 and it % LOG_EVERY == 0:
                line = ", ".join(f"{k}: {v:.3f}" for k, v in self.history[-1].items())
                print(f"iter {it}: {line}", flush=True)


def main():
    dist.init_process_group("gloo")
    runner = Runner()
    runner.run()
    dist.barrier()
    if runner.rank == 0:
        print("finished", len(runner.history))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
