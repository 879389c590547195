// Markdown to elements: paragraphs, headings, lists, quotes, tables, rules, code; links to http, https and mailto only.
// Text is cut into blocks first; while an answer grows, blocks that did not change keep their elements.

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}([-*_])\s*(?:\1\s*){2,}$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

/// Blocks as {kind, lines}; a fence that is not closed yet is a block of code up to the end.
function cutBlocks(text) {
  const blocks = [];
  const lines = text.split("\n");
  for (let i = 0; i < lines.length;) {
    const first = i;
    const fence = FENCE.exec(lines[i]);
    let kind = "paragraph";
    if (lines[i].trim() === "") { ++i; continue; }
    if (fence) {
      kind = "code";
      const closing = new RegExp("^ {0,3}" + fence[1][0] + "{" + fence[1].length + ",}\\s*$");
      for (++i; i < lines.length && !closing.test(lines[i]); ++i);
      ++i;
    } else if (HEADING.test(lines[i])) {
      kind = "heading";
      ++i;
    } else if (RULE.test(lines[i])) {
      kind = "rule";
      ++i;
    } else if (/^ {0,3}>/.test(lines[i])) {
      kind = "quote";
      for (; i < lines.length && lines[i].trim() !== ""; ++i);
    } else if (ITEM.test(lines[i])) {
      kind = "list";
      i = endOfList(lines, i);
    } else if (lines[i].includes("|") && i + 1 < lines.length && TABLE_RULE.test(lines[i + 1]) && lines[i + 1].includes("-")) {
      kind = "table";
      for (; i < lines.length && lines[i].includes("|"); ++i);
    } else {
      for (++i; i < lines.length && lines[i].trim() !== "" && !startsBlock(lines[i]); ++i);
    }
    blocks.push({kind, lines: lines.slice(first, i)});
  }
  return blocks;
}

const startsBlock = (line) =>
  FENCE.test(line) || HEADING.test(line) || RULE.test(line) || /^ {0,3}>/.test(line) || ITEM.test(line);

/// A list goes on over empty lines when an item or an indented line follows.
function endOfList(lines, first) {
  let i = first + 1;
  while (i < lines.length) {
    if (lines[i].trim() !== "") {
      if (!ITEM.test(lines[i]) && !/^\s/.test(lines[i]) && (lines[i - 1].trim() === "" || startsBlock(lines[i]))) break;
      ++i;
      continue;
    }
    if (i + 1 >= lines.length || !(ITEM.test(lines[i + 1]) || /^\s{2,}\S/.test(lines[i + 1]))) break;
    ++i;
  }
  return i;
}

function renderBlock(block, depth = 0) {
  const {kind, lines} = block;
  if (kind === "code") return renderCode(lines);
  if (kind === "rule") return element("hr");
  if (kind === "heading") {
    const [, marks, title] = HEADING.exec(lines[0]);
    return element("h" + marks.length, {}, ...renderInline(title));
  }
  if (kind === "quote") {
    const inner = lines.map((line) => line.replace(/^ {0,3}> ?/, "")).join("\n");
    return element("blockquote", {}, ...renderBlocks(inner, depth + 1));
  }
  if (kind === "list") return renderList(lines, depth);
  if (kind === "table") return renderTable(lines);
  return element("p", {}, ...renderInline(lines.map((line) => line.replace(/^\s+/, "")).join("\n")));
}

/// Nesting deeper than 12 is shown as text: hostile nesting costs nothing.
function renderBlocks(text, depth) {
  if (depth > 12) return [text];
  return cutBlocks(text).map((block) => renderBlock(block, depth));
}

