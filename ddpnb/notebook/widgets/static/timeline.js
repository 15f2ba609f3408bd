// The time line: shows the lanes, lets one move about in them, and tells Python which call somebody points at.
import { axisOf, drawnAt, gapsOf, momentOf, seen } from "./axis.js";
import { emptyStore, find, runOf, spanOf, take } from "./columns.js";
import { keepHearing } from "./hearing.js";
import { keepKeys } from "./keys.js";
import { describe, extentOf, hit, moved, nearest, recentView, wholeView, zoomed } from "./lanes.js";
import { coloursOf, laneAt, layout, momentAt, painterOf, placeOf, topOf } from "./painting.js";

const LOST_MS = 8000; // without an update
const ASK_MS = 2000; // before one asks again
const FRAME_MS = 125; // while time passes by itself: the browser may share its cores with the ranks
const CALM_MS = 1000; // the same for those who want little motion
const CLICK = 4; // pixels: what moves less is a click
const NEAR = 4; // pixels: how near the pointer must be
const ZOOM = 1.6;
const THEME = ["data-jp-theme-light", "data-jp-theme-name", "data-theme", "class", "style"];
const ICONS = {
  in: "M5 1h2v4h4v2H7v4H5V7H1V5h4z", out: "M1 5h10v2H1z",
  fit: "M1 1h1.6v10H1zM9.4 1H11v10H9.4zM3.2 6l2.3-2.4v1.6h1V3.600L8.8 6 6.5 8.400V6.800h-1v1.600z",
  follow: "M1 5.200h5V2.600L10 6 6 9.400V6.800H1zM10.2 2h1.400v8h-1.400z",
};
const LEGEND = [
  ["computing", "background: color-mix(in srgb, var(--ddpnb-busy) 40%, transparent)"],
  ["waiting", "border: 1px solid var(--ddpnb-warning); background: repeating-linear-gradient(-45deg, var(--ddpnb-warning) 0 1.5px, transparent 1.5px 4px)"],
  ["in the collective", "background: var(--ddpnb-ok)"],
  ["in it, while the rank continues", "background: linear-gradient(color-mix(in srgb, var(--ddpnb-busy) 40%, transparent) 0 55%, var(--ddpnb-ok) 55%)"],
  ["held", "border: 1px solid var(--ddpnb-note); background: repeating-linear-gradient(-45deg, var(--ddpnb-note) 0 2px, color-mix(in srgb, var(--ddpnb-note) 45%, transparent) 2px 4px)"],
  ["failed", "background: var(--ddpnb-error)"],
  ["mismatch", "border: 2px solid var(--ddpnb-error)"],
  ["absent", "border: 1.5px dashed var(--ddpnb-error)"],
  ["idle, or blocked elsewhere", "border: 1px dotted var(--ddpnb-faint)"],
  ["a run begins", "width: 2px; background: var(--ddpnb-fg)"],
  ["ended", "width: 3px; background: var(--ddpnb-faint)"],
  ["ended with an error", "color: var(--ddpnb-error)", "×"],
  ["named by a finding", "color: var(--ddpnb-error)", "▸"],
  ["compressed time", "color: var(--ddpnb-faint)", "M2 0l2 3-2 3 2 3-2 3h1l2-3-2-3 2-3-2-3zM7 0l2 3-2 3 2 3-2 3h1l2-3-2-3 2-3-2-3z"],
  ["now", "width: 0; border-left: 1px dashed var(--ddpnb-faint)"],
];

/** An element with a class, words, and parts. */
function make(name, { text, ...attributes } = {}, ...parts) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  element.append(...parts);
  return element;
}

function icon(path) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [key, value] of [["viewBox", "0 0 12 12"], ["class", "icon"], ["aria-hidden", "true"]]) svg.setAttribute(key, value);
  const shape = document.createElementNS("http://www.w3.org/2000/svg", "path");
  shape.setAttribute("d", path);
  svg.append(shape);
  return svg;
}

function button(path, label, word = "") {
  const made = make("button", { type: "button", title: label, "aria-label": label }, icon(path));
  if (word) made.append(word);
  return made;
}

