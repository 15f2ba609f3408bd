// The filter of many ranks. It hides tiles in the page alone: what is shown of a rank is sent as ever.

const NUMBERS = /^[\s\d,-]+$/;

/**
 * The first and the last of each span of ranks: `3`, `0-7, 12`, `16-`. What is none is left out.
 * @param {string} text
 * @returns {[number, number][]}
 */
export function spansOf(text) {
  return text.split(",").flatMap((part) => {
    const [, first, last] = part.match(/^\s*(\d+)\s*(?:-\s*(\d+)?\s*)?$/) ?? [];
    return first === undefined ? [] : [[Number(first), last === undefined ? (part.includes("-") ? Infinity : Number(first)) : Number(last)]];
  });
}

/**
 * Which ranks a text asks for: `3`, `0-7, 12`, or words that their tile says.
 * @param {string} text
 * @returns {(tile: {ranks: [number, number][], words: string}) => boolean} of a tile, its ranks as spans
 */
export function wanted(text) {
  const asked = text.trim().toLowerCase();
  if (!NUMBERS.test(asked)) return ({ words }) => words.toLowerCase().includes(asked);
  const spans = spansOf(asked);
  return ({ ranks }) => ranks.some(([from, to]) => spans.some(([first, last]) => first <= to && from <= last));
}

/** Hide the tiles that the filter does not ask for, and say how many are left. @param {HTMLElement} body */
export function filterTiles(body) {
  const form = body.querySelector("[data-filters]");
  if (!form) return;
  const [text, state] = [form.querySelector("[data-filter=text]").value, form.querySelector("[data-filter=state]").value];
  const asked = wanted(text);
  const tiles = [...body.querySelectorAll(".tile")];
  for (const tile of tiles) {
    const one = { ranks: spansOf(tile.dataset.ranks), words: `${tile.textContent} ${tile.firstElementChild.getAttribute("aria-label")}` };
    const named = state !== "named" || tile.dataset.named;
    tile.hidden = !(asked(one) && (!state || state === tile.dataset.state || (state === "named" && named)));
  }
  const left = tiles.filter((tile) => !tile.hidden);
  const note = left.length === tiles.length ? "" : `${left.length} of ${tiles.length} tiles`;
  const said = form.querySelector("[data-filtered]");
  if (said.textContent !== note) said.textContent = note;
  const stops = left.map((tile) => tile.querySelector("[data-stop]"));
  if (stops.length && !stops.some((stop) => stop.tabIndex === 0)) stops[0].tabIndex = 0;
}

/**
 * Narrow a list to the options in which all words occur that were typed beside it, and choose the first of them if the one
 * that was chosen is not among them. @param {HTMLElement} body
 */
export function narrowLists(body) {
  for (const field of body.querySelectorAll("input[data-narrow]")) {
    const select = field.closest("form")?.elements[field.dataset.narrow];
    if (!select) continue;
    const words = field.value.toLowerCase().split(/\s+/);
    const has = (option) => words.every((word) => `${option.textContent} ${option.dataset.words ?? ""}`.toLowerCase().includes(word));
    const options = [...select.options];
    for (const option of options) option.hidden = option.disabled = !has(option);
    for (const group of select.querySelectorAll("optgroup")) group.hidden = ![...group.children].some((one) => !one.hidden);
    const left = options.filter((option) => !option.hidden);
    const note = left.length === options.length ? "" : `${left.length} of ${options.length}`;
    const said = field.parentElement.querySelector("[data-narrowed]");
    if (said.textContent !== note) said.textContent = note;
    if (!left.length || left.includes(select.selectedOptions[0])) continue;
    select.value = left[0].value;
    if (document.activeElement === field) select.dispatchEvent(new Event("change", { bubbles: true }));
  }
}
