// What is painted over the lanes: the call that is looked at, the calls of its collective, and an interval.
import { complete, together } from "./chosen.js";
import { find, spanOf } from "./columns.js";
import { RIGHT, placeOf, topOf } from "./painting.js";

/** A ring about the call that is looked at. */
export function ring(brush, { lane: at, number }, strong) {
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

/** From each call of a collective to that of the rank that came last: for which it waited. Until all have come, there is no last one. */
export function arrows({ context, store, place, view, colours }, one) {
  const i = one && store.lanes[one.lane] ? find(store.lanes[one.lane], one.number) : -1;
  const calls = i < 0 ? [] : together(store, one.lane, i);
  if (calls.length < 2) return;
  const point = ({ lane: at, begin }) => [placeOf(place, view, begin), topOf(place, at) + place.bar / 2];
  const all = complete(store, one.lane, i), last = point(calls.at(-1));
  context.save();
  context.beginPath();
  context.rect(place.left, 0, place.inner, place.height);
  context.clip();
  for (const [colour, line] of [[colours.bg, 4], [colours.fg, 1.5]]) {
    context.strokeStyle = context.fillStyle = colour.text;
    context.lineWidth = line;
    for (const call of calls.slice(0, -1)) {
      const [x, y] = point(call), [to, down] = last;
      const side = Math.sign(down - y) * Math.min(6, place.pitch / 4);
      context.beginPath();
      context.moveTo(x, y);
      context.bezierCurveTo(x, (y + down) / 2, to, (y + down) / 2, to, down - side);
      if (all) for (const by of [-4, 4]) context.moveTo(to, down - side / 2), context.lineTo(to + by, down - 2 * side);
      context.stroke();
      context.beginPath();
      context.arc(x, y, line + 1, 0, 2 * Math.PI);
      context.fill();
    }
  }
  context.restore();
}

/** The interval that was chosen. */
export function marked({ context, place, view, colours }, { begin, end }) {
  const [left, right] = [begin, end].map((at) => Math.min(Math.max(placeOf(place, view, at), place.left), place.left + place.inner));
  const height = place.lanes * place.pitch;
  context.fillStyle = colours.note.text;
  context.globalAlpha = 0.14;
  context.fillRect(left, place.top, right - left, height);
  context.globalAlpha = 1;
  for (const x of [left, right]) context.fillRect(x - 1, place.top - 6, 2, height + 12);
}
