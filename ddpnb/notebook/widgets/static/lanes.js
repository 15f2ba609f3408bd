// Lanes: how much of each pixel the calls cover, what lies under the pointer, what is in sight, and the words for
// it. Pure: no element of a page is touched here. Times are seconds since an origin.
import { STOOD, axisOf, drawnAt, fit, gapsOf } from "./axis.js";
import { CLOCKS, DONE, FAILED, HELD, LEFT, OPEN, after, endOf, metOf, rowsOf, runOf, spanOf, visible, wasLeft } from "./columns.js";

export const PARTS = ["computing", "waiting", "collective", "held", "failed", "leftWaiting", "leftCollective"];
const OVER = "over"; // of a pixel: the rank had left the run

/** Room for the coverage of so many pixels. @param {number} width */
export function coverageOf(width) {
  return Object.fromEntries([...PARTS, OVER].map((name) => [name, new Float32Array(width)]));
}

/**
 * How much of each pixel is computing, waiting and so on: from 0 to 1.
 * @param {{begin: number, end: number, pieces?: object[]}} view @param {number} width in pixels
 * @returns {boolean} whether there is anything that runs in the shadow of other things
 */
export function cover(store, at, view, width, now, into) {
  for (const name of [...PARTS, OVER]) into[name].fill(0);
  const { computing, waiting, collective, held, failed, over } = into;
  const rows = rowsOf(store, at);
  let shadow = false;
  for (const piece of view.pieces ?? [{ begin: view.begin, end: view.end, left: 0, right: 1 }]) {
    const frame = frameOf(piece, width);
    shadow = coverCalls(store, store.lanes[at], frame, now, into) || shadow;
    for (const { begin, end } of store.holds[at] ?? []) add(held, frame, begin, end ?? now);
    for (const row of rows) {
      if (row.ended !== null && row.ended !== undefined) add(over, frame, row.ended, store.runs.find(({ begin }) => begin > row.ended)?.begin ?? Infinity);
      const ended = Math.min(row.ended ?? Infinity, now), until = Math.min(row.until ?? Infinity, ended);
      if (row.stands) add(waiting, frame, until, ended);
      add(computing, frame, row.begin, until);
    }
  }
  for (let x = 0; x < width; x++) {
    const strong = Math.min(1, failed[x] + held[x]);
    collective[x] = Math.min(collective[x], 1 - strong);
    waiting[x] = Math.min(waiting[x], 1 - strong - collective[x]);
    computing[x] = Math.max(0, Math.min(1, computing[x]) - strong - collective[x] - waiting[x]);
    if (over[x] > 0) for (const name of PARTS) into[name][x] *= Math.max(0, 1 - over[x]);
  }
  return shadow;
}

/** A stretch of even time, in pixels: `scale` is pixels of a second. */
function frameOf({ begin, end, left, right }, width) {
  const from = left * width, to = Math.min(width, right * width);
  return { begin, end, from, to, width, scale: (to - from) / (end - begin) };
}

function coverCalls(store, lane, frame, now, into) {
  const [from, to] = visible(lane, frame.begin, frame.end);
  const summary = to - from > 4 * (frame.to - frame.from) ? summaryOf(store, lane, now) : null;
  if (!summary || 1 / frame.scale < summary.step) return gather(store, lane, from, to, frame, now, into);
  for (const name of summary.parts) resample(summary, summary[name], frame, into[name]);
  return gather(store, lane, Math.max(from, summary.count), to, frame, now, into) || summary.shadow;
}

const CAP = 4; // pixels at the end of a call that failed after a wait

