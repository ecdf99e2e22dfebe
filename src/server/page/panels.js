// The panels beside the chat, each with its button in the header: the conversations, and a drawer with the cache, the
// document and the settings. Where the window is narrow the style lays them over the chat, one at a time.
const kPanels = ["list", "drawer"];
const liesOver = (name) => getComputedStyle($(name)).position === "absolute";
const isShown = (name) => !$(name).hidden;

function showPanel(name, is_shown) {
  if (is_shown && liesOver(name)) uncover();
  $(name).hidden = !is_shown;
  $(name + "-toggle").setAttribute("aria-expanded", String(is_shown));
}
// Hides what lies over the chat, and returns whether something did.
function uncover() {
  const covering = kPanels.filter((name) => isShown(name) && liesOver(name));
  for (const name of covering) showPanel(name, false);
  return covering.length > 0;
}
// Shows the drawer, scrolled to this element.
function showInDrawer(id) {
  showPanel("drawer", true);
  $(id).scrollIntoView({block: "start"});
}

for (const name of kPanels) {
  $(name + "-toggle").addEventListener("click", () => showPanel(name, !isShown(name)));
}
showPanel("list", !liesOver("list"));
showPanel("drawer", matchMedia("(min-width: 90rem)").matches);
