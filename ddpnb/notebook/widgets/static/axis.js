// The axis of time, on which long stretches in which nothing begins or ends are shortened. Pure.
// A moment is in seconds since an origin. A place on the axis is in seconds too, of the time that is drawn: beside
// shortened stretches both run alike. How short a stretch is drawn depends on the scale: it keeps its width on the screen.

const BIN = 0.5; // seconds
const LEAST_GAP = 1; // seconds: what is shorter is never shortened
const OFTEN = 8, TIMES = 4; // where there are so many stretches, only those that are so many times the median
export const STOOD = 0.6; // of the width, at first, is for the time in which nothing began any more
const WORDS = 0.36, WORDS_WIDE = 250; // of it, later: of the width, and at least so many pixels if they are not more than at first
const SETTLED = 2; // seconds, within which it is brought to the width of any other stretch
const FLAT = { gaps: [] };

/** When something began or ended, in bins: what lies between two bins with something is a stretch without anything. */
export function emptyQuiet() {
  return { bins: new Map(), order: [], pairs: [], last: null, known: null };
}

/** Something begins or ends at this moment. @param {number} moment */
export function touch(quiet, moment) {
  if (!Number.isFinite(moment)) return;
  const at = Math.floor(moment / BIN);
  let bin = quiet.last;
  if (bin?.at !== at) {
    bin = quiet.bins.get(at);
    if (!bin) {
      quiet.bins.set(at, (bin = { at, low: moment, high: moment }));
      insert(quiet, bin);
    }
    quiet.last = bin;
  }
  if (moment < bin.low) bin.low = moment;
  else if (moment > bin.high) bin.high = moment;
  else return;
  quiet.known = null;
}

function insert(quiet, bin) {
  const { order } = quiet;
  quiet.known = null;
  let place = order.length;
  if (place && order[place - 1].at > bin.at) {
    let low = 0;
    while (low < place) {
      const middle = (low + place) >> 1;
      if (order[middle].at > bin.at) place = middle;
      else low = middle + 1;
    }
  }
  order.splice(place, 0, bin);
}

/** The stretches that are long, in the order of time. @returns {{begin: number, end: number}[]} */
function longOnes(quiet) {
  if (quiet.known) return quiet.known;
  const { order } = quiet, gaps = [];
  for (let i = 1; i < order.length; i++) {
    const begin = order[i - 1].high, end = order[i].low;
    if (end - begin >= LEAST_GAP) gaps.push({ begin, end });
  }
  const lengths = gaps.map(({ begin, end }) => end - begin).sort((a, b) => a - b);
  const least = lengths.length < OFTEN ? LEAST_GAP : TIMES * lengths[lengths.length >> 1];
  const known = gaps.filter(({ begin, end }) => end - begin >= least);
  known.least = least;
  return (quiet.known = known);
}

/** How wide a shortened stretch is drawn. @param {number} inner pixels of the axis */
export function markWidth(inner) {
  return Math.max(56, Math.min(110, 0.12 * inner));
}

/**
 * The stretches that may be shortened, with the width of each, in pixels, above which it is. The last one, in which
 * nothing has begun until now, has more room, for words; `fresh` falls to 0 while it is brought to that: so nothing jumps.
 * @param {number} wide so many times as wide as usual
 * @returns {{begin: number, end: number, most: number, fresh: number}[]}
 */
export function gapsOf(quiet, now, inner, wide = 1) {
  const most = wide * markWidth(inner);
  const known = longOnes(quiet);
  const gaps = known.map(({ begin, end }) => ({ begin, end, most, fresh: 0 }));
  const begin = quiet.order.at(-1)?.high ?? Infinity, over = now - begin - known.least;
  if (over >= 0) {
    const fresh = Math.max(0, 1 - over / SETTLED), roomy = Math.max(most, wide * Math.max(WORDS * inner, Math.min(WORDS_WIDE, STOOD * inner)));
    gaps.push({ begin, end: now, most: roomy + fresh * (wide * STOOD * inner - roomy), fresh });
  }
  return gaps;
}

/** The axis at a scale. @param {number} scale seconds of a pixel */
export function axisOf(gaps, scale) {
  const found = [];
  let saved = 0;
  for (const { begin, end, most } of gaps) {
    const length = end - begin, drawn = most * scale;
    if (!(length > drawn)) continue;
    found.push({ begin, end, from: begin - saved, to: begin - saved + drawn });
    saved += length - drawn;
  }
  return found.length ? { gaps: found } : FLAT;
}

/** The last gap that begins before a value, by this name of its beginning. */
function before(gaps, name, value) {
  let low = 0, high = gaps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (gaps[middle][name] > value) high = middle;
    else low = middle + 1;
  }
  return gaps[low - 1];
}

/** Where a moment is on the axis. */
export function drawnAt({ gaps }, moment) {
  const gap = gaps.length ? before(gaps, "begin", moment) : undefined;
  if (!gap) return moment;
  if (moment >= gap.end) return gap.to + moment - gap.end;
  return gap.from + ((moment - gap.begin) / (gap.end - gap.begin)) * (gap.to - gap.from);
}

/** The moment at a place of the axis. */
export function momentOf({ gaps }, drawn) {
  const gap = gaps.length ? before(gaps, "from", drawn) : undefined;
  if (!gap) return drawn;
  if (drawn >= gap.to) return gap.end + drawn - gap.to;
  return gap.begin + ((drawn - gap.from) / (gap.to - gap.from)) * (gap.end - gap.begin);
}

const NOTHING = 1e-5; // seconds

/**
 * The scale at which the time between two moments takes so many pixels, and how many times as wide as usual shortened
 * stretches are: only where there is nothing else.
 */
export function fit(gaps, begin, end, pixels) {
  const inside = [];
  let other = end - begin;
  for (const gap of gaps) {
    const length = Math.min(gap.end, end) - Math.max(gap.begin, begin);
    if (length > 0) inside.push({ length, most: gap.most }), (other -= length);
  }
  const widths = inside.reduce((sum, { most }) => sum + most, 0);
  if (other < NOTHING && widths > 0 && widths < pixels) {
    const wide = pixels / widths;
    return { scale: Math.min(...inside.map(({ length, most }) => length / (most * wide))), wide };
  }
  let scale = (end - begin) / pixels;
  for (let round = 0; round < 100; round++) {
    let time = end - begin, room = pixels;
    for (const { length, most } of inside) if (length > most * scale) (time -= length), (room -= most);
    if (!(room > 0) || !(time > 0) || Math.abs(time / room - scale) <= 1e-12 * scale) break;
    scale = time / room;
  }
  return { scale, wide: 1 };
}

/**
 * A view with what is needed to draw it: its axis, its first and last moment, and its pieces, on each of which the time
 * runs evenly. Places of pieces are parts of the width.
 * @param {{begin: number, end: number}} view on the axis
 */
export function seen(gaps, view, inner) {
  const { begin, end } = view, length = end - begin;
  const axis = axisOf(gaps, length / inner);
  const pieces = [];
  const piece = (from, to, short) => {
    const left = Math.max(from, begin), right = Math.min(to, end);
    if (right > left) pieces.push({ begin: momentOf(axis, left), end: momentOf(axis, right), left: (left - begin) / length, right: (right - begin) / length, short });
  };
  let at = -Infinity;
  for (const gap of axis.gaps) {
    piece(at, gap.from, null);
    piece(gap.from, gap.to, gap);
    at = gap.to;
  }
  piece(at, Infinity, null);
  return { begin, end, axis, from: momentOf(axis, begin), to: momentOf(axis, end), pieces };
}
