// Copies the code beside a button, without the numbers of its lines.

const SAID_MS = 2000;

/** @param {HTMLElement} button in an element `.code`, with the code in a `pre` */
export function copyCode(button) {
  const code = button.closest(".code")?.querySelector("pre").cloneNode(true);
  if (!code) return;
  for (const number of code.querySelectorAll(".number")) number.remove();
  const say = (words) => {
    button.textContent = words;
    setTimeout(() => (button.textContent = "copy"), SAID_MS);
  };
  const copying = navigator.clipboard ? navigator.clipboard.writeText(code.textContent) : Promise.reject();
  copying.then(() => say("copied"), () => say("select it, and copy"));
}