function renderCode(lines) {
  const opening = FENCE.exec(lines[0]);
  const closed = lines.length > 1 && /^ {0,3}(`{3,}|~{3,})\s*$/.test(lines[lines.length - 1]);
  const source = lines.slice(1, closed ? -1 : undefined).join("\n");
  return element("div", {className: "block"},
    element("header", {}, element("span", {}, opening[2]), copyButton(() => source)),
    element("pre", {}, element("code", {}, ...highlight(source, opening[2]))));
}

function renderList(lines, depth) {
  const [, , firstMark] = ITEM.exec(lines[0]);
  const ordered = /\d/.test(firstMark);
  const list = element(ordered ? "ol" : "ul");
  if (ordered && parseInt(firstMark, 10) !== 1) list.start = parseInt(firstMark, 10);
  const indent = ITEM.exec(lines[0])[1].length;
  let item = null;
  const finish = () => {
    if (!item) return;
    const blocks = cutBlocks(item.join("\n"));
    const tight = blocks.length > 0 && blocks[0].kind === "paragraph";
    const content = depth > 12 ? [item.join("\n")] : tight
      ? [...renderInline(blocks[0].lines.join("\n")), ...blocks.slice(1).map((block) => renderBlock(block, depth + 1))]
      : blocks.map((block) => renderBlock(block, depth + 1));
    list.append(element("li", {}, ...content));
  };
  let width = 0;
  for (const line of lines) {
    const found = ITEM.exec(line);
    if (found && found[1].length <= indent + 1) {
      finish();
      item = [found[3]];
      width = found[1].length + found[2].length + 1;
    } else if (item) {
      item.push(line.replace(new RegExp("^\\s{0," + width + "}"), ""));
    }
  }
  finish();
  return list;
}

function renderTable(lines) {
  const cells = (line) => line.trim().replace(/^\|/, "").replace(/\|$/, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, "|"));
  const row = (line, tag) => element("tr", {}, ...cells(line).map((cell) => element(tag, {}, ...renderInline(cell))));
  return element("table", {},
    element("thead", {}, row(lines[0], "th")),
    element("tbody", {}, ...lines.slice(2).map((line) => row(line, "td"))));
}

const INLINE = [
  [/^`{1,8}/, renderCodeSpan],
  [/^\*\*(?=\S)([\s\S]{0,2000}?\S)\*\*/, (found) => element("strong", {}, ...renderInline(found[1]))],
  [/^__(?=\S)([\s\S]{0,2000}?\S)__(?!\w)/, (found) => element("strong", {}, ...renderInline(found[1]))],
  [/^~~(?=\S)([\s\S]{0,2000}?\S)~~/, (found) => element("del", {}, ...renderInline(found[1]))],
  [/^\*(?=[^\s*])([^*]{0,2000}?[^\s*])\*/, (found) => element("em", {}, ...renderInline(found[1]))],
  [/^_(?=[^\s_])([^_]{0,2000}?[^\s_])_(?!\w)/, (found) => element("em", {}, ...renderInline(found[1]))],
  [/^!?\[([^\[\]]{0,500})\]\(\s*<?([^\s()<>]{1,2000})>?(?:\s+"[^"]*")?\s*\)/, (found) => link(found[2], found[1])],
  [/^<?(https?:\/\/[^\s<>"'`]{1,2000}[^\s<>"'`.,;:!?)\]])>?/, (found) => link(found[1], found[1])],
  [/^\\([\\`*_{}\[\]()#+\-.!|~>])/, (found) => found[1]],
  [/^(?:  +|\\)\n/, () => element("br")],
];

function renderCodeSpan(found, rest) {
  const marks = found[0];
  const end = rest.indexOf(marks, marks.length);
  if (end < 0) return null;
  return {length: end + marks.length, node: element("code", {}, rest.slice(marks.length, end).replace(/\n/g, " "))};
}

function link(address, label) {
  let url = null;
  try { url = new URL(address); } catch { /* not absolute: shown as text */ }
  if (!url || !["http:", "https:", "mailto:"].includes(url.protocol)) return label === address ? label : label + " (" + address + ")";
  return element("a", {href: url.href, target: "_blank", rel: "noopener noreferrer nofollow"}, label || address);
}

const PLAIN = /^(?:[^`*_~!\[<\\ h]+|h(?!ttps?:)|\w+|.)/s;

let inlineDepth = 0;

/// Very long paragraphs and very deep emphasis are shown as they are.
function renderInline(text) {
  if (text.length > 20000 || inlineDepth > 8) return [text];
  ++inlineDepth;
  try { return renderSpans(text); } finally { --inlineDepth; }
}

function renderSpans(text) {
  const nodes = [];
  let plain = "";
  let before = "";
  for (let rest = text; rest !== "";) {
    let taken = 0;
    for (const [pattern, make] of INLINE) {
      const found = pattern.exec(rest);
      if (!found || (found[0].startsWith("_") && /\w/.test(before))) continue;
      const made = make(found, rest);
      if (made === null) continue;
      if (plain) nodes.push(plain);
      plain = "";
      nodes.push(made.node ?? made);
      taken = made.length && made.node ? made.length : found[0].length;
      break;
    }
    if (taken === 0) {
      const run = PLAIN.exec(rest)[0];
      plain += run;
      taken = run.length;
    }
    before = rest[taken - 1];
    rest = rest.slice(taken);
  }
  if (plain) nodes.push(plain);
  return nodes;
}

const KEYWORDS = new Set(("and as async await auto bool break case catch char class const constexpr continue def default del do double elif else enum " +
  "except export extends extern false finally float fn for from func function go if impl implements import in include inline int interface is " +
  "lambda let long match mod module mut namespace new nil None not null nullptr or package pass private protected pub public raise return self " +
  "short signed sizeof static struct super switch template this throw trait True False true try type typedef typename union unsigned use using " +
  "var virtual void volatile where while with yield select insert update delete create table join group order by").split(" "));
const CODE_TOKEN = /(\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|#[^\n]*|--[^\n]*)|("(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|`(?:\\.|[^`\\])*`?)|\b(\d[\w.]*)|\b([A-Za-z_]\w*)|([\s\S])/g;

/// Words of many languages at once: comments, strings, numbers, keywords.
function highlight(source, language) {
  if (source.length > 50000 || /^(?:|text|plain|txt|output|console)$/i.test(language)) return [source];
  const hash = /^(?:py|python|sh|bash|shell|zsh|ruby|rb|r|yaml|yml|toml|make|makefile|cmake|dockerfile|perl|nim|julia)/i.test(language);
  const dashes = /^(?:sql|lua|haskell|hs|ada)/i.test(language);
  const nodes = [];
  let plain = "";
  const push = (text, name) => {
    if (plain) nodes.push(plain);
    plain = "";
    nodes.push(element("span", {className: name}, text));
  };
  for (const [all, comment, string, number, word] of source.matchAll(CODE_TOKEN)) {
    if (comment && (comment[0] === "/" || (comment[0] === "#" && hash) || (comment[0] === "-" && dashes))) push(all, "comment");
    else if (comment) plain += all;
    else if (string) push(all, "string");
    else if (number) push(all, "number");
    else if (word && KEYWORDS.has(dashes ? word.toLowerCase() : word)) push(all, "keyword");
    else plain += all;
  }
  if (plain) nodes.push(plain);
  return nodes;
}

/// Shows text in an element that earlier showed a beginning of it.
function showMarkdown(place, text) {
  const blocks = cutBlocks(text);
  const shown = place.blocks ?? [];
  let same = 0;
  while (same < shown.length && same < blocks.length && shown[same] === blocks[same].lines.join("\n")) ++same;
  while (place.childNodes.length > same) place.lastChild.remove();
  for (let i = same; i < blocks.length; ++i) place.append(renderBlock(blocks[i]));
  place.blocks = blocks.map((block) => block.lines.join("\n"));
}
