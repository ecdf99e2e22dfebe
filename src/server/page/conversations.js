// Conversations in the browser's own database. The server has no more of them than its cache keeps.
//
// {id, title, changed, document, system, turns: [{role, content, thinking, timings}]}

const kDatabase = "winnow", kStore = "conversations";

// Runs one transaction and returns its request's result. Without a database (a private window) it fails, and nothing is kept.
let database = null;
async function transact(mode, act) {
  database ??= await new Promise((resolve, reject) => {
    const opening = indexedDB.open(kDatabase, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(kStore, {keyPath: "id"});
    opening.onsuccess = () => resolve(opening.result);
    opening.onerror = () => reject(opening.error);
  });
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(kStore, mode), request = act(transaction.objectStore(kStore));
    transaction.oncomplete = () => resolve(request.result);
    transaction.onabort = transaction.onerror = () => reject(transaction.error);
  });
}
async function stored(mode, act) {
  try {
    return await transact(mode, act);
  } catch (error) {
    $("problem").textContent = "This browser does not keep the conversation: " + (error?.message ?? "its storage is closed");
    return undefined;
  }
}

const newConversation = () => ({id: crypto.getRandomValues(new Uint32Array(3)).join("-"), title: "", changed: Date.now(),
                                document: "", system: "", turns: []});
async function saveConversation(conversation) {
  if (!conversation.turns.length || conversation.removed) return;
  conversation.changed = Date.now();
  conversation.title ||= conversation.turns[0].content.slice(0, 60);
  await stored("readwrite", (store) => store.put(structuredClone(conversation)));
}
const removeConversation = (id) => stored("readwrite", (store) => store.delete(id));
async function allConversations() {
  const all = await stored("readonly", (store) => store.getAll()) ?? [];
  return all.sort((a, b) => b.changed - a.changed);
}
