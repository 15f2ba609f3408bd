import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class GradReducer:
    """Averages gradients; dense and expert parameters travel in groups of their own."""

    def __init__(self, groups):
        self.groups = groups

    def buckets(self, touched):
        by_kind = {}
        for kind, param in touched:
            by_kind.setdefault(kind, []).append(param)
        return by_kind

    def __call__(self, touched):
        for kind, params in self.buckets(touched).items():
            params = sorted(params, key=lambda p: p.numel())
            grads = [p.grad for p in params]
            flat = _flatten_dense_tensors(grads)
            group = self.groups[kind]
            dist.all_reduce(flat, group=group)
            flat /= dist.get_world_size(group)
            for g, new in zip(grads, _unflatten_dense_tensors(flat, grads)):
                g.copy_(new)


class TouchTracker:
    """Remembers parameters in the order in which their gradients were accumulated."""

    def __init__(self, model, kind_of):
        self.seen = []
        for name, p in model.named_parameters():
            p.register_post_accumulate_grad_hook(lambda p, kind=kind_of(name): self.seen.append((kind, p)))

    def take(self):
        seen, self.seen = self.seen, []
        return seen
