import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from policy import politeness, token_logps


def world_mean(x):
    x = x.detach().clone()
    dist.all_reduce(x)
    return (x / dist.get_world_size()).item()


def sft(model, opt, prompts, steps, batch, g):
    for step in range(steps):
        idx = torch.randint(0, len(prompts), (batch,), generator=g)
        seq = prompts[idx]
        logits = model(seq[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), seq[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        yield "sft", step, world_mean(loss)


def grpo(model, opt, prompts, steps, groups, size, reply_len, g):
    actor = model.module if isinstance(model, DistributedDataParallel) else model
    for step in range(steps):
        idx = torch.randint(0, len(prompts), (groups,), generator=g)
        prompt = prompts[idx][:, :3].repeat_interleave(size, 0)
        seq = actor.sample(prompt, reply_len, g)
        reward = politeness(seq[:, 3:]).view(groups, size)
        adv = (reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-4)
        logits = actor(seq[:, :-1])
        logp = token_logps(logits[:, 2:], seq[:, 3:])
        loss = -(adv.view(-1, 1) * logp).mean()
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(actor.parameters(), 1.0)
        opt.step()
        yield "grpo", step, world_mean(reward.mean())
