// Painting lanes on a canvas: pixels for the calls, however many there are, and words on plates over them.
import { HELD, LEFT, find, spanOf, visible } from "./columns.js";
import { cover, coverageOf, fitted, ticks } from "./lanes.js";

const RIGHT = 12, TOP = 8, AXIS = 22; // of the page's pixels
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
export const momentAt = (place, view, x) => view.begin + ((x - place.left) / place.inner) * (view.end - view.begin);
export const placeOf = (place, view, moment) => place.left + ((moment - view.begin) / (view.end - view.begin)) * place.inner;

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
  let image = null, words = null, coverage = null;

  /** The calls, pixel by pixel: in each column as much of a colour as it covers of the column. */
  const pixels = (store, place, view, now, colours, ratio) => {
    const width = Math.round(place.inner * ratio);
    const height = Math.round(place.lanes * place.pitch * ratio);
    if (image?.width !== width || image?.height !== height) {
      image = new ImageData(width, height);
      words = new Uint32Array(image.data.buffer);
      coverage = coverageOf(width);
    }
    words.fill(0);
    const period = Math.round(8 * ratio);
    // The hatch goes with what is hatched.
    const drift = Math.round((view.begin * width) / (view.end - view.begin)) % period;
    const level = new Uint8Array(period);
    for (let i = 0; i < period; i++) level[i] = i < period / 4 ? 2 : i < period / 4 + 1 || i === period - 1 ? 1 : 0;
    const inks = inksOf(colours);
    const upper = [0, 1, 2].map(() => new Uint32Array(width));
    const lower = [0, 1, 2].map(() => new Uint32Array(width));
    for (let at = 0; at < place.lanes; at++) {
      const shadow = cover(store, at, view, width, now, coverage);
      mix(coverage, width, inks, upper, false);
      if (shadow) mix(coverage, width, inks, lower, true);
      const begin = Math.round((topOf(place, at) - place.top) * ratio);
      const end = begin + Math.round(place.bar * ratio);
      const split = shadow ? begin + Math.round(place.bar * 0.55 * ratio) : end;
      for (let y = begin; y < end; y++) {
        const [off, half, on] = y < split ? upper : lower;
        let phase = (y + drift + period) % period;
        for (let x = 0, to = y * width; x < width; x++, to++) {
          const lit = level[phase];
          words[to] = lit === 0 ? off[x] : lit === 1 ? half[x] : on[x];
          if (++phase === period) phase = 0;
        }
      }
    }
    context.putImageData(image, Math.round(place.left * ratio), Math.round(place.top * ratio));
  };

  const paint = (store, place, view, now, colours, { selected, hovered, following, ratio }) => {
    if (canvas.width !== Math.round(place.width * ratio) || canvas.height !== Math.round(place.height * ratio)) {
      canvas.width = Math.round(place.width * ratio);
      canvas.height = Math.round(place.height * ratio);
    }
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    pixels(store, place, view, now, colours, ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const brush = { context, store, place, view, now, colours };
    axis(brush, following);
    for (let at = 0; at < place.lanes; at++) {
      label(brush, at);
      lane(brush, at);
    }
    for (const one of [hovered, selected]) if (one) ring(brush, one, one === selected);
  };
  return { paint };
}

/** rgb and strength of each part. */
function inksOf({ busy, warning, ok, note, error }) {
  return { computing: [busy.rgb, 0.4], waiting: [warning.rgb, 1], collective: [ok.rgb, 1], held: [note.rgb, 1], failed: [error.rgb, 1] };
}

const HELD_HATCH = [0.45, 0.45, 1]; // a hatch too, on a ground of its colour
const HATCH = [0.07, 0.45, 1]; // how strong the colour of waiting is between the lines, at their edges, and on them

