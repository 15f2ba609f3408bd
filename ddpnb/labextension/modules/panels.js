// Dashboards beside the notebook: one panel for each, which is closed when its kernel or its notebook is.

export const ICON = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16"><path class="jp-icon3" fill="#616161"
d="M2 2h5v5H2zM9 2h5v5H9zM2 9h5v5H2zM11 8.6l3.4 5.9H7.6z"/></svg>`;
const AREAS = {
  right: ["right", { rank: 600 }],
  left: ["left", { rank: 600 }],
  bottom: ["main", { mode: "split-bottom" }],
  "split-right": ["main", { mode: "split-right" }],
};
const ENDED = new Set(["starting", "restarting", "autorestarting", "terminating", "dead"]);

export class Panels {
  constructor(lab, shell, notebooks) {
    this.lab = lab;
    this.shell = shell;
    this.notebooks = notebooks;
    this.open = new Map(); // by id: the panel, and the notebook that it belongs to
  }

  /** The notebook whose dashboard this element is in. */
  notebookOf(element) {
    return [...this.open.values()].find(({ panel }) => panel.node.contains(element))?.notebook;
  }

  /**
   * Show a widget of a kernel in a panel, or the panel that shows it.
   * `closed` is called when it is closed, `shown` when it is there.
   */
  async show({ id, title, where, child, manager, shown, closed }) {
    const known = this.open.get(id);
    // One that nothing feeds any more, or that showed something else, is replaced.
    if (known && (known.child !== child || known.panel.node.querySelector(".ddpnb-lost") || !known.panel.node.querySelector(".ddpnb")))
      known.panel.dispose();
    else if (known) {
      this.shell.activateById(known.panel.id);
      known.closed.push(closed);
      shown();
      return;
    }
    const notebook = this.notebooks?.find((one) => one.context === manager.context);
    const view = await manager.create_view(await manager.get_model(child));
    const { Panel } = this.lab.widgets;
    const panel = new Panel();
    panel.id = id;
    panel.addClass("ddpnb-docked");
    panel.addClass("jp-cell-output-area");
    panel.title.caption = title;
    panel.title.closable = true;
    if (this.lab.icon) panel.title.icon = this.lab.icon;
    panel.addWidget(view.luminoWidget ?? view.pWidget);
    Object.assign(panel.node.style, { overflow: "auto", padding: "10px 14px", minWidth: "320px" });
    const [area, options] = AREAS[where] ?? AREAS.right;
    if (area === "main") panel.title.label = title;
    const opened = { panel, notebook, child, closed: [closed] };
    this.open.set(id, opened);
    this.shell.add(panel, area, notebook && area === "main" ? { ...options, ref: notebook.id } : options);
    this.shell.activateById(panel.id);
    this.closeWith(opened, manager, id);
    shown();
  }

  /** Close it when what feeds it ends; say so when it is closed, whoever did that. */
  closeWith({ panel, notebook, closed }, manager, id) {
    const session = manager.context?.sessionContext;
    const close = () => panel.dispose();
    const status = (_, status) => ENDED.has(status) && close();
    const kernel = (_, { newValue }) => !newValue && close();
    session?.statusChanged.connect(status);
    session?.kernelChanged.connect(kernel);
    notebook?.disposed.connect(close);
    panel.disposed.connect(() => {
      session?.statusChanged.disconnect(status);
      session?.kernelChanged.disconnect(kernel);
      notebook?.disposed.disconnect(close);
      this.open.delete(id);
      for (const call of closed) call();
    });
    const hide = panel.onCloseRequest.bind(panel);
    panel.onCloseRequest = (message) => {
      hide(message);
      panel.dispose();
    };
  }
}
