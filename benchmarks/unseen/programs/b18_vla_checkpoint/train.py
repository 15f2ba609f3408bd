import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

from saving import CheckpointCallback, project


class Episodes(Dataset):
    def __init__(self, n=400):
        gen = torch.Generator().manual_seed(55)
        self.obs = torch.randn(n, 18, generator=gen)
        self.act = torch.tanh(self.obs[:, :7] * 0.5 + self.obs[:, 7:14])

    def __len__(self):
        return len(self.obs)

    def __getitem__(self, i):
        return {"obs": self.obs[i], "action": self.act[i]}


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(18, 64), nn.GELU())
        self.action_head = nn.Linear(64, 7)

    def forward(self, obs):
        return self.action_head(self.trunk(obs))


def main():
    accelerator = Accelerator(cpu=True, project_config=project())
    set_seed(2)
    model, optimizer, loader = accelerator.prepare(
        policy := Policy(), torch.optim.AdamW(policy.parameters(), lr=1e-3), DataLoader(Episodes(), 10)
    )
    on_step = CheckpointCallback(accelerator)
    for step, batch in enumerate(loader):
        loss = nn.functional.l1_loss(model(batch["obs"]), batch["action"])
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        on_step(step, loss.item())
    accelerator.print(f"final loss {loss.item():.4f}")
    accelerator.wait_for_everyone()
    on_step.close()
    accelerator.end_training()


if __name__ == "__main__":
    main()
