// The lanes of a time line: columns of calls, what of them is visible, how much of each pixel they cover, and
// what lies under the pointer. Pure: no element of a page is touched here. Times are seconds.

export const DONE = 0, OPEN = 1, LEFT = 2, FAILED = 3, HELD = 4;
const CLOCKS = 0.001; // over so long before the last came: the clocks of the ranks differ
// For a call that nobody in Python waits for the door looks when the next one comes: then it is called done. One
// that ended so shortly before the next, after so long, was most likely left: as all calls of DDP's reducer are.
const NEXT = 25e-6, LONG = 0.5e-3;
const FIELDS = [
  ["begin", Float64Array], ["end", Float64Array], ["number", Uint32Array], ["seq", Uint32Array],
  ["place", Uint32Array], ["kind", Uint32Array], ["lane", Uint16Array], ["state", Uint8Array],
];

/** Columns that lie one after the other in a buffer. @param {DataView} view @param {number} count */
export function decode(view, count, fields = FIELDS) {
  const columns = {};
  let at = view.byteOffset;
  for (const [name, Kind] of fields) {
    const bytes = count * Kind.BYTES_PER_ELEMENT;
    columns[name] = new Kind(view.buffer.slice(at, at + bytes));
    at += bytes;
  }
  return columns;
}

/** Nothing yet. */
export function emptyStore() {
  return { texts: [], kinds: [], met: new Float64Array(0), lanes: [], rows: [], now: 0, of: 0, count: 0 };
}

/**
 * Take what Python sends: all of it (`head.whole`), or what is new.
 * @param {object} store @param {object} head @param {DataView} events @param {DataView} places
 */
export function take(store, head, events, places) {
  if (head.whole) Object.assign(store, emptyStore());
  if (head.rows) store.rows = head.rows;
  store.now = head.now;
  store.of = head.of ?? store.of;
  for (const text of head.texts) store.texts.push(text);
  for (const kind of head.kinds) store.kinds.push(kind);
  meet(store, decode(places, head.places, [["met", Float64Array], ["place", Uint32Array]]));
  const columns = decode(events, head.count);
  const size = new Map();
  for (const lane of columns.lane) size.set(lane, (size.get(lane) ?? 0) + 1);
  while (store.lanes.length < store.rows.length) store.lanes.push(emptyLane());
  for (const [at, count] of size) {
    while (store.lanes.length <= at) store.lanes.push(emptyLane());
    reserve(store.lanes[at], count);
  }
  for (let i = 0; i < head.count; i++) put(store.lanes[columns.lane[i]], columns, i);
  store.count = 0;
  for (const lane of store.lanes) {
    reach(store, lane);
    store.count += lane.count;
  }
}

function meet(store, { met, place }) {
  let most = -1;
  for (const one of place) most = Math.max(most, one);
  if (most >= store.met.length) {
    const grown = new Float64Array(Math.max(most + 1, 2 * store.met.length)).fill(NaN);
    grown.set(store.met);
    store.met = grown;
  }
  for (let i = 0; i < place.length; i++) store.met[place[i]] = met[i];
}

function emptyLane() {
  const lane = { count: 0, highest: -1, loose: 0, reach: new Float64Array(0) };
  for (const [name, Kind] of FIELDS) lane[name] = new Kind(0);
  return lane;
}

function reserve(lane, more) {
  if (lane.count + more <= lane.begin.length) return;
  const size = Math.max(lane.count + more, Math.ceil(1.5 * lane.begin.length));
  for (const [name, Kind] of [...FIELDS, ["reach", Float64Array]]) {
    const grown = new Kind(size);
    grown.set(lane[name]);
    lane[name] = grown;
  }
}

/** Put one call in its place: by its beginning. What is known of it already is replaced. */
function put(lane, columns, i) {
  const known = columns.number[i] > lane.highest ? -1 : find(lane, columns.number[i]);
  lane.highest = Math.max(lane.highest, columns.number[i]);
  if (known >= 0 && lane.begin[known] === columns.begin[i]) return write(lane, known, columns, i);
  if (known >= 0) {
    for (const [name] of FIELDS) lane[name].copyWithin(known, known + 1, lane.count);
    lane.count--;
    lane.loose = Math.min(lane.loose, known);
  }
  let at = lane.count;
  if (at && lane.begin[at - 1] > columns.begin[i]) {
    at = after(lane.begin, lane.count, columns.begin[i]);
    for (const [name] of FIELDS) lane[name].copyWithin(at + 1, at, lane.count);
  }
  lane.count++;
  write(lane, at, columns, i);
}

