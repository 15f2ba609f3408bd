// Lanes: how much of each pixel the calls cover, what lies under the pointer, what is in sight, and the words for
// it. Pure: no element of a page is touched here. Times are seconds since an origin.
import { CLOCKS, DONE, FAILED, HELD, LEFT, OPEN, after, endOf, metOf, spanOf, visible, wasLeft } from "./columns.js";

export const PARTS = ["computing", "waiting", "collective", "held", "failed", "leftWaiting", "leftCollective"];

/** Room for the coverage of so many pixels. @param {number} width */
export function coverageOf(width) {
  return Object.fromEntries(PARTS.map((name) => [name, new Float32Array(width)]));
}

/**
 * How much of each pixel is computing, waiting and so on: from 0 to 1.
 * @param {{begin: number, end: number}} view @param {number} width in pixels
 * @returns {boolean} whether there is anything that runs in the shadow of other things
 */
export function cover(store, at, view, width, now, into) {
  const lane = store.lanes[at];
  const row = store.rows[at];
  for (const name of PARTS) into[name].fill(0);
  const { computing, waiting, collective, held, failed } = into;
  const [from, to] = visible(lane, view.begin, view.end);
  const summary = to - from > 4 * width ? summaryOf(store, lane, now) : null;
  let shadow;
  if (summary && (view.end - view.begin) / width >= summary.step) {
    shadow = summary.shadow;
    for (const name of summary.parts) resample(summary, summary[name], view, width, into[name]);
    shadow = gather(store, lane, summary.count, to, view, width, now, into) || shadow;
  } else shadow = gather(store, lane, from, to, view, width, now, into);
  const scale = width / (view.end - view.begin);
  if (row) {
    const until = Math.min(row.until ?? Infinity, now);
    if (row.stands) add(waiting, (until - view.begin) * scale, (now - view.begin) * scale, width);
    if (until > row.begin) add(computing, (row.begin - view.begin) * scale, (until - view.begin) * scale, width);
  }
  for (let x = 0; x < width; x++) {
    const strong = Math.min(1, failed[x] + held[x]);
    collective[x] = Math.min(collective[x], 1 - strong);
    waiting[x] = Math.min(waiting[x], 1 - strong - collective[x]);
    computing[x] = Math.max(0, Math.min(1, computing[x]) - strong - collective[x] - waiting[x]);
  }
  return shadow;
}

/** Add what the calls [from, to) cover of each pixel. */
function gather(store, lane, from, to, view, width, now, into) {
  const { waiting, collective, held, failed, leftWaiting, leftCollective } = into;
  const { begin: begins, end: ends, state: states } = lane;
  const scale = width / (view.end - view.begin);
  let shadow = false;
  for (let i = from; i < to; i++) {
    let state = states[i];
    const begin = begins[i];
    let end = ends[i];
    let met = metOf(store, lane, i);
    if (state === DONE && !wasLeft(lane, i, met)) {
      if (!(met <= end + CLOCKS) || met < begin) met = begin;
      else if (met > end) met = end;
    } else ({ met, end, state } = spanOf(store, lane, i, now));
    const first = (begin - view.begin) * scale;
    const middle = (met - view.begin) * scale;
    const last = (end - view.begin) * scale;
    if (state === LEFT) {
      shadow = true;
      add(leftWaiting, first, middle, width);
      add(leftCollective, middle, Math.max(last, middle + 1.5), width);
    } else if (state === HELD) add(held, first, last, width);
    else if (state === FAILED) add(failed, first, Math.max(last, first + 2), width);
    else {
      if (middle > first) add(waiting, first, middle, width);
      add(collective, middle, last, width);
    }
  }
  return shadow;
}

const BINS = 4096, STALE = 2000, UNSURE = 64; // the last calls of a lane may yet change

/** The older calls of a lane in so many bins of equal length, for views in which many fall on a pixel. */
function summaryOf(store, lane, now) {
  const count = Math.min(lane.loose, lane.count - UNSURE);
  if (lane.summary && lane.count - lane.summary.count < STALE + UNSURE) return lane.summary;
  if (count < STALE) return null;
  const view = { begin: lane.begin[0], end: Math.max(lane.begin[count - 1], lane.reach[count - 1]) };
  if (!(view.end > view.begin)) return null;
  const made = { ...coverageOf(BINS), count, begin: view.begin, step: (view.end - view.begin) / BINS };
  made.shadow = gather(store, lane, 0, count, view, BINS, now, made);
  made.parts = PARTS.filter((name) => made[name].some((value) => value > 0));
  return (lane.summary = made);
}

