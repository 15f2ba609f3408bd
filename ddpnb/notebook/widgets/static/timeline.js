// The time line: shows the lanes, lets one move about in them, search, and choose calls and intervals.
import { axisOf, drawnAt, gapsOf, momentOf, seen } from "./axis.js";
import { search, together } from "./chosen.js";
import { emptyStore, find, runOf, spanOf, take } from "./columns.js";
import { LOST_MS } from "./connection.js";
import { aboutCall, aboutHovered, aboutInterval, stage } from "./elements.js";
import { keepHearing } from "./hearing.js";
import { keepKeys } from "./keys.js";
import { describe, extentOf, hit, moved, nearest, recentView, spanText, wholeView, zoomed } from "./lanes.js";
import { coloursOf, laneAt, layout, momentAt, painterOf, placeOf, topOf } from "./painting.js";
import { followLinks } from "./places.js";

const ASK_MS = 2000; // before one asks again
const FRAME_MS = 125; // while time passes by itself: the browser may share its cores with the ranks
const CALM_MS = 1000; // the same for those who want little motion, and where nothing is to be seen of it
const CLICK = 4, NEAR = 4; // pixels: what moves less is a click; how near the pointer must be
const ZOOM = 1.6;
const ASIDE = 0.15; // of the width, for a key that moves
const THEME = ["data-jp-theme-light", "data-jp-theme-name", "data-theme", "class", "style"];

