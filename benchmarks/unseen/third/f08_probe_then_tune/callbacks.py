"""Trainer callbacks."""
import torch.distributed as dist


class Callback:
    def on_epoch_start(self, trainer, epoch):
        pass

    def on_epoch_end(self, trainer, epoch, loss):
        pass


class ProgressiveUnfreeze(Callback):
    """Linear probing first, then one more block of the backbone every `every` epochs."""

    def __init__(self, blocks, every=1, lr=1e-2):
        self.queue = list(blocks)
        self.every, self.lr = every, lr

    def on_epoch_start(self, trainer, epoch):
        if epoch == 0 or epoch % self.every or not self.queue:
            return
        block = self.queue.pop()
        block.requires_grad_(True)
        trainer.optimizer.add_param_group({"params": list(block.parameters()), "lr": self.lr})


class Progress(Callback):
    def on_epoch_end(self, trainer, epoch, loss):
        dist.all_reduce(loss)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss.item() / dist.get_world_size():.4f}", flush=True)
