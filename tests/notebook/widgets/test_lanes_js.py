"""The time line in a real browser: its arithmetic, and what somebody sees and does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from playwright.sync_api import expect

from ddpnb.notebook.widgets.timeline import Timeline
from ddpnb.notebook.widgets.view import module
from ddpnb.recording.calls import Call, CallState, Group, Signature, Site
from ddpnb.recording.ending import Ending
from ddpnb.recording.marks import Mark
from ddpnb.recording.recording import Process, RankRecord, Recording
from tests.notebook.widgets.standin import load, page_in, sendable, show
from tests.rules.recordings import diagnose

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

GROUP = Group((0, 1, 2), label="default_pg")
REDUCE = Signature("all_reduce", ((1024,),), ("float32",), agreed="all_reduce|1024")
BARRIER = Signature("barrier", agreed="barrier")
NASTY = "<img src=x onerror=alert(1)>.py"
MS = 1_000_000
BEGAN = 10**12


def call(number, at, done=0, signature=REDUCE, file="train.py", **more):
    """Milliseconds; without an end the rank waits in it."""
    state = more.pop("state", CallState.COMPLETED if done else CallState.WAITING)
    fields = {"seq": number + 1, "entered_ns": BEGAN + int(at * MS), "done_ns": BEGAN + int(done * MS) if done else 0}
    return Call(number, GROUP, signature=signature, site=Site(file, 88, "step"), state=state, **{**fields, **more})


def hang(file="train.py"):
    """Rank 1 makes a barrier where the others make the sixth all-reduce."""
    records = {}
    for rank in range(3):
        made = [call(n, 100 * n + 20 * rank, 100 * n + 60, file=file) for n in range(5)]
        made[3] = call(3, 300 + 20 * rank, 399.99 + 20 * rank)  # nobody waited for it
        made.append(call(5, 500 + 20 * rank, signature=BARRIER if rank == 1 else REDUCE, file=file))
        records[rank] = RankRecord(rank, calls=tuple(made), process=Process("idle", 1.0))
    return Recording(3, records, taken_ns=BEGAN + 1000 * MS)


def timeline(recording=None, **traits):
    recording = recording or hang()
    return Timeline(recording, diagnose(recording), **traits)


@pytest.fixture(scope="module")
def browser(chromium):
    return chromium


@pytest.fixture(scope="module")
def pure(browser):
    """A page that has the arithmetic alone, with the lanes of the hang in ``store``."""
    columns = timeline().get_state()["columns"]
    with page_in(browser) as page:
        load(page, module("axis.js", "columns.js", "lanes.js", "chosen.js"), state={"columns": columns})
        page.evaluate(
            """() => {
                const { head, events, places } = model.get("columns");
                window.store = script.emptyStore();
                script.take(store, head, events, places);
            }"""
        )
        yield page


@pytest.fixture
def page(browser):
    with page_in(browser) as page:
        yield page


def rounded(values):
    return [round(value, 6) for value in values]


# -- arithmetic


def test_columns_are_read(pure):
    found = pure.evaluate("() => store.lanes.map((lane) => [lane.count, [...lane.number.slice(0, lane.count)]])")
    assert found == [[6, [0, 1, 2, 3, 4, 5]]] * 3
    assert pure.evaluate("() => store.rows.map((row) => row.rank)") == [0, 1, 2]
    assert rounded(pure.evaluate("() => [...store.lanes[2].begin.slice(0, 2), store.now]")) == [0.04, 0.14, 1.0]


def test_spans_are_those_of_python(pure):
    lanes = timeline().lanes
    for rank in range(3):
        drawn = pure.evaluate(
            """(at) => [...Array(store.lanes[at].count).keys()].map((i) => script.spanOf(store, store.lanes[at], i, store.now))""",
            rank,
        )
        for one, own in zip(drawn, lanes.spans(rank), strict=True):
            assert rounded([one["begin"], one["met"], one["end"]]) == rounded([own.begin, own.met, own.end])


@pytest.mark.parametrize(
    ("begin", "end", "range_"),
    [(-9, 9, [0, 6]), (0.07, 0.09, [1, 1]), (0.05, 0.11, [0, 2]), (0.7, 0.8, [5, 6]), (-5, -4, [0, 0]), (0.06, 0.06, [0, 1])],
)  # fmt: skip
def test_visible_calls(pure, begin, end, range_):
    assert pure.evaluate("([begin, end]) => script.visible(store.lanes[0], begin, end)", [begin, end]) == range_


def test_coverage_of_pixels(pure):
    """Ten pixels of ten milliseconds each."""
    found = pure.evaluate(
        """() => {
            const into = script.coverageOf(10);
            const shadow = script.cover(store, 1, { begin: 0, end: 0.1 }, 10, store.now, into);
            return { shadow, ...Object.fromEntries(script.PARTS.map((name) => [name, [...into[name]]])) };
        }"""
    )
    assert not found["shadow"]
    assert rounded(found["computing"]) == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]  # its lane begins with its first call
    assert rounded(found["waiting"]) == [0, 0, 1, 1, 0, 0, 0, 0, 0, 0]
    assert rounded(found["collective"]) == [0, 0, 0, 0, 1, 1, 0, 0, 0, 0]


def test_parts_of_a_pixel(pure):
    """One pixel: 40 ms waiting, 20 in the collective, 40 computing."""
    found = pure.evaluate(
        """() => {
            const into = script.coverageOf(1);
            script.cover(store, 0, { begin: 0, end: 0.1 }, 1, store.now, into);
            return script.PARTS.slice(0, 3).map((name) => into[name][0]);
        }"""
    )
    assert [round(value, 3) for value in found] == [0.4, 0.4, 0.2]


def test_many_calls_on_a_pixel_are_summed_up_beforehand(browser):
    """The quick way gives what the exact one does, and what comes later is seen."""
    records = {
        rank: RankRecord(rank, calls=tuple(call(n, 10 * n + 2 * rank, 10 * n + 7) for n in range(6000)))
        for rank in range(3)
    }
    columns = Timeline(Recording(3, records)).get_state()["columns"]
    with page_in(browser) as page:
        load(page, module("axis.js", "columns.js", "lanes.js", "chosen.js"), state={"columns": columns})
        quick, exact, summed = page.evaluate(
            """() => {
                const store = script.emptyStore(), { head, events, places } = model.get("columns");
                script.take(store, head, events, places);
                const view = script.wholeView(store);
                const parts = (width) => {
                    const into = script.coverageOf(width);
                    script.cover(store, 1, view, width, store.now, into);
                    return script.PARTS.map((name) => [...into[name]]);
                };
                const fine = parts(3200), coarse = parts(400);
                const folded = fine.map((all) => coarse[0].map((_, x) => all.slice(8 * x, 8 * x + 8).reduce((a, b) => a + b) / 8));
                return [coarse, folded, store.lanes[1].summary.count];
            }"""
        )
    assert summed > 5000
    for one, other in zip(quick, exact, strict=True):
        assert one == pytest.approx(other, abs=0.02)


def test_hits(pure):
    hits = pure.evaluate(
        "() => [[0, 0.03], [0, 0.062], [0, 0.08], [1, 0.9], [2, -1], [9, 0]].map(([at, t]) => script.hit(store, at, t, 0.004, store.now))"
    )
    assert hits == [0, 0, -1, 5, -1, -1]
    assert pure.evaluate("() => [-1, 0.04, 0.09, 9].map((t) => script.nearest(store, 0, t))") == [0, 0, 1, 5]


def test_what_is_new_is_added_or_replaces(pure):
    found = pure.evaluate(
        """() => {
            const own = script.emptyStore();
            const { head, events, places } = model.get("columns");
            script.take(own, head, events, places);
            script.take(own, { ...head, whole: false, texts: [], kinds: [] }, events, places);
            const again = own.lanes.map((lane) => lane.count);
            script.take(own, head, events, places);
            return [again, own.lanes.map((lane) => lane.count), own.texts.length === head.texts.length];
        }"""
    )
    assert found == [[6, 6, 6], [6, 6, 6], True]


PAIR, REBUILT = Group((0, 1), label="default_pg"), Group((0, 1), 1, "rebuilt")
#: every number that drawing and pointing derive from a store, by name
DERIVED = """(store) => {
    const found = {}, note = (name, values) => (found[name] ??= []).push(...values);
    for (const now of [store.now, store.now + 5]) {
        const views = [script.wholeView(store, now), script.recentView(store, now), script.recentView(store, now, 0.5)];
        for (let i = 0; i < 40; i++) views.push(script.zoomed(views.at(-1), 0.4, views[0].end, views[0]));
        for (const view of views) {
            note("views", [view.begin, view.end, 1 / (view.end - view.begin), script.moved(view, 1, views[0]).begin]);
            note("ticks", script.ticks(view, 500, 0).map((tick) => tick.at));
            store.lanes.forEach((lane, at) => {
                const into = script.coverageOf(50);
                script.cover(store, at, view, 50, now, into);
                for (const name of script.PARTS) note(name, into[name]);
                note("visible", script.visible(lane, view.begin, view.end));
            });
        }
        store.lanes.forEach((lane, at) => {
            note("reach", [...lane.reach.slice(0, lane.count)].map((value) => (value === Infinity ? 0 : value)));
            for (let i = 0; i < lane.count; i++) {
                const { begin, met, end } = script.spanOf(store, lane, i, now);
                note("spans", [begin, met, end, end - met, met - begin]);
                if (/NaN|Infinity|undefined/.test(JSON.stringify(script.describe(store, at, i, now)))) note("words", [NaN]);
            }
        });
    }
    return Object.keys(found).filter((name) => !found[name].every(Number.isFinite));
}"""


def told(page, widget, *updates):
    """Give a page the widget as it is, then each of these updates as the message that a live page receives."""
    sent = []
    widget.send = lambda content, buffers=None: sent.append((content["head"], *buffers))
    columns = widget.get_state()["columns"]
    for calls in updates:
        widget.add(calls)
    given = sendable([[columns["head"], columns["events"], columns["places"]], *map(list, sent)])
    load(page, module("axis.js", "columns.js", "lanes.js", "chosen.js"), state={"messages": given})
    page.evaluate(
        """() => {
            window.store = script.emptyStore();
            for (const [head, events, places] of model.get("messages")) script.take(store, head, events, places);
        }"""
    )


def test_calls_that_no_other_rank_made_do_not_hide_later_ones(browser):
    """Rank 1 issued two calls that were never completed before the ranks were released."""
    first = {rank: (replace(call(0, 10 * rank, 20), group=PAIR),) for rank in range(2)}
    alone = [replace(call(n, 20 + n, state=CallState.ISSUED), group=PAIR) for n in (1, 2)]
    later = {
        rank: [replace(call(n, 1000 * n + 100 * rank, 1000 * n + 200, seq=n - 2), group=REBUILT) for n in range(3, 9)]
        for rank in range(2)
    }
    widget = Timeline(Recording(2, {rank: RankRecord(rank, calls=calls) for rank, calls in first.items()}))
    with page_in(browser) as page:
        told(page, widget, {1: alone}, later)
        assert page.evaluate(f"({DERIVED})(store)") == []
        lanes = page.evaluate(
            """() => store.lanes.map((lane) => {
                const [from, to] = script.visible(lane, 4.9, 5.3);
                return [...lane.number.slice(from, to)];
            })"""
        )
        assert lanes == [[5], [1, 2, 3, 4, 5]]  # what is still open reaches into every later view
        collective = page.evaluate(
            """() => store.lanes.map((lane, at) => {
                const into = script.coverageOf(8);
                script.cover(store, at, { begin: 4.9, end: 5.3 }, 8, store.now, into);
                return [...into.collective];
            })"""
        )
    assert [rounded(one) for one in collective] == [[0, 0, 0, 0, 1, 1, 0, 0]] * 2


def strange_calls(kind, rank):
    """Calls as a damaged record, a changed clock or a stopped rank leaves them; all in the order of their numbers."""
    states = list(CallState)
    ordinary = {n: call(n, 10 * n + rank, 10 * n + 5, state=states[(n + rank) % len(states)]) for n in range(12)}
    changes = {
        "no time is known": {"entered_ns": 0, "issued_ns": 0, "done_ns": 0},
        "never issued": {"issued_ns": 0},
        "without an end": {"done_ns": 0},
        "ends before it begins": {"done_ns": BEGAN - 5000 * MS},
        "a clock that jumps": {"entered_ns": (1 << 63) + rank, "done_ns": 5},
        "impossible times": {"entered_ns": -1, "done_ns": 1 << 80, "issued_ns": 1 << 64},
        "alone in its place": {"seq": 10_000 + 100 * rank},
    }
    return [replace(one, **changes[kind]) if n % 3 == rank else one for n, one in ordinary.items()]


@pytest.mark.parametrize(
    "kind",
    ["no time is known", "never issued", "without an end", "ends before it begins", "a clock that jumps", "impossible times", "alone in its place"],
)  # fmt: skip
def test_no_number_is_lost_to_strange_calls(browser, kind):
    """Rank 2 has no calls at all; rank 1 has none at first."""
    records = {0: RankRecord(0, calls=tuple(strange_calls(kind, 0)[:5])), 1: RankRecord(1), 2: RankRecord(2)}
    with page_in(browser) as page:
        told(
            page,
            Timeline(Recording(3, records)),
            {rank: strange_calls(kind, rank)[:8] for rank in range(2)},
            {rank: strange_calls(kind, rank)[6:] for rank in range(2)},
            {0: [call(20, 1)]},  # earlier than all before it
        )
        assert page.evaluate(f"({DERIVED})(store)") == []


def test_labels_of_the_axis(pure):
    def labels(begin, end, zero):
        given = [begin, end, zero]
        return pure.evaluate("([begin, end, zero]) => script.ticks({ begin, end }, 550, zero).map((one) => one.text)", given)  # fmt: skip

    assert labels(-1, 0, 0) == ["−1.0 s", "−0.8 s", "−0.6 s", "−0.4 s", "−0.2 s", "0 s"]
    assert labels(10, 10.004, 10) == ["0 s", "0.001 s", "0.002 s", "0.003 s", "0.004 s"]
    assert labels(7199, 7201, 0)[0] == "7199.0 s"
    assert len(labels(0, 1e-9, 0)) < 100


def test_lengths_in_words(pure):
    texts = pure.evaluate("() => [0, 3e-6, 0.0123, 1.5, 61, 600, 8000].map(script.spanText)")
    assert texts == ["0 s", "3 µs", "12.3 ms", "1.50 s", "61.0 s", "600.0 s", "8000.0 s"]


def test_views(pure):
    whole = pure.evaluate("() => script.wholeView(store)")
    assert rounded([whole["begin"], whole["end"]]) == [0, 1.01]
    # The ranks have stood for half a second: what they did before stays in sight.
    recent = pure.evaluate(
        """() => {
            const gaps = script.gapsOf(store.quiet, 100.54, 1000);
            const { from, to, pieces } = script.seen(gaps, script.recentView(store, 100.54), 1000);
            return [from, to, pieces.map(({ short, left, right }) => [Boolean(short), right - left])];
        }"""
    )
    assert recent[0] < 0.01 < 100.54 < recent[1]
    assert [short for short, _ in recent[2]] == [False, True, False] and recent[2][1][1] < 0.4
    zoomed = pure.evaluate("() => script.zoomed({ begin: 0, end: 1 }, 0.5, 0.25, { begin: 0, end: 1 })")
    assert zoomed == {"begin": 0.125, "end": 0.625}
    far = pure.evaluate("() => script.moved({ begin: 0, end: 1 }, 1e9, { begin: 0, end: 1 })")
    assert far["begin"] < 1
    assert pure.evaluate("() => script.wholeView(script.emptyStore()).end") > 0


QUIET = """(moments) => {
    const quiet = script.emptyQuiet();
    for (const moment of moments) script.touch(quiet, moment);
    return quiet;
}"""


def shortened(pure, moments, now, pixels=1000):
    """Of a view of all: the stretches that are shortened, and how many pixels each takes."""
    return pure.evaluate(
        f"""([moments, now, pixels]) => {{
            const first = Math.min(...moments), quiet = ({QUIET})(moments);
            const {{ scale, wide }} = script.fit(script.gapsOf(quiet, now, pixels), first, now, pixels);
            const axis = script.axisOf(script.gapsOf(quiet, now, pixels, wide), scale);
            for (let moment = first; moment < now; moment += (now - first) / 97) {{
                const again = script.momentOf(axis, script.drawnAt(axis, moment));
                if (Math.abs(again - moment) > 1e-6) throw new Error(`${{moment}} is read as ${{again}}`);
            }}
            const all = (script.drawnAt(axis, now) - script.drawnAt(axis, first)) / scale;
            if (Math.abs(all - pixels) > 0.01) throw new Error(`it takes ${{all}} pixels`);
            return axis.gaps.map(({{ begin, end, from, to }}) => [begin, end, (to - from) / scale]);
        }}""",
        [moments, now, pixels],
    )


STEPS = [n / 100 for n in range(100)]  # a second


def test_long_times_in_which_nothing_happens_are_shortened(pure):
    later = [600 + at for at in STEPS]
    assert rounded(sum(shortened(pure, [*STEPS, *later], 600.99), [])) == [0.99, 600, 110]
    waits = shortened(pure, STEPS, 4000)  # nothing has happened until now
    assert rounded(sum(waits, [])) == [0.99, 4000, 360]
    assert shortened(pure, [*STEPS, 1.5], 1.5) == []  # it is not long
    slow = [2.0 * n for n in range(40)]
    assert shortened(pure, slow, 79) == []  # every step takes so long
    assert rounded(sum(shortened(pure, slow, 200, 300), [])) == [78, 200, 180]  # room for words
    far = [0, 0.5, 1, 1e9, 1e9 + 0.5]  # a clock that jumps
    assert len(shortened(pure, far, 1e9 + 0.5)) == 1
    assert len(shortened(pure, [0, 3], 63)) == 1  # there is nothing else: they have all the room
    assert shortened(pure, [*reversed(later), *STEPS, 300], 601)[0][1] == 300  # in any order


def test_a_wait_is_brought_to_its_width_without_a_jump(pure):
    moments = [1.5 + n / 20 for n in range(70)]
    widths = [sum(one[2] for one in shortened(pure, STEPS, now)) or 1000 * (now - 0.99) / now for now in moments]
    assert max(abs(a - b) for a, b in zip(widths, widths[1:], strict=False)) < 40
    assert widths[-1] == pytest.approx(360)


def test_what_is_under_the_pointer_stays_there(pure):
    moved = pure.evaluate(
        f"""(moments) => {{
            const gaps = script.gapsOf(({QUIET})(moments), 601, 1000), axisAt = (length) => script.axisOf(gaps, length / 1000);
            const whole = {{ begin: 0, end: 3 }}, found = [];
            let view = {{ begin: 0, end: 3 }};
            const about = 600.4, at = () => (script.drawnAt(axisAt(view.end - view.begin), about) - view.begin) / (view.end - view.begin);
            const first = at();
            for (const factor of [0.5, 0.5, 0.1, 3, 3]) (view = script.zoomed(view, factor, about, whole, axisAt)), found.push(at() - first);
            return found;
        }}""",
        [*STEPS, *(600 + at for at in STEPS)],
    )
    assert rounded(moved) == [0] * 5


def test_pieces_of_a_view_cover_its_pixels(pure):
    """A wait of a minute: before it nothing is moved, within it as much of each pixel waits, behind it comes the rest."""
    found = pure.evaluate(
        """() => {
            const store = { ...script.emptyStore(), rows: [{ rank: 0, begin: 0, until: null, mark: null }] };
            const own = script.emptyStore();
            const { head, events, places } = model.get("columns");
            script.take(own, head, events, places);
            script.touch(own.quiet, 61);
            const gaps = script.gapsOf(own.quiet, 61, 100), view = script.seen(gaps, { begin: 0, end: 1 }, 100);
            const into = script.coverageOf(100);
            script.cover(own, 0, view, 100, 61, into);
            return [view.pieces.map(({ left, right, short }) => [left, right, Boolean(short)]), [...into.waiting].slice(50, 100), store.rows.length];
        }"""
    )
    pieces, waiting, _ = found
    assert [short for *_, short in pieces] == [False, True] and pieces[0][1] == pieces[1][0] == pytest.approx(0.54)
    assert rounded(waiting[:1]) == [1] and all(value == pytest.approx(1) for value in waiting)


def test_words_are_cut_to_fit(pure):
    cut = pure.evaluate("() => [6, 100, 3].map((room) => script.fitted('all_reduce', room, (one) => one.length))")
    assert cut == ["all_r…", "all_reduce", ""]


def test_words_take_a_place_where_nothing_is(pure):
    free = """(but) => script.freeOf(store, 0, { from: 0.2, to: 2 }, 1, (moment) => Math.round(1000 * moment), [210, 1200], but)"""
    assert pure.evaluate(free, -1) == [[261, 300], [341, 400], [461, 500], [1001, 1200]]
    assert pure.evaluate(free, 5) == [[261, 300], [341, 400], [461, 1200]], "but for the call on which they are"
    found = pure.evaluate(
        "(spans) => spans.map(([free, span, wanted]) => script.stretchFor(free, span, wanted) ?? null)",
        [
            [[[461, 1200]], [500, 1000], 80],  # within their span
            [[[1001, 1200]], [500, 1000], 80],  # after it
            [[[0, 400], [1001, 1020]], [500, 1000], 80],  # before it
            [[[450, 500], [1001, 1020]], [500, 1000], 80],  # too narrow everywhere: shortened
            [[], [500, 1000], 80],
        ],
    )
    assert found == [[500, 1000], [1001, 1200], [320, 400], [1001, 1020], None]


# -- what one sees


PIXELS = """([lane, from, to]) => {
    const canvas = document.querySelector("canvas"), ratio = devicePixelRatio;
    const data = canvas.getContext("2d").getImageData(from * ratio, (24 + lane * 34 + 10) * ratio, (to - from) * ratio, 14 * ratio).data;
    const found = new Set();
    for (let i = 0; i < data.length; i += 4) found.add(data[i + 3] > 100 ? `${data[i]},${data[i + 1]},${data[i + 2]}` : "clear");
    return [...found];
}"""  # fmt: skip
AMBER, GREEN = "138,90,0", "0,116,90"


def at(page, seconds):
    """Where a moment is, in pixels from the left of the canvas, when all is in sight."""
    width = page.evaluate("() => document.querySelector('canvas').clientWidth")
    return 64 + seconds / 1.01 * (width - 64 - 12)


def show_all(page, widget, **more):
    show(page, widget, **more)
    page.get_by_role("button", name="show all").click()
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def test_waiting_is_hatched_and_the_collective_is_not(page):
    show_all(page, timeline())
    waiting = page.evaluate(PIXELS, [0, int(at(page, 0.905)), int(at(page, 0.995))])
    assert AMBER in waiting and "clear" in waiting
    assert page.evaluate(PIXELS, [0, int(at(page, 0.045)), int(at(page, 0.055))]) == [GREEN]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_are_those_of_the_theme(page, theme):
    show_all(page, timeline(), theme=theme)
    assert page.evaluate(PIXELS, [0, int(at(page, 0.045)), int(at(page, 0.055))]) == [GREEN if theme == "light" else "46,199,155"]  # fmt: skip
    page.evaluate("() => { document.body.dataset.theme = 'light'; }")
    page.wait_for_timeout(200)
    assert page.evaluate(PIXELS, [0, int(at(page, 0.045)), int(at(page, 0.055))]) == [GREEN]


def test_sharp_on_a_dense_screen(browser):
    with page_in(browser, device_scale_factor=2) as page:
        show_all(page, timeline())
        sizes = page.evaluate("() => { const c = document.querySelector('canvas'); return [c.width, c.clientWidth]; }")
        assert sizes[0] == 2 * sizes[1]
        assert AMBER in page.evaluate(PIXELS, [0, int(at(page, 0.905)), int(at(page, 0.995))])


def chosen(page):
    return page.get_by_role("region", name="what was chosen")


def said(page):
    return page.locator(".unseen").inner_text()


def test_a_chosen_call_is_shown_beside_the_time_line(page):
    show_all(page, timeline())
    canvas = page.locator("canvas")
    canvas.click(position={"x": at(page, 0.25), "y": 24 + 34 + 17})
    for text in ("Rank 1: all_reduce #3", "default_pg", "waited 20 ms"):
        assert text in chosen(page).inner_text()
    box, beside = canvas.bounding_box(), chosen(page).bounding_box()
    assert beside["x"] > box["x"] + box["width"] and beside["y"] < box["y"] + box["height"]
    came = chosen(page).get_by_role("row").all_inner_texts()
    assert [row.split("\t")[:3] for row in came[1:]] == [
        ["0", "0.2 s", "+0 s"], ["1", "0.22 s", "+0.02 s"], ["2", "0.24 s", "+0.04 s"],
    ]  # fmt: skip
    assert "rank 1: all_reduce #3" in said(page)
    chosen(page).get_by_role("link").click()
    assert page.evaluate("() => sent.map(({ action, values }) => [action, values.file, values.line])") == [["place", "train.py", "88"]]  # fmt: skip
    chosen(page).get_by_role("button", name="close").click()
    expect(chosen(page)).to_be_hidden()


def test_python_answers_for_places_that_are_shown_alone():
    widget, sent = timeline(), []
    widget.send = lambda content, buffers=None: sent.append(content)
    for file in ("train.py", "/etc/passwd"):
        widget._take(widget, {"action": "place", "values": {"file": file, "line": "88", "root": ""}}, None)
    assert [(one["kind"], one["file"]) for one in sent] == [("place", "train.py")]


def test_calls_are_found_by_operation_and_number(page):
    show_all(page, timeline())
    field = page.get_by_role("searchbox", name="search for a call")
    page.locator("canvas").focus()
    page.keyboard.press("/")
    for typed, of, first in (
        ("all_reduce #3", 3, "rank 0: all_reduce #3"), ("barrier", 1, "rank 1: barrier #6"),
        ("#2", 3, "rank 0: all_reduce #2"), ("train.py", 18, "rank 0: all_reduce #"),
    ):  # fmt: skip
        field.fill(typed)
        page.keyboard.press("Enter")
        expect(page.locator(".looking .count")).to_contain_text(f" of {of}")
        assert said(page).startswith(first)
    page.keyboard.press("Escape")
    assert page.evaluate("() => document.activeElement.tagName") == "CANVAS"
    field.fill("broadcast")
    page.keyboard.press("Enter")
    assert page.locator(".looking .count").inner_text() == "none is shown"


def test_an_interval_is_summed_up(page):
    show_all(page, timeline())
    box = page.locator("canvas").bounding_box()
    y = box["y"] + 24 + 17
    page.mouse.move(box["x"] + at(page, 0.1), y)
    page.keyboard.down("Shift")
    page.mouse.down()
    page.mouse.move(box["x"] + at(page, 0.2), y, steps=3)
    page.mouse.up()
    page.keyboard.up("Shift")
    rows = [row.split("\t") for row in chosen(page).get_by_role("row").all_inner_texts()]
    assert rows[0] == ["rank", "computing", "waiting", "in collectives", "held", "calls"]
    seconds = [[float(text.removesuffix(" s")) for text in row[1:5]] for row in rows[1:4]]
    for row, wanted in zip(seconds, ([0.04, 0.04, 0.02, 0], [0.06, 0.02, 0.02, 0], [0.08, 0, 0.02, 0]), strict=True):
        assert row == pytest.approx(wanted, abs=0.003)
    assert rows[-1] == ["all_reduce", "3", "12 kB"]
    page.keyboard.press("Escape")
    expect(chosen(page)).to_be_hidden()
    page.keyboard.press("Home")
    page.keyboard.press("Shift+ArrowRight")
    assert chosen(page).get_by_role("row").last.inner_text().split("\t")[:2] == ["all_reduce", "6"]


def test_arrows_lead_to_the_rank_that_came_last(page):
    show_all(page, timeline())
    between = page.evaluate(PIXELS, [1, int(at(page, 0.213)), int(at(page, 0.218))])
    page.locator("canvas").hover(position={"x": at(page, 0.25), "y": 24 + 17})
    page.wait_for_timeout(100)
    assert page.evaluate(PIXELS, [1, int(at(page, 0.213)), int(at(page, 0.218))]) != between


def test_what_somebody_points_at_stands_still(page):
    widget = timeline(live=True)
    show(page, widget)
    page.get_by_role("button", name="follow").click()
    if page.get_by_role("button", name="follow").get_attribute("aria-pressed") != "true":
        page.get_by_role("button", name="follow").click()
    page.locator("canvas").hover(position={"x": 100, "y": 24 + 80})
    views = [page.evaluate(PIXELS, [0, 64, 300]) for _ in range(2) if not page.wait_for_timeout(400)]
    assert views[0] == views[1]


def test_time_in_which_a_rank_was_held_is_held(page):
    """At a line, before a collective, and until now; what comes after the end of the rank is nothing."""
    made = [call(0, 0, 50), call(1, 300, 350)]
    marks = [Mark(n, kind, BEGAN + at * MS, thread=1) for n, (kind, at) in enumerate([("held", 100), ("resumed", 300), ("held", 500)])]  # fmt: skip
    records = {0: RankRecord(0, calls=tuple(made), marks=tuple(marks)), 1: RankRecord(1, calls=(call(0, 0, 50),))}
    show_all(page, Timeline(Recording(2, records, taken_ns=BEGAN + 1000 * MS)))
    held = page.evaluate("() => getComputedStyle(document.querySelector('.ddpnb')).getPropertyValue('--ddpnb-note')")
    assert held
    page.keyboard.press("Escape")
    box = page.locator("canvas").bounding_box()
    y = box["y"] + box["height"] - 6  # below the lanes an interval is chosen without a key
    page.mouse.move(box["x"] + at(page, 0), y)
    page.mouse.down()
    page.mouse.move(box["x"] + at(page, 1.0), y, steps=3)
    page.mouse.up()
    rows = [row.split("\t") for row in chosen(page).get_by_role("row").all_inner_texts()]
    assert float(rows[1][4].removesuffix(" s")) == pytest.approx(0.7, abs=0.01)
    assert float(rows[1][1].removesuffix(" s")) < 0.21 and rows[2][4] == "0 s"


def test_hover_shows_a_tip(page):
    show_all(page, timeline())
    page.locator("canvas").hover(position={"x": at(page, 0.8), "y": 24 + 34 + 17})
    tip = page.locator(".tip")
    for text in ("barrier #6", "rank 1", "default_pg", "not the call of the other ranks", "train.py:88 in step"):
        assert text in tip.inner_text()
    page.mouse.move(2, 600)
    page.wait_for_function("() => document.querySelector('.tip').hidden")


def test_names_are_not_interpreted(page):
    page.on("dialog", lambda dialog: pytest.fail("a name was run"))
    show_all(page, timeline(hang(NASTY)))
    page.locator("canvas").hover(position={"x": at(page, 0.05), "y": 24 + 17})
    assert NASTY in page.locator(".tip").inner_text()
    assert page.locator("img").count() == 0


def test_keys(page):
    show_all(page, timeline())
    page.locator("canvas").focus()
    page.keyboard.press("Home")
    status = page.locator(".unseen")
    assert status.inner_text().startswith("rank 0: all_reduce #1")
    page.keyboard.press("ArrowRight")
    assert status.inner_text().startswith("rank 0: all_reduce #2")
    page.keyboard.press("ArrowDown")
    assert status.inner_text().startswith("rank 1: all_reduce #2")
    page.keyboard.press("End")
    assert status.inner_text().startswith("rank 1: barrier #6")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    assert status.inner_text().startswith("rank 0: all_reduce #5")
    assert "Rank 0: all_reduce #5" in chosen(page).inner_text()
    before = picture(page)
    for key in ("w", "d", "s", "a"):
        page.keyboard.press(key)
        assert picture(page) != before
        before = picture(page)
    for key in ("+", "+", "-", "Escape"):
        page.keyboard.press(key)
    expect(chosen(page)).to_be_hidden()


def picture(page):
    page.wait_for_timeout(100)
    return page.evaluate("() => document.querySelector('canvas').toDataURL()")


def test_dragging_and_the_wheel_move_it(page):
    show_all(page, timeline())
    box = page.locator("canvas").bounding_box()
    x, y = box["x"] + 500, box["y"] + 24 + 30
    seen = [picture(page)]
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 120, y, steps=4)
    page.mouse.up()
    page.mouse.move(2, 650)
    seen.append(picture(page))
    expect(chosen(page)).to_be_hidden()  # it was no click
    page.mouse.move(x, y)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    page.mouse.move(2, 650)
    seen.append(picture(page))
    page.get_by_role("button", name="show all").click()
    assert picture(page) == seen[0] and len(set(seen)) == 3
    page.mouse.move(x, y)
    page.mouse.wheel(0, 100)  # the page scrolls as usual
    page.mouse.move(2, 650)
    assert picture(page) == seen[0]


def test_nothing_yet(page):
    show(page, Timeline())
    assert page.get_by_text("no collective recorded").is_visible()
    assert page.locator("canvas").is_hidden()


def test_what_is_new_is_shown(page):
    widget = Timeline(live=True)
    show(page, widget)
    sent = []
    widget.send = lambda content, buffers=None: sent.append((content, buffers))
    for number in range(2):
        widget.add({rank: [call(number, 100 * number + rank, 100 * number + 50)] for rank in range(3)})
        page.evaluate("([content, buffers]) => model.tell(content, buffers)", sendable(list(sent[-1])))
    assert page.get_by_text("no collective recorded").is_hidden()
    follow = page.get_by_role("button", name="follow")
    assert follow.get_attribute("aria-pressed") == "true"
    page.get_by_role("button", name="show all").click()
    assert follow.get_attribute("aria-pressed") == "false"
    page.locator("canvas").focus()
    page.keyboard.press("End")
    assert "all_reduce #2" in said(page)
    follow.click()
    assert follow.get_attribute("aria-pressed") == "true"


def run_of(number, at, *, ended=0, waits=False):
    """Two ranks in a run that begins so many milliseconds after the first: three calls each, the last one open if it waits."""
    made = {
        rank: [call(n, at + 100 * n + 20 * rank, 0 if waits and n == 2 else at + 100 * n + 60) for n in range(3)]
        for rank in range(2)
    }
    ending = Ending("finished" if not waits else "raised", int(waits), "Released", "released", at_ns=BEGAN + ended * MS)
    records = {
        rank: RankRecord(rank, 10 * number + rank, tuple(calls), ending=ending if ended else None)
        for rank, calls in made.items()
    }
    return made, Recording(2, records, taken_ns=BEGAN + (ended or at + 300) * MS)


class Told:
    """A page with a live time line, to which Python tells what is new."""

    def __init__(self, page):
        self.page, self.widget = page, Timeline(live=True)
        show(page, self.widget)
        self.widget.send = lambda content, buffers=None: page.evaluate(
            "([content, buffers]) => model.tell(content, buffers)", sendable([content, buffers])
        )
        self.widget.send_state = lambda key=None: page.evaluate(
            "([columns, version]) => { model.set('columns', columns); model.set('version', version); }",
            [sendable(self.widget.get_state()["columns"]), self.widget.version],
        )

    def begin(self, number, at, **more):
        made, recording = run_of(number, at, **more)
        self.widget.begin(recording, name=f"run {number}", at_ns=BEGAN + (at - 50) * MS)
        self.widget.add(made, recording)

    def end(self, number, at, ended, **more):
        _, recording = run_of(number, at, ended=ended, **more)
        self.widget.add({}, recording)


def test_it_follows_a_run_until_its_end_and_the_next_one(page):
    told = Told(page)
    follow = page.get_by_role("button", name="follow")
    told.begin(1, 50)
    expect(follow).to_have_attribute("aria-pressed", "true")
    told.end(1, 50, 400)
    expect(follow).to_have_attribute("aria-pressed", "false")
    over = picture(page)
    page.wait_for_timeout(300)
    assert picture(page) == over  # time passes, and nothing of the run
    page.get_by_role("button", name="show all").click()
    told.begin(2, 60_050)
    expect(follow).to_have_attribute("aria-pressed", "true")
    told.end(2, 60_050, 60_400)
    expect(follow).to_have_attribute("aria-pressed", "false")
    page.get_by_role("button", name="show all").click()
    page.wait_for_timeout(100)
    middle = page.evaluate("() => 64 + (document.querySelector('canvas').clientWidth - 76 - 100) / 2")
    lanes = [page.evaluate(PIXELS, [lane, middle + 43, middle + 54]) for lane in range(2)]
    assert lanes == [["clear"]] * 2  # a minute in which nothing ran, in a hundred pixels
    page.locator("canvas").focus()
    page.keyboard.press("Home")
    assert "0 s" in chosen(page).get_by_role("row").nth(1).inner_text()
    page.keyboard.press("End")
    row = chosen(page).get_by_role("row").nth(1).inner_text().split("\t")
    assert row[:2] == ["0", "0.25 s"]  # from the beginning of its own run on


def test_a_rank_that_was_released_waits_no_longer(page):
    told = Told(page)
    told.begin(1, 50, waits=True)
    told.end(1, 50, 3000, waits=True)
    page.get_by_role("button", name="show all").click()
    page.locator("canvas").hover(position={"x": at(page, 0.5), "y": 24 + 17})
    page.locator("canvas").focus()
    page.keyboard.press("End")
    expect(chosen(page)).to_contain_text("then the rank left the run")
    text = chosen(page).inner_text()
    page.wait_for_timeout(300)
    assert chosen(page).inner_text() == text


def test_the_legend_has_all_that_is_drawn(page):
    show(page, timeline())
    assert page.get_by_role("group", name="legend").is_hidden()
    page.get_by_role("button", name="legend").click()
    words = page.get_by_role("group", name="legend").inner_text().split("\n")
    assert {"computing", "waiting", "in the collective", "held", "failed", "mismatch", "absent", "a run begins", "ended",
            "ended with an error", "idle, or blocked elsewhere", "compressed time", "now"} < set(words)  # fmt: skip


def test_a_view_that_comes_late_asks_for_what_it_missed(page):
    widget = timeline()
    show(page, widget)
    assert not page.evaluate("() => sent")
    page.evaluate("() => { model.set('version', 7); script.default.render({ model, el: document.getElementById('root') }); }")  # fmt: skip
    assert page.evaluate("() => sent") == [{"action": "want"}]
    columns = widget.get_state()["columns"]
    columns["head"]["version"] = 7
    page.evaluate("(columns) => model.set('columns', columns)", sendable(columns))
    assert len(page.evaluate("() => sent")) == 1


def test_a_page_that_lost_a_message_asks(page):
    widget = timeline()
    show(page, widget)
    sent = []
    widget.send = lambda content, buffers=None: sent.append((content, buffers))
    for number in (6, 7):
        widget.add({0: [call(number, 1000 + number)]})
    page.evaluate("([content, buffers]) => model.tell(content, buffers)", sendable(list(sent[1])))
    assert page.evaluate("() => sent") == [{"action": "want"}]


def test_of_many_ranks_it_says_how_many_are_shown(page):
    records = {rank: RankRecord(rank, calls=(call(0, rank, 200),)) for rank in range(100)}
    show(page, Timeline(Recording(100, records)))
    assert page.get_by_text("24 of 100 ranks").is_visible()
    assert page.locator("canvas").bounding_box()["height"] < 650


def test_it_leaves_nothing_behind(page):
    show(page, timeline(live=True))
    page.evaluate("() => { end(); document.getElementById('root').replaceChildren(); }")
    page.wait_for_timeout(200)
    assert page.evaluate("() => model.listeners()") == 0
