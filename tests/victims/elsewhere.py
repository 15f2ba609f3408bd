"""One rank is stuck outside of collectives."""
import ctypes
import os
import queue
import signal
import socket
import sys
import threading
import time

import torch
import torch.distributed as dist


def lock():
    held = threading.Lock()
    held.acquire()
    held.acquire()  # culprit: lock


def empty_queue():
    queue.Queue().get()  # culprit: empty_queue


def read_socket():
    a, b = socket.socketpair()
    a.recv(1)  # culprit: read_socket


def sleep():
    time.sleep(3600)  # culprit: sleep


def poll():
    while not os.path.exists("/nonexistent/flag"):
        time.sleep(0.1)  # culprit: poll


def file_lock():
    import fcntl
    import tempfile

    path = tempfile.mktemp()
    one, other = open(path, "w"), open(path, "w")
    os.unlink(path)
    fcntl.flock(one, fcntl.LOCK_EX)
    fcntl.flock(other, fcntl.LOCK_EX)  # culprit: file_lock


def child():
    import subprocess

    subprocess.run(["sleep", "3600"])  # culprit: child


def stopped():
    os.kill(os.getpid(), signal.SIGSTOP)  # culprit: stopped


class Tee:
    """Like the loggers that people put in place of standard output: one lock for all who write and flush."""

    def __init__(self, stream):
        self.stream = stream
        self.lock = threading.Lock()

    def write(self, text):
        with self.lock:
            if text.startswith("wait"):
                time.sleep(3600)  # culprit: output
            return self.stream.write(text)

    def flush(self):
        with self.lock:
            self.stream.flush()


def output():
    sys.stdout = Tee(sys.stdout)
    print("wait for somebody who reads")


def native():
    ctypes.PyDLL(None).sleep(3600)  # culprit: native


if __name__ == "__main__":
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == 1:
        globals()[sys.argv[1]]()
    dist.all_reduce(torch.ones(4))  # waiting
