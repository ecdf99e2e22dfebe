// Fills the two sides of the page: a map of kept entries and the shaded text. Data: see kept_data.h.
"use strict";
(() => {
  const begin = performance.now();
  const data = JSON.parse(document.getElementById("kept").textContent);
  const nTokens = data.tokens.length, rowBytes = (nTokens + 7) >> 3;
  const heads = data.heads.flatMap((n, layer) => Array.from({length: n}, (_, head) => ({layer, head})));
  const nHeads = heads.length, nLayers = data.heads.length, mostHeads = Math.max(...data.heads);
  const kLevels = 8;  // shades
  const sides = {};

  for (const cut of data.cuts) {
    const text = atob(cut.bits);
    cut.bytes = Uint8Array.from(text, (c) => c.charCodeAt(0));
    cut.kept = new Int32Array(nHeads);      // tokens of a head
    cut.holders = new Int32Array(nTokens);  // heads of a token
    for (let h = 0; h < nHeads; ++h) {
      for (let t = 0; t < nTokens; ++t) {
        const bit = (cut.bytes[h * rowBytes + (t >> 3)] >> (t & 7)) & 1;
        cut.kept[h] += bit;
        cut.holders[t] += bit;
      }
    }
  }
  const holds = (cut, head, token) => (cut.bytes[head * rowBytes + (token >> 3)] >> (token & 7)) & 1;
  const escaped = (text) => text.replace(/[&<>]/g, (c) => ({"&": "&amp;", "<": "&lt;", ">": "&gt;"})[c]);
  const headName = (head) => "layer " + heads[head].layer + ", KV head " + heads[head].head;
  // Shades that dark text can be read on, and light text on dark.
  const shade = (level) => "rgba(30,136,229," + (0.06 + 0.5 * level / kLevels).toFixed(3) + ")";
  const levelOf = (part) => part <= 0 ? 0 : Math.max(1, Math.round(part * kLevels));

  // The map: at most 256 columns, runs of one shade drawn at once, one path for each shade.
  const nColumns = Math.min(nTokens, 256), rowHeight = Math.max(1, Math.min(8, Math.round(480 / nHeads)));
  const firstToken = (column) => Math.floor(column * nTokens / nColumns);
  function mapSvg(cut) {
    const paths = Array.from({length: kLevels + 1}, () => []);
    for (let h = 0; h < nHeads; ++h) {
      let runLevel = 0, runStart = 0;
      for (let c = 0; c <= nColumns; ++c) {
        let level = 0;
        if (c < nColumns) {
          const first = firstToken(c), last = firstToken(c + 1);
          let n = 0;
          for (let t = first; t < last; ++t) n += holds(cut, h, t);
          level = levelOf(n / (last - first));
        }
        if (c < nColumns && level === runLevel) continue;
        if (runLevel > 0) {
          paths[runLevel].push(`M${runStart} ${h * rowHeight}h${c - runStart}v${rowHeight}h${runStart - c}z`);
        }
        runLevel = level;
        runStart = c;
      }
    }
    let lines = "";
    for (let l = 5; l < nLayers; l += 5) {
      lines += `M0 ${heads.filter((head) => head.layer < l).length * rowHeight}h${nColumns}`;
    }
    return `<svg viewBox="0 0 ${nColumns} ${nHeads * rowHeight}" preserveAspectRatio="none" role="img" ` +
        `style="height:${Math.max(nHeads * rowHeight, 160)}px"><title>kept entries of every head: ${escaped(cut.name)}</title>` +
        paths.map((path, level) => path.length ? `<path fill="var(--accent)" fill-opacity="${level / kLevels}" d="${path.join("")}"/>` : "").join("") +
        `<path d="${lines}" stroke="var(--line)" stroke-width=".5" stroke-opacity=".5" vector-effect="non-scaling-stroke"/></svg>`;
  }

  function textHtml(cut) {
    const parts = [];
    for (let t = 0; t < nTokens; ++t) {
      parts.push(`<i data-t="${t}" style="background:${shade(levelOf(cut.holders[t] / nHeads))}">${escaped(data.tokens[t])}</i>`);
    }
    return parts.join("");
  }

  // Which heads hold a token: layers from left to right.
  function holdersSvg(cut, token) {
    const size = 10;
    let filled = "", empty = "";
    for (let h = 0; h < nHeads; ++h) {
      const square = `M${heads[h].layer * size + 1} ${heads[h].head * size + 1}h8v8h-8z`;
      if (holds(cut, h, token)) filled += square; else empty += square;
    }
    return `<svg width="${nLayers * size}" height="${mostHeads * size}" role="img"><title>heads that hold the token: a column for each layer</title>` +
        `<path fill="var(--accent)" d="${filled}"/><path fill="none" stroke="var(--grid)" d="${empty}"/></svg>`;
  }

  // Beside the first cut one of another method with the same budget, if there is one.
  const other = data.cuts.findIndex((cut) => cut.budget === data.cuts[0].budget && cut.method !== data.cuts[0].method);
  const state = {left: 0, right: other > 0 ? other : Math.min(1, data.cuts.length - 1), token: -1};
  function readHash() {
    for (const [key, value] of new URLSearchParams(location.hash.slice(1))) {
      const limit = key === "token" ? nTokens : data.cuts.length;
      if (key in state && /^\d+$/.test(value) && Number(value) < limit) state[key] = Number(value);
    }
  }
  function writeHash() {
    const hash = "#" + new URLSearchParams(Object.entries(state).filter(([, value]) => value >= 0));
    try { history.replaceState(null, "", hash); } catch { /* not every browser lets files do this */ }
  }

  function showToken(token) {
    for (const name of ["left", "right"]) {
      const side = sides[name], cut = data.cuts[state[name]];
      side.doc.querySelector("i.at")?.classList.remove("at");
      if (token < 0) continue;
      side.doc.children[token].classList.add("at");
      side.read.textContent = `token ${token}, ${JSON.stringify(data.tokens[token])}: ${cut.holders[token]} of ${nHeads} heads hold it`;
      side.holders.innerHTML = holdersSvg(cut, token);
    }
    state.token = token;
  }

  function showSide(name) {
    const side = sides[name], cut = data.cuts[state[name]];
    side.select.value = String(state[name]);
    side.map.innerHTML = mapSvg(cut);
    side.doc.innerHTML = textHtml(cut);
    const total = cut.kept.reduce((sum, n) => sum + n, 0);
    side.root.dataset.kept = Array.from(cut.kept).join(" ");
    side.read.textContent = `${total} of ${nHeads * nTokens} entries kept` +
      (cut.raised > 0 ? `, ${cut.raised} heads in 8 bits` : "");
    side.holders.innerHTML = "";
  }

  for (const name of ["left", "right"]) {
    const root = document.getElementById(name);
    const side = sides[name] = {root, select: root.querySelector("select")};
    for (const part of ["map", "read", "holders", "doc"]) side[part] = root.querySelector("." + part);
    side.select.addEventListener("change", () => {
      state[name] = Number(side.select.value);
      showSide(name);
      showToken(state.token);
      writeHash();
    });
    const point = (event) => {
      const token = event.target.dataset?.t;
      if (token !== undefined) showToken(Number(token));
    };
    side.doc.addEventListener("pointerover", point);
    side.doc.addEventListener("click", (event) => { point(event); writeHash(); });
    side.map.addEventListener("pointermove", (event) => {
      const box = side.map.firstElementChild.getBoundingClientRect(), cut = data.cuts[state[name]];
      const column = Math.floor((event.clientX - box.left) / box.width * nColumns);
      const head = Math.floor((event.clientY - box.top) / box.height * nHeads);
      if (column < 0 || column >= nColumns || head < 0 || head >= nHeads) return;
      const first = firstToken(column), last = firstToken(column + 1);
      let n = 0;
      for (let t = first; t < last; ++t) n += holds(cut, head, t);
      side.read.textContent = `${headName(head)}: ${cut.kept[head]} of ${nTokens} tokens; ${n} of ${last - first} here, ` +
          `tokens ${first} to ${last - 1}, ${JSON.stringify(data.tokens.slice(first, last).join("").trim())}`;
    });
  }
  document.getElementById("key").innerHTML = "Heads that hold a token:" +
      [0, 2, 4, 6, 8].map((level) => `<i style="background:${shade(level)}">${Math.round(100 * level / kLevels)} %</i>`).join("");

  readHash();
  showSide("left");
  showSide("right");
  showToken(state.token);
  if (state.token >= 0) {
    for (const {doc} of Object.values(sides)) doc.scrollTop = doc.children[state.token].offsetTop - doc.offsetTop - 80;
  }
  document.documentElement.dataset.scriptMs = (performance.now() - begin).toFixed(1);
  window.addEventListener("load", () => {
    document.documentElement.dataset.loadMs = performance.now().toFixed(1);
  });
})();
