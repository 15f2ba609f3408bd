// What the command palette and the launcher offer. Each writes a cell and runs it, so that a notebook keeps what was done.

const CATEGORY = "ddpnb";
/** Each writes this into a notebook. */
const CELLS = {
  launch: { label: "Launch ranks", caption: "A form that launches ranks, or attaches to a job", code: "import ddpnb\n\nddpnb.show()" },
  dashboard: {
    label: "Dashboard of the running ranks",
    caption: "Opens beside the notebook",
    code: "%load_ext ddpnb\n%ddp_show right",
    launcher: false,
  },
  bisect: { label: "Start a bisection", caption: "Which option, value or commit makes it fail?", code: "import ddpnb\n\nddpnb.guide()" },
  report: {
    label: "Read a report of a hang",
    caption: "Drop its logs, dumps or their folder",
    code: "import ddpnb\n\nddpnb.show()  # drop the logs and dumps below, or give the path of their folder",
  },
};
const TOURS = ["notebooks/tour.ipynb", "tour.ipynb"];

/** Write a cell below the active one, or into that if it is empty, and run it. */
async function runCell(lab, panel, code) {
  const { NotebookActions } = lab.notebook;
  await panel.context.ready;
  await panel.sessionContext.ready;
  const book = panel.content;
  const active = book.activeCell?.model;
  if (!active || active.type !== "code" || active.sharedModel.getSource().trim()) NotebookActions.insertBelow(book);
  book.activeCell.model.sharedModel.setSource(code);
  await NotebookActions.run(book, panel.sessionContext);
}

/** The notebook that is being used; from the launcher, or where there is none, a new one. */
async function notebook(app, services, { fresh, cwd }) {
  const current = services.notebooks.currentWidget;
  if (current && !fresh && (!services.shell || services.shell.currentWidget === current || current.isVisible)) return current;
  const specs = app.serviceManager.kernelspecs;
  await specs.ready;
  return app.commands.execute("notebook:create-new", { cwd, kernelName: specs.specs?.default ?? "python3" });
}

async function openTour(app, lab) {
  for (const path of TOURS) {
    try {
      await app.serviceManager.contents.get(path, { content: false });
    } catch {
      continue;
    }
    await app.commands.execute("docmanager:open", { path });
    return;
  }
  const body = "The tour is not in the folder that this server shows: start JupyterLab with `ddpnb lab` in the folder of ddpnb.";
  await lab.apputils.showDialog({ title: "ddpnb", body, buttons: [lab.apputils.Dialog.okButton()] });
}

function help(lab, commands) {
  const node = document.createElement("div");
  const add = (kind, text, parent = node) => {
    const element = document.createElement(kind);
    element.textContent = text;
    parent.append(element);
    return element;
  };
  add("p", "In the command palette (Ctrl+Shift+C) and in the launcher:");
  const list = add("ul", "");
  for (const { label, caption } of commands) add("li", caption ? `${label}: ${caption.toLowerCase()}` : label, list);
  add("p", "In a dashboard, ? shows the keys. In a notebook:");
  const more = add("ul", "");
  add("li", 'ddpnb.show(world, where="right"): its dashboard in the side panel', more);
  add("li", "%load_ext ddpnb, then %%ddp: a cell on all ranks; Tab completes their variables", more);
  add("li", 'ddpnb.explain("DDP301"): the page of a finding', more);
  const body = new lab.widgets.Widget({ node });
  return lab.apputils.showDialog({ title: "ddpnb", body, buttons: [lab.apputils.Dialog.okButton()] });
}

export function addCommands(app, lab, services) {
  const shown = [];
  const add = (name, { label, caption, launcher = true }, execute) => {
    const id = `ddpnb:${name}`;
    app.commands.addCommand(id, { label, caption, icon: lab.icon, execute });
    services.palette?.addItem({ command: id, category: CATEGORY });
    if (launcher) services.launcher?.add({ command: id, category: CATEGORY, rank: shown.length, args: { fresh: true } });
    shown.push({ label, caption });
  };
  for (const [name, entry] of Object.entries(CELLS))
    add(name, entry, async (args) => runCell(lab, await notebook(app, services, args), entry.code));
  add("tour", { label: "Open the tour" }, () => openTour(app, lab));
  add("help", { label: "Help on ddpnb", launcher: false }, () => help(lab, shown));
}
