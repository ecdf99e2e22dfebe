// The panels beside the chat, each with its button in the header: the conversations, and a drawer with the cache, the
// document and the settings. Where the window is narrow they lie over the chat.
const kPanels = {list: "(max-width: 48rem)", drawer: "(max-width: 64rem)"};  // where they do
const liesOver = (name) => matchMedia(kPanels[name]).matches;
const isShown = (name) => !$(name).hidden;

function showPanel(name, is_shown) {
  $(name).hidden = !is_shown;
  $(name + "-toggle").setAttribute("aria-expanded", String(is_shown));
}
// Hides what lies over the chat, and returns whether something did.
function uncover() {
  const covering = Object.keys(kPanels).filter((name) => isShown(name) && liesOver(name));
  for (const name of covering) showPanel(name, false);
  return covering.length > 0;
}
// Shows the drawer from this element on.
function showInDrawer(id) {
  showPanel("drawer", true);
  $(id).scrollIntoView({block: "start"});
}

for (const name of Object.keys(kPanels)) {
  $(name + "-toggle").addEventListener("click", () => {
    const is_shown = !isShown(name);
    if (liesOver(name)) uncover();  // one at a time
    showPanel(name, is_shown);
  });
}
showPanel("list", !liesOver("list"));
showPanel("drawer", matchMedia("(min-width: 90rem)").matches);
