// Shows the cache: what is kept for an answer, as bars and a map of layers and heads, and the server's memory.

function bar(label, parts) {
  const made = element("div", undefined, "bar");
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", label);
  for (const [share, className] of parts) {
    const part = element("span", undefined, className);
    part.style.width = (share * 100).toFixed(1) + "%";
    made.append(part);
  }
  return made;
}

function showMap(kept, full) {
  const most = Math.max(1, ...kept.flat());
  const table = element("table");
  table.append(element("caption", "Entries kept in each head, of " + count(full) + " tokens"));
  const head = table.createTHead().insertRow(), widest = Math.max(...kept.map((heads) => heads.length));
  head.append(element("th", "layer"), ...Array.from({length: widest}, (_, i) => {
    const cell = element("th", "head " + i); cell.scope = "col"; return cell;
  }));
  const body = table.createTBody();
  kept.forEach((heads, layer) => {
    const row = body.insertRow(), name = element("th", String(layer));
    name.scope = "row";
    row.append(name);
    for (const n of heads) {
      const cell = row.insertCell(), share = Math.sqrt(n / most);
      cell.textContent = n;
      cell.style.background = `color-mix(in srgb, var(--cell-high) ${Math.round(share * 100)}%, var(--cell-low))`;
    }
  });
  $("map").replaceChildren(table);
}

// Shows the cache of an answer. timings: the answer's; undefined if it has none.
function showCache(timings) {
  if (!timings) {
    $("answer-cache").replaceChildren(element("p", "Ask something to see what is kept."));
    $("map").replaceChildren();
    return;
  }
  const kv = timings.kv, share = kv.bytes_full ? Math.min(1, kv.bytes_kept / kv.bytes_full) : 1;  // f32 takes more than f16
  const n_prompt = timings.cache_n + timings.prompt_n, reused = n_prompt ? timings.cache_n / n_prompt : 0;
  const list = element("dl");
  pairs(list, [
    ["method", kv.method + (kv.budget ? ", " + kv.budget : "")],
    ["entries kept", count(kv.entries_kept) + " of " + count(kv.entries_full)],
    ["memory", bytes(kv.bytes_kept) + " of " + bytes(kv.bytes_full) + " in f16"],
    ["saved", bytes(Math.max(0, kv.bytes_full - kv.bytes_kept)) + ", " + (100 - share * 100).toFixed(0) + " %"],
    ["not read again", count(timings.cache_n) + " tokens"],
    ["read", count(timings.prompt_n) + " tokens, " + count(timings.prompt_per_second) + "/s"],
    ["answered", count(timings.predicted_n) + " tokens, " + timings.predicted_per_second.toFixed(1) + "/s"],
  ]);
  $("answer-cache").replaceChildren(
    element("small", "Bytes kept"), bar(`${(share * 100).toFixed(0)} % of the cache's bytes are kept`, [[share, ""]]),
    element("small", "Of the prompt, reused"),
    bar(`${(reused * 100).toFixed(0)} % of the prompt was not read again`, [[reused, "reused"]]), list);
  if (kv.kept) showMap(kv.kept, n_prompt);
}

async function showServer() {
  const kv = await get("/v1/kv");
  const n_contexts = kv.contexts.filter((context) => context.kind === "context").length;
  pairs($("server"), [
    ["in use", bytes(kv.bytes_in_use)],
    ["kept", `${n_contexts} context${n_contexts === 1 ? "" : "s"}, ${kv.contexts.length - n_contexts} ends of prompts and answers`],
    ["they take", bytes(kv.bytes_contexts)],
    ["limit", bytes(kv.bytes_limit)],
    ["answers under way", kv.answering + (kv.reading + kv.queued ? ", " + kv.reading + " reading, " + kv.queued + " waiting" : "")],
  ]);
  return kv;
}