/** Bins into pixels that are no narrower: each falls into one or two. */
function resample({ begin, step }, bins, view, width, into) {
  const scale = width / (view.end - view.begin);
  const size = step * scale; // of a bin, in pixels
  const offset = (begin - view.begin) * scale;
  const first = Math.max(0, Math.floor(-offset / size));
  const last = Math.min(BINS, Math.ceil((width - offset) / size));
  for (let bin = first; bin < last; bin++) {
    const value = bins[bin];
    if (value === 0) continue;
    const from = offset + bin * size;
    const x = Math.floor(from);
    const over = Math.max(0, from + size - (x + 1)); // of it lies in the next pixel
    if (x >= 0 && x < width) into[x] += value * (size - over);
    if (over > 0 && x + 1 >= 0 && x + 1 < width) into[x + 1] += value * over;
  }
}

/** Cover from one place to another. */
function add(column, from, to, width) {
  if (from < 0) from = 0;
  if (to > width) to = width;
  if (!(to > from)) return;
  const first = from | 0;
  const last = to | 0;
  if (first === last) {
    column[first] += to - from;
    return;
  }
  column[first] += first + 1 - from;
  for (let x = first + 1; x < last; x++) column[x] += 1;
  if (last < width) column[last] += to - last;
}

/** The call at a moment, or one not further away than `near` seconds; -1: none. */
export function hit(store, at, moment, near, now) {
  const lane = store.lanes[at];
  if (!lane) return -1;
  const [from, to] = visible(lane, moment - near, moment + near);
  let found = -1, best = Infinity;
  for (let i = to - 1; i >= from; i--) {
    const { begin, end } = spanOf(store, lane, i, now);
    const away = Math.max(begin - moment, moment - end, 0);
    if (away < best && away <= near) (found = i), (best = away);
    if (best === 0) break;
  }
  return found;
}

/** The call of another lane that is nearest to a moment; -1: it has none. */
export function nearest(store, at, moment) {
  const lane = store.lanes[at];
  if (!lane?.count) return -1;
  const next = after(lane.begin, lane.count, moment);
  if (next === 0) return 0;
  return next < lane.count && lane.begin[next] - moment < moment - lane.begin[next - 1] ? next : next - 1;
}

/** The shortest view at a moment: beside a large number a smaller difference would be rounded to nothing. */
function shortest(moment, least) {
  return Math.max(least, Math.abs(moment) * 1e-12);
}

/** From the first thing to now. */
export function wholeView(store, now = store.now) {
  let begin = Infinity;
  store.lanes.forEach((lane, at) => {
    const first = Math.min(lane.count ? lane.begin[0] : Infinity, store.rows[at]?.begin ?? Infinity);
    if (first < begin) begin = first;
  });
  if (!Number.isFinite(begin)) begin = 0;
  const end = Math.max(now, begin + shortest(begin, 1e-6));
  return { begin, end: end + (end - begin) * 0.01 };
}

const RECENT = 14; // calls of a lane that one wants to see at first
const STOOD = 0.6; // of the width, at most, is for the time in which nothing began any more

/** The last calls, up to now; wider if the ranks have stood for long, so that one sees what they did before. */
export function recentView(store, now = store.now, width = 0) {
  const spans = [];
  let last = -Infinity;
  for (const lane of store.lanes) {
    if (!lane.count) continue;
    last = Math.max(last, lane.begin[lane.count - 1]);
    spans.push(lane.begin[lane.count - 1] - lane.begin[Math.max(0, lane.count - RECENT)]);
  }
  const whole = wholeView(store, now);
  if (!spans.length) return whole;
  spans.sort((a, b) => a - b);
  const length = Math.max(width || 1.15 * spans[spans.length >> 1], (now - last) / STOOD, shortest(now, 1e-6));
  const end = now + 0.01 * length;
  return width ? { begin: end - length, end } : { begin: Math.max(whole.begin, end - length), end };
}

/** Zoomed by a factor about a moment. Never closer than a tenth of a microsecond, nor wider than twice of all. */
export function zoomed(view, factor, about, whole) {
  const length = view.end - view.begin;
  const least = shortest(about, 1e-7), most = 2 * (whole.end - whole.begin);
  const wanted = Math.min(Math.max(length * factor, least), Math.max(most, least));
  const begin = about - ((about - view.begin) / length) * wanted;
  return { begin, end: begin + wanted };
}

