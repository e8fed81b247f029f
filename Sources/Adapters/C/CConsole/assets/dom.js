// Builds elements. All text becomes text nodes, so that a peer's text is never parsed as markup.

// The event handlers of an element by type, and its key among its siblings. `patch` moves both to the element that stays.
const handlers = new WeakMap(), keys = new WeakMap();

const dispatch = event => handlers.get(event.currentTarget)?.get(event.type)?.call(event.currentTarget, event);

function listen(element, type, handler) {
  if (!handlers.has(element)) handlers.set(element, new Map());
  element.addEventListener(type, dispatch);
  handlers.get(element).set(type, handler);
}

/**
 * Returns an element: `h("p", {class: "x", onclick: f}, "text", child)`. Arrays are flattened, null and false omitted.
 *
 * `key` identifies the element among its siblings for `patch`.
 */
export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "key") keys.set(element, value);
    else if (name.startsWith("on")) listen(element, name.slice(2), value);
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

/**
 * Changes the children of `element` to `children` in place: an element that stays keeps its focus, selection and scroll position.
 *
 * A child with a key stays if a child with that key is wanted. Other children stay in their order, by the name of the element.
 */
export function patch(element, ...children) {
  const wanted = document.createDocumentFragment();
  append(wanted, children);
  const restore = keptSelection();
  reconcile(element, [...wanted.childNodes]);
  restore();
}

function reconcile(parent, wanted) {
  const old = [...parent.childNodes];
  const keyed = new Map(old.filter(node => keys.has(node)).map(node => [keys.get(node), node]));
  const free = old.filter(node => !keys.has(node));
  let place = 0;
  const kept = wanted.map(node => {
    let match;
    if (keys.has(node)) {
      match = keyed.get(keys.get(node));
      keyed.delete(keys.get(node));
      if (match?.nodeName !== node.nodeName) return node;
    } else {
      const index = free.findIndex((other, index) => index >= place && other.nodeName === node.nodeName);
      if (index < 0) return node;
      match = free[index];
      place = index + 1;
    }
    update(match, node);
    return match;
  });
  const staying = new Set(kept);
  for (const node of old) if (!staying.has(node)) node.remove();
  arrange(parent, kept);
}

function update(node, wanted) {
  if (node.nodeType === Node.TEXT_NODE) return change(node, wanted.data);
  for (const {name} of [...node.attributes]) {
    // The reader opens and closes details.
    if (!wanted.hasAttribute(name) && !(name === "open" && node.nodeName === "DETAILS")) node.removeAttribute(name);
  }
  for (const {name, value} of wanted.attributes) if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  handlers.get(node)?.clear();
  for (const [type, handler] of handlers.get(wanted) ?? []) listen(node, type, handler);
  if (keys.has(wanted)) keys.set(node, keys.get(wanted)); else keys.delete(node);
  reconcile(node, [...wanted.childNodes]);
}

/** Replaces only the characters that differ, so that a selection in the others stays. */
function change(node, text) {
  const old = node.data;
  if (old === text) return;
  let start = 0, end = 0;
  const shorter = Math.min(old.length, text.length);
  while (start < shorter && old[start] === text[start]) start++;
  while (end < shorter - start && old[old.length - 1 - end] === text[text.length - 1 - end]) end++;
  node.replaceData(start, old.length - start - end, text.slice(start, text.length - end));
}

/** Puts the children in order around one that is never moved: the one with the focus or the selection, if there is one. */
function arrange(parent, kept) {
  if (kept.length === 0) return;
  const isThere = node => node.parentNode === parent;
  const index = [
    kept.findIndex(node => isThere(node) && holds(node)), kept.findIndex(isThere), 0,
  ].find(index => index >= 0);
  if (!isThere(kept[index])) parent.append(kept[index]);
  for (let at = index - 1; at >= 0; at--) {
    if (kept[at].nextSibling !== kept[at + 1]) parent.insertBefore(kept[at], kept[at + 1]);
  }
  for (let at = index + 1; at < kept.length; at++) {
    if (kept[at - 1].nextSibling !== kept[at]) kept[at - 1].after(kept[at]);
  }
}

const holds = node => node.contains(document.activeElement) || node.contains(getSelection()?.anchorNode ?? null);

/** Returns a function that restores the selection where its ends still exist. */
function keptSelection() {
  const selection = getSelection();
  if (!selection || selection.isCollapsed) return () => {};
  const ends = [[selection.anchorNode, selection.anchorOffset], [selection.focusNode, selection.focusOffset]]
    .map(([node, offset]) => ({node, offset, isEnd: offset === lengthOf(node)}));
  return () => {
    if (!ends.every(({node}) => node.isConnected)) return;
    const [[anchor, from], [focus, to]] = ends.map(({node, offset, isEnd}) => [node, isEnd ? lengthOf(node) : Math.min(offset, lengthOf(node))]);
    const isSame = selection.anchorNode === anchor && selection.anchorOffset === from
      && selection.focusNode === focus && selection.focusOffset === to;
    if (!isSame) selection.setBaseAndExtent(anchor, from, focus, to);
  };
}

const lengthOf = node => node.nodeType === Node.TEXT_NODE ? node.data.length : node.childNodes.length;

/** Returns a table. Each row is a list of cells, and its first cell is the row's header and key. */
export function table(caption, heads, rows, empty) {
  if (rows.length === 0) return h("p", {class: "quiet"}, empty);
  return h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": caption},
    h("table", {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, heads.map(head => h("th", {scope: "col"}, head)))),
      h("tbody", {}, rows.map(keyedRow, new Map()))));
}

function keyedRow([head, ...cells]) {
  const header = h("th", {scope: "row"}, head);
  const count = this.get(header.textContent) ?? 0;
  this.set(header.textContent, count + 1);
  return h("tr", {key: `${count} ${header.textContent}`}, header, cells.map(cell => h("td", {}, cell)));
}

export function facts(pairs) {
  return h("dl", {class: "facts"}, pairs.filter(pair => pair).map(([name, value]) =>
    h("div", {key: name}, h("dt", {}, name), h("dd", {}, value))));
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
