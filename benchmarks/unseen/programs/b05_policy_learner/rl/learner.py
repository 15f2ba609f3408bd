import torch
import torch.distributed as dist

from rl.utils import sync_gradients


class Learner:
    def __init__(self, policy, cfg):
        self.policy = policy
        self.cfg = cfg
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=cfg["lr"])
        for p in policy.parameters():
            dist.broadcast(p.data, src=0)

    def loss(self, batch):
        logp = self.policy(batch["obs"]).log_softmax(-1)
        picked = logp.gather(1, batch["action"][:, None]).squeeze(1)
        entropy = -(logp.exp() * logp).sum(-1).mean()
        return -(picked * batch["advantage"]).mean() - self.cfg["entropy"] * entropy

    def update(self, batch):
        loss = self.loss(batch)
        self.optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.cfg["grad_clip_value"])
        if self.cfg["multi_gpu"]:
            sync_gradients(self.policy)
        self.optimizer.step()
        return {"loss": loss.item(), "grad_norm": norm.item()}
