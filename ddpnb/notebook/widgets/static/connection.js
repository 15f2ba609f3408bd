// Whether a panel is still fed: its head listens, says in one place what happened and what to do, and all parts follow it.

export const LOST_MS = 8000; // without an update
const AGAIN_MS = 4000; // between two attempts to be heard
const ENDS = new Set(["starting", "restarting", "autorestarting", "terminating", "dead"]); // states of a kernel that knows nothing of a panel
const OFF = "button, input, select, textarea";
const LOST = "ddpnb-lost"; // the class of a panel

const panelAround = (body) => body.closest(".ddpnb-panel") ?? body;

/** Send to Python; false where nothing takes it any more. */
export function tell(model, action, values = {}) {
  try {
    model.send({ action, values });
    return true;
  } catch {
    return false; // the kernel has ended, or the page is being closed
  }
}

/** The banner, as it is for this state. */
function bannerOf(state, since, asked, reconnect) {
  const banner = document.createElement("div");
  banner.className = "said lost row";
  banner.setAttribute("role", "alert");
  const ended = `The kernel was restarted or has ended at ${since}, and its ranks with it. This is the last known state. Run the notebook again from the cell that launches the ranks.`;
  const lost = `Not updated since ${since}: the kernel does not answer. This is the last known state.`;
  const what = asked ? " Still no answer: if the kernel runs, run the cell that shows this dashboard again, ddpnb.show(world)." : "";
  banner.append(Object.assign(document.createElement("span"), { textContent: state === "ended" ? ended : lost + what }));
  if (state !== "ended") {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: "reconnect" });
    button.addEventListener("click", reconnect);
    banner.append(button);
  }
  return banner;
}

/** Watches for the head of a live panel whether Python still feeds it. `again`: something was heard after a while without. */
export function connection(model, body, again) {
  let heard = performance.now(), asked = -Infinity, pressed = false, state = "live", banner;
  const session = model.widget_manager?.context?.sessionContext;
  const show = (next) => {
    if (next === state && (next === "live" || banner.pressed === pressed)) return;
    const since = new Date(Date.now() - (next === "ended" ? 0 : performance.now() - heard)).toTimeString().slice(0, 8);
    state = next;
    banner?.remove();
    banner = undefined;
    panelAround(body).classList.toggle(LOST, state !== "live");
    if (state === "live") return again();
    banner = bannerOf(state, since, pressed, reconnect);
    banner.pressed = pressed;
    body.prepend(banner);
  };
  const ask = () => {
    asked = performance.now();
    return tell(model, "reconnect");
  };
  const reconnect = () => {
    ask();
    setTimeout(() => {
      pressed = state === "lost";
      tick();
    }, AGAIN_MS / 2);
  };
  const tick = () => {
    if (state === "ended") return;
    if (!model.get("live")) return show("live"); // what is shown is known to be the last
    const now = performance.now();
    const lost = now - heard > LOST_MS;
    if (lost && now - asked > AGAIN_MS && !document.hidden) ask(); // it may only have missed how this page came back
    show(lost ? "lost" : "live");
  };
  const hear = () => {
    heard = performance.now();
    pressed = false;
    if (state !== "live") tick();
  };
  const end = () => show("ended");
  const status = (_, status) => ENDS.has(status) && end();
  const kernel = (_, { oldValue }) => oldValue && end();
  session?.statusChanged?.connect(status);
  session?.kernelChanged?.connect(kernel);
  const stop = () => {
    session?.statusChanged?.disconnect(status);
    session?.kernelChanged?.disconnect(kernel);
  };
  return { hear, tick, stop };
}

/** Disable what nothing would answer while the panel is not fed. Python's next content enables what it enables. */
export function follow(body) {
  const off = panelAround(body).classList.contains(LOST);
  if (off === body.classList.contains("off")) return;
  body.classList.toggle("off", off);
  for (const one of body.querySelectorAll(OFF)) {
    if (one.closest(".said.lost, .viewer") || one.dataset.action === "keys") continue;
    if (off && !one.disabled) [one.disabled, one.dataset.off] = [true, "1"];
    else if (!off && one.dataset.off) {
      one.disabled = false;
      delete one.dataset.off;
    }
  }
}
