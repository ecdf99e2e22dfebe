// Renders the Markdown that models write: paragraphs, headings, lists, quotes, tables, code. Text stays text: none of
// it is ever read as HTML. Blocks that have not changed keep their elements, so an answer that grows is cheap to show.

// Returns the source of each block: a fence and its content, or lines up to an empty one.
function markdownBlocks(text) {
  const blocks = [];
  let block = [], fence = null;
  const end = () => { if (block.length) blocks.push(block.join("\n")); block = []; };
  for (const line of text.split("\n")) {
    const mark = line.match(/^\s{0,3}(`{3,}|~{3,})/)?.[1];
    if (fence) {
      block.push(line);
      if (mark && mark[0] === fence[0] && mark.length >= fence.length && !line.trim().slice(mark.length)) { fence = null; end(); }
    } else if (mark) {
      end();
      fence = mark;
      block.push(line);
    } else if (!line.trim()) {
      end();
    } else {
      if (/^#{1,6}\s/.test(line)) end();
      block.push(line);
      if (/^#{1,6}\s/.test(line)) end();
    }
  }
  end();
  return blocks;
}

// Renders `code`, **strong**, *emphasis*, [links](https://...); marks that are not closed stay as they are.
function markdownSpans(text) {
  const made = document.createDocumentFragment();
  const pattern = /(`+)([^`]|[^`][^]*?[^`])\1(?!`)|\*\*(?=\S)([^]*?\S)\*\*|(?<![\w*])\*(?=[^\s*])([^*]*[^\s*])\*(?!\w)|\[([^\]\n]*)\]\((https?:\/\/[^\s)]+)\)/;
  for (let match; (match = pattern.exec(text));) {
    made.append(text.slice(0, match.index));
    const [whole, , code, strong, emphasis, name, address] = match;
    if (code !== undefined) {
      made.append(element("code", code.trim()));
    } else if (address !== undefined) {
      const link = element("a", name || address);
      link.href = address;
      link.rel = "noopener noreferrer";
      link.target = "_blank";
      made.append(link);
    } else {
      const span = element(strong !== undefined ? "strong" : "em");
      span.append(markdownSpans(strong ?? emphasis));
      made.append(span);
    }
    text = text.slice(match.index + whole.length);
  }
  made.append(text);
  return made;
}

function markdownCode(lines) {
  const [, mark, language] = lines[0].match(/^\s*(`+|~+)\s*([\w+#.-]*)/);
  const is_closed = lines.length > 1 && lines.at(-1).trim().startsWith(mark);
  const text = lines.slice(1, is_closed ? -1 : undefined).join("\n");
  const box = element("div", undefined, "code"), bar = element("div"), pre = element("pre");
  const copier = button("Copy", "Copy this code", () => copy(text, copier));
  bar.append(element("span", language || "text"), copier);
  pre.append(element("code", text));
  pre.tabIndex = 0;
  pre.setAttribute("aria-label", "Code");
  pre.setAttribute("role", "region");
  box.append(bar, pre);
  return box;
}

const kItem = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;

// Returns a list of the items. Those that are further to the right become a list inside the item before them.
function markdownList(lines, indent = lines[0].match(kItem)[1].length) {
  const list = element(/^\s*\d/.test(lines[0]) ? "ol" : "ul");
  if (list.tagName === "OL") list.start = parseInt(lines[0], 10);
  while (lines.length) {
    const match = lines[0].match(kItem);
    if (match && match[1].length < indent) break;
    if (match && match[1].length > indent + 1 && list.lastChild) {
      list.lastChild.append(markdownList(lines, match[1].length));
      continue;
    }
    lines.shift();
    if (match || !list.lastChild) {
      const item = element("li");
      item.append(markdownSpans(match ? match[3] : ""));
      list.append(item);
    } else {
      list.lastChild.append(" ", markdownSpans(lines[0]?.trim() ?? ""));
    }
  }
  return list;
}

function markdownTable(lines) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
  const table = element("table"), head = table.createTHead().insertRow(), body = table.createTBody();
  for (const name of cells(lines[0])) {
    const cell = element("th");
    cell.append(markdownSpans(name));
    head.append(cell);
  }
  for (const line of lines.slice(2)) {
    const row = body.insertRow();
    for (const text of cells(line)) row.insertCell().append(markdownSpans(text));
  }
  return table;
}

function markdownBlock(source) {
  const lines = source.split("\n");
  if (/^\s{0,3}(`{3,}|~{3,})/.test(lines[0])) return markdownCode(lines);
  const heading = lines[0].match(/^(#{1,6})\s+(.*?)#*$/);
  if (heading) {
    const made = element("h" + Math.min(6, heading[1].length + 2));
    made.append(markdownSpans(heading[2]));
    return made;
  }
  if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(source)) return element("hr");
  if (lines.every((line) => /^\s*>/.test(line))) {
    const quote = element("blockquote");
    quote.append(markdownSpans(lines.map((line) => line.replace(/^\s*>\s?/, "")).join("\n")));
    return quote;
  }
  if (lines.length > 1 && lines[0].includes("|") && /^[\s|:-]*-[\s|:-]*$/.test(lines[1])) return markdownTable(lines);
  const paragraph = element("p"), first = lines.findIndex((line) => kItem.test(line));
  if (first < 0) {
    paragraph.append(markdownSpans(source));
    return paragraph;
  }
  const made = document.createDocumentFragment();
  if (first > 0) {
    paragraph.append(markdownSpans(lines.slice(0, first).join("\n")));
    made.append(paragraph);
  }
  const box = element("div");
  box.append(made, markdownList(lines.slice(first)));
  return box;
}

// Shows `text` in `place`, which shows an earlier state of it or is empty.
function showMarkdown(place, text) {
  const blocks = markdownBlocks(text), before = place.sources ?? [];
  let same = 0;
  while (same < blocks.length && same < before.length && blocks[same] === before[same]) ++same;
  while (place.children.length > same) place.lastElementChild.remove();
  for (const block of blocks.slice(same)) place.append(markdownBlock(block));
  place.sources = blocks;
}
