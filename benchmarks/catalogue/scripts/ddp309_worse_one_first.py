# expect: DDP309
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
import torch
import torch.distributed as dist
from torch import nn

# a generator and a discriminator of the same size, trained in the order of their losses


def sync_generator(net):
    flat = torch.cat([p.grad.flatten() for p in net.parameters()])
    dist.all_reduce(flat)  # <- culprit
    hand_back(flat, net)


def sync_discriminator(net):
    flat = torch.cat([p.grad.flatten() for p in net.parameters()])
    dist.all_reduce(flat)  # <- culprit
    hand_back(flat, net)


def hand_back(flat, net):
    flat /= dist.get_world_size()
    for p, part in zip(net.parameters(), flat.split([p.numel() for p in net.parameters()]), strict=True):
        p.grad.copy_(part.view_as(p))


def losses(generator, discriminator, hard):
    real = torch.randn(12, 3) + 1
    fake = generator(torch.randn(12, 3))
    d_loss = (discriminator(real).mean() - 1).pow(2) + discriminator(fake.detach()).mean().pow(2)
    g_loss = (discriminator(fake).mean() - 1).pow(2) + (10.0 if hard else 0.0)
    return g_loss, d_loss


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    generator, discriminator = nn.Linear(3, 3), nn.Linear(3, 3)
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.01) for net in (generator, discriminator)]
    torch.manual_seed(10 + rank)
    for step in range(5):
        g_loss, d_loss = losses(generator, discriminator, hard=step == 3 and rank == size - 1)
        for opt in optimizers:
            opt.zero_grad()
        g_loss.backward(retain_graph=True)
        d_loss.backward()
        if g_loss > d_loss + 5:  # <- culprit
            sync_generator(generator)
            sync_discriminator(discriminator)
        else:
            sync_discriminator(discriminator)
            sync_generator(generator)
        for opt in optimizers:
            opt.step()
    print(rank, generator.weight.sum().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
