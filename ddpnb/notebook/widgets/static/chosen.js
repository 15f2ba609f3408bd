// What somebody looks for or chooses in the time line: calls that fit some words, the calls of one collective, and what
// the ranks did in an interval. Pure: no element of a page is touched here. Times are seconds since an origin.
import { metOf, visible } from "./columns.js";
import { PARTS, cover, coverageOf } from "./lanes.js";

const FIRST_PLACE = 2; // those before are of calls that wait for nobody, or whose ranks are not known
const FINE = 2000; // parts of an interval
const TYPED_SEQ = /^(.*?)(?:(?:^|\s+)#?|\s*#)\s*(\d+)$/;

/**
 * The calls that fit what was typed, in the order of time: an operation, a number, or both ("all_reduce #735", "barrier",
 * "#12"), or a part of the place in the code ("train.py:88").
 * @param {string} typed @returns {{lane: number, number: number, begin: number}[]}
 */
export function search(store, typed) {
  const [, words, seq] = typed.trim().match(TYPED_SEQ) ?? [null, typed.trim(), null];
  if (!words && seq === null) return [];
  const wanted = words.toLowerCase();
  const fits = store.kinds.map(([title, , , site]) => [title, site].some((text) => (store.texts[text] ?? "").toLowerCase().includes(wanted)));
  const found = [];
  store.lanes.forEach((own, lane) => {
    for (let i = 0; i < own.count; i++)
      if (fits[own.kind[i]] && (seq === null || own.seq[i] === Number(seq))) found.push({ lane, number: own.number[i], begin: own.begin[i] });
  });
  return found.sort((one, other) => one.begin - other.begin || one.lane - other.lane);
}

/**
 * The calls of the collective, or the message, that a call is of; the last that came is the last of them.
 * @returns {{lane: number, i: number, begin: number}[]} empty where it is not known who takes part
 */
export function together(store, lane, i) {
  const place = store.lanes[lane]?.place[i];
  if (!(place >= FIRST_PLACE)) return [];
  const found = [];
  store.lanes.forEach((own, at) => {
    const k = own.place.subarray(0, own.count).lastIndexOf(place);
    if (k >= 0) found.push({ lane: at, i: k, begin: own.begin[k] });
  });
  return found.sort((one, other) => one.begin - other.begin);
}

/** Whether all ranks have come to the collective of a call. */
export const complete = (store, lane, i) => !Number.isNaN(metOf(store, store.lanes[lane], i));

/**
 * What the ranks did between two moments, as it is drawn: the seconds of each rank in each part, and the calls that began
 * there, with the bytes that the ranks gave to them, by operation.
 */
export function sums(store, begin, end, now) {
  const into = coverageOf(FINE), calls = new Map();
  const ranks = store.lanes.map((own, at) => {
    cover(store, at, { begin, end }, FINE, now, into);
    const row = { rank: store.rows[at]?.rank, calls: 0 };
    for (const name of PARTS) row[name] = (into[name].reduce((sum, value) => sum + value, 0) * (end - begin)) / FINE;
    const [from, to] = visible(own, begin, end);
    for (let i = from; i < to; i++) {
      if (own.begin[i] < begin || own.begin[i] >= end) continue;
      row.calls++;
      const [title, , , , bytes] = store.kinds[own.kind[i]] ?? [];
      const operation = (store.texts[title] ?? "?").replace(/ (to|from) .*/, "");
      const sum = calls.get(operation) ?? { operation, calls: 0, bytes: 0 };
      sum.calls++;
      sum.bytes += bytes ?? 0;
      calls.set(operation, sum);
    }
    return row;
  });
  return { begin, end, ranks, operations: [...calls.values()].sort((one, other) => other.calls - one.calls) };
}

/** @param {number} bytes */
export function bytesText(bytes) {
  let value = bytes, unit = 0;
  while (value >= 1000 && unit < 4) (value /= 1000), unit++;
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${["B", "kB", "MB", "GB", "TB"][unit]}`;
}
