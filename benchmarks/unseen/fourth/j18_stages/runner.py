import torch
import torch.distributed as dist
import torch.nn.functional as F


class Runner:
    def __init__(self, stage, ends, rank, world):
        self.stage, self.ends = stage, ends
        self.rank, self.world = rank, world
        self.at_end = stage.first or stage.last

    def _take(self, piece):
        if self.stage.first:
            return piece[:, :-1]
        h = torch.empty(len(piece), piece.shape[1] - 1, self.stage.DIM)
        dist.recv(h, self.rank - 1)
        return h.requires_grad_()

    def _return(self, x, out, piece):
        loss = None
        if self.stage.last:
            loss = F.cross_entropy(out.flatten(0, 1), piece[:, 1:].flatten())
            loss.backward()
        else:
            grad = torch.empty_like(out)
            dist.recv(grad, self.rank + 1)
            out.backward(grad)
        if not self.stage.first:
            dist.send(x.grad, self.rank - 1)
        return loss

    def step(self, tokens, micro):
        held, pending = [], []
        for piece in tokens.split(micro):
            x = self._take(piece)
            out = self.stage(x)
            if not self.stage.last:
                pending.append(dist.isend(out.detach(), self.rank + 1))
            held.append((x, out, piece))
        losses = [self._return(*item) for item in held]
        for work in pending:
            work.wait()
        if self.at_end:
            dist.all_reduce(self.stage.embed.weight.grad, group=self.ends)
        return sum(l.item() for l in losses) / len(losses) if self.stage.last else None
