// The conversation on screen: asking, answers as they come, stopping, trying again, editing.
let conversation = newConversation();
let running = null, methods = [];

// Further fields of a request: name, label, meaning. An empty input leaves the field to the server.
const kSampling = [
  ["top_k", "Top-k", "only the k likeliest tokens; 0: all"],
  ["top_p", "Top-p", "only the likeliest that have this share together"],
  ["min_p", "Min-p", "only those with this share of the likeliest one's probability"],
  ["repeat_penalty", "Repeat penalty", "above 1: fewer repetitions"],
  ["seed", "Seed", "the same number, the same answer"],
];
for (const [name, label, meaning] of kSampling) {
  const box = element("div"), input = element("input"), title = element("label", label);
  input.id = title.htmlFor = "sampling-" + name;
  input.type = "number";
  input.step = "any";
  input.placeholder = "the server's";
  box.append(title, input, element("small", meaning));
  $("sampling").append(box);
}

function requestBody() {
  const kv = {heads: true, reuse: $("reuse").value}, text = $("document").value.trim(), system = $("system").value.trim();
  if (text) kv.context = text;
  if ($("method").value) kv.evict = $("method").value;
  if (kv.evict && kv.evict !== "full") kv.budget = $("budget").value.trim();
  if ($("aware").checked) kv.question_aware = true;
  const messages = conversation.turns.map(({role, content}) => ({role, content}));
  if (system) messages.unshift({role: "system", content: system});
  const body = {messages, stream: true, stream_options: {include_usage: true}, kv,
                max_tokens: Number($("most").value) || 512, temperature: Number($("heat").value)};
  for (const [name] of kSampling) {
    const value = $("sampling-" + name).value;
    if (value !== "") body[name] = Number(value);
  }
  if ($("think").value) body.chat_template_kwargs = {enable_thinking: $("think").value === "true"};
  return body;
}

const isAtEnd = () => $("talk").scrollHeight - $("talk").scrollTop - $("talk").clientHeight < 80;
const goToEnd = () => { $("talk").scrollTop = $("talk").scrollHeight; };

function showThinking(view, text) {
  if (!view.thinking) {
    const box = element("details", undefined, "thinking");
    view.thinking = element("div");
    box.append(element("summary", "Thoughts"), view.thinking);
    view.turn.insertBefore(box, view.body);
  }
  view.thinking.textContent = text;
}
function showNote(view, timings) {
  view.note.textContent = timings.predicted_per_second.toFixed(1) + " tokens a second, first one after " +
    (timings.prompt_ms / 1000).toFixed(2) + " s";
}
// Adds a turn with its buttons and returns its view. "Edit" and "Try again" do nothing while an answer is under way.
function addTurn(turn) {
  const is_mine = turn.role === "user";
  const view = {turn: element("div", undefined, "turn " + turn.role), body: element("div", undefined, "body"), note: element("small"),
                tools: element("div", undefined, "tools")};
  view.turn.append(element("b", is_mine ? "You" : "Model"), view.body, view.note, view.tools);
  if (is_mine) view.body.textContent = turn.content; else showMarkdown(view.body, turn.content);
  if (turn.thinking) showThinking(view, turn.thinking);
  if (turn.timings) showNote(view, turn.timings);
  const copier = button("Copy", "Copy this message", () => copy(turn.content, copier));
  view.tools.append(copier);
  if (is_mine) {
    view.tools.append(button("Edit", "Edit this message", () => edit(turn)));
  } else {
    view.tools.append(button("Try again", "Try this answer again", () => again(turn)),
                      button("Cache", "Show what was kept for this answer", () => { showCache(turn.timings); showInDrawer("cache-title"); }));
  }
  $("hint").hidden = true;
  $("talk").append(view.turn);
  goToEnd();
  return view;
}
function showConversation() {
  $("talk").replaceChildren($("hint"));
  $("hint").hidden = conversation.turns.length > 0;
  for (const turn of conversation.turns) addTurn(turn);
  showCache(conversation.turns.findLast((turn) => turn.timings)?.timings);
}
async function showList() {
  const all = await allConversations();
  $("conversations").replaceChildren(...all.map((one) => {
    const item = element("li"), open = button(one.title, "Open: " + one.title, () => choose(one));
    open.setAttribute("aria-current", String(one.id === conversation.id));
    item.append(open, button("×", "Remove: " + one.title, async () => {
      const isShown = one.id === conversation.id;
      if (isShown) conversation.removed = true;  // what is still being answered is not saved again
      await removeConversation(one.id);
      if (isShown) choose(newConversation()); else showList();
    }));
    return item;
  }));
}
function choose(one) {
  running?.abort();
  uncover();
  conversation = one;
  $("document").value = one.document;
  $("system").value = one.system;
  $("problem").textContent = "";
  measure();
  showConversation();
  showList();
  $("message").focus();
}

// Removes this turn and all after it. The server does not read the turns before it again.
function cutBefore(turn) {
  conversation.turns.length = conversation.turns.indexOf(turn);
  showConversation();
}
function edit(turn) {
  if (running) return;
  cutBefore(turn);
  $("message").value = turn.content;
  $("message").focus();
}
function again(turn) {
  if (running) return;
  const asked = conversation.turns[conversation.turns.indexOf(turn) - 1];
  cutBefore(asked);
  answer(asked.content);
}

