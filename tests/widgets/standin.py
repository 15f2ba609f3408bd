"""A page with a widget's own script, and a stand-in for the model that Jupyter would give it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page

_PAGE = """<!doctype html><meta charset="utf-8"><style>%(css)s body { width: 1000px; margin: 10px } </style>
<body data-theme="%(theme)s"><div id="root"></div><script type="module">
const decode = (value) =>
  value?.bytes !== undefined ? new DataView(Uint8Array.from(atob(value.bytes), (one) => one.charCodeAt(0)).buffer)
  : Array.isArray(value) ? value.map(decode)
  : value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([name, one]) => [name, decode(one)]))
  : value;
const state = decode(%(state)s), on = {};
window.sent = [];
window.model = {
  get: (name) => state[name],
  set: (name, value) => { state[name] = decode(value); (on[`change:${name}`] ?? []).forEach((one) => one()); },
  on: (name, listener) => (on[name] ??= []).push(listener),
  off: (name, listener) => { on[name] = (on[name] ?? []).filter((one) => one !== listener); },
  send: (content) => sent.push(content),
  save_changes: () => {},
  listeners: () => Object.values(on).flat().length,
  tell: (content, buffers) => (on["msg:custom"] ?? []).forEach((one) => one(decode(content), decode(buffers))),
};
window.script = await import(URL.createObjectURL(new Blob([%(script)s], { type: "text/javascript" })));
if (script.default) window.end = script.default.render({ model, el: document.getElementById("root") });
window.ready = true;
</script>"""


@contextmanager
def page_in(browser: Browser, **options: Any) -> Iterator[Page]:
    """A new page. Whatever it complains about fails the test."""
    page = browser.new_page(viewport={"width": 1020, "height": 700}, **options)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda told: complaints.append(told.text) if told.type == "error" else None)
    yield page
    page.close()
    assert not complaints, complaints


def load(page: Page, script: str, css: str = "", state: dict[str, Any] | None = None, theme: str = "light") -> None:
    """Run a script in the page, and its widget if it has one."""
    given = {"css": css, "theme": theme, "state": json.dumps(sendable(state or {})), "script": json.dumps(script)}
    page.set_content(_PAGE % given)
    page.wait_for_function("window.ready")


def show(page: Page, widget: Any, theme: str = "light") -> None:
    """Show a widget as Jupyter would."""
    state = {name: value for name, value in widget.get_state().items() if not name.startswith("_")}
    state.pop("layout", None)
    load(page, str(widget._esm), str(widget._css), state, theme)


def sendable(value: Any) -> Any:
    """With what is binary as text."""
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {name: sendable(one) for name, one in value.items()}
    return [sendable(one) for one in value] if isinstance(value, (list, tuple)) else value
