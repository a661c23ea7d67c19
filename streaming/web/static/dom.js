// Elements are made of text and attributes only: whatever a topic is called, it stays text.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else if (name === "checked" || name === "selected" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// Replace the content of an element; whoever had the focus keeps it, if it is still there.
export function put(element, ...children) {
  const focused = document.activeElement;
  const key = focused && element.contains(focused) ? focused.dataset.key || focused.id : null;
  element.replaceChildren(...children.flat(Infinity).filter((child) => child instanceof Node));
  if (key) {
    const again = [...element.querySelectorAll("[data-key], [id]")].find(
      (each) => each.dataset.key === key || each.id === key,
    );
    if (again) again.focus({ preventScroll: true });
  }
}

// Rows, or bodies of rows where they belong together.
export function table(caption, heads, rows, attributes) {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      attributes || {},
      h("caption", { class: "visually-hidden" }, caption),
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      rows.length && rows[0].tagName === "TBODY" ? rows : h("tbody", {}, rows),
    ),
  );
}
