// A place in the code: its lines are shown here, and opened in the same JupyterLab from there. And files that were written.

import { tell } from "./connection.js";
import { showLine, viewer } from "../../../labextension/modules/viewer.js";

const SOON_MS = 200; // then it is said that the kernel has not answered yet
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

const inAddress = (path) => path.split("/").map(encodeURIComponent).join("/");

function openTab(address) {
  Object.assign(document.createElement("a"), { href: address, target: "_blank", rel: "noopener" }).click();
}

/**
 * Open a file of the server at a line, as a link in a Markdown cell does; false where no editor is known.
 * Notebook 7 has one file in each tab of the browser, and opens it at no line.
 */
function openFile(manager, path, line) {
  const links = manager?.rendermime?.linkHandler;
  const { appName, baseUrl } = pageConfig();
  if (appName === "Jupyter Notebook") {
    openTab(`${baseUrl ?? "/"}edit/${inAddress(path)}`);
    return true;
  }
  if (!links || appName !== "JupyterLab") return false;
  const link = document.createElement("a");
  links.handleLink(link, path, `#line=${Math.max(0, line - 1)}`); // counted from 0
  link.click();
  return true;
}

/**
 * Open a place in the editor, or in the cell of the notebook.
 * ddpnb's extension of JupyterLab, where it is installed, takes the event: it also marks the line, and knows cells.
 */
export function edit(manager, from, place, otherwise = () => {}) {
  const detail = { path: place.path, cell: place.cell, line: place.line, otherwise };
  const event = new CustomEvent("ddpnb:open", { bubbles: true, cancelable: true, detail });
  if (!from.dispatchEvent(event)) return;
  if (!(place.path && openFile(manager, place.path, place.line))) otherwise();
}

/** The address of a file that the server of this page has. */
export function fileAddress(path, download) {
  const address = new URL(`${pageConfig().baseUrl ?? "/"}files/${inAddress(path)}`, location.href);
  if (download) address.searchParams.set("download", "1");
  return address.href;
}

/** Where the server has a file; undefined where only Python can say it: behind a link of the file system. */
function served(file) {
  const root = (pageConfig().serverRoot ?? "").replace(/\/*$/, "/");
  const path = root.length > 1 && file.startsWith(root) ? file.slice(root.length) : undefined;
  return path?.split("/").some((part) => part.startsWith(".")) ? undefined : path;
}

/** Open or download a file that was written: what the server of this page has below its folder. */
function takeFile(manager, link, { path, file }) {
  const refused = (why) => link.replaceWith(`(${why}: ${file})`);
  if (!path) return refused("not below the folder of this server");
  const how = link.dataset.how;
  if (how === "edit") edit(manager, link, { path, line: 1 }, () => refused("this page has no editor for it"));
  else if (how === "download") Object.assign(document.createElement("a"), { href: fileAddress(path, true), download: "" }).click();
  else openTab(fileAddress(path));
}

/** What a link does when nothing answers: the kernel has ended, or a cell keeps it from hearing. True where it is opened. */
export function unanswered(manager, link) {
  const [file, notebook] = [link.getAttribute("href")?.split("#")[0], manager?.context?.path];
  if (!file || !notebook) return false;
  const folder = notebook.slice(0, notebook.lastIndexOf("/") + 1);
  return openFile(manager, folder + decodeURIComponent(file), Number(link.dataset.line));
}

/** The links of a widget: they are followed by mouse and keyboard, and a text that is shown has one place in `body`. */
export function followLinks(model, body) {
  let waiting, timer, soon, shown, from;
  const close = () => {
    shown?.remove();
    shown = undefined;
    if (from?.isConnected) from.focus();
  };
  const showHere = (link, place) => {
    shown?.remove();
    from = link;
    const open = (button) => edit(model.widget_manager, button, place, () => (button.disabled = true));
    shown = viewer(place, close, place.path || place.cell ? open : undefined);
    (link.closest("details.part") ?? body).append(shown);
    showLine(shown);
  };
  const came = (link, place) => {
    if (link.dataset.written) takeFile(model.widget_manager, link, { ...place, file: link.dataset.written });
    else if (place.lines.length > 1 || place.lines[0]) showHere(link, place);
    else edit(model.widget_manager, link, place, () => showHere(link, place));
  };
  const stop = () => {
    for (const one of [timer, soon]) clearTimeout(one);
    if (waiting) waiting.ariaBusy = null;
    waiting = undefined;
  };
  const follow = (event) => {
    const link = event.target.closest("a[data-file], button[data-written]");
    if (!link || (event.type === "keydown" && (event.key !== "Enter" || link.hasAttribute("href") || link.nodeName === "BUTTON"))) return;
    event.preventDefault(); // the address alone would open a second JupyterLab
    event.stopPropagation();
    const written = link.dataset.written;
    const path = written && served(written);
    if (path) return came(link, { path });
    stop();
    waiting = link;
    soon = setTimeout(() => (link.ariaBusy = "true"), SOON_MS);
    timer = setTimeout(() => unanswered(model.widget_manager, link) && (link.ariaBusy = null), ANSWER_MS);
    tell(model, written ? "written" : "place", written ? { ...asked(link), file: written } : asked(link));
  };
  const received = (message) => {
    if (message.kind !== "place" || !waiting) return;
    const link = waiting;
    stop();
    came(link, message);
  };
  body.addEventListener("click", follow);
  body.addEventListener("keydown", follow);
  model.on("msg:custom", received);
  return () => {
    stop();
    model.off("msg:custom", received);
  };
}