function write(lane, at, columns, i) {
  for (const [name] of FIELDS) lane[name][at] = columns[name][i];
  if (at < lane.loose) lane.loose = at;
}

/** Where the call with this number is; -1: nowhere. Those asked for are mostly among the last. @param {number} number */
export function find(lane, number) {
  return lane.number.subarray(0, lane.count).lastIndexOf(number);
}

/** Up to when something reaches that began up to there: it never falls, so one can search in it. */
function reach(store, lane) {
  let most = lane.loose ? lane.reach[lane.loose - 1] : -Infinity;
  let loose = -1;
  for (let i = Math.min(lane.loose, lane.count); i < lane.count; i++) {
    most = Math.max(most, endOf(store, lane, i));
    if (most === Infinity && loose < 0) loose = i;
    lane.reach[i] = most;
  }
  lane.loose = loose < 0 ? lane.count : loose;
}

/** When a call ended: infinite while it is open. Of what was left nobody saw the end: not before all had come. */
function endOf(store, lane, i) {
  const end = lane.end[i];
  if (lane.state[i] !== LEFT || end !== Infinity) return end;
  const met = store.met[lane.place[i]];
  return Number.isNaN(met) ? Infinity : Math.max(lane.begin[i], met);
}

/** Whether a call that is done was begun, and the rank went on. */
function wasLeft(lane, i, met) {
  const next = i + 1 < lane.count ? lane.begin[i + 1] : Infinity;
  const end = lane.end[i];
  if (next > end + NEXT) return false;
  return next < end || end - Math.max(lane.begin[i], met <= end ? met : -Infinity) > LONG;
}

/** A call as it is drawn: it waits from begin to met and is in the collective until end. */
export function spanOf(store, lane, i, now) {
  const begin = lane.begin[i];
  let state = lane.state[i];
  let end = endOf(store, lane, i);
  if (end === Infinity) end = Math.max(begin, now);
  let met = store.met[lane.place[i]];
  if (state === DONE && wasLeft(lane, i, met)) {
    state = LEFT;
    if (met <= end + CLOCKS) end = Math.max(begin, met);
  }
  if (met > end + CLOCKS) met = begin;
  if (Number.isNaN(met)) met = state === OPEN || state === LEFT || state === HELD ? end : begin;
  return { begin, met: Math.min(Math.max(met, begin), end), end, state };
}

/** The first place whose value is above. */
function after(values, count, value) {
  let low = 0, high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > value) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The calls [from, to) that may be seen between two moments. */
export function visible(lane, begin, end) {
  const to = after(lane.begin, lane.count, end);
  let from = after(lane.reach, lane.count, begin);
  if (from && lane.reach[from - 1] === begin) from--; // one without a length
  return [Math.min(from, to), to];
}

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
  const scale = width / (view.end - view.begin);
  const { computing, waiting, collective, held, failed, leftWaiting, leftCollective } = into;
  const { begin: begins, end: ends, state: states, place: places } = lane;
  const [from, to] = visible(lane, view.begin, view.end);
  let shadow = false;
  for (let i = from; i < to; i++) {
    let state = states[i];
    const begin = begins[i];
    let end = ends[i];
    let met = store.met[places[i]];
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

/** From the first thing to now. */
export function wholeView(store, now = store.now) {
  let begin = Infinity;
  store.lanes.forEach((lane, at) => {
    const first = Math.min(lane.count ? lane.begin[0] : Infinity, store.rows[at]?.begin ?? Infinity);
    if (first < begin) begin = first;
  });
  if (!Number.isFinite(begin)) begin = 0;
  const end = Math.max(now, begin + 1e-6);
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
  const length = Math.max(width || 1.15 * spans[spans.length >> 1], (now - last) / STOOD, 1e-6);
  const end = now + 0.01 * length;
  return width ? { begin: end - length, end } : { begin: Math.max(whole.begin, end - length), end };
}

/** Zoomed by a factor about a moment. Never closer than a tenth of a microsecond, nor wider than twice of all. */
export function zoomed(view, factor, about, whole) {
  const length = view.end - view.begin;
  const least = 1e-7, most = 2 * (whole.end - whole.begin);
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
  if (state === LEFT) return `begun, and the rank went on; ${open ? "not all have come" : "all had come"} after ${spanText(waited)}`;
  if (open) return within > 0 ? `waited ${spanText(waited)}, in the collective for ${spanText(within)}` : `waits for ${spanText(waited)}`;
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