/** Add what the calls [from, to) cover of each pixel. */
function gather(store, lane, from, to, frame, now, into) {
  const { waiting, collective, held, failed, leftWaiting, leftCollective } = into;
  const { begin: begins, end: ends, state: states } = lane;
  const pixel = 1 / frame.scale;
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
    if (state === LEFT) {
      shadow = true;
      add(leftWaiting, frame, begin, met);
      add(leftCollective, frame, met, Math.max(end, met + 1.5 * pixel));
    } else if (state === HELD) add(held, frame, begin, end);
    else if (state === FAILED) {
      const cap = Math.max(begin, end - CAP * pixel);
      add(waiting, frame, begin, cap);
      add(failed, frame, cap, Math.max(end, cap + 2 * pixel));
    } else {
      if (met > begin) add(waiting, frame, begin, met);
      add(collective, frame, met, end);
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
  const begin = lane.begin[0], end = Math.max(lane.begin[count - 1], lane.reach[count - 1]);
  if (!(end > begin)) return null;
  const made = { ...coverageOf(BINS), count, begin, step: (end - begin) / BINS };
  made.shadow = gather(store, lane, 0, count, frameOf({ begin, end, left: 0, right: 1 }, BINS), now, made);
  made.parts = PARTS.filter((name) => made[name].some((value) => value > 0));
  return (lane.summary = made);
}

/** Bins into pixels that are no narrower: each falls into one or two. */
function resample({ begin, step }, bins, frame, into) {
  const size = step * frame.scale; // of a bin, in pixels
  const offset = frame.from + (begin - frame.begin) * frame.scale;
  const first = Math.max(0, Math.floor((frame.from - offset) / size));
  const last = Math.min(BINS, Math.ceil((frame.to - offset) / size));
  for (let bin = first; bin < last; bin++) {
    const value = bins[bin];
    if (value === 0) continue;
    const from = Math.max(offset + bin * size, frame.from), to = Math.min(offset + (bin + 1) * size, frame.to);
    const x = Math.floor(from);
    const over = Math.max(0, to - (x + 1)); // of it lies in the next pixel
    if (x < frame.width) into[x] += value * Math.max(0, to - from - over);
    if (over > 0 && x + 1 < frame.width) into[x + 1] += value * over;
  }
}

/** Cover the pixels from one moment to another. */
function add(column, frame, begin, end) {
  if (!(end > begin)) return;
  let from = frame.from + (begin - frame.begin) * frame.scale, to = frame.from + (end - frame.begin) * frame.scale;
  if (from < frame.from) from = frame.from;
  if (to > frame.to) to = frame.to;
  if (!(to > from)) return;
  const first = from | 0;
  const last = to | 0;
  if (first === last) {
    column[first] += to - from;
    return;
  }
  column[first] += first + 1 - from;
  for (let x = first + 1; x < last; x++) column[x] += 1;
  if (last < frame.width) column[last] += to - last;
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

/** The moment from which on there is something to see. */
function firstMoment(store) {
  let begin = store.runs[0]?.begin ?? Infinity;
  store.lanes.forEach((lane, at) => {
    if (lane.count) begin = Math.min(begin, lane.begin[0]);
    for (const row of rowsOf(store, at)) if ((row.until ?? Infinity) > row.begin) begin = Math.min(begin, row.begin);
  });
  return Number.isFinite(begin) ? begin : 0;
}

/** What there is, from the first moment to the last, on an axis. */
export function extentOf(store, now, axis) {
  return { begin: drawnAt(axis, firstMoment(store)), end: drawnAt(axis, now) };
}

/** What lies between two moments, on the axis that shows just that, and a little more after it: where a run has ended, its last words. */
function between(store, now, begin, end, inner) {
  const more = runOf(store).end === null ? 0.01 : Math.min(0.2, 100 / inner);
  const { scale, wide } = fit(gapsOf(store.quiet, now, inner), begin, end, inner / (1 + more));
  const axis = axisOf(gapsOf(store.quiet, now, inner, wide), scale);
  const from = drawnAt(axis, begin);
  return { begin: from, end: from + scale * inner, wide };
}

const WIDTH = 1000;

/** All there is. @param {number} inner pixels */
export function wholeView(store, now = store.now, inner = WIDTH) {
  const begin = firstMoment(store);
  return between(store, now, begin, Math.max(now, begin + shortest(begin, 1e-6)), inner);
}

const RECENT = 14; // calls of a lane that one wants to see at first

/**
 * The last calls of the run, up to now; wider if the ranks have stood for some time, so that one sees what they did before.
 * @param {number} length on the axis; 0: as it suits
 */
export function recentView(store, now = store.now, length = 0, inner = WIDTH) {
  const gaps = gapsOf(store.quiet, now, inner);
  if (length) {
    const end = drawnAt(axisOf(gaps, length / inner), now) + 0.01 * length;
    return { begin: end - length, end };
  }
  const began = runOf(store).begin ?? -Infinity;
  const spans = [];
  let last = began, few = true; // it has made no more calls
  for (const lane of store.lanes) {
    const begun = after(lane.begin, lane.count, began - 1e-9), first = Math.max(begun, lane.count - RECENT);
    if (first > begun) few = false;
    if (first >= lane.count) continue;
    last = Math.max(last, lane.begin[lane.count - 1]);
    spans.push(lane.begin[lane.count - 1] - lane.begin[first]);
  }
  if (!Number.isFinite(last)) return wholeView(store, now, inner);
  const span = spans.sort((a, b) => a - b)[spans.length >> 1] ?? 0;
  let stood = now - last, fresh = 1;
  for (const gap of gaps) {
    if (gap.end <= last) continue;
    if (!gap.fresh) stood -= gap.end - Math.max(gap.begin, last);
    else fresh = gap.fresh;
  }
  // While a wait is brought to its width, so is what is shown before it.
  const before = Math.max(span + Math.min(0.15 * span, 2), stood * fresh * (1 / STOOD - 1), shortest(now, 1e-6));
  const from = few && began < last ? Math.min(began, last - before) : last - before;
  return between(store, now, Math.max(from, Math.min(firstMoment(store), last)), Math.max(now, last), inner);
}

/**
 * Zoomed by a factor about a moment. Never closer than a tenth of a microsecond, nor wider than twice of all.
 * @param {(length: number) => object} axisAt the axis of a view of this length
 */
export function zoomed(view, factor, about, whole, axisAt = () => axisOf([], 1)) {
  const length = view.end - view.begin;
  const least = shortest(about, 1e-7), most = 2 * (whole.end - whole.begin);
  const wanted = Math.min(Math.max(length * factor, least), Math.max(most, least));
  const begin = drawnAt(axisAt(wanted), about) - ((drawnAt(axisAt(length), about) - view.begin) / length) * wanted;
  return { ...view, begin, end: begin + wanted };
}

/** Moved, but something of what there is stays in sight. */
export function moved(view, by, whole) {
  const length = view.end - view.begin;
  const begin = Math.min(Math.max(view.begin + by, whole.begin - 0.9 * length), whole.end - 0.1 * length);
  return { ...view, begin, end: begin + length };
}

/** @param {number} seconds */
export function spanText(seconds) {
  const long = Math.abs(seconds);
  if (long === 0) return "0 s";
  if (long < 1e-3) return `${round(seconds * 1e6)} µs`;
  return long < 1 ? `${round(seconds * 1e3)} ms` : secondsText(seconds);
}

/** In the unit of the axis, whatever the length. @param {number} seconds */
export function secondsText(seconds) {
  const long = Math.abs(seconds);
  const digits = long >= 10 ? 1 : long >= 1 ? 2 : long >= 0.001 ? 4 : 6;
  return `${long < 1 ? Number(seconds.toFixed(digits)) : seconds.toFixed(digits)} s`;
}

function round(value) {
  const long = Math.abs(value);
  return long >= 100 ? value.toFixed(0) : Number(value.toFixed(long >= 10 ? 1 : 2)).toString();
}

const STEPS = [1, 2, 5, 10];

/** Where the axis has its labels, and what they say: seconds since `zero`, when the run began. */
export function ticks(view, width, zero) {
  const length = view.end - view.begin;
  const wanted = (length * 110) / Math.max(width, 1);
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = STEPS.map((one) => one * power).find((one) => one >= wanted * 0.999) ?? 10 * power;
  const digits = Math.min(9, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
  const found = [];
  const first = Math.ceil((view.begin - zero) / step - 1e-9);
  for (let k = first; k * step <= view.end - zero + 1e-12 && found.length < 100; k++)
    found.push({ at: zero + k * step, text: `${(k * step).toFixed(k ? digits : 0).replace("-", "−")} s` });
  return found;
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
  if (state === OPEN && !open) return `waited ${spanText(end - begin)}, then the rank left the run`;
  if (open) return within > 0 ? `waited ${spanText(waited)}, in the collective for ${spanText(within)}` : `waiting for ${spanText(waited)}`;
  return waited > 0 ? `waited ${spanText(waited)}, then ${spanText(within)} in the collective` : `${spanText(within)} in the collective`;
}

/**
 * The stretches of a lane in which nothing is drawn but the call of this place, in the order of time, in pixels.
 * @param {(moment: number) => number} pixel @param {number[]} room from where to where @param {number} but a call
 */
export function freeOf(store, at, view, now, pixel, room, but = -1) {
  const lane = store.lanes[at], found = [], drawn = [];
  const [from, to] = visible(lane, view.from, view.to);
  for (let i = from; i < to; i++) {
    if (i === but || (lane.state[i] === LEFT && lane.end[i] === Infinity)) continue; // that one is drawn as what it waits for
    const { begin, end } = spanOf(store, lane, i, now);
    drawn.push([begin, end]);
  }
  for (const { begin, end } of store.holds[at] ?? []) drawn.push([begin, end ?? now]);
  let [left, last] = room;
  for (const [begin, end] of drawn.sort(([one], [other]) => one - other)) {
    const x = Math.min(pixel(begin), last);
    if (x > left) found.push([left, x]);
    left = Math.max(left, pixel(end) + 1);
  }
  return last > left ? [...found, [left, last]] : found;
}

/**
 * Which stretch words of this width get: one within their span, or after it, or before it; else the widest of the first two.
 * @param {number[][]} free of `freeOf` @returns {number[] | undefined} undefined: there is none
 */
export function stretchFor(free, [begin, end], wanted) {
  const cut = (from, to) => free.map(([left, right]) => [Math.max(left, from), Math.min(right, to)]).filter(([left, right]) => right > left);
  const after = cut(begin, Infinity), before = cut(-Infinity, begin).reverse();
  const fits = ([left, right]) => right - left >= wanted;
  const near = before.find(fits);
  return cut(begin, end).find(fits) ?? after.find(fits) ?? (near && [near[1] - wanted, near[1]]) ?? after.sort((one, other) => other[1] - other[0] - one[1] + one[0])[0];
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
