// Asks ddpnb's extension of JupyterLab for a panel, and says in the cell where it is.

const asked = (globalThis.__ddpnbDocked ??= new Set()); // of this page: a cell that is drawn again opens nothing again

function render({ model, el }) {
  const body = document.createElement("div");
  body.className = "ddpnb row";
  const text = document.createElement("span");
  text.setAttribute("role", "status");
  const again = document.createElement("button");
  again.type = "button";
  again.textContent = "show it";
  again.hidden = true;
  body.append(text, again);
  el.append(body);

  const say = (words, closed) => {
    text.textContent = words;
    again.hidden = !closed;
  };
  const dock = () => {
    const [where, title] = [model.get("where"), model.get("title")];
    const detail = {
      id: model.get("panel"),
      title,
      where,
      child: model.get("child"),
      manager: model.widget_manager,
      shown: () => say(`${title}: in a panel (${where}).`, false),
      closed: () => say(`${title}: its panel is closed.`, true),
      failed: (why) => here(`its panel could not be opened (${why})`),
    };
    const event = new CustomEvent("ddpnb:dock", { cancelable: true, detail });
    if (document.dispatchEvent(event)) here("this page has no panels of ddpnb (its extension of JupyterLab is not installed where the server runs)");
  };
  const here = (why) => {
    say(`Shown here: ${why}.`, false);
    model.send({ action: "here", values: {} });
  };
  again.addEventListener("click", dock);
  const key = `${model.get("panel")} ${model.get("number")}`;
  if (asked.has(key)) say(model.get("title"), true);
  else dock();
  asked.add(key);
}

export default { render };