/** Moved, but something of what there is stays in sight. */
export function moved(view, by, whole) {
  const length = view.end - view.begin;
  const begin = Math.min(Math.max(view.begin + by, whole.begin - 0.9 * length), whole.end - 0.1 * length);
  return { begin, end: begin + length };
}

/** @param {number} seconds */
export function spanText(seconds) {
  const long = Math.abs(seconds);
  if (long === 0) return "0 s";
  if (long < 1e-3) return `${round(seconds * 1e6)} µs`;
  if (long < 1) return `${round(seconds * 1e3)} ms`;
  if (long < 120) return `${round(seconds)} s`;
  return long < 7200 ? `${round(seconds / 60)} min` : `${round(seconds / 3600)} h`;
}

function round(value) {
  const long = Math.abs(value);
  return long >= 100 ? value.toFixed(0) : Number(value.toFixed(long >= 10 ? 1 : 2)).toString();
}

const STEPS = [1, 2, 5, 10];

/** Where the axis has its labels, and what they say: before `zero` with a minus, at it "now" if `named`. */
export function ticks(view, width, zero, named) {
  const length = view.end - view.begin;
  const wanted = (length * 110) / Math.max(width, 1);
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = STEPS.map((one) => one * power).find((one) => one >= wanted * 0.999) ?? 10 * power;
  const found = [];
  const first = Math.ceil((view.begin - zero) / step - 1e-9);
  const largest = Math.max(Math.abs(view.begin - zero), Math.abs(view.end - zero));
  for (let k = first; k * step <= view.end - zero + 1e-12 && found.length < 100; k++)
    found.push({ at: zero + k * step, text: named && k === 0 ? "now" : tickText(k * step, step, largest) });
  return found;
}

function tickText(value, step, largest) {
  if (!value) return "0";
  const sign = value < 0 ? "−" : "";
  const long = Math.abs(value);
  const [unit, name] = largest < 1e-6 ? [1e-9, "ns"] : largest < 1e-3 ? [1e-6, "µs"] : largest < 1 ? [1e-3, "ms"] : [1, "s"];
  const digits = Math.min(9, Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9)));
  if (largest < 600) return `${sign}${(long / unit).toFixed(digits)} ${name}`;
  const seconds = (long % 60).toFixed(digits).padStart(digits ? digits + 3 : 2, "0");
  const hours = Math.floor(long / 3600);
  const minutes = Math.floor(long / 60) % 60;
  return `${sign}${hours ? `${hours}:${String(minutes).padStart(2, "0")}` : minutes}:${seconds}`;
}

/** A call in words. */
export function describe(store, at, i, now) {
  const lane = store.lanes[at];
  const row = store.rows[at] ?? {};
  const [title, group, signature, site] = (store.kinds[lane.kind[i]] ?? []).map((text) => store.texts[text] ?? "");
  const { begin, met, end, state } = spanOf(store, lane, i, now);
  const seq = lane.seq[i];
  const marked = row.mark?.number === lane.number[i] ? row.mark.words : "";
  return {
    rank: row.rank, number: lane.number[i], title: (title ?? "?") + (seq ? ` #${seq}` : ""), group: group ?? "",
    signature: signature ?? "", site: site ?? "", marked, times: timesText(state, begin, met, end, endOf(store, lane, i) === Infinity),
  };
}

function timesText(state, begin, met, end, open) {
  if (state === HELD) return `held for ${spanText(end - begin)}`;
  if (state === FAILED) return `failed after ${spanText(end - begin)}`;
  const waited = met - begin, within = end - met;
  if (state === LEFT) return `started; the rank continued; ${open ? "not all ranks have joined" : "all ranks had joined"} after ${spanText(waited)}`;
  if (open) return within > 0 ? `waited ${spanText(waited)}, in the collective for ${spanText(within)}` : `waiting for ${spanText(waited)}`;
  return waited > 0 ? `waited ${spanText(waited)}, then ${spanText(within)} in the collective` : `${spanText(within)} in the collective`;
}

/** Text that fits: cut at the end. @param {(text: string) => number} measure */
export function fitted(text, room, measure) {
  if (measure(text) <= room) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (measure(`${text.slice(0, middle)}…`) <= room) low = middle;
    else high = middle - 1;
  }
  return low > 3 ? `${text.slice(0, low)}…` : "";
}
