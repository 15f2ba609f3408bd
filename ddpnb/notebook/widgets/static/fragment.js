// A fragment: shows the HTML that Python has rendered, and tells Python what somebody does with it.
import { connection, follow, tell } from "./connection.js";
import { copyCode } from "./copy.js";
import { filterTiles, narrowLists } from "./filter.js";
import { keepHearing } from "./hearing.js";
import { keepKeys, showKeys } from "./keys.js";
import { replace } from "./patch.js";
import { followLinks } from "./places.js";
import { debugKeys, followRank } from "./rank.js";
import { parse } from "./sanitize.js";

const TICK_MS = 200;
const SENT_MS = 1000;

/** @param {number} seconds */
function span(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  return seconds < 7200 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`;
}

/** The values that go with an action: the element's own, and those of the form that it is in. */
function valuesOf(element, form) {
  const values = { ...element.dataset };
  for (const [name, value] of form ? new FormData(form) : [])
    values[name] = name in values && name === "ranks" && values[name] ? `${values[name]},${value}` : value;
  delete values.action;
  delete values.change;
  delete values.key;
  delete values.does;
  delete values.fill;
  delete values.lmSuppressShortcuts;
  return values;
}

/** Where the HTML goes: below a heading, inside a part that folds, or into the body itself. */
function frame(model, body) {
  const title = model.get("title");
  const inside = document.createElement("div");
  if (!title) {
    body.append(inside); // beside it there is room for what the page itself adds
    return inside;
  }
  const head = document.createElement(model.get("folds") ? "summary" : "h2");
  head.textContent = title;
  if (!model.get("folds")) {
    body.append(head, inside);
    return inside;
  }
  const part = document.createElement("details");
  part.className = "part";
  part.open = model.get("unfolded") > 0;
  part.append(head, inside);
  part.addEventListener("toggle", () => {
    if (part.open) tell(model, "unfolded");
  });
  body.append(part);
  return inside;
}

function render({ model, el }) {
  keepHearing(model);
  const body = document.createElement("div");
  body.className = "ddpnb";
  body.setAttribute("role", "group");
  debugKeys(body, (element, action) => tell(model, action, valuesOf(element)));
  keepKeys(body);
  el.append(body);
  const inside = frame(model, body);
  let shown = performance.now();

  const show = () => {
    shown = performance.now();
    link?.hear();
    body.setAttribute("aria-label", model.get("label"));
    const fresh = parse(model.get("html"));
    links(fresh);
    replace(inside, fresh);
    body.classList.remove("off");
    follow(body);
    filterTiles(inside);
    narrowLists(inside);
    followRank(inside);
    scrollers();
    tick();
  };
  // The tabulator stops once at each place of a card, however often that is named.
  const links = (fresh) => {
    const known = new Set();
    for (const one of fresh.querySelectorAll("a[data-file]")) {
      const place = `${one.dataset.file}:${one.dataset.line}`;
      if (!one.hasAttribute("href")) one.setAttribute("role", "link");
      if (one.closest(".card") && known.has(place)) one.tabIndex = -1;
      else if (!one.hasAttribute("tabindex")) one.tabIndex = 0;
      known.add(place);
    }
  };
  // What is wider than the page is scrolled by keyboard too.
  const scrollers = () => {
    for (const one of body.querySelectorAll(".scroll"))
      if (one.scrollWidth > one.clientWidth) one.setAttribute("tabindex", "0");
      else one.removeAttribute("tabindex");
  };
  const tick = () => {
    const now = performance.now();
    link?.tick();
    follow(body);
    if (body.classList.contains("off") || !model.get("live")) return;
    for (const one of body.querySelectorAll("time[data-age]"))
      one.textContent = span(Number(one.dataset.age) + (now - shown) / 1000);
  };
  const act = (element, form) => {
    if (!element || element.disabled || element.getAttribute("aria-disabled") === "true") return;
    if (element.dataset.action === "keys") showKeys(body);
    else if (element.dataset.action === "copy code") copyCode(element);
    else {
      element.classList.add("sent"); // at once: Python's answer may take a moment
      setTimeout(() => element.classList.remove("sent"), SENT_MS);
      tell(model, element.dataset.action, valuesOf(element, form));
    }
  };
  const clicked = (event) => {
    const element = event.target.closest("[data-action]");
    const field = element?.dataset.fill && element.closest("form")?.elements[element.dataset.fill];
    if (field) field.value = element.dataset.value;
    if (element && element.nodeName !== "FORM" && !element.dataset.change) act(element, element.closest("form"));
  };
  const entered = (event) => {
    const form = event.key === "Enter" && event.target.nodeName === "INPUT" && !event.target.dataset.narrow ? event.target.closest("form[data-action]") : null;
    if (form) act(form, form);
  };
  const changed = (event) => {
    const element = event.target.closest("[data-change]");
    if (element) tell(model, element.dataset.change, valuesOf(element, element.closest("form")));
  };
  // Arrow keys walk among the parts of a group that is one stop for the tabulator.
  const walked = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    const group = event.target.closest("[data-walk]");
    if (!step || !group || !event.target.matches("[data-stop]")) return;
    const stops = [...group.querySelectorAll("[data-stop]")].filter((one) => !one.closest("[hidden]"));
    const next = stops[Math.max(0, Math.min(stops.length - 1, stops.indexOf(event.target) + step))];
    event.preventDefault();
    for (const one of stops) one.tabIndex = one === next ? 0 : -1;
    next.focus();
  };
  const received = (message) => {
    link?.hear();
    if (message.kind === "copy") {
      const answer = (action) => () => tell(model, action);
      const copying = navigator.clipboard ? navigator.clipboard.writeText(message.text) : Promise.reject();
      copying.then(answer("copied"), answer("not copied"));
    }
  };
  // Nothing need be computed for a page, or a tab of it, that lies behind others.
  const page = Math.random().toString(36).slice(2);
  let shows = null;
  const seen = (here) => {
    if (model.get("watched") && here !== shows) tell(model, "seen", { page, here });
    shows = here;
  };
  const visibility = () => seen(document.hidden || !body.getClientRects().length ? "" : "1");
  body.addEventListener("click", clicked);
  body.addEventListener("submit", (event) => event.preventDefault());
  body.addEventListener("keydown", entered);
  body.addEventListener("change", changed);
  body.addEventListener("input", ({ target }) => (target.dataset.narrow ? narrowLists(inside) : (filterTiles(inside), followRank(inside))));
  body.addEventListener("keydown", walked);
  const opened = () => {
    if (model.get("folds")) body.firstChild.open = model.get("unfolded") > 0;
  };
  model.on("change:html", show);
  model.on("change:label", show);
  model.on("change:unfolded", opened);
  model.on("msg:custom", received);
  document.addEventListener("visibilitychange", visibility);
  const unfollow = followLinks(model, body);
  const resized = new ResizeObserver(() => {
    scrollers();
    visibility();
  });
  resized.observe(body);
  const link = model.get("watched") ? connection(model, body, show) : undefined;
  const timer = setInterval(tick, TICK_MS);
  show();
  visibility();
  return () => {
    unfollow();
    link?.stop();
    resized.disconnect();
    clearInterval(timer);
    document.removeEventListener("visibilitychange", visibility);
    seen("");
    model.off("change:html", show);
    model.off("change:label", show);
    model.off("change:unfolded", opened);
    model.off("msg:custom", received);
  };
}

export default { render };
