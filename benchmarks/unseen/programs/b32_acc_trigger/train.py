import torch
from accelerate import Accelerator
from accelerate.utils import gather_object, set_seed
from torch import nn

from monitor import SpikeMonitor


def ticks(process, count):
    gen = torch.Generator().manual_seed(200 + process)
    for i in range(count):
        x = torch.randn(16, 6, generator=gen)
        y = x.sum(1, keepdim=True)
        if process == 1 and i >= 18:
            y = y + 40
        yield x, y


def main():
    accelerator = Accelerator(cpu=True)
    set_seed(accelerator.process_index)
    net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))
    model, opt = accelerator.prepare(net, torch.optim.Adam(net.parameters(), lr=1e-2))
    monitor = SpikeMonitor(accelerator, limit=100.0)
    done = 0
    for x, y in ticks(accelerator.process_index, 30):
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        accelerator.backward(loss)
        opt.step()
        done += 1
        monitor.observe(loss.item())
        if monitor.triggered:
            break
    notes = gather_object([f"process {accelerator.process_index}: {done} steps, {monitor.local_hits} spikes"])
    if accelerator.is_main_process:
        print("\n".join(notes))
    accelerator.end_training()


if __name__ == "__main__":
    main()
