"""Whether a command may start ranks on other hosts."""

from __future__ import annotations

import pytest

from ddpnb.processes.jobs.command import may_leave_host


@pytest.mark.parametrize(
    ("command", "environment", "leaves"),
    [
        (["srun", "-N2", "python", "train.py"], {}, True),
        (["/usr/bin/mpiexec", "-n", "4", "python", "train.py"], {}, True),
        (["sh", "-c", "cd x && srun python train.py"], {}, True),
        (["bash", "job.sh"], {"SLURM_JOB_NUM_NODES": "2"}, True),
        (["bash", "job.sh"], {"SLURM_JOB_NUM_NODES": "1"}, False),
        (["torchrun", "--nproc-per-node", "4", "train.py"], {}, False),
        (["python", "srun_train.py"], {}, False),
        (["env", "A=1", "srun", "python", "train.py"], {}, True),
        (["python3.13", "-m", "train", "--model", "flux"], {}, False),
        (["./train.py", "--strategy", "deepspeed"], {}, False),
        (["deepspeed", "train.py"], {}, True),
    ],
)
def test_which_commands_may_start_ranks_on_other_hosts(command, environment, leaves):
    assert may_leave_host(command, environment) == leaves
