// The lines around a place, one of them marked: below a link of a dashboard, and below a link of a cell's output.

/** Lines of a file with their numbers, one of them marked. Nothing of it is taken for HTML. */
export function viewer(place, close, open) {
  const part = document.createElement("div"); // no landmark: several may show the same file
  part.className = "viewer";
  part.setAttribute("role", "group");
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
  head.append(title, note, space);
  if (open) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: place.cell ? "go to the cell" : "open in the editor" });
    button.addEventListener("click", () => open(button));
    head.append(button);
  }
  head.append(shut);
  const text = document.createElement("div");
  text.className = "source";
  text.tabIndex = 0;
  text.setAttribute("role", "group");
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

/** Scroll to the marked line, and take the focus. @param {HTMLElement} shown what `viewer` made */
export function showLine(shown) {
  const [text, line] = [shown.querySelector(".source"), shown.querySelector("[aria-current]")];
  if (line) text.scrollTop = line.offsetTop - text.offsetTop - text.clientHeight / 2;
  shown.scrollIntoView({ block: "nearest" });
  text.focus({ preventScroll: true });
}
