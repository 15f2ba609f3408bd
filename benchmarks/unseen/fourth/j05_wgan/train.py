import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from balance import Balancer
from engine import Players
from nets import Critic, Generator
from signals import Machine


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(8)
    rank = dist.get_rank()

    gen, critic = DDP(Generator()), DDP(Critic())
    players = Players(gen, critic, Machine(rank))
    balancer = Balancer(low=0.0, high=2.0)

    table = {"critic": players.critic_turn, "generator": players.generator_turn}
    for turn in range(60):
        gap = table[balancer.player]()
        balancer.update(gap)
        if rank == 0 and turn % 10 == 0:
            print(f"turn {turn} gap {balancer.gap:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
