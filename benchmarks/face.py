"""How fast what one sees is: ``python -m benchmarks.face timeline``.

The widgets' own scripts run in headless Chromium, with a stand-in for the model that Jupyter gives them;
what is printed are medians. A frame counts when it is painted: the time from one animation frame to the
next while somebody drags or turns the wheel.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from playwright.sync_api import sync_playwright

from benchmarks.rows import Goal, Row
from benchmarks.show import alone
from ddpnb.notebook.widgets.timeline import Timeline
from ddpnb.recording.calls import Call, CallState, Group, Signature, Site
from ddpnb.recording.recording import RankRecord, Recording

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
ROUNDS = 5
STEP_NS, BEGAN_NS = 10_000_000, 10**13

# What Jupyter gives to a widget's script, as far as the script needs it. Values come in before the clock starts.
PAGE = """<!doctype html><meta charset="utf-8"><style>{css} body {{ width: 1100px; margin: 10px }}</style>
<body data-theme="light"><div id="root"></div><script type="module">
const state = {{}}, on = {{}};
window.decode = (text) => new DataView(Uint8Array.from(atob(text), (one) => one.charCodeAt(0)).buffer);
window.model = {{
  get: (name) => state[name], set: (name, value) => {{ state[name] = value; }}, send: () => {{}}, save_changes: () => {{}},
  on: (name, listener) => (on[name] ??= []).push(listener), off: () => {{}},
  fire: (name, ...values) => (on[name] ?? []).forEach((one) => one(...values)),
}};
const url = URL.createObjectURL(new Blob([{script}], {{ type: "text/javascript" }}));
window.widget = (await import(url)).default;
window.frame = () => new Promise((done) => requestAnimationFrame(done));
window.ready = true;
</script>"""


@contextmanager
def page_of(widget, width=1140, height=800):
    """A page that has the widget's script and its state, and has not shown it yet."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_content(PAGE.format(css=widget._css, script=json.dumps(str(widget._esm))))
        page.wait_for_function("window.ready")
        yield page
        browser.close()


def text_of(value: bytes) -> str:
    return base64.b64encode(value).decode()


def training(ranks: int, calls: int) -> Recording:
    """All-reduces; every rank comes a little later or earlier to each."""
    random.seed(0)
    group = Group(tuple(range(ranks)), label="default_pg")
    signatures = [Signature("all_reduce", ((1024 * n,),), ("float32",), agreed=str(n)) for n in range(8)]
    sites = [Site("/home/user/train.py", 80 + n, "train_step") for n in range(8)]
    records = {}
    for rank in range(ranks):
        made = [
            call(group, number, signatures[number % 8], sites[number % 8], random.randrange(4_000_000))
            for number in range(calls)
        ]
        records[rank] = RankRecord(rank, calls=tuple(made))
    return Recording(ranks, records, taken_ns=BEGAN_NS + calls * STEP_NS)


def call(group, number, signature, site, late):
    at = BEGAN_NS + number * STEP_NS
    return Call(number, group, number + 1, signature, site, CallState.COMPLETED, 1, entered_ns=at + late, done_ns=at + 5_500_000)  # fmt: skip


FIRST_PAINT = """async () => {
  const began = performance.now();
  window.shown = widget.render({ model, el: document.getElementById("root") });
  await frame(); await frame(); await frame();
  return performance.now() - began;
}"""

# One pointer or wheel event for each frame; the times between them.
FRAMES = """async (kind) => {
  const canvas = document.querySelector("canvas"), box = canvas.getBoundingClientRect();
  const event = (name, more) => {
    const Kind = name === "wheel" ? WheelEvent : PointerEvent;
    canvas.dispatchEvent(new Kind(name, { bubbles: true, cancelable: true, clientY: box.top + 60, pointerId: 1, button: 0, ...more }));
  };
  canvas.setPointerCapture = () => {};
  const times = [];
  const middle = box.left + box.width / 2;
  if (kind === "pan") event("pointerdown", { clientX: middle });
  await frame();
  let last = performance.now();
  for (let i = 0; i < 90; i++) {
    if (kind === "pan") event("pointermove", { clientX: middle + 5 * (i % 60 < 30 ? i % 30 : 30 - (i % 30)) });
    else event("wheel", { clientX: middle, ctrlKey: true, deltaY: i % 60 < 30 ? -25 : 25 });
    await frame();
    const now = performance.now();
    times.push(now - last);
    last = now;
  }
  if (kind === "pan") event("pointerup", { clientX: middle });
  return times;
}"""

UPDATE = """async ({ head, events, places }) => {
  const buffers = [decode(events), decode(places)];
  await frame(); await frame();
  const began = performance.now();
  model.fire("msg:custom", { kind: "news", head }, buffers);
  const taken = performance.now() - began;
  await frame(); await frame();
  return [taken, performance.now() - began];
}"""


