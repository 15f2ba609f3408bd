// Patching one tree of elements into another: what need not change stays the very same element, and with it
// focus, scrolling, open parts, and what somebody is typing.

/** Make the content of a part that of `fresh`; where what had the focus is no longer there, what is around it gets it. */
export function replace(part, fresh) {
  const around = [];
  for (let one = document.activeElement; one && one !== part && part.contains(one); one = one.parentElement) around.push(one);
  patch(part, fresh);
  if (!around.length || around[0].isConnected) return;
  const left = around.find((one) => one.isConnected) ?? part;
  (left.querySelector("button:not(:disabled)") ?? part.closest("[tabindex]"))?.focus({ preventScroll: true });
}

/** Make the children of `old` those of `fresh`. @param {Node} old @param {Node} fresh */
export function patch(old, fresh) {
  const keyed = new Map();
  for (const child of old.children ?? []) if (child.dataset.key) keyed.set(child.dataset.key, child);
  let at = old.firstChild;
  for (const want of [...fresh.childNodes]) {
    const key = want.dataset?.key;
    const have = key ? keyed.get(key) : at && !at.dataset?.key ? at : undefined;
    if (have && have.nodeName === want.nodeName) {
      if (have === at) at = at.nextSibling;
      else old.insertBefore(have, at);
      patchOne(have, want);
    } else old.insertBefore(want, at);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function patchOne(have, want) {
  if (have.nodeType !== Node.ELEMENT_NODE) {
    if (have.nodeValue !== want.nodeValue) have.nodeValue = want.nodeValue;
    return;
  }
  const own = (name) => name === "data-lm-suppress-shortcuts" || (name === "open" && have.nodeName === "DETAILS") || (name === "tabindex" && have.className === "scroll"); // the page's
  // A disabled element loses the focus, and with it the keys of the panel: the one that has it only says that it is disabled.
  if (want.hasAttribute("disabled") && have === document.activeElement) {
    want.removeAttribute("disabled");
    want.setAttribute("aria-disabled", "true");
  }
  for (const { name } of [...have.attributes]) if (!want.hasAttribute(name) && !own(name)) have.removeAttribute(name);
  for (const { name, value } of want.attributes)
    if (have.getAttribute(name) !== value && !own(name)) have.setAttribute(name, value);
  patch(have, want);
}
