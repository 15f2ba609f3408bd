"""An SSH server on hosts of a simulated cluster, and a key by which its user logs in."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence

from tests.cluster.cluster import Cluster, listens
from tests.simulated_hosts import ROOT, end, wait_until

_PATH = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
KEEP = ("sshd -D", "sshd: ")  # command lines of the server


def missing() -> str:
    """Why there can be no SSH servers here; empty if there can."""
    absent = [name for name in ("sshd", "ssh", "ssh-keygen", "scp") if shutil.which(name, path=_PATH) is None]
    return f"needs {', '.join(absent)} (Debian: apt-get install openssh-server openssh-client)" if absent else ""


@contextlib.contextmanager
def ssh_servers(cluster: Cluster, names: Sequence[str]) -> Iterator[None]:
    """Servers on these hosts, which the user of the cluster may use from all."""
    folder = cluster.home / ".ssh"
    folder.mkdir(mode=0o700)
    for name in ("id_ed25519", "host_key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name]
        subprocess.run(command, check=True, timeout=60)
    (folder / "authorized_keys").write_text((folder / "id_ed25519.pub").read_text())
    (folder / "config").write_text("Host *\n  StrictHostKeyChecking accept-new\n  LogLevel ERROR\n")
    (folder / "sshd_config").write_text(
        f"HostKey {folder}/host_key\nAuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nUsePAM no\n"
        f"PermitRootLogin prohibit-password\nPasswordAuthentication no\nPidFile none\nUseDNS no\nMaxStartups 100\n"
        f"SetEnv PYTHONPATH={ROOT}\nSubsystem sftp internal-sftp\n"
    )
    os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # what the server asks for
    program = shutil.which("sshd", path=_PATH)
    with contextlib.ExitStack() as stack:
        for name in names:
            log = stack.enter_context(open(folder / f"{name}.log", "wb"))
            server = cluster.popen(
                name, program, "-D", "-e", "-f", folder / "sshd_config", stdout=log, stderr=log, start_new_session=True
            )
            stack.callback(end, server)
        for name in names:
            wait_until(f"the SSH server of {name} listens", lambda at=(cluster.hosts[name].address, 22): listens(at))
        yield
