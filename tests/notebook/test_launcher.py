"""The form that launches a World: the jobs that it offers can be attached, recorded or not."""

from __future__ import annotations

from ddpnb.notebook import launcher
from ddpnb.ranks.jobs.found_job import FoundJob
from tests.render.reading import Reading


def test_a_job_is_attached_by_what_it_is_known_by(monkeypatch):
    found = [
        FoundJob("/dev/shm/j", {0: 41, 1: 42}, 2, ("/opt/venv/bin/python", "train.py", "--name", "a run")),
        FoundJob("", {0: 51, 1: 52}, 2, ("/opt/venv/bin/python", "-u", "other.py")),
    ]
    monkeypatch.setattr(launcher, "jobs", lambda: found)
    page = Reading(launcher.Launcher()._form.html)
    assert [one["data-target"] for one in page.all("button") if one.get("data-action") == "attach"] == [
        "/dev/shm/j",
        "51",
    ]
    assert "process 41: python train.py --name 'a run'" in page.text
    assert "process 51, not recorded: python -u other.py" in page.text