def drawn_by_matplotlib(recording: Recording) -> float:
    """Seconds for a picture of the same calls as bars, as people draw them; it cannot be moved."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    began = time.perf_counter()
    figure = Figure(figsize=(11.4, 8))
    axes = figure.subplots()
    for rank, record in recording.ranks.items():
        axes.broken_barh(
            [((one.entered_ns - BEGAN_NS) / 1e9, (one.done_ns - one.entered_ns) / 1e9) for one in record.calls],
            (rank, 0.8),
        )
    FigureCanvasAgg(figure).draw()
    return time.perf_counter() - began


def timeline(quick: bool = False, ranks: int = 64, calls: int = 10_000) -> Iterator[Row]:
    """the time line: built, first painted, moved and zoomed, and brought up to date"""
    ranks, calls, rounds = (4, 500, 1) if quick else (ranks, calls, ROUNDS)
    recording = training(ranks, calls)
    built, packed = [], []
    for _ in range(rounds):
        began = time.perf_counter()
        widget = Timeline(recording)
        built.append(time.perf_counter() - began)
        began = time.perf_counter()
        state = widget.get_state()
        packed.append(time.perf_counter() - began)
    columns = state["columns"]
    painted, updates, added = [], [], []
    rates: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        with page_of(widget) as page:
            page.evaluate("([events, places]) => { window.parts = [decode(events), decode(places)]; }", [text_of(columns[n]) for n in ("events", "places")])  # fmt: skip
            page.evaluate(
                "([head, version]) => { model.set('columns', { head, events: parts[0], places: parts[1] }); model.set('version', version); }",
                [columns["head"], columns["head"]["version"]],
            )
            painted.append(page.evaluate(FIRST_PAINT) / 1e3)
            for view in ("recent", "all"):
                if view == "all":
                    page.get_by_role("button", name="show all").click()
                for kind in ("pan", "zoom"):
                    rates.setdefault((view, kind), []).extend(page.evaluate(FRAMES, kind))
            for _ in range(rounds):
                took, more = _news(recording, widget)
                added.append(took)
                updates.append(page.evaluate(UPDATE, more)[1] / 1e3)
        widget = Timeline(recording)
        widget.get_state()
    size = (len(columns["events"]) + len(columns["places"])) / 1e6
    what = f"time line of {ranks} ranks x {calls:,} calls"
    whole = tuple(map(sum, zip(built, packed, painted, strict=True)))
    matplotlib = tuple(drawn_by_matplotlib(recording) for _ in range(1 if quick else 2))
    note = f"built in Python {statistics.median(built):.2f} s; {size:.1f} MB; the peer's picture cannot be moved"
    yield Row(
        "timeline", f"{what}: built and painted", whole, peer="matplotlib, broken_barh", theirs=matplotlib, note=note
    )
    yield Row("timeline", "first paint", tuple(painted), goal=Goal(1.0, "median"))
    for (view, kind), times in rates.items():
        slow = sorted(times)[int(0.95 * len(times))]
        frames = tuple(1e3 / one for one in times)
        note = f"the slowest of twenty {slow:.0f} ms"
        yield Row(
            "timeline",
            f"{kind}, {view} calls in sight",
            frames,
            "frames/s",
            goal=Goal(30.0, "median", least=True),
            note=note,
        )
    note = f"before in Python {statistics.median(added) * 1e3:.1f} ms"
    yield Row(
        "timeline", "100 new calls, until they are on the screen", tuple(updates), goal=Goal(0.05, "median"), note=note
    )


def _news(recording: Recording, widget: Timeline):
    """100 new calls of the last 50 ranks; the time Python takes, and the message."""
    group, sent = recording.ranks[0].calls[0].group, []
    widget.send = lambda content, buffers=None: sent.append((content, buffers))
    number = max(span.number for span in widget.lanes.spans(0, 1)) + 1
    first = recording.ranks[0].calls[0]
    made = [call(group, number + n, first.signature, first.site, 1000) for n in range(2)]
    ranks = sorted(recording.ranks)[:50]
    began = time.perf_counter()
    widget.add(dict.fromkeys(ranks, made), now_ns=made[-1].done_ns)
    took = time.perf_counter() - began
    content, buffers = sent[-1]
    return took, {"head": content["head"], "events": text_of(buffers[0]), "places": text_of(buffers[1])}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_subparsers(dest="what", required=True)
    one = what.add_parser("timeline", help="64 ranks x 10,000 calls")
    one.add_argument("--ranks", type=int, default=64)
    one.add_argument("--calls", type=int, default=10_000)
    given = parser.parse_args()
    if given.what == "timeline":
        alone("timeline", partial(timeline, ranks=given.ranks, calls=given.calls))
