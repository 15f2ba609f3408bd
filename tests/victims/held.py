"""Trainings whose ranks are held in hard places: a thread of their own, a worker of a loader, before a collective that others never make."""

import sys
import threading

import torch
import torch.distributed as dist


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index * 10  # read


def prepare(items, done):
    for item in items:
        done.append(item + 1)  # prepared


def threads():
    done = []
    one = threading.Thread(target=prepare, args=([5, 6], done), name="preparation")
    one.start()
    dist.all_reduce(torch.ones(1))
    one.join()
    return sum(done)


def loader():
    return sum(int(one) for one in torch.utils.data.DataLoader(Numbers(), batch_size=None, num_workers=1))


def apart():
    if dist.get_rank() == 1:
        alone = torch.ones(1)
        dist.all_reduce(alone)  # alone
    return 0


dist.init_process_group("gloo")
print("result", globals()[sys.argv[1]]())
dist.barrier() if sys.argv[1] != "apart" else None
