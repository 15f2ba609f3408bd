// A place in the code: opened in the same JupyterLab, or shown here where that cannot be done.

const ANSWER_MS = 1500;

/** What the page says of the server that it comes from; empty outside Jupyter. */
function pageConfig() {
  try {
    return JSON.parse(document.getElementById("jupyter-config-data")?.textContent ?? "{}");
  } catch {
    return {};
  }
}

/** What goes to Python with a link that was followed. @param {HTMLElement} link */
export function asked(link) {
  return { file: link.dataset.file, line: link.dataset.line, root: pageConfig().serverRoot ?? "" };
}

/**
 * Open a file of the server at a line, as a link in a Markdown cell does; false where there is no JupyterLab.
 * Other pages would open a second tab, at no line.
 */
function openFile(manager, path, line) {
  const links = manager?.rendermime?.linkHandler;
  if (!links || pageConfig().appName !== "JupyterLab") return false;
  const link = document.createElement("a");
  links.handleLink(link, path, `#line=${Math.max(0, line - 1)}`); // counted from 0
  link.click();
  return true;
}

/**
 * Go where Python says that the link leads.
 * ddpnb's extension of JupyterLab, where it is installed, takes the event: it also marks the line, and knows cells.
 */
export function go(manager, link, place, showHere) {
  const detail = { path: place.path, cell: place.cell, line: place.line, otherwise: () => showHere(link, place) };
  const event = new CustomEvent("ddpnb:open", { bubbles: true, cancelable: true, detail });
  if ((place.path || place.cell) && !link.dispatchEvent(event)) return;
  if (!(place.path && openFile(manager, place.path, place.line))) showHere(link, place);
}

/** What a link does when nothing answers: the kernel has ended, or a cell keeps it from hearing. */
export function unanswered(manager, link) {
  const [file, notebook] = [link.getAttribute("href")?.split("#")[0], manager?.context?.path];
  if (!file || !notebook) return;
  const folder = notebook.slice(0, notebook.lastIndexOf("/") + 1);
  openFile(manager, folder + decodeURIComponent(file), Number(link.dataset.line));
}

/** Lines of a file with their numbers, one of them marked. Nothing of it is taken for HTML. */
export function viewer(place, close) {
  const part = document.createElement("section");
  part.className = "viewer";
  part.setAttribute("aria-label", `source: ${place.title}`);
  const head = document.createElement("div");
  head.className = "row head";
  const title = document.createElement("code");
  title.textContent = `${place.title}:${place.line}`;
  title.title = place.file;
  const note = document.createElement("span");
  note.className = "faint";
  note.textContent = place.said;
  const space = document.createElement("span");
  space.className = "space";
  const shut = document.createElement("button");
  shut.type = "button";
  shut.textContent = "close";
  shut.addEventListener("click", close);
  head.append(title, note, space, shut);
  const text = document.createElement("div");
  text.className = "source";
  text.tabIndex = 0;
  text.setAttribute("role", "region");
  text.setAttribute("aria-label", `lines of ${place.title}`);
  place.lines.forEach((line, index) => {
    const row = document.createElement("div");
    const number = document.createElement("span");
    number.className = "number";
    number.textContent = String(place.first + index);
    const code = document.createElement("code");
    code.textContent = line || " ";
    row.append(number, code);
    if (place.first + index === place.line) row.setAttribute("aria-current", "true");
    text.append(row);
  });
  part.append(head, text);
  part.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
  });
  return part;
}

/** The links of a widget: they are followed by mouse and keyboard, and a text that is shown has one place in `body`. */
export function followLinks(model, body) {
  let waiting, timer, shown, from;
  const close = () => {
    shown?.remove();
    shown = undefined;
    if (from?.isConnected) from.focus();
  };
  const showHere = (link, place) => {
    shown?.remove();
    from = link;
    shown = viewer(place, close);
    (link.closest("details.part") ?? body).append(shown);
    const [text, line] = [shown.querySelector(".source"), shown.querySelector("[aria-current]")];
    if (line) text.scrollTop = line.offsetTop - text.offsetTop - text.clientHeight / 2;
    shown.scrollIntoView({ block: "nearest" });
    text.focus({ preventScroll: true });
  };
  const follow = (event) => {
    const link = event.target.closest("a[data-file]");
    if (!link || (event.type === "keydown" && (event.key !== "Enter" || link.hasAttribute("href")))) return;
    event.preventDefault(); // the address alone would open a second JupyterLab
    event.stopPropagation();
    waiting = link;
    clearTimeout(timer);
    timer = setTimeout(() => unanswered(model.widget_manager, link), ANSWER_MS);
    model.send({ action: "place", values: asked(link) });
  };
  const received = (message) => {
    if (message.kind !== "place" || !waiting) return;
    clearTimeout(timer);
    go(model.widget_manager, waiting, message, showHere);
    waiting = undefined;
  };
  body.addEventListener("click", follow);
  body.addEventListener("keydown", follow);
  model.on("msg:custom", received);
  return () => {
    clearTimeout(timer);
    model.off("msg:custom", received);
  };
}
