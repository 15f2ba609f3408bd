// Links to the code in outputs of cells, such as the card of a diagnosis: what they lead to is shown below them.
import { showLine, viewer } from "./viewer.js";

const CELL = /(?:^|\/)In\[(\d{1,9})\](?:\.py)?$/;
const LATE_MS = 1500; // for the kernel to answer: it may run a cell
const LATEST_MS = 10_000; // where nobody else knows the place
const NOT_HERE = { path: null, cell: null, first: 1, lines: [], said: "" };

/** The place of a cell of this notebook, with its text as it is now. */
function ofCell(panel, number, file, line) {
  const cell = panel.content.widgets.find(({ model }) => model.type === "code" && model.executionCount === number);
  if (!cell) return { ...NOT_HERE, file, title: `In[${number}]`, line, said: "no cell of this notebook has this number any more" };
  return { ...NOT_HERE, cell: number, file, title: `In[${number}]`, line, lines: cell.model.sharedModel.getSource().split("\n") };
}

/** What the kernel of the notebook says of a place; undefined while it runs a cell for long, or where it does not know ddpnb. */
async function asked(panel, file, line, root, patience) {
  const kernel = panel.sessionContext.session?.kernel;
  if (!kernel) return undefined;
  const [of, at] = [JSON.stringify(file), JSON.stringify(root)];
  const answer = `__import__("ddpnb.notebook.widgets.places", fromlist=["text"]).text(${of}, ${line}, ${at})`;
  const request = kernel.requestExecute({ code: "", silent: true, store_history: false, user_expressions: { answer } });
  const late = new Promise((resolve) => setTimeout(resolve, patience));
  const done = await Promise.race([request.done, late]);
  return done?.content.user_expressions?.answer?.data?.["application/json"];
}

/** Show the place of a link below it. `open` opens it in the editor, or goes to its cell. */
async function follow(panel, link, root, open) {
  const [file, line] = [link.dataset.file, Number(link.dataset.line)];
  const number = CELL.exec(file)?.[1];
  const place = number ? ofCell(panel, Number(number), file, line) : await asked(panel, file, line, root, link.hasAttribute("href") ? LATE_MS : LATEST_MS);
  if (!place) return open({ ...NOT_HERE, file, line, href: link.getAttribute("href") });
  const around = link.closest(".ddpnb");
  around.querySelector(".viewer")?.remove();
  const close = () => {
    shown.remove();
    link.focus();
  };
  const shown = viewer(place, close, place.path || place.cell ? () => open(place) : undefined);
  around.append(shown);
  showLine(shown);
}

/** Follow the links of outputs. @param find gives the notebook of an element; @param open opens a place */
export function followOutputs(find, root, open) {
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.(".jp-OutputArea-output .ddpnb a[data-file]");
    const panel = link && !link.closest(".jupyter-widgets") && find(link);
    if (!panel) return;
    event.preventDefault();
    follow(panel, link, root, (place) => open(panel, place)).catch((error) => console.warn("ddpnb:", error));
  });
}
