// Comfort on top of pages that work without it: live refresh, keys, and what moves by the second.
"use strict";

const REFRESH_MS = 5000;
const LIVE_KEY = "skep-live";

// One time zone on a page: UTC, or this computer's, for times and charts alike.

const ZONE_KEY = "skep-zone";
const zoneSwitch = document.getElementById("zone");
const isLocal = () => localStorage.getItem(ZONE_KEY) === "local";

function clockTime(at, withDay) {
  const options = { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false, ...(isLocal() ? {} : { timeZone: "UTC" }) };
  const time = at.toLocaleTimeString("en-GB", options);
  if (!withDay) return time;
  const day = at.toLocaleDateString("sv-SE", isLocal() ? {} : { timeZone: "UTC" });
  return `${day} ${time} ${isLocal() ? Intl.DateTimeFormat().resolvedOptions().timeZone : "UTC"}`;
}

function showZone() {
  zoneSwitch.textContent = isLocal() ? "Times: local" : "Times: UTC";
  for (const time of document.querySelectorAll("time[datetime]")) {
    const text = clockTime(new Date(time.dateTime), true);
    if (time.classList.contains("clock")) time.textContent = text;
    else time.title = text;
  }
}

zoneSwitch.hidden = false;
zoneSwitch.addEventListener("click", () => {
  localStorage.setItem(ZONE_KEY, isLocal() ? "utc" : "local");
  showZone();
  drawAll();
});
showZone();
document.body.addEventListener("htmx:afterSettle", showZone);

// Focus stays where it was when a part of the page is replaced.

let focused = null;

function place(element) {
  const live = document.getElementById("live");
  if (live === null || element === null || !live.contains(element)) return null;
  const same = (other) => other.tagName === element.tagName && (element.id ? other.id === element.id
    : element.getAttribute("href") === other.getAttribute("href") && element.textContent === other.textContent);
  return { same, at: [...live.querySelectorAll(element.tagName)].filter(same).indexOf(element), tag: element.tagName };
}

document.body.addEventListener("htmx:beforeSwap", () => { focused = place(document.activeElement); });
document.body.addEventListener("htmx:afterSettle", () => {
  const live = document.getElementById("live");
  if (focused === null || live === null || live.contains(document.activeElement)) return;
  const found = [...live.querySelectorAll(focused.tag)].filter(focused.same);
  found[Math.min(focused.at, found.length - 1)]?.focus({ preventScroll: true });
  focused = null;
});

// Live refresh: not while the tab is hidden, nor while someone works in what would be replaced.

const lost = document.getElementById("lost");
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
    lost.hidden = true;
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
      const from = document.getElementById("live").dataset.now ?? document.getElementById("content").dataset.now;
      lost.textContent = `Connection lost, data from ${clockTime(new Date(Number(from)), false)}`;
      lost.hidden = false;
    });
  }
}

// On a phone the menu is wider than the screen: the place one is at should be seen.
const here = document.querySelector(".side nav [aria-current]");
if (here !== null) here.parentElement.scrollLeft = here.offsetLeft - here.parentElement.offsetLeft - 40;

// Keys.

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

// Charts: drawn from what the page carries, again when that or the colours change.

const drawn = new Map();

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function number(value) {
  if (value === null || value === undefined) return "";
  if (value >= 1e6) return `${+(value / 1e6).toFixed(1)}M`;
  if (value >= 1e4) return `${+(value / 1e3).toFixed(1)}k`;
  return String(+value.toFixed(value < 10 ? 2 : 0));
}

function timeOfDay(seconds) {
  return clockTime(new Date(seconds * 1000), false).slice(0, 5);
}

// Ticks are whole minutes, so none says the same time as its neighbour.
const MINUTES = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440].map((minutes) => minutes * 60);

// What lies within less than ten minutes is drawn at the end of ten: a chart has an axis also when there is one moment to show.
function span(times) {
  const last = times.at(-1);
  return [Math.min(times[0], last - 600), last];
}