function render({ model, el }) {
  keepHearing(model);
  const parts = stage();
  const { body, canvas, tip, lanes, beside, about, buttons, hits, searched, count, looking, signs } = parts;
  keepKeys(body);
  const unfollow = followLinks(model, body);
  el.append(body);

  const store = emptyStore();
  const painter = painterOf(canvas);
  let place = layout(0, 0), colours = null;
  let view = { begin: 0, end: 1 }, length = 0; // on the axis; 0: as long as it suits what happens
  let recent = true; // show the latest calls, once
  let following = false, version = -1, run = null;
  let selected = null, hovered = null, interval = null; // { lane, number }, { begin, end }
  let over = false; // the pointer is: what somebody reads does not move
  let found = [], cursor = -1; // calls that were searched for
  let heard = performance.now(), updated = performance.now(); // by beats too; when `store.now` was the moment
  let wanted = 0, timer = 0, asked = -Infinity;
  const calm = matchMedia("(prefers-reduced-motion: reduce)");

  const live = () => Boolean(model.get("live"));
  const lost = () => live() && performance.now() - heard > LOST_MS;
  const ended = () => runOf(store).end !== null;
  const now = () => (live() && !ended() ? store.now + Math.max(0, Math.min(performance.now(), heard + LOST_MS) - updated) / 1000 : store.now);
  const gaps = () => gapsOf(store.quiet, now(), place.inner, view.wide);
  const axisAt = (length) => axisOf(gaps(), length / place.inner);
  const look = () => seen(gaps(), view, place.inner);
  const whole = () => wholeView(store, now(), place.inner);

  // -- drawing

  const redraw = () => {
    if (!wanted) wanted = requestAnimationFrame(draw);
  };
  const draw = () => {
    wanted = 0;
    if (!place.width || !store.count || !body.isConnected) return;
    if ((following && !over) || recent) view = recentView(store, now(), length, place.inner);
    recent = false;
    const looked = look();
    painter.paint(store, place, looked, now(), colours, { selected, hovered, interval, ratio: devicePixelRatio || 1 });
    placeTip(looked);
  };
  const settle = () => {
    body.classList.toggle("lost", lost());
    parts.empty.hidden = store.count > 0;
    for (const one of [lanes, buttons.in, buttons.out, buttons.fit, looking, signs.toggle]) one.hidden = !store.count;
    buttons.follow.hidden = !live() || !store.count;
    buttons.follow.setAttribute("aria-pressed", String(following));
    const some = store.of > store.rows.length ? `${store.rows.length} of ${store.of} ranks: the most relevant` : "";
    if (parts.note.textContent !== some) parts.note.textContent = some;
    const next = layout(store.rows.length, lanes.clientWidth);
    if (next.width !== place.width || next.lanes !== place.lanes) {
      place = next;
      canvas.style.height = `${place.height}px`;
    }
    colours ??= body.isConnected ? coloursOf(body) : null;
    if (colours) redraw();
  };
  const pass = () => {
    // Time passes without a word from Python.
    if (live() && store.count && !document.hidden && body.isConnected) {
      if (lost() !== body.classList.contains("lost")) settle();
      if (!lost() && !ended() && look().to >= store.now) redraw();
    }
    timer = setTimeout(pass, calm.matches ? CALM_MS : Math.min(CALM_MS, Math.max(FRAME_MS, pixelMs())));
  };
  /** After how long the picture is another one: while a wait is brought to its width, each is. */
  const pixelMs = () => {
    const last = gaps().at(-1);
    if (following && last && last.end === now()) return last.fresh ? 0 : CALM_MS;
    return (1000 * (view.end - view.begin)) / place.inner;
  };

  // -- what comes

  const receive = (head, events, places) => {
    take(store, head, events, places);
    version = head.version;
    heard = updated = performance.now();
    if (store.count && runOf(store).number !== run) {
      run = runOf(store).number;
      following = live();
      recent = true;
      length = 0;
    }
    if (following && ended()) {
      following = false;
      recent = true;
    }
    settle();
    showChosen();
  };
  const receiveAll = () => {
    const columns = model.get("columns");
    if (columns?.head) receive(columns.head, columns.events, columns.places);
    if (version !== model.get("version")) want();
  };
  const receiveNews = (message, buffers) => {
    heard = performance.now();
    if (message.kind !== "news" || message.head.version <= version) return;
    if (message.head.version === version + 1) receive(message.head, buffers[0], buffers[1]);
    else want(); // some were lost
  };
  const want = () => {
    if (asked < performance.now() - ASK_MS) model.send({ action: "want" });
    asked = performance.now();
  };
  const liveChanged = () => {
    heard = updated = performance.now();
    following = live() && store.count > 0 && !ended();
    settle();
  };

  // -- moving about

  const go = (next) => {
    following = false;
    view = next;
    settle();
  };
  const pan = (pixels) => {
    const wide = view.end - view.begin;
    go(moved(view, (pixels / place.inner) * wide, extentOf(store, now(), axisAt(wide))));
  };
  const zoom = (factor, about) => {
    const middle = about ?? momentOf(axisAt(view.end - view.begin), following ? view.end : (view.begin + view.end) / 2);
    const next = zoomed(view, factor, middle, whole(), axisAt);
    if (following) {
      length = next.end - next.begin;
      redraw();
    } else go(next);
  };
  const follow = () => {
    following = !following && !ended();
    recent = following || ended();
    length = 0;
    settle();
  };

  // -- one call

  const pointed = (event) => {
    const { left, top } = canvas.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  };
  const under = (event) => {
    const [x, y] = pointed(event);
    if (x < place.left || x > place.left + place.inner || y < place.top || y > place.top + place.lanes * place.pitch) return null;
    const lane = laneAt(place, y);
    const i = hit(store, lane, momentAt(place, look(), x), (NEAR / place.inner) * (view.end - view.begin), now());
    return i < 0 ? null : { lane, number: store.lanes[lane].number[i], x };
  };
  const indexOf = (one) => (one && store.lanes[one.lane] ? find(store.lanes[one.lane], one.number) : -1);
  const select = (one, { keep = false } = {}) => {
    selected = one;
    if (!keep) interval = null;
    const i = indexOf(one);
    if (i >= 0) {
      const about = describe(store, one.lane, i, now());
      parts.spoken.textContent = `rank ${about.rank}: ${about.title}, ${about.times}${about.marked ? `, ${about.marked}` : ""}${about.site ? `, at ${about.site}` : ""}`;
      if (following) go(view); // it does not move while one reads
      const { begin, end } = spanOf(store, store.lanes[one.lane], i, now());
      const wide = view.end - view.begin, axis = axisAt(wide), middle = drawnAt(axis, begin);
      if (drawnAt(axis, end) < view.begin || middle > view.end) go({ ...view, begin: middle - wide / 2, end: middle + wide / 2 });
    }
    showChosen();
    redraw();
  };
  const choose = (begin, end) => {
    interval = end > begin ? { begin, end } : null;
    if (interval && following) go(view);
    showChosen();
    redraw();
  };
  let shown = "";
  const showChosen = () => {
    const i = indexOf(selected);
    beside.hidden = !interval && i < 0;
    if (beside.hidden) return void (shown = "");
    const ends = interval ?? spanOf(store, store.lanes[selected.lane], i, now());
    const met = interval || together(store, selected.lane, i).map((one) => spanOf(store, store.lanes[one.lane], one.i, store.now));
    const of = JSON.stringify([interval, selected, met, ends.end > store.now, ends.end >= store.now && store.now]);
    if (of === shown) return; // what was chosen is over: nothing of it changes
    shown = of;
    about.replaceChildren(...(interval ? aboutInterval(store, interval, now()) : aboutCall(store, { lane: selected.lane, i }, now())));
  };
  const findNext = (by) => {
    if (searched.value !== searched.dataset.of) {
      found = search(store, (searched.dataset.of = searched.value));
      const from = selected ? (store.lanes[selected.lane]?.begin[indexOf(selected)] ?? -Infinity) : look().from;
      cursor = found.findIndex(({ begin }) => begin >= from) - 1;
      if (cursor < -1) cursor = -1;
    }
    if (!found.length) return void (count.textContent = searched.value.trim() ? "none is shown" : "");
    cursor = (cursor + by + found.length) % found.length;
    count.textContent = `${cursor + 1} of ${found.length}`;
    select({ lane: found[cursor].lane, number: found[cursor].number });
  };
  const step = (by) => {
    const lane = selected?.lane ?? 0;
    const own = store.lanes[lane];
    if (!own?.count) return;
    const i = indexOf(selected);
    const next = i < 0 ? nearest(store, lane, following ? now() : momentOf(axisAt(view.end - view.begin), (view.begin + view.end) / 2)) : Math.min(own.count - 1, Math.max(0, i + by));
    select({ lane, number: own.number[next] });
  };
  const extend = (by) => {
    const i = indexOf(selected), own = store.lanes[selected?.lane];
    if (i < 0) return step(0);
    const next = Math.min(own.count - 1, Math.max(0, i + by));
    const [one, other] = [i, next].map((at) => spanOf(store, own, at, now()));
    const before = interval ?? one;
    select({ lane: selected.lane, number: own.number[next] }, { keep: true });
    if (by > 0) choose(before.begin, Math.max(before.end, other.end));
    else choose(Math.min(before.begin, other.begin), before.end);
  };
  const climb = (by) => {
    const i = indexOf(selected);
    if (i < 0) return step(0);
    const moment = store.lanes[selected.lane].begin[i];
    for (let lane = selected.lane + by; lane >= 0 && lane < store.lanes.length; lane += by)
      if (store.lanes[lane].count) return select({ lane, number: store.lanes[lane].number[nearest(store, lane, moment)] });
  };

  let tipped = "";
  const placeTip = (looked) => {
    const one = hovered, i = indexOf(one);
    tip.hidden = i < 0 || dragged !== null || (one.lane === selected?.lane && one.number === selected?.number); // that is beside it
    if (tip.hidden) return void (tipped = "");
    const about = describe(store, one.lane, i, now());
    const text = JSON.stringify(about);
    if (text !== tipped) {
      tipped = text;
      tip.replaceChildren(...aboutHovered(about));
    }
    const { begin } = spanOf(store, store.lanes[one.lane], i, now());
    const x = one.x ?? Math.max(place.left, placeOf(place, looked, begin));
    const below = topOf(place, one.lane) + place.bar + 8;
    tip.style.left = `${Math.max(0, Math.min(x + 8, place.width - tip.offsetWidth - 4))}px`;
    tip.style.top = below + tip.offsetHeight > place.height + 60 ? `${topOf(place, one.lane) - tip.offsetHeight - 8}px` : `${below}px`;
  };

  // -- hands

  const pointers = new Map();
  let dragged = null; // { x, moved }
  let apart = 0; // of two fingers
  const pressed = (event) => {
    if (event.button) return;
    canvas.setPointerCapture?.(event.pointerId);
    pointers.set(event.pointerId, event);
    const [x, y] = pointed(event);
    const outside = y < place.top || y > place.top + place.lanes * place.pitch;
    dragged = { x: event.clientX, moved: 0, from: event.shiftKey || outside ? momentAt(place, look(), x) : null };
    apart = 0;
  };
  const movedOver = (event) => {
    if (pointers.has(event.pointerId)) pointers.set(event.pointerId, event);
    if (pointers.size === 2) {
      const [one, other] = [...pointers.values()];
      const far = Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
      const middle = (one.clientX + other.clientX) / 2 - canvas.getBoundingClientRect().left;
      if (apart && far) zoom(apart / far, following ? undefined : momentAt(place, look(), middle));
      apart = far;
      if (dragged) dragged.moved = CLICK;
    } else if (dragged) {
      const by = event.clientX - dragged.x;
      dragged.moved += Math.abs(by);
      if (dragged.moved < CLICK) return;
      dragged.x = event.clientX;
      canvas.classList.add("dragged");
      hovered = null;
      if (dragged.from === null) return pan(-by);
      const to = momentAt(place, look(), pointed(event)[0]);
      interval = { begin: Math.min(dragged.from, to), end: Math.max(dragged.from, to) }; // it is summed up when it is chosen
      if (following) go(view);
      redraw();
    } else {
      const one = under(event);
      over = true;
      if (one?.number !== hovered?.number || one?.lane !== hovered?.lane || one?.x !== hovered?.x) {
        hovered = one;
        redraw();
      }
    }
  };
  const released = (event) => {
    pointers.delete(event.pointerId);
    const clicked = dragged && dragged.moved < CLICK && event.type === "pointerup";
    if (dragged && !clicked && dragged.from !== null && interval) choose(interval.begin, interval.end);
    if (!pointers.size) dragged = null;
    canvas.classList.remove("dragged");
    if (clicked) {
      const one = under(event);
      select(one && { lane: one.lane, number: one.number });
    }
    redraw();
  };
  const left = () => {
    hovered = null;
    over = false;
    redraw();
  };
  const rolled = (event) => {
    const sideways = event.shiftKey ? event.deltaX || event.deltaY : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
    if (event.ctrlKey || event.metaKey) {
      zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.008), following ? undefined : momentAt(place, look(), pointed(event)[0]));
    } else if (sideways) pan(sideways);
    else return; // the page scrolls as usual
    event.preventDefault();
  };
  const keys = {
    ArrowLeft: () => step(-1), ArrowRight: () => step(1), ArrowUp: () => climb(-1), ArrowDown: () => climb(1),
    "+": () => zoom(1 / ZOOM), "=": () => zoom(1 / ZOOM), "-": () => zoom(ZOOM),
    w: () => zoom(1 / ZOOM), s: () => zoom(ZOOM), a: () => pan(-ASIDE * place.inner), d: () => pan(ASIDE * place.inner),
    Home: () => edge(0), End: () => edge(-1), Escape: () => select(null), "/": () => searched.focus(),
  };
  const shifted = { ArrowLeft: () => extend(-1), ArrowRight: () => extend(1) };
  const edge = (end) => {
    const lane = selected?.lane ?? 0;
    const own = store.lanes[lane];
    if (own?.count) select({ lane, number: own.number[end ? own.count - 1 : 0] });
  };
  const typed = (event) => {
    const key = (event.shiftKey && shifted[event.key]) || keys[event.key] || keys[event.key.toLowerCase()];
    if (!key || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    hovered = null; // now it is about what is chosen
    key();
  };

  const typedWords = (event) => {
    if (event.key === "Escape") (searched.value = ""), canvas.focus();
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault();
    findNext(event.shiftKey ? -1 : 1);
  };

  const repaint = () => {
    colours = null;
    settle();
  };
  const themed = new MutationObserver(repaint);
  const sized = new ResizeObserver(() => {
    // Only now it may have come into the page, and with it the theme.
    themed.disconnect();
    for (let one = body.parentElement; one; one = one.parentElement) themed.observe(one, { attributes: true, attributeFilter: THEME });
    repaint();
  });
  const listeners = [
    [canvas, "pointerdown", pressed], [canvas, "pointermove", movedOver], [canvas, "pointerup", released],
    [canvas, "pointercancel", released], [canvas, "pointerleave", left], [canvas, "keydown", typed],
    [canvas, "focus", redraw], [canvas, "blur", redraw], [buttons.in, "click", () => zoom(1 / ZOOM)],
    [buttons.out, "click", () => zoom(ZOOM)], [buttons.fit, "click", () => go(whole())],
    [buttons.follow, "click", follow], [parts.close, "click", () => (select(null), canvas.focus())], [searched, "keydown", typedWords],
    [searched, "search", () => searched.value || findNext(1)],
    [hits.next, "click", () => findNext(1)], [hits.previous, "click", () => findNext(-1)],
  ];
  for (const [target, name, listener] of listeners) target.addEventListener(name, listener);
  canvas.addEventListener("wheel", rolled, { passive: false });
  const heardOf = [["change:columns", receiveAll], ["change:live", liveChanged], ["msg:custom", receiveNews]];
  for (const [name, listener] of heardOf) model.on(name, listener);
  sized.observe(lanes);
  sized.observe(body);
  receiveAll();
  settle();
  pass();
  return () => {
    clearTimeout(timer);
    cancelAnimationFrame(wanted);
    sized.disconnect();
    themed.disconnect();
    unfollow();
    for (const [name, listener] of heardOf) model.off(name, listener);
  };
}

export default { render };
