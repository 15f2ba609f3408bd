import torch
import torch.distributed as dist


class KLController:
    """Lowers the step size when the policy has moved too far on the fleet as a whole."""

    def __init__(self, optimizer, target=0.004, decay=0.7):
        self.optimizer = optimizer
        self.target = target
        self.decay = decay
        self.world = dist.get_world_size()

    def fleet_kl(self, kl):
        mean = kl.detach().clone()
        dist.all_reduce(mean)
        return (mean / self.world).item()

    def too_far(self, kl):
        return kl.item() > self.target and self.fleet_kl(kl) > self.target

    def after_epoch(self, kl):
        if self.too_far(kl):
            for group in self.optimizer.param_groups:
                group["lr"] *= self.decay


class PPO:
    def __init__(self, model, optimizer, env, clip=0.2, epochs=3):
        self.model, self.optimizer, self.env = model, optimizer, env
        self.clip, self.epochs = clip, epochs
        self.controller = KLController(optimizer)

    def _surrogate(self, logp, old, actions, adv):
        ratio = (logp - old).gather(1, actions[:, None]).squeeze(1).exp()
        return -torch.minimum(ratio * adv, ratio.clamp(1 - self.clip, 1 + self.clip) * adv).mean()

    def update(self, obs, actions, rewards, old):
        adv = rewards - rewards.mean()
        for _ in range(self.epochs):
            self.optimizer.zero_grad()
            logp = self.model(obs).log_softmax(-1)
            self._surrogate(logp, old, actions, adv).backward()
            self.optimizer.step()
            with torch.no_grad():
                new = self.model.module(obs).log_softmax(-1)
                kl = (old.exp() * (old - new)).sum(-1).mean()
            self.controller.after_epoch(kl)

    def iterate(self):
        obs, actions, rewards, old = self.env.rollout(self.model.module)
        self.update(obs, actions, rewards, old)
        return rewards.mean()
