import torch
import torch.distributed as dist


def sync_gradients(module):
    world = dist.get_world_size()
    for p in module.parameters():
        if p.requires_grad:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            dist.all_reduce(p.grad)
            p.grad.div_(world)


def rollout(env_seed, update, size=64, obs_dim=6, actions=3):
    gen = torch.Generator().manual_seed(env_seed * 1000 + update)
    obs = torch.randn(size, obs_dim, generator=gen)
    action = torch.randint(0, actions, (size,), generator=gen)
    reward = (obs[:, :actions].argmax(-1) == action).float() * (1 + 6 * env_seed)
    return {"obs": obs, "action": action, "advantage": reward - 0.3}
