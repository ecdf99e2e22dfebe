// Helpers for every part of the page: elements, numbers, the server.
const $ = (id) => document.getElementById(id);
const count = (n) => Math.round(n).toLocaleString("en");
const bytes = (n) => n < 1e10 ? (n / 2 ** 20).toFixed(1) + " MiB" : (n / 2 ** 30).toFixed(1) + " GiB";

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}
function button(text, label, act) {
  const made = element("button", text);
  made.type = "button";
  if (label !== text) made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
}
function pairs(list, rows) {
  list.replaceChildren(...rows.flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
}
async function copy(text, made) {
  try {
    await navigator.clipboard.writeText(text);  // works only on this machine and over TLS
  } catch {
    const area = element("textarea", text, "hidden");
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const before = made.textContent;
  made.textContent = "Copied";
  setTimeout(() => { made.textContent = before; }, 1500);
}

function headers() {
  const all = {"Content-Type": "application/json"};
  if ($("key").value) all.Authorization = "Bearer " + $("key").value;
  return all;
}
async function fail(response) {
  let text = response.status + " " + response.statusText;
  try { text = (await response.json()).error.message; } catch { /* not JSON */ }
  if (response.status === 401) {
    $("access").open = true;
    showPanel("drawer", true);
  }
  throw new Error(text);
}
async function get(path) {
  const response = await fetch(path, {headers: headers()});
  if (!response.ok) await fail(response);
  return response.json();
}
async function post(path, body, signal) {
  const response = await fetch(path, {method: "POST", headers: headers(), body: JSON.stringify(body), signal});
  if (!response.ok) await fail(response);
  return response;
}
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    rest += value;
    for (let end; (end = rest.indexOf("\n\n")) >= 0; rest = rest.slice(end + 2)) {
      const data = rest.slice(0, end);
      if (data.startsWith("data: {")) yield JSON.parse(data.slice(6));  // others are pings and the end
    }
  }
}
