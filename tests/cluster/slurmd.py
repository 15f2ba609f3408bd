"""A real Slurm on the hosts of a simulated cluster: Debian's slurmctld on the login node, slurmd on the others."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator

from tests.cluster.cluster import Cluster
from tests.simulated_hosts import end, wait_until

_PATH = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
CPUS = len(os.sched_getaffinity(0))
#: command lines of the daemons, which stay when jobs end
KEEP = ("munged ", "slurmctld ", "slurmctld: ", "slurmd ")
_CONFIGURATION = """\
ClusterName=simulated
SlurmctldHost={login}
AuthType=auth/munge
AuthInfo=socket={folder}/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir=/tmp/slurmd
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
{nodes}
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Why there can be no Slurm here; empty if there can."""
    names = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo")
    absent = [name for name in names if shutil.which(name, path=_PATH) is None]
    if absent:
        return f"needs {', '.join(absent)} (Debian: apt-get install slurm-wlm munge)"
    return "needs two CPUs, for two tasks on a node" if CPUS < 2 else ""


@contextlib.contextmanager
def real_slurm(cluster: Cluster) -> Iterator[dict[str, str]]:
    """A Slurm with the nodes of a cluster; yields the variables by which its commands find it."""
    folder = cluster.shared / "slurm"
    folder.mkdir()
    (folder / "state").mkdir()
    (folder / "key").write_bytes(os.urandom(128))
    (folder / "key").chmod(0o400)
    nodes = "\n".join(f"NodeName={node} NodeHostname={node} CPUs={CPUS} State=UNKNOWN" for node in cluster.nodes)
    file = folder / "slurm.conf"
    file.write_text(_CONFIGURATION.format(login=cluster.login, folder=folder, nodes=nodes))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    variables = {"SLURM_CONF": str(file)}
    munge = [f"--{name}={folder}/{name}" for name in ("pid-file", "log-file", "seed-file")]
    with contextlib.ExitStack() as stack:

        def start(host: str, program: str, *arguments: object) -> None:
            path = shutil.which(program, path=_PATH)
            log = stack.enter_context(open(folder / f"{program}-{host}.log", "wb"))
            daemon = cluster.popen(
                host, path, *arguments, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
            stack.callback(end, daemon)

        arguments = ["--foreground", "--force", f"--socket={folder}/munge", f"--key-file={folder}/key", *munge]
        start(cluster.login, "munged", *arguments)
        wait_until("munged listens", (folder / "munge").exists)
        start(cluster.login, "slurmctld", "-D")
        for node in cluster.nodes:
            start(node, "slurmd", "-D", "-N", node)

        def idle() -> bool:
            said = cluster.run(cluster.login, "sinfo", "--noheader", "-N", "-o", "%T", env=variables).stdout
            return said.split() == ["idle"] * len(cluster.nodes)

        try:
            wait_until("the nodes of Slurm are idle", idle)
        except AssertionError as error:
            error.add_note("\n".join(log.read_text(errors="replace") for log in folder.glob("*.log")))
            raise
        yield variables
