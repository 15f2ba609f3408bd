// The elements of the time line beside its canvas: buttons, the legend, and what is chosen, in words.
import { bytesText, complete, sums, together } from "./chosen.js";
import { describe, secondsText } from "./lanes.js";
import { runOf } from "./columns.js";

const ICONS = {
  in: "M5 1h2v4h4v2H7v4H5V7H1V5h4z", out: "M1 5h10v2H1z",
  fit: "M1 1h1.6v10H1zM9.4 1H11v10H9.4zM3.2 6l2.3-2.4v1.6h1V3.600L8.8 6 6.5 8.400V6.800h-1v1.600z",
  follow: "M1 5.200h5V2.600L10 6 6 9.400V6.800H1zM10.2 2h1.400v8h-1.400z",
  previous: "M8.500 1.500L4 6l4.500 4.500z", next: "M3.500 1.500L8 6l-4.500 4.500z",
  close: "M2.400 1L6 4.600 9.600 1 11 2.400 7.400 6 11 9.600 9.600 11 6 7.400 2.400 11 1 9.600 4.600 6 1 2.400z",
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
  ["waits for", "color: var(--ddpnb-fg)", "→"],
  ["compressed time", "color: var(--ddpnb-faint)", "M2 0l2 3-2 3 2 3-2 3h1l2-3-2-3 2-3-2-3zM7 0l2 3-2 3 2 3-2 3h1l2-3-2-3 2-3-2-3z"],
  ["now", "width: 0; border-left: 1px dashed var(--ddpnb-faint)"],
];

/** An element with a class, words, and parts. */
export function make(name, { text, ...attributes } = {}, ...parts) {
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

/** A button with an icon of this name, and perhaps a word. */
export function button(name, label, word = "") {
  const made = make("button", { type: "button", title: label, "aria-label": label }, icon(ICONS[name]));
  if (word) made.append(word);
  return made;
}

/** The legend, and the button that shows it. */
export function legend() {
  const row = make("div", { class: "row legend", "aria-label": "legend", role: "group", hidden: "" });
  for (const [word, style, sign] of LEGEND) {
    const swatch = make("i", { "aria-hidden": "true" }, !sign ? "" : sign.length > 1 ? icon(sign) : sign);
    swatch.style.cssText = style;
    row.append(make("span", { class: "key" }, swatch, word));
  }
  const toggle = make("button", { type: "button", text: "legend", "aria-expanded": "false" });
  toggle.addEventListener("click", () => {
    row.hidden = !row.hidden;
    toggle.setAttribute("aria-expanded", String(!row.hidden));
  });
  return { toggle, row };
}

function table(label, head, rows) {
  const cells = (kind, values) => make("tr", {}, ...values.map((text) => make(kind, { text })));
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    make("table", { "aria-label": label }, make("thead", {}, cells("th", head)), make("tbody", {}, ...rows.map((row) => cells("td", row)))));
}

/** A place in the code, as a link that `places.js` follows. */
function placeOfCode(site) {
  const [, file, line, rest] = site.match(/^(.*):(\d+)( in .*)?$/s) ?? [];
  if (!file) return make("div", { class: "mono", text: site });
  const link = make("a", { "data-file": file, "data-line": line, tabindex: "0", role: "link", title: `${file}:${line}` },
    make("code", { text: `${file.split("/").pop()}:${line}` }));
  return make("div", {}, link, make("span", { class: "mono", text: rest ?? "" }));
}

/** A chosen call: what it is, and when each rank came to its collective. @returns {Element[]} */
export function aboutCall(store, { lane, i }, now) {
  const about = describe(store, lane, i, now);
  const zero = store.runs.findLast((run) => run.begin !== null && run.begin <= store.lanes[lane].begin[i])?.begin ?? 0;
  const parts = [
    make("h3", { text: `Rank ${about.rank}: ${about.title}` }),
    ...[[about.marked, "error"], [about.times, ""], [about.group, ""], [about.signature, "mono"]].filter(([text]) => text)
      .map(([text, name]) => make("div", { class: name, text })),
  ];
  if (about.site) parts.push(placeOfCode(about.site));
  const calls = together(store, lane, i);
  if (calls.length < 2) return parts;
  const first = calls[0].begin;
  const rows = calls.map(({ lane: at, i: k, begin }) => {
    const { times } = describe(store, at, k, now);
    return [String(store.rows[at]?.rank), secondsText(begin - zero), `+${secondsText(begin - first)}`, times];
  });
  const words = complete(store, lane, i) ? "" : " (ranks are missing)";
  return [...parts, table(`the ranks of ${about.title}${words}`, ["rank", "came at", "after the first", "then"], rows)];
}

