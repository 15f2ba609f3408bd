// Where files are dropped, chosen or named. They go to Python in parts, each after the one before has arrived:
// a notebook server refuses large messages.
import { keepHearing } from "./hearing.js";
import { keepKeys } from "./keys.js";

const PART = 1 << 20; // bytes of a message
const MOST = 4096; // files

/** All files below an entry of a drop: [{path, file}]. */
async function below(entry, found) {
  if (found.length > MOST) return;
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
    found.push({ path: entry.fullPath.replace(/^\//, ""), file });
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) return;
    for (const one of some) await below(one, found);
  }
}

/** The files of a drop, those of folders included. */
async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()); // now: later the drop is over
  const files = [...transfer.files].map((file) => ({ path: file.name, file }));
  if (entries.some((entry) => !entry)) return files;
  const found = [];
  for (const entry of entries) await below(entry, found);
  return found;
}

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function render({ model, el }) {
  keepHearing(model);
  const hint = element("span", {});
  const choose = element("button", { type: "button" }, "choose files");
  const folder = element("button", { type: "button" }, "choose a folder");
  const files = element("input", { type: "file", multiple: "", hidden: "", "aria-label": "files" });
  const folders = element("input", { type: "file", webkitdirectory: "", hidden: "", "aria-label": "folder" });
  const path = element("input", { name: "path", size: 30, placeholder: "logs/", "aria-label": "path" });
  const read = element("button", { type: "button" }, "read");
  const label = element("label", { class: "beside faint" }, "or a path: ", path);
  const bar = element("progress", { "aria-label": "files" });
  const going = element("span", { role: "status" });
  const progress = element("div", { class: "row" }, bar, going);
  const said = element("div", { class: "said bad", role: "alert" });
  const area = element("div", { class: "drop row" }, hint, choose, folder, label, read);
  const body = element("div", { class: "ddpnb", role: "group" }, area, files, folders, progress, said);
  keepKeys(body);
  el.append(body);

  let sending = ""; // what is sent, in words
  let arrived = () => {};
  const show = () => {
    body.setAttribute("aria-label", model.get("label"));
    hint.textContent = model.get("hint");
    going.textContent = sending || model.get("busy");
    said.textContent = model.get("said");
    progress.hidden = !going.textContent;
    said.hidden = !said.textContent;
    for (const one of [choose, folder, read]) one.disabled = !progress.hidden;
  };

  const tell = (content, buffers) =>
    new Promise((resolve, reject) => {
      arrived = (message) => (message.kind === "next" ? resolve() : reject(new Error("refused")));
      model.send(content, undefined, buffers);
    });
  const send = async (given) => {
    if (sending || model.get("busy") || !given.length) return;
    const id = `${Date.now()}-${Math.random()}`;
    const total = given.reduce((sum, { file }) => sum + file.size, 0);
    let done = 0;
    const about = () => {
      sending = `receiving ${given.length} file${given.length === 1 ? "" : "s"}: ${Math.floor((100 * done) / (total || 1))} %`;
      bar.max = total || 1;
      bar.value = done;
      show();
    };
    about();
    try {
      await tell({ kind: "begin", id, files: given.map(({ path, file }) => ({ path, size: file.size })) });
      for (const [index, { file }] of given.entries())
        for (let offset = 0; offset < file.size; offset += PART) {
          const part = await file.slice(offset, offset + PART).arrayBuffer();
          await tell({ kind: "part", id, file: index, offset }, [part]);
          done += part.byteLength;
          about();
        }
      await tell({ kind: "end", id });
    } catch (error) {
      if (error.message !== "refused") model.set("said", `The files cannot be read: ${error.message}`);
    }
    sending = "";
    bar.removeAttribute("value"); // busy, without an end in sight
    show();
  };
  const received = (message) => {
    if (message.kind === "next" || message.kind === "refused") arrived(message);
  };
  const typed = () => model.send({ action: "read", values: { path: path.value } });
  const over = (event) => {
    event.preventDefault();
    event.stopPropagation();
    area.classList.toggle("over", event.type !== "dragleave" && event.type !== "drop");
  };

  for (const name of ["dragenter", "dragover", "dragleave", "drop"]) area.addEventListener(name, over);
  area.addEventListener("drop", async (event) => send(await dropped(event.dataTransfer)));
  choose.addEventListener("click", () => files.click());
  folder.addEventListener("click", () => folders.click());
  for (const one of [files, folders])
    one.addEventListener("change", () => {
      send([...one.files].map((file) => ({ path: file.webkitRelativePath || file.name, file })));
      one.value = ""; // the same file may be chosen once more
    });
  read.addEventListener("click", typed);
  path.addEventListener("keydown", (event) => event.key === "Enter" && typed());
  for (const name of ["label", "hint", "busy", "said"]) model.on(`change:${name}`, show);
  model.on("msg:custom", received);
  show();
  return () => {
    for (const name of ["label", "hint", "busy", "said"]) model.off(`change:${name}`, show);
    model.off("msg:custom", received);
  };
}

export default { render };
