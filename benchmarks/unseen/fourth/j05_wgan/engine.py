import torch


class Players:
    def __init__(self, gen, critic, machine, clip=0.1):
        self.gen, self.critic = gen, critic
        self.machine = machine
        self.clip = clip
        self.g_optim = torch.optim.RMSprop(gen.parameters(), lr=1e-3)
        self.c_optim = torch.optim.RMSprop(critic.parameters(), lr=5e-3)

    def critic_turn(self):
        real = self.machine.sample()
        with torch.no_grad():
            fake = self.gen.module(torch.randn(len(real), 8))
        score = self.critic(torch.cat([real, fake]))
        gap = score[:len(real)].mean() - score[len(real):].mean()
        self.c_optim.zero_grad()
        (-gap).backward()
        self.c_optim.step()
        with torch.no_grad():
            for p in self.critic.parameters():
                p.clamp_(-self.clip, self.clip)
        return gap.item()

    def generator_turn(self):
        real = self.machine.sample()
        fake = self.gen(torch.randn(len(real), 8))
        score = self.critic.module(fake)
        with torch.no_grad():
            gap = self.critic.module(real).mean() - score.mean()
        direction, = torch.autograd.grad(-score.mean(), fake, retain_graph=True)
        self.g_optim.zero_grad()
        fake.backward(direction)
        self.g_optim.step()
        return gap.item()
