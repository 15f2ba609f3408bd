// The panel of a rank: keys as in an editor's debugger, the search among its variables, and its current line in view.

const KEY = /^(F5|F9|F10|F11|Shift\+F11)$/;

/** Keys of a debugger press its buttons while the focus is in it, in its fields too: F5 must not load the page again. */
export function debugKeys(body) {
  body.addEventListener("keydown", (event) => {
    const panel = event.target.closest("[data-keys]");
    const key = `${event.shiftKey ? "Shift+" : ""}${event.key}`;
    if (!panel || event.ctrlKey || event.metaKey || event.altKey || !KEY.test(key)) return;
    event.preventDefault();
    if (event.repeat) return; // a key that is kept down makes one step
    const line = event.target.closest("[data-action=arm]") ?? panel.querySelector("tr[aria-current] [data-action=arm]");
    (key === "F9" ? line : panel.querySelector(`[aria-keyshortcuts="${key}"]`))?.click();
  });
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
