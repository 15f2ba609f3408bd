// Which HTML reaches the page: an allow-list of what ddpnb/render writes. Everything else is dropped, with its content.

const ELEMENTS = new Set((
  "a b button code datalist details div fieldset form h2 h3 i img input label legend li ol optgroup option p path pre " +
  "progress select span summary svg table tbody td th thead time tr ul"
).split(" "));
const ATTRIBUTES = new Set((
  "alt checked class colspan d disabled fill-rule href id label list max min name open placeholder rel role scope " +
  "selected size src step style tabindex target title type value viewbox"
).split(" "));
const VALUES = {
  href: (value) => /^[\w.~%-][\w.~%/-]*#line=\d+$/.test(value), // of a file below the notebook's folder
  src: (value) => /^data:image\/png;base64,[\w+/=]*$/.test(value),
  style: (value) => /^[\w\s:;.%-]*$/.test(value), // no function: url() would load something
  type: (value) => /^(button|checkbox|number|radio|text)$/.test(value),
};

function allowed(name, value) {
  return /^(aria|data)-/.test(name) || (ATTRIBUTES.has(name.toLowerCase()) && (VALUES[name.toLowerCase()]?.(value) ?? true));
}

/** Parse HTML and keep what is allowed. @param {string} html @returns {DocumentFragment} */
export function parse(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  for (const element of template.content.querySelectorAll("*")) {
    if (!ELEMENTS.has(element.localName)) element.remove();
    else for (const { name, value } of [...element.attributes]) if (!allowed(name, value)) element.removeAttribute(name);
  }
  return template.content;
}
