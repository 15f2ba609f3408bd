# expect: DDP307
# ranks: 2
# culprits: any
# outcome: hang
# plain: T
"""Two-stage pipeline with four micro-batches: rank 0 holds the front, rank 1 the back."""
import torch
import torch.distributed as dist
import torch.nn as nn

MICRO, BATCH, WIDTH = 4, 3, 12


class Link:
    """One neighbour. Both directions share a pair of processes, so every message needs its own tag."""

    def __init__(self, me, peer):
        self.me, self.peer = me, peer

    def tag(self, micro):
        return 2 * micro + int(self.me < self.peer)  # <- culprit

    def put(self, tensor, micro):
        dist.send(tensor.contiguous(), self.peer, tag=self.tag(micro))  # <- culprit

    def get(self, shape, micro):
        buf = torch.empty(shape)
        dist.recv(buf, self.peer, tag=self.tag(micro))  # <- culprit
        return buf


def front(link, stage, opt, batches):
    outs = []
    for m, x in enumerate(batches):
        y = stage(x)
        outs.append(y)
        link.put(y.detach(), m)
    for m, y in enumerate(outs):
        y.backward(link.get(y.shape, m))
    opt.step()
    opt.zero_grad()


def back(link, stage, opt, targets):
    inputs, losses = [], []
    for m, t in enumerate(targets):
        x = link.get((BATCH, WIDTH), m).requires_grad_()
        losses.append(nn.functional.mse_loss(stage(x), t) / MICRO)
        inputs.append(x)
    for m, (x, loss) in enumerate(zip(inputs, losses)):
        loss.backward()
        link.put(x.grad, m)
    opt.step()
    opt.zero_grad()
    return float(sum(losses))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    link = Link(rank, 1 - rank)
    stage = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) if rank == 0 else nn.Linear(WIDTH, 2)
    opt = torch.optim.SGD(stage.parameters(), lr=0.1)
    for step in range(3):
        if rank == 0:
            front(link, stage, opt, torch.randn(MICRO, BATCH, WIDTH))
        else:
            print("step", step, "loss", back(link, stage, opt, torch.randn(MICRO, BATCH, 2)), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
