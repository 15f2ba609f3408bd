// The panel of a rank: keys as in an editor's debugger, the search among its variables, and its current line in view.

const KEY = /^(F5|F9|Shift\+F9|F10|F11|Shift\+F11)$/;
const MARGIN = "[data-action=arm][data-stop]"; // a button in the margin of the source

/**
 * Keys of a debugger press its buttons while the focus is in it, in its fields too: F5 must not load the page again.
 * A right click in the margin, a long press, or a click with Shift or Alt asks for the conditions of a hold.
 * @param {HTMLElement} body
 * @param {(element: HTMLElement, action: string) => void} act sends an action with the values of an element
 */
export function debugKeys(body, act) {
  const asks = (event) => {
    const line = event.target.closest(MARGIN);
    if (!line || (event.type === "click" && !event.shiftKey && !event.altKey)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    act(line, "arm edit");
  };
  body.addEventListener("contextmenu", asks);
  body.addEventListener("click", asks, true);
  body.addEventListener("keydown", (event) => {
    const panel = event.target.closest("[data-keys]");
    const key = `${event.shiftKey ? "Shift+" : ""}${event.key}`;
    if (!panel || event.ctrlKey || event.metaKey || event.altKey || !KEY.test(key)) return;
    event.preventDefault();
    if (event.repeat) return; // a key that is kept down makes one step
    const line = event.target.closest(MARGIN) ?? panel.querySelector(`tr[aria-current] ${MARGIN}`);
    if (key === "Shift+F9") line && act(line, "arm edit");
    else (key === "F9" ? line : panel.querySelector(`[aria-keyshortcuts="${key}"]`))?.click();
  });
  body.addEventListener("keydown", ({ key, target }) => {
    if (key === "Escape") target.closest("form.edit")?.querySelector("[data-action='arm close']")?.click();
  });
}

/** The form of a hold gets the focus when it appears, and gives it back to its line. @param {HTMLElement} body */
function followForm(body) {
  const form = body.querySelector("form.edit");
  const line = form?.dataset.line;
  if (form && line !== body.edited) form.elements.when.focus();
  if (!form && body.edited && body.contains(document.activeElement))
    body.querySelector(`${MARGIN}[data-line="${body.edited}"]`)?.focus({ preventScroll: true });
  body.edited = line;
}

/**
 * Which rows a search leaves: those that contain the words, what is inside them, and what they are inside of.
 * @param {{depth: number, words: string}[]} rows
 * @param {string} text
 * @returns {boolean[]}
 */
export function searched(rows, text) {
  const asked = text.trim().toLowerCase();
  const left = rows.map(() => false);
  const above = []; // the rows that the current one is inside of
  rows.forEach((row, number) => {
    above.length = Math.min(above.length, row.depth);
    const has = row.words.toLowerCase().includes(asked);
    if (has) for (const one of above) left[one.number] = true;
    const within = above.some((one) => one.has);
    left[number] = has || within;
    above[row.depth] = { number, has: has || within };
  });
  return left;
}

/** Apply the search, and bring a line that has become the current one into view. @param {HTMLElement} body */
export function followRank(body) {
  followForm(body);
  const text = body.querySelector("[data-search]")?.value ?? "";
  const rows = [...body.querySelectorAll("[data-searched] > .scroll > table > tbody > tr")];
  const known = rows.map((row) => ({ depth: Number(row.firstElementChild.dataset.depth ?? 0), words: row.textContent }));
  searched(known, text).forEach((left, number) => (rows[number].hidden = !left));
  for (const listing of body.querySelectorAll(".listing")) {
    const line = listing.querySelector("tr[aria-current]");
    if (listing.shownAt === listing.dataset.at || !line || !listing.clientHeight) continue;
    const [file, before] = [listing.dataset.at.replace(/:\d+$/, ""), listing.shownAt?.replace(/:\d+$/, "")];
    const top = line.offsetTop - listing.scrollTop;
    const seen = file === before && top > line.offsetHeight && top < listing.clientHeight - 2 * line.offsetHeight;
    if (!seen) listing.scrollTop = line.offsetTop - listing.clientHeight / 2;
    listing.shownAt = listing.dataset.at;
  }
}
