// Painting lanes on a canvas: pixels for the calls, however many there are, and words on plates over them.
import { drawnAt, momentOf } from "./axis.js";
import { HELD, LEFT, after, find, runOf, spanOf, visible } from "./columns.js";
import { arrows, marked, ring } from "./overlays.js";
import { fitted, freeOf, secondsText, stretchFor, ticks } from "./lanes.js";
import { pixelsOf } from "./pixels.js";

export const RIGHT = 12;
const TOP = 24, AXIS = 26; // of the page's pixels
const WORDS_FROM = 14; // height of a bar that has room for words
const MANY = 300; // calls of a lane in sight; with more none is named

/** How the lanes lie on a canvas. @param {number} lanes @param {number} width in pixels of the page */
export function layout(lanes, width) {
  const pitch = Math.max(9, Math.min(34, Math.floor(576 / Math.max(1, lanes))));
  const bar = pitch > 20 ? Math.round(pitch * 0.6) : pitch - 2;
  const left = 64;
  return { width, left, inner: Math.max(10, width - left - RIGHT), top: TOP, pitch, bar, lanes, height: TOP + lanes * pitch + AXIS };
}

export const topOf = (place, at) => place.top + at * place.pitch + ((place.pitch - place.bar) >> 1);
export const laneAt = (place, y) => Math.min(place.lanes - 1, Math.max(0, Math.floor((y - place.top) / place.pitch)));
export const momentAt = (place, view, x) => momentOf(view.axis, view.begin + ((x - place.left) / place.inner) * (view.end - view.begin));
export const placeOf = (place, view, moment) => place.left + ((drawnAt(view.axis, moment) - view.begin) / (view.end - view.begin)) * place.inner;

const COLOURS = ["busy", "warning", "ok", "error", "note", "fg", "bg", "faint", "line", "raised"];

/** The colours of the theme, as the style sheet has them now. @param {Element} element */
export function coloursOf(element) {
  const style = getComputedStyle(element);
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const found = { font: style.fontFamily || "sans-serif" };
  for (const name of COLOURS) {
    const text = style.getPropertyValue(`--ddpnb-${name}`).trim() || "#808080";
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = text;
    context.fillRect(0, 0, 1, 1);
    found[name] = { text, rgb: [...context.getImageData(0, 0, 1, 1).data] };
  }
  return found;
}

