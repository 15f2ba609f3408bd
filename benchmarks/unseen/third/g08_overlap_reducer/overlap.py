"""Poor man's gradient overlap: an all-reduce per parameter, started as soon as its gradient is there."""
import torch.distributed as dist


class OverlappedReducer:
    def __init__(self, model, world):
        self.world = world
        self.pending = {}
        for name, p in model.named_parameters():
            layer, _, _ = name.rpartition(".")
            p.register_post_accumulate_grad_hook(self._launcher(layer))

    def _launcher(self, layer):
        def launch(p):
            p.grad.div_(self.world)
            work = dist.all_reduce(p.grad, async_op=True)
            self.pending.setdefault(layer, work)
        return launch

    def finish(self):
        """Block until the gradients of all layers are reduced."""
        for work in self.pending.values():
            work.wait()
        self.pending.clear()
