// What is typed into a widget is meant for nobody else.

/**
 * Keep a notebook from taking keys for its own that are pressed here: one of them adds a cell, two delete one.
 * JupyterLab and the classic notebook hear what bubbles up to them. Notebook 7 hears it before the widget does,
 * and asks what has the focus, not what is around that, whether it wants its keys for itself.
 */
export function keepKeys(body) {
  body.addEventListener("focusin", ({ target }) => (target.dataset.lmSuppressShortcuts = "true"));
  body.addEventListener("keydown", (event) => event.stopPropagation());
}
