import torch
import torch.distributed as dist


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, out_splits, in_splits):
        ctx.splits = (out_splits, in_splits)
        out = rows.new_empty(sum(out_splits), rows.size(1))
        dist.all_to_all_single(out, rows.contiguous(), out_splits, in_splits)
        return out

    @staticmethod
    def backward(ctx, grad):
        out_splits, in_splits = ctx.splits
        back = grad.new_empty(sum(in_splits), grad.size(1))
        dist.all_to_all_single(back, grad.contiguous(), in_splits, out_splits)
        return back, None, None


class HashRouter:
    """Sends token t to the expert t mod world; an expert takes at most `capacity` rows of a peer."""

    def __init__(self, world, factor):
        self.world, self.factor = world, factor

    def plan(self, ids):
        expert = ids % self.world
        order = torch.argsort(expert, stable=True)
        counts = torch.bincount(expert, minlength=self.world)
        capacity = int(self.factor * ids.numel() / self.world)
        announced = counts.clamp(max=capacity)
        incoming = torch.empty_like(announced)
        dist.all_to_all_single(incoming, announced)
        return order, counts.tolist(), incoming.tolist()

    def dispatch(self, rows, plan):
        order, counts, incoming = plan
        return Exchange.apply(rows[order], incoming, counts)

    def combine(self, rows, plan):
        order, counts, incoming = plan
        back = Exchange.apply(rows, counts, incoming)
        return torch.empty_like(back).index_copy(0, order, back)
