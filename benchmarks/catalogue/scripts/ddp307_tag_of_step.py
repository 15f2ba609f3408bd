# expect: DDP307
# ranks: 2 4
# culprits: any
# outcome: hang
# plain: T
"""A learner (rank 0) sends weights to actors; messages are tagged with the version."""

import torch
import torch.distributed as dist
from torch import nn


class Learner:
    def __init__(self, net, actors):
        self.net, self.actors = net, actors
        self.version = 0

    def publish(self):
        flat = nn.utils.parameters_to_vector(self.net.parameters()).detach()
        self.version += 1
        for actor in self.actors:
            dist.send(flat, dst=actor, tag=self.version)  # <- culprit


class Actor:
    def __init__(self, net):
        self.net = net
        self.version = 0

    def refresh(self):
        flat = nn.utils.parameters_to_vector(self.net.parameters()).detach()
        dist.recv(flat, src=0, tag=self.version)  # <- culprit
        nn.utils.vector_to_parameters(flat, self.net.parameters())
        self.version += 1

    def act(self):
        with torch.no_grad():
            return self.net(torch.randn(5, 4)).argmax(1)


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    net = nn.Linear(4, 2)
    if rank == 0:
        learner = Learner(net, range(1, size))
        for _ in range(3):
            learner.publish()
    else:
        actor = Actor(net)
        for _ in range(3):
            actor.refresh()
            actor.act()
    dist.destroy_process_group()


main()