/** The colour of each column between the lines of a hatch, at their edges, and on them. */
function mix(coverage, width, inks, into, lower) {
  const { computing, waiting, collective, held, failed, leftWaiting, leftCollective } = coverage;
  const { computing: [busy, pale], waiting: [amber], collective: [green], held: [blue], failed: [red] } = inks;
  for (let x = 0; x < width; x++) {
    const over = lower ? Math.min(1, leftCollective[x]) : 0;
    const above = lower ? Math.min(1 - over, leftWaiting[x]) : 0;
    const rest = 1 - over - above;
    const c = collective[x] * rest + over;
    const w = waiting[x] * rest + above;
    const b = computing[x] * rest * pale;
    const h = held[x] * rest;
    const f = failed[x] * rest;
    const base = c + b + f;
    const r0 = b * busy[0] + c * green[0] + f * red[0];
    const g0 = b * busy[1] + c * green[1] + f * red[1];
    const b0 = b * busy[2] + c * green[2] + f * red[2];
    for (let level = 0; level < 3; level++) {
      const hatched = w * HATCH[level];
      const dotted = h * HELD_HATCH[level];
      const all = base + hatched + dotted;
      into[level][x] = all < 0.004 ? 0 : pixel(
        (r0 + hatched * amber[0] + dotted * blue[0]) / all,
        (g0 + hatched * amber[1] + dotted * blue[1]) / all,
        (b0 + hatched * amber[2] + dotted * blue[2]) / all,
        Math.min(255, all * 255),
      );
      if (level === 0 && w === 0 && h === 0) {
        into[1][x] = into[2][x] = into[0][x];
        break;
      }
    }
  }
}

const LITTLE = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;

function pixel(red, green, blue, alpha) {
  return LITTLE
    ? ((alpha + 0.5) << 24) | ((blue + 0.5) << 16) | ((green + 0.5) << 8) | (red + 0.5)
    : ((red + 0.5) << 24) | ((green + 0.5) << 16) | ((blue + 0.5) << 8) | (alpha + 0.5);
}

