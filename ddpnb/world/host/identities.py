"""The names of this machine, of its user and of the machines of the job."""

from __future__ import annotations

import getpass
import os
import platform
import socket
from collections.abc import Mapping
from contextlib import suppress

_HOSTS = (
    "HOSTNAME",
    "HOST",
    "MASTER_ADDR",
    "SLURMD_NODENAME",
    "SLURM_JOB_NODELIST",
    "SLURM_NODELIST",
    "SLURM_SUBMIT_HOST",
)
_NO_NAMES = {"", "/"}
_USERS = ("USER", "LOGNAME", "LNAME", "USERNAME", "SUDO_USER", "SLURM_JOB_USER")


def names(variables: Mapping[str, str]) -> tuple[set[str], set[str], set[str]]:
    """Hosts, users and homes that must not be in a report that leaves this machine."""
    hosts = {socket.gethostname(), platform.node(), *(variables.get(name, "") for name in _HOSTS)}
    users = {variables.get(name, "") for name in _USERS}
    homes = {variables.get("HOME", ""), os.path.expanduser("~")}
    with suppress(Exception):  # there is no entry for this user
        users.add(getpass.getuser())
    with suppress(ImportError, KeyError, OSError):
        import pwd

        entry = pwd.getpwuid(os.getuid())
        users.add(entry.pw_name)
        homes.add(entry.pw_dir)
    homes |= {os.path.realpath(home) for home in homes if home}
    return hosts - _NO_NAMES, users - _NO_NAMES, homes - _NO_NAMES