function legend() {
  const row = make("div", { class: "row legend", "aria-label": "legend", role: "group" });
  for (const [word, style, sign] of LEGEND) {
    const swatch = make("i", { "aria-hidden": "true" }, !sign ? "" : sign.length > 1 ? icon(sign) : sign);
    swatch.style.cssText = style;
    row.append(make("span", { class: "key" }, swatch, word));
  }
  return row;
}

function render({ model, el }) {
  keepHearing(model);
  const note = make("span", { class: "faint" });
  const buttons = {
    in: button(ICONS.in, "zoom in"), out: button(ICONS.out, "zoom out"),
    fit: button(ICONS.fit, "show all", "all"), follow: button(ICONS.follow, "follow the newest calls", "follow"),
  };
  const canvas = make("canvas", {
    tabindex: "0", role: "application",
    "aria-label": "time line: left and right select a call, up and down a rank, plus and minus zoom, Enter shows the call",
  });
  const tip = make("div", { class: "tip", hidden: "" });
  const spoken = make("div", { class: "unseen", role: "status", "aria-live": "polite" });
  const empty = make("p", { class: "faint", text: "no collective recorded" });
  const lanes = make("div", { class: "lanes" }, canvas, tip);
  const body = make("div", { class: "ddpnb", role: "group", "aria-label": "time line" },
    make("div", { class: "row title" }, make("h3", { text: "Time line" }), note, make("span", { class: "space" }), ...Object.values(buttons)), empty, lanes, legend(), spoken);
  keepKeys(body);
  el.append(body);

  const store = emptyStore();
  const painter = painterOf(canvas);
  let place = layout(0, 0), colours = null;
  let view = { begin: 0, end: 1 }, length = 0; // on the axis; 0: as long as it suits what happens
  let recent = true; // show the latest calls, once
  let following = false, version = -1, run = null;
  let selected = null, hovered = null; // { lane, number }
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
    if (following || recent) view = recentView(store, now(), length, place.inner);
    recent = false;
    const looked = look();
    const named = following || (!live() && !ended() && looked.to >= store.now && looked.from < store.now);
    painter.paint(store, place, looked, now(), colours, { selected, hovered, following: named, ratio: devicePixelRatio || 1 });
    placeTip(looked);
  };
  const settle = () => {
    body.classList.toggle("lost", lost());
    empty.hidden = store.count > 0;
    lanes.hidden = buttons.in.hidden = buttons.out.hidden = buttons.fit.hidden = !store.count;
    buttons.follow.hidden = !live() || !store.count;
    buttons.follow.setAttribute("aria-pressed", String(following));
    const some = store.of > store.rows.length ? `${store.rows.length} of ${store.of} ranks: the most relevant` : "";
    if (note.textContent !== some) note.textContent = some;
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
      if (!lost() && !ended()) redraw();
    }
    timer = setTimeout(pass, calm.matches ? CALM_MS : FRAME_MS);
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

  const under = (event) => {
    const box = canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    if (x < place.left || x > place.left + place.inner || y < place.top || y > place.top + place.lanes * place.pitch) return null;
    const lane = laneAt(place, y);
    const i = hit(store, lane, momentAt(place, look(), x), (NEAR / place.inner) * (view.end - view.begin), now());
    return i < 0 ? null : { lane, number: store.lanes[lane].number[i], x };
  };
  const indexOf = (one) => (one && store.lanes[one.lane] ? find(store.lanes[one.lane], one.number) : -1);
  const select = (one) => {
    selected = one;
    const i = indexOf(one);
    if (i >= 0) {
      const about = describe(store, one.lane, i, now());
      spoken.textContent = `rank ${about.rank}: ${about.title}, ${about.times}${about.marked ? `, ${about.marked}` : ""}${about.site ? `, at ${about.site}` : ""}`;
      const { begin, end } = spanOf(store, store.lanes[one.lane], i, now());
      const wide = view.end - view.begin, axis = axisAt(wide), middle = drawnAt(axis, begin);
      if (drawnAt(axis, end) < view.begin || middle > view.end) go({ ...view, begin: middle - wide / 2, end: middle + wide / 2 });
    }
    redraw();
  };
  const act = (one) => {
    const i = indexOf(one);
    if (i >= 0) model.send({ action: "select", values: { rank: String(store.rows[one.lane]?.rank ?? ""), number: String(one.number) } });
  };
  const step = (by) => {
    const lane = selected?.lane ?? 0;
    const own = store.lanes[lane];
    if (!own?.count) return;
    const i = indexOf(selected);
    const next = i < 0 ? nearest(store, lane, following ? now() : momentOf(axisAt(view.end - view.begin), (view.begin + view.end) / 2)) : Math.min(own.count - 1, Math.max(0, i + by));
    select({ lane, number: own.number[next] });
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
    const one = hovered ?? (document.activeElement === canvas ? selected : null);
    const i = indexOf(one);
    tip.hidden = i < 0 || dragged !== null;
    if (tip.hidden) return void (tipped = "");
    const about = describe(store, one.lane, i, now());
    const text = JSON.stringify(about);
    if (text !== tipped) {
      tipped = text;
      tip.replaceChildren(make("b", { text: about.title }), make("span", { class: "faint", text: `  rank ${about.rank}${about.group ? ` · ${about.group}` : ""}` }));
      for (const [text, name] of [[about.marked, "error"], [about.times, ""], [about.signature, "mono"], [about.site, "mono faint"]])
        if (text) tip.append(make("div", { class: name, text }));
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
    dragged = { x: event.clientX, moved: 0 };
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
      pan(-by);
    } else {
      const one = under(event);
      if (one?.number !== hovered?.number || one?.lane !== hovered?.lane || one?.x !== hovered?.x) {
        hovered = one;
        redraw();
      }
    }
  };
  const released = (event) => {
    pointers.delete(event.pointerId);
    const clicked = dragged && dragged.moved < CLICK && event.type === "pointerup";
    if (!pointers.size) dragged = null;
    canvas.classList.remove("dragged");
    if (clicked) {
      const one = under(event);
      select(one && { lane: one.lane, number: one.number });
      act(one);
    }
    redraw();
  };
  const left = () => {
    hovered = null;
    redraw();
  };
  const rolled = (event) => {
    const sideways = event.shiftKey ? event.deltaX || event.deltaY : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
    if (event.ctrlKey || event.metaKey) {
      const x = event.clientX - canvas.getBoundingClientRect().left;
      zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.008), following ? undefined : momentAt(place, look(), x));
    } else if (sideways) pan(sideways);
    else return; // the page scrolls as usual
    event.preventDefault();
  };
  const keys = {
    ArrowLeft: () => step(-1), ArrowRight: () => step(1), ArrowUp: () => climb(-1), ArrowDown: () => climb(1),
    "+": () => zoom(1 / ZOOM), "=": () => zoom(1 / ZOOM), "-": () => zoom(ZOOM),
    Home: () => edge(0), End: () => edge(-1), Enter: () => act(selected), Escape: () => select(null),
  };
  const edge = (end) => {
    const lane = selected?.lane ?? 0;
    const own = store.lanes[lane];
    if (own?.count) select({ lane, number: own.number[end ? own.count - 1 : 0] });
  };
  const typed = (event) => {
    const key = keys[event.key];
    if (!key || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    hovered = null; // now it is about what is chosen
    key();
  };

  const themed = new MutationObserver(() => {
    colours = null;
    settle();
  });
  const sized = new ResizeObserver(() => {
    // Only now it may have come into the page, and with it the theme.
    themed.disconnect();
    for (let one = body.parentElement; one; one = one.parentElement) themed.observe(one, { attributes: true, attributeFilter: THEME });
    colours = null;
    settle();
  });
  const listeners = [
    [canvas, "pointerdown", pressed], [canvas, "pointermove", movedOver], [canvas, "pointerup", released],
    [canvas, "pointercancel", released], [canvas, "pointerleave", left], [canvas, "keydown", typed],
    [canvas, "focus", redraw], [canvas, "blur", redraw], [buttons.in, "click", () => zoom(1 / ZOOM)],
    [buttons.out, "click", () => zoom(ZOOM)], [buttons.fit, "click", () => go(whole())],
    [buttons.follow, "click", follow],
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
    for (const [name, listener] of heardOf) model.off(name, listener);
  };
}

export default { render };
