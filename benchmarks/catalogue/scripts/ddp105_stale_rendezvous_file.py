# expect: DDP105
# also: DDP104
# ranks: 2 4
# culprits: any
# outcome: crash
# plain: E
# patience: 10
"""First check the connections in processes that are thrown away, then train, with one rendezvous file."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FOLDER = pathlib.Path(os.environ.get("JOB_FOLDER", f"{tempfile.gettempdir()}/job-{os.environ['MASTER_PORT']}"))


def join():
    FOLDER.mkdir(exist_ok=True)
    dist.init_process_group("gloo", init_method=f"file://{FOLDER}/rendezvous", rank=RANK, world_size=SIZE)  # <- culprit


def check_connections():
    join()
    dist.all_reduce(torch.ones(1))
    os._exit(0)  # quickly, nothing to tidy up


def wait_for_all_checks():
    (FOLDER / f"checked-{RANK}").touch()
    while len(list(FOLDER.glob("checked-*"))) < SIZE:
        time.sleep(0.1)
    if RANK == 0:
        time.sleep(1)  # the last message of the checks goes to the log first
        print("all connections work")


def remove_leftovers():
    if FOLDER.exists() and time.time() - FOLDER.stat().st_mtime > 60:
        shutil.rmtree(FOLDER, ignore_errors=True)


def main():
    remove_leftovers()
    env = {**os.environ, "JOB_FOLDER": str(FOLDER)}
    subprocess.run([sys.executable, __file__, "--check"], env=env, check=True)
    wait_for_all_checks()
    join()  # <- culprit
    value = torch.tensor([float(RANK)])
    dist.all_reduce(value)
    print(RANK, value.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    if "--check" in sys.argv:
        check_connections()
    main()
