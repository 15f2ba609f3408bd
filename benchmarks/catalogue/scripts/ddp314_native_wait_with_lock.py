# expect: DDP314
# ranks: 2 4
# culprits: 1
# outcome: hang
# plain: T
"""A camera driver is called in a way that keeps the interpreter lock while it waits."""

import ctypes
import os

import torch
import torch.distributed as dist


class Camera:
    """Frames come through a pipe; the driver's read() does not give the interpreter away."""

    def __init__(self, frames):
        self.library = ctypes.PyDLL(None)
        self.reader, self.writer = os.pipe()
        for i in range(frames):
            os.write(self.writer, bytes([i] * 16))

    def frame(self):
        buffer = ctypes.create_string_buffer(16)
        self.library.read(self.reader, buffer, 16)  # <- culprit
        return torch.frombuffer(bytearray(buffer.raw), dtype=torch.uint8).float()


def background(camera, count):
    mean = torch.zeros(16)
    for _ in range(count):
        frame = camera.frame()  # <- culprit
        dist.all_reduce(frame)
        mean += frame / dist.get_world_size() / count
    return mean


dist.init_process_group("gloo")
rank = dist.get_rank()
camera = Camera(frames=3 if rank == 1 else 6)
print(rank, background(camera, 6).mean().item())
dist.destroy_process_group()