/** An interval: what each rank did in it, and the calls by operation. @returns {Element[]} */
export function aboutInterval(store, { begin, end }, now) {
  const found = sums(store, begin, end, now);
  const zero = store.runs.findLast((run) => run.begin !== null && run.begin <= begin)?.begin ?? runOf(store).begin ?? 0;
  const ranks = found.ranks.map((one) => [
    String(one.rank), ...[one.computing, one.waiting, one.collective, one.held].map(secondsText), String(one.calls),
  ]);
  const operations = found.operations.map(({ operation, calls, bytes }) => [operation, String(calls), bytesText(bytes)]);
  return [
    make("h3", { text: `${secondsText(end - begin)}, from ${secondsText(begin - zero)} to ${secondsText(end - zero)}` }),
    table("time of each rank", ["rank", "computing", "waiting", "in collectives", "held", "calls"], ranks),
    table("calls by operation", ["operation", "calls", "bytes of all ranks"], operations),
  ];
}

/** The elements of a time line, in its ``body``. */
export function stage() {
  const note = make("span", { class: "faint" });
  const buttons = {
    in: button("in", "zoom in (w)"), out: button("out", "zoom out (s)"),
    fit: button("fit", "show all", "all"), follow: button("follow", "follow the newest calls", "follow"),
  };
  const searched = make("input", { type: "search", placeholder: "all_reduce #735", "aria-label": "search for a call", title: "an operation, a number, or both; Enter: the next one (/)" });
  const count = make("span", { class: "faint count", role: "status" });
  const hits = { previous: button("previous", "previous call found"), next: button("next", "next call found") };
  const looking = make("div", { class: "row looking", role: "search" }, searched, hits.previous, hits.next, count);
  const signs = legend();
  const canvas = make("canvas", {
    tabindex: "0", role: "application",
    "aria-label": "time line: left and right select a call, up and down a rank, with Shift an interval; w and s zoom, a and d move, / searches, Escape ends a selection",
  });
  const tip = make("div", { class: "tip", hidden: "" });
  const spoken = make("div", { class: "unseen", role: "status", "aria-live": "polite" });
  const empty = make("p", { class: "faint", text: "no collective recorded" });
  const lanes = make("div", { class: "lanes" }, canvas, tip);
  const close = button("close", "close what was chosen");
  const about = make("div");
  const beside = make("div", { class: "beside", role: "region", "aria-label": "what was chosen", hidden: "" }, close, about);
  const body = make("div", { class: "ddpnb", role: "group", "aria-label": "time line" },
    make("div", { class: "row title" }, make("h2", { text: "Time line" }), note, make("span", { class: "space" }), looking,
      make("div", { class: "row" }, ...Object.values(buttons), signs.toggle)), signs.row, empty,
    make("div", { class: "stage" }, lanes, beside), spoken);
  return { body, canvas, tip, lanes, beside, about, buttons, hits, searched, count, looking, signs, note, empty, spoken, close };
}

/** What is said of the call under the pointer. @param {ReturnType<typeof describe>} about */
export function aboutHovered(about) {
  const lines = [[about.marked, "error"], [about.times, ""], [about.signature, "mono"], [about.site, "mono faint"]];
  const of = `  rank ${about.rank}${about.group ? ` · ${about.group}` : ""}`;
  const said = lines.filter(([text]) => text).map(([text, kind]) => make("div", { class: kind, text }));
  return [make("b", { text: about.title }), make("span", { class: "faint", text: of }), ...said];
}
