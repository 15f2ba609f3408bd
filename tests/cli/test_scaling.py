"""``--scaling``: what it takes and refuses, and one pair of runs."""

from __future__ import annotations

import pytest

from ddpnb.cli.scaling import sizes
from ddpnb.errors import UsageError


@pytest.mark.parametrize(
    ("text", "found"), [("1", (1,)), ("1,2,4", (1, 2, 4)), ("4, 1,2", (1, 2, 4)), ("2,2,1", (1, 2)), ("4096", (4096,))]
)
def test_world_sizes_in_ascending_order_each_once(text, found):
    assert sizes(text) == found


@pytest.mark.parametrize(
    "text",
    ["", ",", "1,", ",1", "1,,2", "x", "1,x", "1.5", "-1", "+1", "0", "1,0", "4097", "1" * 400, "²", "٣", "1;2", "1 2"],
)
def test_anything_else_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match="--scaling") as refused:
        sizes(text)
    assert "1,2,4" in str(refused.value)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--scaling", "1,x", "x.py"], "--scaling takes whole numbers"),
        (["--scaling", "1,2", "-n", "2", "x.py"], "leave out -n"),
        (["--scaling", "1,2", "--json", "v.json", "x.py"], "one run"),
        (["--scaling", "1,2", "nope.py"], "does not exist"),
        (["--scaling", "1,2", "--backend", "mpi", "x.py"], "unknown backend"),
        (["--scaling"], "expected one argument"),
    ],
)
def test_wrong_use(args, says, tmp_path, cli):
    (tmp_path / "x.py").write_text("print('it ran')\n")
    done = cli("run", *args, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert "it ran" not in done.stdout


SCRIPT = """
import os
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
print("trained")
dist.barrier()
dist.destroy_process_group()
if sys.argv[1:] == [os.environ["WORLD_SIZE"]]:
    sys.exit(9)
"""


@pytest.mark.full
@pytest.mark.world
def test_each_size_is_run_and_the_worst_status_counts(tmp_path, cli):
    script = tmp_path / "s.py"
    script.write_text(SCRIPT)
    done = cli("run", "--fork", "--scaling", "2,1", "--log-dir", "logs", "--patience", "3", script, "2", cwd=tmp_path)
    assert done.returncode == 9, done.stderr
    assert "trained" not in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if line[:5].strip() in ("1", "2")]
    assert [row[0] for row in rows] == ["1", "2"]
    assert float(rows[0][3]) > 0
    assert rows[1][-1] == "crash"
    for size in (1, 2):
        assert (tmp_path / "logs" / f"{size}ranks" / "rank0.log").read_text().startswith("trained")


@pytest.mark.full
@pytest.mark.world
def test_the_account_of_a_run(tmp_path, cli):
    script = tmp_path / "s.py"
    script.write_text(SCRIPT)
    done = cli("run", "-n", 2, "--fork", "--account", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ddpnb: The ranks" in done.stderr
    assert [line.split()[-1] for line in done.stderr.splitlines() if line.lstrip()[:2] in ("0 ", "1 ")] == ["8", "8"]
