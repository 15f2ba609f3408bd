// Lines that are opened and marked: in the editor of a file, and in a cell of a notebook.

/** Select a line of an editor, in the middle of what is visible. */
function mark(editor, line) {
  const at = Math.max(0, Math.min(line, editor.lineCount) - 1);
  const end = editor.getLine(at)?.length ?? 0;
  editor.setCursorPosition({ line: at, column: 0 });
  editor.setSelection({ start: { line: at, column: 0 }, end: { line: at, column: end } });
  editor.revealPosition({ line: at, column: 0 });
  const view = editor.editor; // of CodeMirror
  const scroll = view?.constructor?.scrollIntoView;
  if (scroll) view.dispatch({ effects: scroll(view.state.doc.line(at + 1).from, { y: "center" }) });
  editor.focus();
}

/** Open a file of the server at a line. @throws where the server does not have it */
export async function openFile(documents, path, line) {
  await documents.services.contents.get(path, { content: false });
  const widget = documents.openOrReveal(path, "Editor");
  await widget.context.ready;
  await widget.revealed;
  mark(widget.content.editor, line);
}

/** Scroll to a cell by its number, and mark a line of it. @throws where no cell has that number any more */
export async function openCell(shell, panel, number, line) {
  const book = panel.content;
  const at = book.widgets.findIndex(({ model }) => model.type === "code" && model.executionCount === number);
  if (at < 0) throw new Error(`No cell is [${number}].`);
  shell.activateById(panel.id);
  book.activeCellIndex = at;
  await book.scrollToItem(at, "smart");
  const cell = book.widgets[at];
  await cell.ready;
  book.mode = "edit";
  mark(cell.editor, line);
}
