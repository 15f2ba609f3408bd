// The calls of all lanes in columns, as Python lays them out, and one call as it is drawn. Pure: no element of a
// page is touched here. Times are seconds since an origin.

import { emptyQuiet, touch } from "./axis.js";

export const DONE = 0, OPEN = 1, LEFT = 2, FAILED = 3, HELD = 4;
export const CLOCKS = 0.001; // over so long before the last came: the clocks of the ranks differ
// For a call that nobody in Python waits for the door looks when the next one comes: then it is called done. One
// that ended so shortly before the next, after so long, was most likely left: as all calls of DDP's reducer are.
const NEXT = 200e-6, LONG = 2e-3;
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
  return {
    texts: [], kinds: [], met: new Float64Array(0), lanes: [], rows: [], past: [], runs: [], holds: [], quiet: emptyQuiet(), now: 0, of: 0, count: 0,
  };
}

/**
 * Take what Python sends: all of it (`head.whole`), or what is new.
 * @param {object} store @param {object} head @param {DataView} events @param {DataView} places
 */
export function take(store, head, events, places) {
  if (head.whole) Object.assign(store, emptyStore());
  if (head.rows) store.rows = head.rows;
  if (head.runs) store.runs = head.runs;
  if (head.past) store.past = head.past;
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
  for (let i = 0; i < head.count; i++) {
    put(store.lanes[columns.lane[i]], columns, i);
    touch(store.quiet, columns.begin[i]);
    touch(store.quiet, columns.end[i]);
  }
  for (const { begin, end } of store.runs) touch(store.quiet, begin ?? NaN), touch(store.quiet, end ?? NaN);
  for (const row of store.rows) touch(store.quiet, row.ended ?? NaN);
  for (const [lane, begin, end] of head.holds ?? []) {
    const holds = (store.holds[lane] ??= []);
    if (holds.at(-1)?.begin === begin) holds.pop();
    holds.push({ begin, end });
    touch(store.quiet, begin), touch(store.quiet, end ?? NaN);
  }
  store.count = 0;
  for (const lane of store.lanes) {
    reach(store, lane);
    store.count += lane.count;
  }
}

/** The run that is the last; its end is null while it continues. */
export function runOf(store) {
  return store.runs.at(-1) ?? { number: 0, name: "", begin: null, end: null };
}

/** What is known of a lane in each run, in the order of time. */
export function rowsOf(store, at) {
  const rows = [];
  for (const run of store.past) if (run[at]) rows.push(run[at]);
  if (store.rows[at]) rows.push(store.rows[at]);
  return rows;
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
  const lane = { summary: null, count: 0, highest: -1, loose: 0, reach: new Float64Array(0) };
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
    lane.summary = null;
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
  if (lane.summary && at < lane.summary.count) lane.summary = null;
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
export function endOf(store, lane, i) {
  const end = lane.end[i];
  if (lane.state[i] !== LEFT || end !== Infinity) return end;
  const met = metOf(store, lane, i);
  return Number.isNaN(met) ? Infinity : Math.max(lane.begin[i], met);
}

/** When the last rank came to a call's place: NaN while that is not known. Python sends no place to which only some came. */
export function metOf(store, lane, i) {
  return store.met[lane.place[i]] ?? NaN;
}

/** Whether a call that is done was begun, and the rank continued. */
export function wasLeft(lane, i, met) {
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
  let met = metOf(store, lane, i);
  if (state === DONE && wasLeft(lane, i, met)) {
    state = LEFT;
    if (met <= end + CLOCKS) end = Math.max(begin, met);
  }
  // Of a call that all ranks came to after it had ended one knows that it was never over.
  if (met > end + CLOCKS) met = lane.state[i] === OPEN || lane.state[i] === LEFT ? end : begin;
  if (Number.isNaN(met)) met = state === OPEN || state === LEFT || state === HELD ? end : begin;
  return { begin, met: Math.min(Math.max(met, begin), end), end, state };
}

/** The first place whose value is above. */
export function after(values, count, value) {
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
