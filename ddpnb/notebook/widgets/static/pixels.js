// The pixels of the calls on a canvas: in each column as much of a colour as it covers of the column.
import { topOf } from "./painting.js";
import { cover, coverageOf } from "./lanes.js";

/** Paints the calls; it keeps what it needs from one picture to the next. @param {CanvasRenderingContext2D} context */
export function pixelsOf(context) {
  let image = null, words = null, coverage = null;

  return (store, place, view, now, colours, ratio) => {
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

/** A word of an image: all machines that run a browser begin a word with its last byte. */
function pixel(red, green, blue, alpha) {
  return ((alpha + 0.5) << 24) | ((blue + 0.5) << 16) | ((green + 0.5) << 8) | (red + 0.5);
}