async function answer(asked) {
  const mine = conversation, said = {role: "assistant", content: "", thinking: ""}, question = {role: "user", content: asked};
  mine.document = $("document").value;
  mine.system = $("system").value;
  const question_view = addTurn(question), view = addTurn(said);
  mine.turns.push(question);
  const body = requestBody();
  mine.turns.push(said);
  running = new AbortController();
  $("send").disabled = true;
  $("stop").disabled = false;
  $("problem").textContent = "";
  $("status").textContent = "The model is reading.";
  view.note.textContent = "reading…";
  const watch = setInterval(() => showServer().catch(() => {}), 700);
  let drawing = 0, ended = false;
  const draw = () => {
    const follows = isAtEnd();
    drawing = 0;
    showMarkdown(view.body, said.content);
    if (said.thinking) showThinking(view, said.thinking);
    if (follows) goToEnd();
  };
  try {
    for await (const event of events(await post("/v1/chat/completions", body, running.signal))) {
      if (event.error) throw new Error(event.error.message);
      const delta = event.choices[0]?.delta;
      if (delta?.content || delta?.reasoning_content) {
        said.content += delta.content ?? "";
        said.thinking += delta.reasoning_content ?? "";
        view.note.textContent = "";
        drawing ||= requestAnimationFrame(draw);
      }
      if (event.timings) {
        said.timings = event.timings;
        if (mine === conversation) showCache(event.timings);
        showNote(view, event.timings);
      }
    }
    ended = true;
    $("status").textContent = said.content || said.thinking ? "Answer: " + said.content : "The answer is empty.";
    if (!said.content && !said.thinking) view.note.textContent = "The answer is empty.";
  } catch (error) {
    const is_stop = error.name === "AbortError";
    view.note.textContent = "stopped";
    $("status").textContent = is_stop ? "Stopped." : "";
    if (!is_stop) $("problem").textContent = error.message;
  } finally {
    clearInterval(watch);
    if (drawing) cancelAnimationFrame(drawing);
    draw();
    if (isAtEnd()) goToEnd();  // the note made the turn higher
    if (!ended && !said.content && !said.thinking) {  // nothing was answered: the question goes back to the input
      mine.turns.length -= 2;
      question_view.turn.remove();
      view.turn.remove();
      if (mine === conversation && !$("message").value) $("message").value = asked;
    }
    running = null;
    $("send").disabled = false;
    $("stop").disabled = true;
    if (document.activeElement === document.body || document.activeElement === $("stop")) $("message").focus();
    saveConversation(mine).then(showList);
    showServer().catch(() => {});
  }
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("message").value.trim();
  if (!text || running) return;
  $("message").value = "";
  answer(text);
});
$("message").addEventListener("keydown", (event) => {
  if (event.key === "ArrowUp" && !$("message").value) {
    const last = conversation.turns.findLast((turn) => turn.role === "user");
    if (last) { event.preventDefault(); edit(last); }
  }
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("ask").requestSubmit();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    if (uncover()) $("message").focus(); else running?.abort();
  }
  if (event.altKey && event.key.toLowerCase() === "n") { event.preventDefault(); choose(newConversation()); }
});
$("stop").addEventListener("click", () => running?.abort());
$("clear").addEventListener("click", () => choose(newConversation()));

async function measure() {
  const text = $("document").value;
  $("add-document").textContent = text ? "Document" : "Add a document";
  if (!text) { $("size").textContent = ""; return; }
  try {
    $("size").textContent = count((await (await post("/tokenize", {content: text})).json()).tokens.length) + " tokens";
    $("add-document").textContent = "Document: " + $("size").textContent;
  } catch (error) {
    $("size").textContent = error.message;
  }
}
let timer;
$("document").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(measure, 400); });
async function take(file) {
  if (!file) return;
  $("document").value = await file.text();
  measure();
}
$("file").addEventListener("change", () => take($("file").files[0]));
for (const place of [$("document"), $("chat")]) {  // a file may be dropped on either
  for (const type of ["dragover", "dragleave", "drop"]) {
    place.addEventListener(type, (event) => {
      if (type !== "dragleave" && event.dataTransfer.types.includes("Files")) event.preventDefault();
      place.classList.toggle("over", type === "dragover");
      if (type === "drop") take(event.dataTransfer.files[0]);
    });
  }
}
$("add-document").addEventListener("click", () => { showInDrawer("document-title"); $("document").focus(); });
function showMethod() {
  const chosen = methods.find((method) => method.name === $("method").value);
  $("about").textContent = chosen ? chosen.summary : "";
  $("budget").disabled = $("method").value === "" || $("method").value === "full";
}
$("method").addEventListener("change", showMethod);
async function start() {
  showList();
  try {
    const [models, kv] = await Promise.all([get("/v1/models"), showServer()]);
    $("model").textContent = models.data[0].id;
    $("problem").textContent = "";
    methods = kv.methods;
    $("method").options[0].textContent = "the server's choice: " + kv.default.evict + (kv.default.budget ? ", " + kv.default.budget : "");
    for (const method of methods) $("method").append(new Option(method.name, method.name));
    showMethod();
  } catch (error) {
    $("model").textContent = "not connected";
    $("problem").textContent = error.message;
  }
}
$("key").addEventListener("change", () => { if (!methods.length) start(); });
$("key-form").addEventListener("submit", (event) => { event.preventDefault(); $("key").blur(); });
start();
