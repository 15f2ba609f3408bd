import torch
import torch.nn.functional as F

from nets import student, teacher


def _distill_loss(net, guide, x, temperature=2.0):
    soft = (guide(x) / temperature).softmax(1)
    return F.cross_entropy(net(x) / temperature, soft)


def trainer(top, rounds, steps):
    net, guide = student(), teacher()
    optim = torch.optim.Adam(net.parameters(), lr=4e-3)
    gen = torch.Generator().manual_seed(top.rank)
    for rnd in range(rounds):
        for _ in range(steps):
            x = torch.randn(32, 12, generator=gen)
            loss = _distill_loss(net, guide, x)
            optim.zero_grad()
            loss.backward()
            top.average([p.grad for p in net.parameters()])
            optim.step()
        top.publish(net)
        if top.rank == 0:
            print(f"round {rnd} loss {loss.item():.4f}", flush=True)
    return loss.item()


def evaluator(top, rounds, steps):
    net, guide = student(), teacher()
    held_out = torch.randn(256, 12, generator=torch.Generator().manual_seed(77))
    best = 0.0
    for rnd in range(rounds):
        top.publish(net)
        with torch.no_grad():
            agree = (net(held_out).argmax(1) == guide(held_out).argmax(1)).float().mean().item()
        best = max(best, agree)
        print(f"round {rnd} agreement {agree:.3f} best {best:.3f}", flush=True)
    return best
