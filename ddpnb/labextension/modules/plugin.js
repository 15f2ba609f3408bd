// The plugin: commands, and what the widgets ask for by events of the document. The widgets do without it.
import { addCommands } from "./commands.js";
import { followOutputs } from "./outputs.js";
import { ICON, Panels } from "./panels.js";
import { openCell, openFile } from "./places.js";
import { keepStates } from "./states.js";

const MODULES = {
  application: "@jupyterlab/application",
  apputils: "@jupyterlab/apputils",
  docmanager: "@jupyterlab/docmanager",
  launcher: "@jupyterlab/launcher",
  notebook: "@jupyterlab/notebook",
  components: "@jupyterlab/ui-components",
  coreutils: "@jupyterlab/coreutils",
  widgets: "@lumino/widgets",
};

/** The plugins, with the modules of the page that they need. @param {(name: string) => Promise<any>} shared */
export async function plugins(shared) {
  const names = Object.keys(MODULES);
  const found = await Promise.all(names.map((name) => shared(MODULES[name])));
  const lab = Object.fromEntries(names.map((name, at) => [name, found[at]]));
  lab.icon = lab.components && new lab.components.LabIcon({ name: "ddpnb:ranks", svgstr: ICON });
  const tokens = {
    shell: lab.application?.ILabShell,
    documents: lab.docmanager?.IDocumentManager,
    notebooks: lab.notebook?.INotebookTracker,
    palette: lab.apputils?.ICommandPalette,
    launcher: lab.launcher?.ILauncher,
  };
  const there = Object.keys(tokens).filter((name) => tokens[name]);
  return [
    {
      id: "ddpnb:plugin",
      description: "Links at their line, dashboards in the side panel, commands and launcher entries",
      autoStart: true,
      optional: there.map((name) => tokens[name]),
      activate: (app, ...services) =>
        activate(app, lab, Object.fromEntries(there.map((name, at) => [name, services[at]]))),
    },
  ];
}

/** Open the place of a link in an output; one that the kernel said nothing of leads where its address does. */
function open(app, services, panel, { path, cell, line, href }) {
  if (cell) return openCell(app.shell, panel, cell, line);
  const folder = panel.context.path.slice(0, panel.context.path.lastIndexOf("/") + 1);
  const file = path ?? (href ? folder + decodeURIComponent(href.split("#")[0]) : null);
  return file ? openFile(services.documents, file, line) : undefined;
}

/**
 * JupyterLab writes the version of Python into a notebook when its kernel starts: a tour that is kept without it would have
 * unsaved changes before anybody did anything. That one change is not called one.
 */
function keepSaved(notebooks) {
  notebooks.widgetAdded.connect((_, panel) => {
    keepStates(panel);
    panel.context.ready.then(() => {
      const { model } = panel.context;
      model.metadataChanged.connect((_, { key, oldValue, newValue }) => {
        const started = key === "language_info" && oldValue && !oldValue.version && newValue?.name === oldValue.name;
        if (started && !model.dirty) queueMicrotask(() => (model.dirty = false));
      });
    });
  });
}

function activate(app, lab, services) {
  const panels = services.shell ? new Panels(lab, services.shell, services.notebooks) : undefined;
  document.addEventListener("ddpnb:open", (event) => {
    const { path, cell, line, otherwise } = event.detail;
    const panel = services.notebooks?.find((one) => one.node.contains(event.target)) ?? panels?.notebookOf(event.target);
    if (cell ? !panel : !(services.shell && services.documents)) return; // in Notebook 7 the widget opens another tab
    event.preventDefault();
    const opened = cell ? openCell(app.shell, panel, cell, line) : openFile(services.documents, path, line);
    opened.catch(otherwise);
  });
  if (services.notebooks && services.shell && services.documents)
    followOutputs(
      (link) => services.notebooks.find((one) => one.node.contains(link)),
      lab.coreutils?.PageConfig.getOption("serverRoot") ?? "",
      (panel, place) => open(app, services, panel, place),
    );
  document.addEventListener("ddpnb:dock", (event) => {
    if (!panels) return;
    event.preventDefault();
    panels.show(event.detail).catch((error) => event.detail.failed(String(error)));
  });
  if (!services.notebooks) return;
  addCommands(app, lab, services);
  keepSaved(services.notebooks);
}
