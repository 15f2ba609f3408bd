"""What the tests with Open MPI need."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess

#: Open MPI asks for this where the user is root
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def missing() -> str:
    """Why these tests cannot run here; empty if they can."""
    if shutil.which("mpiexec") is None:
        return "needs Open MPI (Debian: apt-get install openmpi-bin)"
    said = subprocess.run(["mpiexec", "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
    return "" if "Open MPI" in said or "OpenRTE" in said else "needs Open MPI: mpiexec is of another MPI"


def has_mpi4py() -> bool:
    return importlib.util.find_spec("mpi4py") is not None
