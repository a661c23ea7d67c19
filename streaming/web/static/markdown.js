// The Markdown that runbooks are written in: headings, paragraphs, lists, code, links, emphasis.

import { h } from "/static/dom.js";

const INLINE = /`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\(([^)\s]+)\)/;

function inline(text) {
  const found = [];
  let rest = text;
  for (let match = INLINE.exec(rest); match; match = INLINE.exec(rest)) {
    found.push(rest.slice(0, match.index));
    if (match[1]) found.push(h("code", {}, match[1]));
    else if (match[2]) found.push(h("strong", {}, inline(match[2])));
    else {
      const page = /^([A-Z]{3}[0-9]{3})\.md/.exec(match[4]);
      found.push(page ? h("a", { href: `#/rule/${page[1]}` }, match[3]) : match[3]);
    }
    rest = rest.slice(match.index + match[0].length);
  }
  return [...found, rest];
}

function listItems(lines, pattern) {
  const items = [];
  for (const line of lines) {
    const match = pattern.exec(line);
    if (match) items.push(match[1]);
    else if (items.length) items[items.length - 1] += ` ${line.trim()}`;
  }
  return items.map((item) => h("li", {}, inline(item)));
}

function block(lines) {
  const heading = /^(#{1,4}) (.*)/.exec(lines[0]);
  if (heading) {
    const rest = lines.slice(1);
    const made = h(`h${Math.max(2, heading[1].length)}`, {}, inline(heading[2]));
    return rest.length ? [made, block(rest)] : made;
  }
  if (/^[-*] /.test(lines[0])) return h("ul", {}, listItems(lines, /^[-*] (.*)/));
  if (/^\d+\. /.test(lines[0])) return h("ol", {}, listItems(lines, /^\d+\. (.*)/));
  if (/^\|/.test(lines[0])) return h("pre", { tabindex: "0" }, lines.join("\n"));
  return h("p", {}, inline(lines.join(" ")));
}

export function markdown(text) {
  const found = [];
  let lines = [];
  let code = null;
  const close = () => {
    if (lines.length) found.push(block(lines));
    lines = [];
  };
  for (const line of text.split("\n")) {
    if (code !== null) {
      if (/^\s*```/.test(line)) {
        found.push(h("pre", { tabindex: "0" }, h("code", {}, code.join("\n"))));
        code = null;
      } else code.push(line);
    } else if (/^\s*```/.test(line)) {
      close();
      code = [];
    } else if (!line.trim()) close();
    else lines.push(line);
  }
  close();
  return found;
}
