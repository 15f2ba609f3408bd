"""A model that drops messages, since its script took too long to load, takes them again."""

from __future__ import annotations

import pytest

from ddpnb.notebook.widgets.fragment import Fragment
from tests.notebook.widgets.standin import page_in, show

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]
MODEL = """(late) => {
  class Jupyter { _handle_comm_msg(message) { taken.push(message); } }
  class Model extends Jupyter {
    async _handle_comm_msg(message) {
      if (late) throw new Error("late");
      return super._handle_comm_msg(message);
    }
  }
  window.taken = [];
  window.asked = [];
  const own = new Model();
  own.comm = { on_msg: (hear) => (window.hear = hear), send: (content) => asked.push(content) };
  model.widget_manager = { get_model: async (id) => (id === model.get("own") ? own : undefined) };
  script.default.render({ model, el: document.getElementById("root") });
}"""


@pytest.mark.parametrize("late", [True, False])
def test_a_late_model_is_heard_and_asks_for_its_state(chromium, late):
    with page_in(chromium) as page:
        show(page, Fragment("<p>shown</p>", label="world"))
        page.evaluate(MODEL, late)
        page.wait_for_function("asked.length || taken.length")
        assert page.evaluate("asked") == ([{"method": "request_state"}] if late else [])
        if late:
            page.evaluate("hear('what comes')")
            assert page.evaluate("taken") == ["what comes"]
