"""Population based training for the churn model: one member per rank, then a joint fine-tuning."""
import torch
import torch.distributed as dist
import torch.nn.functional as F

from population import Member, Population


def make_churn_table(n=400, d=12):
    g = torch.Generator().manual_seed(11)
    x = torch.randn(n, d, generator=g)
    w = torch.randn(d, generator=g)
    y = ((x @ w + 0.5 * torch.randn(n, generator=g)) > 0).float()
    return (x[:300], y[:300]), (x[300:], y[300:])


def finetune(member, data, rank, world, steps=12):
    x, y = data
    x, y = x[rank::world], y[rank::world]
    params = list(member.net.parameters())
    opt = torch.optim.SGD(params, lr=0.05)
    for step in range(steps):
        idx = torch.arange(step * 8, step * 8 + 8) % len(x)
        opt.zero_grad()
        F.binary_cross_entropy_with_logits(member.net(x[idx]).squeeze(1), y[idx]).backward()
        for p in params:
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    train, holdout = make_churn_table()
    population = Population(Member.from_slot(rank, world), rank, world)
    for generation in range(4):
        population.member.fit(*train, steps=10)
        score = population.member.evaluate(*holdout)
        leader = population.exploit(score)
        population.explore(generation)
        if rank == 0:
            print(f"generation {generation}: leader {leader}, own score {score:.4f}", flush=True)
    population.exploit(population.member.evaluate(*holdout))
    finetune(population.member, train, rank, world)
    final = torch.tensor([population.member.evaluate(*holdout)])
    dist.all_reduce(final)
    if rank == 0:
        print(f"holdout log-likelihood {final.item() / world:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
