// Builds elements. All text becomes text nodes, so that a peer's text is never parsed as markup.

/** Returns an element: `h("p", {class: "x", onclick: f}, "text", child)`. Arrays are flattened, null and false omitted. */
export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

export function s(tag, properties, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties ?? {})) element.setAttribute(name, String(value));
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/** Returns a table. Each row is a list of cells, and its first cell is the row's header. */
export function table(caption, heads, rows, empty) {
  if (rows.length === 0) return h("p", {class: "quiet"}, empty);
  return h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": caption},
    h("table", {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, heads.map(head => h("th", {scope: "col"}, head)))),
      h("tbody", {}, rows.map(row => h("tr", {}, row.map((cell, index) =>
        index === 0 ? h("th", {scope: "row"}, cell) : h("td", {}, cell)))))));
}

export function facts(pairs) {
  return h("dl", {class: "facts"}, pairs.filter(pair => pair).map(([name, value]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

export function field(label, input, hint) {
  const id = `field-${++fieldCount}`;
  input.id = id;
  if (hint) input.setAttribute("aria-describedby", `${id}-hint`);
  return h("div", {class: "field"}, h("label", {for: id}, label), input, hint && h("small", {id: `${id}-hint`}, hint));
}
let fieldCount = 0;

export const card = (title, ...children) => h("section", {class: "card"}, title && h("h2", {}, title), children);
export const problem = text => h("p", {class: "problem", role: "alert"}, text);
export const badge = (kind, text) => h("span", {class: `badge ${kind}`}, text);
export const code = text => h("code", {}, text);
