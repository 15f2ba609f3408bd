// What is typed into a widget is meant for nobody else; and the keys that act within a panel.

/**
 * Keep a notebook from taking keys for its own that are pressed here: one of them adds a cell, another cuts one.
 * A click on any text of a part puts the focus there, so that the next key is the dashboard's too.
 * JupyterLab and the classic notebook hear what bubbles up to them. Notebook 7 hears it before the widget does,
 * and asks what has the focus, not what is around that, whether it wants its keys for itself. To save is for the whole page.
 */
export function keepKeys(body) {
  body.tabIndex = -1;
  body.addEventListener("click", () => {
    if (!body.contains(document.activeElement) && !document.querySelector("dialog[open]")) body.focus({ preventScroll: true });
  });
  body.addEventListener("focusin", ({ target }) => (target.dataset.lmSuppressShortcuts = "true"));
  body.addEventListener("keydown", (event) => isForAll(event) || event.stopPropagation());
  body.addEventListener("keydown", (event) => pressed(body, event));
}

/** Whether a key saves the notebook: without one who takes it, the browser would save the page. */
const isForAll = ({ key, ctrlKey, metaKey, altKey }) => (ctrlKey || metaKey) && !altKey && key.toLowerCase() === "s";

/** Let JupyterLab and Notebook 7 hear a key that is pressed in a part: they ask the element and all that are around it. */
function letThrough(element) {
  const asked = [];
  for (let one = element; one?.closest?.(".ddpnb"); one = one.parentElement) if (one.dataset.lmSuppressShortcuts) asked.push(one);
  for (const one of asked) delete one.dataset.lmSuppressShortcuts;
  setTimeout(() => asked.forEach((one) => (one.dataset.lmSuppressShortcuts = "true")));
}

// At the window, which hears it before Notebook 7 does; once in a page, however many parts load this.
if (!window.ddpnbHearsSave) window.addEventListener("keydown", (event) => isForAll(event) && letThrough(event.target), true);
window.ddpnbHearsSave = true;

const TYPED = "textarea, select, [contenteditable=true], input:not([type=checkbox], [type=radio], [type=button])";
/** Keys that no button names. */
const OTHERS = [
  ["o", "open the line of the rank that has the focus"],
  ["arrow keys", "among the ranks, and along the time line"],
  ["w a s d", "zoom and move the time line, while it has the focus; / searches in it, Shift with arrow keys chooses an interval"],
  ["Enter", "open the panel of a rank"],
  ["Escape", "close what was opened"],
];

/** The panel that this part belongs to: its keys act in all of its parts. */
const panelOf = (body) => body.closest(".ddpnb-panel") ?? body;

const isOn = (element) => !element.disabled && element.getAttribute("aria-disabled") !== "true";

/** A key that was pressed here, outside of a text field, presses the button that names it. */
function pressed(body, event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.target.closest(TYPED)) return;
  const named = [...panelOf(body).querySelectorAll("[aria-keyshortcuts]")].filter((one) => !one.closest("[data-keys]")); // rank.js has those
  const element =
    event.key === "o"
      ? event.target.closest(".tile")?.querySelector("a[data-file]")
      : named.find((one) => one.getAttribute("aria-keyshortcuts") === event.key && isOn(one));
  if (!element || event.target.closest("dialog")) return;
  event.preventDefault();
  if (element.matches(TYPED)) element.focus();
  else element.click();
}

/** Show the keys of this panel, as its buttons name them. @param {HTMLElement} body */
export function showKeys(body) {
  const rows = new Map();
  for (const one of panelOf(body).querySelectorAll("[aria-keyshortcuts]"))
    rows.set(one.getAttribute("aria-keyshortcuts"), one.dataset.does || one.getAttribute("aria-label") || one.textContent.trim());
  const make = (kind, text = "") => Object.assign(document.createElement(kind), { textContent: text });
  const dialog = make("dialog");
  dialog.className = "keys";
  dialog.setAttribute("aria-label", "keyboard shortcuts");
  const table = make("table");
  for (const [key, does] of [...rows, ...OTHERS]) {
    const row = make("tr");
    const head = make("th");
    head.append(make("kbd", key));
    row.append(head, make("td", does));
    table.append(row);
  }
  const close = make("button", "close");
  close.type = "button";
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", ({ clientX: x, clientY: y }) => {
    const at = dialog.getBoundingClientRect();
    if ((x || y) && (x < at.left || x > at.right || y < at.top || y > at.bottom)) dialog.close(); // beside it
  });
  dialog.append(
    make("h2", "Keys in this dashboard"),
    table,
    make("p", "They act while the focus is in the dashboard, and never in a text field. A key whose button is not there does nothing."),
    close,
  );
  body.append(dialog);
  dialog.showModal();
}