/** A painter keeps what it needs from one picture to the next. @param {HTMLCanvasElement} canvas */
export function painterOf(canvas) {
  const context = canvas.getContext("2d");
  const pixels = pixelsOf(context);
  const paint = (store, place, view, now, colours, { selected, hovered, interval, ratio }) => {
    if (canvas.width !== Math.round(place.width * ratio) || canvas.height !== Math.round(place.height * ratio)) {
      canvas.width = Math.round(place.width * ratio);
      canvas.height = Math.round(place.height * ratio);
    }
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    pixels(store, place, view, now, colours, ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const brush = { context, store, place, view, now, colours };
    axis(brush);
    for (const gap of view.axis.gaps) broken(brush, gap);
    runMarks(brush);
    for (let at = 0; at < place.lanes; at++) {
      label(brush, at);
      lane(brush, at);
    }
    if (interval) marked(brush, interval);
    arrows(brush, hovered ?? selected);
    for (const one of [hovered, selected]) if (one) ring(brush, one, one === selected);
  };
  return { paint };
}

/** The pieces of the view that are not shortened, each within one run: `zero` is when that began. */
function evenPieces(store, view, place) {
  const found = [], last = runOf(store).end ?? Infinity;
  for (const { begin, end: after, short } of view.pieces) {
    const end = Math.min(after, last);
    if (short || end <= begin) continue;
    const cuts = store.runs.map((run) => run.begin).filter((at) => at !== null && at > begin && at < end);
    [begin, ...cuts].forEach((from, k) => {
      const run = store.runs.findLast((one) => one.begin !== null && one.begin <= from);
      const to = cuts[k] ?? end;
      found.push({ begin: from, end: to, zero: run?.begin ?? 0, width: placeOf(place, view, to) - placeOf(place, view, from) });
    });
  }
  return found;
}

function axis({ context, store, place, view, now, colours }) {
  const bottom = place.top + place.lanes * place.pitch;
  const taken = view.axis.gaps.map((gap) => lengthPlate(context, place, view, gap, colours));
  context.font = `11px ${colours.font}`;
  context.textBaseline = "middle";
  context.textAlign = "center";
  for (const { begin, end, zero, width } of evenPieces(store, view, place)) {
    for (const { at, text } of ticks({ begin, end }, width, zero)) {
      const x = Math.round(placeOf(place, view, at)) + 0.5;
      context.globalAlpha = 0.7;
      context.fillStyle = colours.line.text;
      context.globalCompositeOperation = "destination-over"; // behind the lanes
      context.fillRect(x - 0.5, place.top, 1, bottom - place.top + 3);
      context.globalCompositeOperation = "source-over";
      context.globalAlpha = 1;
      context.fillStyle = colours.faint.text;
      const half = context.measureText(text).width / 2;
      const middle = Math.min(Math.max(x, half), place.width - half - 1);
      if (taken.some(({ left, right }) => middle + half + 6 > left && middle - half - 6 < right)) continue;
      taken.push({ left: middle - half, right: middle + half });
      context.fillText(text, middle, bottom + 14);
    }
  }
  const at = placeOf(place, view, now);
  if (runOf(store).end === null && at >= place.left && at <= place.width - RIGHT + 1) {
    context.fillStyle = colours.faint.text;
    for (let y = place.top; y < bottom; y += 6) context.fillRect(Math.round(at), y, 1, 3);
  }
}

const BAND = 6, TOOTH = 5; // pixels, of the mark where the axis is broken

/** Where the length of a shortened stretch is written. */
function lengthPlate(context, place, view, gap, colours) {
  const scale = place.inner / (view.end - view.begin);
  const middle = place.left + (gap.from + 0.75 * (gap.to - gap.from) - view.begin) * scale;
  context.font = `600 11px ${colours.font}`;
  const text = secondsText(gap.end - gap.begin);
  const half = context.measureText(text).width / 2 + 6;
  const room = [place.left - 4, place.width - 1];
  const at = Math.min(Math.max(middle, room[0] + half), room[1] - half);
  return { left: at - half, right: at + half, middle, at, text };
}

/** The mark where the axis is broken, and how long the time is that is not drawn as long as it was. */
function broken({ context, place, view, colours }, gap) {
  const { left, right, middle, at, text } = lengthPlate(context, place, view, gap, colours);
  if (middle < place.left || middle > place.width - RIGHT) return;
  const bottom = place.top + place.lanes * place.pitch + 4;
  const edge = (x) => {
    const points = [];
    for (let y = place.top - 3, k = 0; y <= bottom; y += TOOTH, k++) points.push([x + (k % 2 ? 2 : -2), y]);
    return points;
  };
  const draw = (points) => {
    context.beginPath();
    for (const [x, y] of points) context.lineTo(x, y);
  };
  const edges = [edge(middle - BAND / 2), edge(middle + BAND / 2)];
  draw([...edges[0], ...[...edges[1]].reverse()]);
  context.fillStyle = colours.bg.text;
  context.fill();
  context.strokeStyle = colours.faint.text;
  context.lineWidth = 1;
  for (const points of edges) {
    draw(points);
    context.stroke();
  }
  const y = place.top + place.lanes * place.pitch + 5;
  context.fillStyle = colours.raised.text;
  context.strokeStyle = colours.faint.text;
  context.beginPath();
  context.roundRect(left, y, right - left, 18, 4);
  context.fill();
  context.stroke();
  context.fillStyle = colours.fg.text;
  context.font = `600 11px ${colours.font}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(text, at, y + 9.5);
}

/** Where each run begins, with its name above the lanes. */
function runMarks({ context, store, place, view, colours }) {
  const bottom = place.top + place.lanes * place.pitch;
  context.font = `600 11px ${colours.font}`;
  context.textAlign = "left";
  context.textBaseline = "middle";
  let room = place.width; // up to the mark on the right of it
  for (const { name, begin } of [...store.runs].reverse()) {
    if (begin === null || !name) continue;
    const x = Math.round(placeOf(place, view, begin));
    if (x > place.width - RIGHT) continue;
    const before = x < place.left; // out of sight, but the run continues
    const left = before ? place.left : x;
    context.fillStyle = colours.fg.text;
    if (!before) context.fillRect(x - 1, 4, 2, bottom - 2);
    const text = fitted(name, room - left - 18, (one) => context.measureText(one).width);
    if (text) {
      const width = context.measureText(text).width + 12;
      context.fillStyle = colours.raised.text;
      context.strokeStyle = colours.line.text;
      context.lineWidth = 1;
      context.beginPath();
      context.roundRect(left, 3.5, width, 16, before ? 3 : [0, 3, 3, 0]);
      context.fill();
      context.stroke();
      context.fillStyle = colours.fg.text;
      context.fillText(text, left + 6, 12);
    }
    if (before) break;
    room = x;
  }
}

function label({ context, store, place, colours }, at) {
  const row = store.rows[at];
  if (!row) return;
  const bad = Boolean(row.mark);
  const every = Math.ceil(13 / place.pitch);
  if (every > 1 && !bad && (at % every || store.rows.slice(Math.max(0, at - every + 1), at + every).some((one) => one.mark))) return;
  const y = topOf(place, at) + place.bar / 2;
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.font = `${bad ? "600 " : ""}11px ${colours.font}`;
  context.fillStyle = (bad ? colours.error : colours.faint).text;
  if (bad) {
    context.beginPath(); // a sign beside the colour
    context.moveTo(1, y - 4);
    context.lineTo(7, y);
    context.lineTo(1, y + 4);
    context.fill();
  }
  context.fillText(`rank ${row.rank}`, 10, y + 0.5);
}

/** What is written into a lane, and the frames of what is open or does not fit. */
function lane(brush, at) {
  const { store, place, view, now, colours } = brush;
  const own = store.lanes[at];
  if (!own) return;
  const roomy = place.bar >= WORDS_FROM;
  const rows = [...store.past.map((run) => run[at]), store.rows[at]];
  const [from, to] = visible(own, view.from, view.to);
  let taken = -Infinity; // so far to the right stands something already
  if (roomy && to - from <= MANY)
    for (let i = from; i < to; i++) taken = Math.max(taken, named(brush, at, i, taken, rows));
  for (let i = to - 1; i >= from && to - i <= MANY; i--) {
    if (own.end[i] !== Infinity || own.state[i] === LEFT) continue;
    const span = spanOf(store, own, i, now);
    frame(brush, at, span.begin, span.end, own.state[i] === HELD ? colours.note : colours.warning, 1, []);
  }
  rows.forEach((row, k) => {
    if (!row) return;
    const over = Math.min(now, store.runs[k]?.end ?? Infinity); // that is what is known of the run
    const room = store.runs[k + 1]?.begin ?? Infinity; // then comes another one
    state(brush, at, row, over, [store.runs[k]?.begin ?? -Infinity, room], roomy);
  });
}

/** What is known of a rank in a run besides its calls. */
function state(brush, at, row, over, room, roomy) {
  const { store, place, view, now, colours } = brush;
  const own = store.lanes[at];
  const { mark } = row;
  const ended = row.ended ?? null, until = row.until ?? null;
  if (row.stands && until < over) {
    const end = ended ?? over;
    frame(brush, at, until, end, colours.warning, 1, []);
    if (roomy && !mark && ended === null) plate(brush, at, until, end, row.doing, colours.fg, { room });
  }
  const wrong = mark?.kind === "mismatch" ? find(own, mark.number) : -1;
  if (wrong >= 0) {
    const span = spanOf(store, own, wrong, now);
    frame(brush, at, span.begin, span.end, colours.error, 2, [], true);
    if (roomy) plate(brush, at, span.begin, Math.max(span.end, over), mark.words, colours.error, { room, own: wrong });
  } else if (mark?.kind === "absent") {
    const begin = until ?? row.since; // since it ceased, or since the first waits for it
    frame(brush, at, begin, Math.max(over, begin), colours.error, 1.5, [5, 4]);
    if (roomy) plate(brush, at, begin, Math.max(over, begin), mark.words, colours.error, { room });
  } else if (roomy && !row.stands && until !== null && row.doing && row.until > row.begin) {
    const last = after(own.begin, own.count, room[1]) - 1; // it never lies on a call that came later
    const from = ended ?? Math.max(until, last >= 0 ? own.reach[last] : until);
    const x = placeOf(place, view, from);
    if (x < place.width - RIGHT - 30) plate(brush, at, from, room[1], row.doing, row.failed ? colours.error : colours.faint, { after: ended !== null });
  }
  if (ended !== null && ended > row.begin) endMark(brush, at, ended, row.failed);
}

/** Where a rank has ended: a bar, or a cross where it did not end well. */
function endMark({ context, place, view, colours }, at, moment, failed) {
  const x = Math.round(placeOf(place, view, moment));
  if (x < place.left - 1 || x > place.width - RIGHT + 2) return;
  const top = topOf(place, at), middle = top + place.bar / 2;
  context.fillStyle = context.strokeStyle = (failed ? colours.error : colours.faint).text;
  context.fillRect(x - 1, top, failed ? 2 : 3, place.bar);
  if (!failed || place.bar < WORDS_FROM) return;
  context.fillStyle = colours.bg.text;
  context.beginPath();
  context.arc(x, middle, 6.5, 0, 2 * Math.PI);
  context.fill();
  context.lineWidth = 1;
  context.stroke();
  context.lineWidth = 2;
  context.beginPath();
  for (const slope of [1, -1]) {
    context.moveTo(x - 3, middle - 3 * slope);
    context.lineTo(x + 3, middle + 3 * slope);
  }
  context.stroke();
}

/** Write a call's name into it if there is room; up to where it goes. */
function named(brush, at, i, taken, rows) {
  const { store, place, view, now, colours } = brush;
  const own = store.lanes[at], row = rows.at(-1) ?? {};
  const { begin, end, state } = spanOf(store, own, i, now);
  if (state === LEFT) return taken; // something else stands above it
  const open = own.end[i] === Infinity;
  const left = Math.max(placeOf(place, view, begin), place.left);
  const right = Math.min(placeOf(place, view, end), place.width - RIGHT);
  if (right - left < 46 || left < taken || rows.some((one) => one?.mark?.number === own.number[i])) return taken;
  const title = titleOf(store, own, i);
  const text = open && row.doing?.includes(title) ? row.doing : title;
  const used = plate(brush, at, begin, end, text, colours.fg, { weight: open ? 600 : 400, whole: !open });
  return used ?? taken;
}

function titleOf(store, own, i) {
  const title = store.texts[store.kinds[own.kind[i]]?.[0]] ?? "?";
  return own.seq[i] ? `${title} #${own.seq[i]}` : title;
}

/**
 * Words on a plate, within a span; where they end, or undefined where there is no room.
 * @param {number[]} [options.room] the run: they are where nothing else is, also before the span or after it
 * @param {number} [options.own] the call on which they are
 */
function plate({ context, store, place, view, now, colours }, at, begin, end, text, colour, { weight = 600, whole = false, after = false, room = null, own = -1 } = {}) {
  const pixel = (moment) => Math.min(Math.max(placeOf(place, view, moment), place.left), place.width - RIGHT);
  let left = pixel(begin), right = pixel(end);
  context.font = `${weight} 11px ${colours.font}`;
  const measure = (one) => context.measureText(one).width;
  if (room) {
    const free = freeOf(store, at, view, now, pixel, room.map(pixel), own);
    [left, right] = stretchFor(free, [left, right], measure(text) + 22) ?? [0, 0];
  }
  left += after ? 9 : 6;
  const shown = fitted(text, right - left - 16, measure);
  if (!shown || (whole && shown !== text) || placeOf(place, view, begin) > place.width - RIGHT) return undefined;
  const width = measure(shown) + 10;
  const top = topOf(place, at) + 2;
  context.fillStyle = colours.bg.text;
  context.beginPath();
  context.roundRect(left, top, width, place.bar - 4, 3);
  context.fill();
  context.fillStyle = colour.text;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(shown, left + 5, topOf(place, at) + place.bar / 2 + 0.5);
  return left + width;
}

function frame({ context, place, view }, at, begin, end, colour, line, dash, empty = false) {
  const left = Math.max(placeOf(place, view, begin), place.left - 2);
  const right = Math.min(placeOf(place, view, end), place.width - RIGHT + 2);
  if (right < place.left || left > place.width - RIGHT) return;
  const box = [left, topOf(place, at) + 0.5, Math.max(4, right - left), place.bar - 1];
  context.strokeStyle = context.fillStyle = colour.text;
  context.lineWidth = line;
  if (empty) {
    context.clearRect(...box);
    context.globalAlpha = 0.1;
    context.fillRect(...box);
    context.globalAlpha = 1;
  }
  context.setLineDash(dash);
  context.strokeRect(...box);
  context.setLineDash([]);
}
