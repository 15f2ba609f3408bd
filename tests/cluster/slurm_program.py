"""``sbatch``, ``srun``, ``salloc``, ``scancel`` and ``squeue`` of the simulated Slurm: each asks ``slurm.Slurm``, which decides.

Standard library only: they run as programs on the simulated hosts.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

program = os.path.abspath(sys.argv[0])
request = {
    "program": os.path.basename(program),
    "arguments": sys.argv[1:],
    "environment": dict(os.environ),
    "directory": os.getcwd(),
}
with socket.socket(socket.AF_UNIX) as daemon:
    daemon.connect(os.path.join(os.path.dirname(program), "slurmctld"))
    socket.send_fds(daemon, [b"\n"], [0, 1, 2])  # tasks use them, as those of srun do
    daemon.sendall(json.dumps(request).encode() + b"\n")
    with daemon.makefile() as answers:
        answer = json.loads(answers.readline() or '{"error": "slurmctld is not running", "status": 1}')
        sys.stdout.write(answer.get("output", ""))
        if answer.get("error"):
            sys.stderr.write(f"{request['program']}: error: {answer['error']}\n")
        if "allocation" in answer:  # of salloc, until the command ends
            sys.stdout.flush()
            command = answer["command"] or [os.environ.get("SHELL", "/bin/sh")]
            answer["status"] = subprocess.run(command, env=answer["allocation"], check=False).returncode
sys.exit(answer.get("status", 0))