function axis({ context, place, view, now, colours }, following) {
  const bottom = place.top + place.lanes * place.pitch;
  const zero = following ? now : 0;
  context.font = `11px ${colours.font}`;
  context.textBaseline = "middle";
  context.textAlign = "center";
  for (const { at, text } of ticks(view, place.inner, zero, following)) {
    const x = Math.round(placeOf(place, view, at)) + 0.5;
    context.globalAlpha = 0.7;
    context.fillStyle = colours.line.text;
    context.globalCompositeOperation = "destination-over"; // behind the lanes
    context.fillRect(x - 0.5, place.top, 1, bottom - place.top + 3);
    context.globalCompositeOperation = "source-over";
    context.globalAlpha = 1;
    context.fillStyle = colours.faint.text;
    const half = context.measureText(text).width / 2;
    context.fillText(text, Math.min(Math.max(x, half), place.width - half - 1), bottom + 13);
  }
  const at = placeOf(place, view, now);
  if (at >= place.left && at <= place.width - RIGHT + 1) {
    context.fillStyle = colours.faint.text;
    for (let y = place.top; y < bottom; y += 6) context.fillRect(Math.round(at), y, 1, 3);
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
  const { store, place, view, now, colours, context } = brush;
  const row = store.rows[at];
  const own = store.lanes[at];
  if (!row || !own) return;
  const roomy = place.bar >= WORDS_FROM;
  const [from, to] = visible(own, view.begin, view.end);
  let taken = -Infinity; // so far to the right stands something already
  if (roomy && to - from <= MANY)
    for (let i = from; i < to; i++) taken = Math.max(taken, named(brush, at, i, taken));
  for (let i = to - 1; i >= from && to - i <= MANY; i--) {
    if (own.end[i] !== Infinity || own.state[i] === LEFT) continue;
    const span = spanOf(store, own, i, now);
    frame(brush, at, span.begin, span.end, own.state[i] === HELD ? colours.note : colours.warning, 1, []);
  }
  const { mark } = row;
  if (row.stands && row.until < now) {
    frame(brush, at, row.until, now, colours.warning, 1, []);
    if (roomy && !mark) plate(brush, at, row.until, now, row.doing, colours.fg, { mustShow: true });
  }
  if (mark?.kind === "mismatch") {
    const i = find(own, mark.number);
    if (i < 0) return;
    const span = spanOf(store, own, i, now);
    frame(brush, at, span.begin, span.end, colours.error, 2, [], true);
    if (roomy) plate(brush, at, span.begin, Math.max(span.end, view.end), mark.words, colours.error, { mustShow: true });
  } else if (mark?.kind === "absent") {
    const begin = row.until ?? row.since; // since it ceased, or since the first waits for it
    frame(brush, at, begin, Math.max(now, begin), colours.error, 1.5, [5, 4]);
    if (roomy) plate(brush, at, begin, now, mark.words, colours.error, { mustShow: true });
  } else if (roomy && !row.stands && row.until !== null && row.until !== undefined && row.doing) {
    const x = placeOf(place, view, row.until);
    if (x < place.width - RIGHT - 30) plate(brush, at, row.until, view.end, row.doing, colours.faint, { ground: false });
  }
}

/** Write a call's name into it if there is room; up to where it goes. */
function named(brush, at, i, taken) {
  const { store, place, view, now, colours } = brush;
  const own = store.lanes[at], row = store.rows[at];
  const { begin, end, state } = spanOf(store, own, i, now);
  if (state === LEFT) return taken; // something else stands above it
  const open = own.end[i] === Infinity;
  const left = Math.max(placeOf(place, view, begin), place.left);
  const right = Math.min(placeOf(place, view, end), place.width - RIGHT);
  if (right - left < 46 || left < taken || row.mark?.number === own.number[i]) return taken;
  const title = titleOf(store, own, i);
  const text = open && row.doing?.includes(title) ? row.doing : title;
  const used = plate(brush, at, begin, end, text, colours.fg, { weight: open ? 600 : 400, whole: !open });
  return used ?? taken;
}

function titleOf(store, own, i) {
  const title = store.texts[store.kinds[own.kind[i]]?.[0]] ?? "?";
  return own.seq[i] ? `${title} #${own.seq[i]}` : title;
}

/** Words on a plate, within a span (or, if they must be shown, before it); where they end, or undefined where there is no room. */
function plate({ context, place, view, colours }, at, begin, end, text, colour, { ground = true, weight = 600, mustShow = false, whole = false } = {}) {
  let left = Math.max(placeOf(place, view, begin), place.left) + 6;
  const right = Math.min(placeOf(place, view, end), place.width - RIGHT) - 6;
  context.font = `${weight} 11px ${colours.font}`;
  const measure = (one) => context.measureText(one).width;
  let shown = fitted(text, right - left - 10, measure);
  if (mustShow && shown !== text) {
    const before = left - 12 - place.left; // there may be more room before it
    if (before > right - left) {
      shown = fitted(text, before - 16, measure);
      left = left - 22 - measure(shown);
    }
  }
  if (!shown || (whole && shown !== text) || left > place.width - RIGHT) return undefined;
  const width = measure(shown) + 10;
  const top = topOf(place, at) + 2;
  if (ground) {
    context.fillStyle = colours.bg.text;
    context.beginPath();
    context.roundRect(left, top, width, place.bar - 4, 3);
    context.fill();
  }
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

/** A ring about the call that is looked at. */
function ring(brush, { lane: at, number }, strong) {
  const { store, now, colours, context, place } = brush;
  const own = store.lanes[at];
  const i = own ? find(own, number) : -1;
  if (i < 0) return;
  const { begin, end } = spanOf(store, own, i, now);
  const left = Math.max(placeOf(place, brush.view, begin), place.left) - 1.5;
  const right = Math.min(placeOf(place, brush.view, end), place.width - RIGHT) + 1.5;
  if (right < place.left - 2 || left > place.width - RIGHT + 2) return;
  context.strokeStyle = colours.fg.text;
  context.lineWidth = strong ? 2 : 1;
  context.beginPath();
  context.roundRect(left, topOf(place, at) - 1.5, Math.max(5, right - left), place.bar + 3, 3);
  context.stroke();
}
