// Comfort on top of pages that work without it: live refresh, keys, and what moves by the second.
"use strict";

const REFRESH_MS = 5000;
const LIVE_KEY = "skep-live";

// --- live refresh: not while the tab is hidden, nor while someone works in what would be replaced ---

const liveSwitch = document.getElementById("live-switch");
const isLive = () => sessionStorage.getItem(LIVE_KEY) !== "off";

function isBusy(live) {
  const selection = document.getSelection();
  return (
    live.contains(document.activeElement) && document.activeElement.matches("input:not([type=hidden]), select, textarea")
    || live.querySelector("details[open], input:checked[type=checkbox]") !== null
    || (selection !== null && !selection.isCollapsed && live.contains(selection.anchorNode))
  );
}

function refresh() {
  const live = document.getElementById("live");
  if (live !== null && !document.hidden && isLive() && !isBusy(live)) htmx.trigger(document.body, "skep:refresh");
}

function showLive() {
  liveSwitch.setAttribute("aria-pressed", String(isLive()));
  liveSwitch.querySelector("span").textContent = isLive() ? "Live" : "Paused";
}

function switchLive() {
  sessionStorage.setItem(LIVE_KEY, isLive() ? "off" : "on");
  showLive();
  refresh();
}

if (liveSwitch !== null && document.getElementById("live") !== null) {
  liveSwitch.hidden = false;
  liveSwitch.addEventListener("click", switchLive);
  showLive();
  setInterval(refresh, REFRESH_MS);
  document.addEventListener("visibilitychange", refresh);
  document.body.addEventListener("htmx:afterSwap", () => {
    liveSwitch.classList.remove("stale");
    showLive();
    const dot = liveSwitch.querySelector(".dot");
    dot.classList.remove("beat");
    void dot.offsetWidth;
    dot.classList.add("beat");
  });
  for (const failure of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) {
    document.body.addEventListener(failure, () => {
      liveSwitch.classList.add("stale");
      liveSwitch.querySelector("span").textContent = "Not reached: as it was";
    });
  }
}

// --- keys ---

let afterG = false;

function moveRow(step) {
  const rows = [...document.querySelectorAll("table.rows tbody tr")];
  const links = rows.map((row) => row.querySelector("a, button, input")).filter(Boolean);
  if (links.length === 0) return;
  const at = links.findIndex((link) => link.closest("tr").contains(document.activeElement));
  links[Math.min(links.length - 1, Math.max(0, at < 0 ? 0 : at + step))].focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
  if (afterG) {
    afterG = false;
    const link = document.querySelector(`.side nav a[data-key="${CSS.escape(event.key)}"]`);
    if (link !== null) link.click();
    return;
  }
  const filter = document.querySelector("[data-filter]");
  const dialog = document.getElementById("keys");
  if (event.key === "g") afterG = true;
  else if (event.key === "/" && filter !== null) { filter.focus(); filter.select(); event.preventDefault(); }
  else if (event.key === "j") moveRow(1);
  else if (event.key === "k") moveRow(-1);
  else if (event.key === "l" && liveSwitch !== null) switchLive();
  else if (event.key === "?" && !dialog.open) dialog.showModal();
});
