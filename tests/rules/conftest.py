"""Every finding that a test here produces must name its ranks with a verb that fits their number."""

from __future__ import annotations

import pytest

from ddpnb.recording.findings import Finding
from tests.language import disagreements


@pytest.fixture(autouse=True)
def verbs_fit_the_number_of_ranks(monkeypatch):
    wrong: list[str] = []
    plain = Finding.__init__

    def checked(self: Finding, *args: object, **kwargs: object) -> None:
        plain(self, *args, **kwargs)
        wrong.extend(hit for text in (self.summary, *self.evidence, self.remedy) for hit in disagreements(str(text)))

    monkeypatch.setattr(Finding, "__init__", checked)
    yield
    assert not wrong
