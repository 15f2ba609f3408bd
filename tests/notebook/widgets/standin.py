"""A page with a widget's own script, and a stand-in for the model that Jupyter would give it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from playwright.sync_api import Browser, ConsoleMessage, Page

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


_idle: WeakKeyDictionary[Browser, list[Page]] = WeakKeyDictionary()  # a new page costs a second, a new document nothing


@contextmanager
def page_in(browser: Browser, **options: Any) -> Iterator[Page]:
    """An empty page. Whatever it complains about fails the test."""
    idle = _idle.setdefault(browser, [])
    page = idle.pop() if idle and not options else browser.new_page(viewport={"width": 1020, "height": 700}, **options)
    complaints: list[str] = []

    def take_error(error: Any) -> None:
        complaints.append(str(error))

    def take(said: ConsoleMessage) -> None:
        if said.type == "error":
            complaints.append(said.text)

    page.on("pageerror", take_error)
    page.on("console", take)
    yield page
    page.mouse.move(0, 0)
    page.goto("about:blank")
    page.remove_listener("pageerror", take_error)
    page.remove_listener("console", take)
    if options:
        page.close()
    else:
        idle.append(page)
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