function draw(figure) {
  const plot = figure.querySelector(".plot");
  if (plot === null || typeof uPlot === "undefined") return;
  const told = JSON.parse(figure.dataset.chart);
  const axis = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui", size: 26 };
  const options = {
    width: plot.clientWidth, height: plot.clientHeight, legend: { show: false }, padding: [8, 6, 0, 0],
    cursor: { y: false, points: { size: 5 }, drag: { x: false, y: false }, sync: { key: "skep" } },
    scales: { x: { range: () => span(told.times) }, y: { range: (_, low, high) => [0, Math.max(high * 1.1, told.unit ? 0.1 : 1)] } },
    axes: [{ ...axis, space: 60, incrs: MINUTES, values: (_, ticks) => ticks.map(timeOfDay) }, { ...axis, size: 42, values: (_, ticks) => ticks.map(number) }],
    series: [{}, ...told.lines.map((line) => ({
      label: line.label, stroke: colour(line.tone), width: 1.5, spanGaps: true, points: { show: told.times.length < 3 },
      fill: told.lines.length === 1 ? `${colour(line.tone)}22` : undefined,
    }))],
    hooks: { setCursor: [(chart) => tell(figure, told, chart.cursor.idx)] },
  };
  drawn.get(figure.id)?.destroy();
  plot.replaceChildren();
  drawn.set(figure.id, new uPlot(options, [told.times, ...told.lines.map((line) => line.values)], plot));
}

// What the lines say at the cursor stands where the latest figures stand otherwise.
function tell(figure, told, at) {
  const spans = figure.querySelectorAll("figcaption .num");
  told.lines.forEach((line, index) => {
    const span = spans[index];
    span.dataset.latest ??= span.textContent;
    span.textContent = at === null || at === undefined ? span.dataset.latest : number(line.values[at]) + told.unit;
  });
}

function drawAll() {
  for (const figure of document.querySelectorAll("figure[data-chart]")) draw(figure);
}

drawAll();
document.body.addEventListener("htmx:afterSettle", drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
let resizing;
addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(drawAll, 100); });

// What moves by the second.

function spoken(seconds) {
  if (seconds <= 0) return "0 s";
  if (seconds < 60) return `${Math.ceil(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${String(Math.floor(seconds % 60)).padStart(2, "0")} s`;
  return `${Math.floor(seconds / 3600)} h ${String(Math.floor(seconds % 3600 / 60)).padStart(2, "0")} m`;
}

// The server's clock counts: this machine's may be off, so only the time since the page came is taken from it.
setInterval(() => {
  if (document.hidden) return;
  for (const span of document.querySelectorAll("[data-deadline]")) {
    span.came ??= performance.now();
    const left = Number(span.dataset.deadline) - Number(span.dataset.now) - (performance.now() - span.came);
    span.textContent = spoken(left / 1000);
  }
}, 1000);

// The row whose message the pane shows.
document.body.addEventListener("htmx:beforeRequest", (event) => {
  const row = event.detail.elt.closest("table.rows tr");
  if (row === null) return;
  for (const other of row.parentElement.querySelectorAll(".chosen")) other.classList.remove("chosen");
  row.classList.add("chosen");
});

// Typed confirmations, copying, choosing all.

function confirmable(input) {
  const button = input.form.querySelector("[data-confirmed]");
  button.disabled = input.value !== input.dataset.confirm;
}

for (const input of document.querySelectorAll("[data-confirm]")) {
  confirmable(input);
  input.addEventListener("input", () => confirmable(input));
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (button === null) return;
  const source = document.getElementById(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(source.textContent);
    button.textContent = "Copied";
  } catch {
    document.getSelection().selectAllChildren(source);
    button.textContent = "Selected";
  }
});

document.addEventListener("change", (event) => {
  if (!event.target.matches("[data-all]")) return;
  for (const box of event.target.form.querySelectorAll(`input[name="${CSS.escape(event.target.dataset.all)}"]`)) {
    box.checked = event.target.checked;
  }
});
