"""An encoder and a decoder are trained together; each has a group of its own for its gradients."""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(net, group):
    for p in net.parameters():
        dist.all_reduce(p.grad, group=group)
        p.grad /= dist.get_world_size(group)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    encoder_group, decoder_group = dist.new_group(), dist.new_group()
    torch.manual_seed(0)
    encoder, decoder = nn.Linear(8, 3), nn.Linear(3, 8)
    optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
    torch.manual_seed(rank)
    for _ in range(6):
        x = torch.randn(16, 8)
        loss = nn.functional.mse_loss(decoder(encoder(x)), x)
        optimizer.zero_grad()
        loss.backward()
        if rank % 2 == 0:  # spread the load over both groups
            average_gradients(encoder, encoder_group)
            average_gradients(decoder, decoder_group)
        else:
            average_gradients(decoder, decoder_group)
            average_gradients(encoder, encoder_group)
        optimizer.step()
    dist.destroy_process_group()


main()
