"""Clipped PPO objective and rollout collection."""
import torch
from torch.distributions import Categorical


@torch.no_grad()
def collect(policy, env, horizon):
    obs, actions, logps, rewards = [], [], [], []
    state = env.observe()
    for _ in range(horizon):
        logits, _ = policy.heads(state)
        pick = Categorical(logits=logits)
        action = torch.multinomial(pick.probs, 1, generator=env.generator).squeeze(-1)
        obs.append(state)
        actions.append(action)
        logps.append(pick.log_prob(action))
        state, reward = env.step(action)
        rewards.append(reward)
    returns, acc = [], torch.zeros_like(rewards[0])
    for reward in reversed(rewards):
        acc = reward + 0.9 * acc
        returns.append(acc)
    returns = torch.stack(returns[::-1])
    return (torch.stack(obs).flatten(0, 1), torch.stack(actions).flatten(),
            torch.stack(logps).flatten(), returns.flatten())


def surrogate(agent, obs, actions, old_logp, returns, clip=0.2):
    policy = getattr(agent, "module", agent)
    logp, entropy, value = policy.evaluate(obs, actions)
    advantage = returns - value.detach()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
    ratio = (logp - old_logp).exp()
    policy_loss = -torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
    return policy_loss + 0.5 * (returns - value).pow(2).mean() - 0.01 * entropy.mean()
