// The console's only script: updates live pages, counts running durations on, copies text.
"use strict";

const topic = document.body.dataset.topic;

// Replace the contents of a live fragment; open details, drawn charts and the focus are kept.
function swap(id, digest, html) {
  const element = document.getElementById(id);
  if (!element || element.dataset.live === digest) return;
  const open = new Map([...element.querySelectorAll("details[id]")].map((one) => [one.id, one.open]));
  const ticks = new Map([...element.querySelectorAll("[type=checkbox]")].map((one) => [tick(one), one.checked]));
  const focused = element.contains(document.activeElement) ? document.activeElement.id : "";
  const kept = [...element.querySelectorAll("[data-keep]")];
  element.innerHTML = html; // escaped by the server's templates; CSP prevents scripts in it
  element.dataset.live = digest;
  for (const one of kept) document.getElementById(one.id)?.replaceWith(one);
  for (const [name, was] of open) {
    const again = document.getElementById(name);
    if (again) again.open = was;
  }
  for (const one of element.querySelectorAll("[type=checkbox]")) one.checked = ticks.get(tick(one)) ?? one.checked;
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  document.dispatchEvent(new CustomEvent("swapped", { detail: element }));
}

function tick(box) {
  return `${box.name}=${box.value}`;
}

const LONGEST = 5000; // most items of a growing fragment; the oldest are removed, and a link leads to them

// Add missing items. A box that opens at its end has scrollTop 0 there.
function grow(id, epoch, items) {
  const element = document.getElementById(id);
  if (!element) return;
  if (element.dataset.epoch !== epoch) return location.reload();
  const last = Number(element.dataset.last);
  const fresh = items.filter(([number]) => number > last);
  if (!fresh.length) return;
  const box = element.closest(".end");
  const [from, height] = [box?.scrollTop ?? 0, box?.scrollHeight ?? 0];
  const gap = last && fresh[0][0] > last + 1 ? '<p class="quiet">lines are left out here: there were too many</p>' : "";
  element.insertAdjacentHTML("beforeend", gap + fresh.map(([, html]) => html).join(""));
  element.dataset.last = fresh.at(-1)[0];
  if (box && from < -4) box.scrollTop = from - (box.scrollHeight - height); // the reader has scrolled up
  let surplus = element.childElementCount - LONGEST;
  if (surplus <= 0) return;
  while (surplus-- > 0) element.firstElementChild.remove();
  const older = document.querySelector("[data-older]");
  const first = element.querySelector(".l[id]");
  if (older && first) older.href = older.href.replace(/before=[^&]*/, `before=${first.id}`);
}

// All tabs share one connection; a browser without shared workers asks for the page every 2 seconds.
function follow() {
  if (!window.SharedWorker) {
    setInterval(refresh, 2000);
    return;
  }
  const worker = new SharedWorker("/static/live.js");
  worker.port.onmessage = ({ data }) => {
    if (data.items) grow(data.id, data.epoch, data.items);
    else swap(data.id, data.digest, data.html);
  };
  let isOpen;
  const tell = (open) => {
    isOpen = open;
    worker.port.postMessage({ topic, open, isSeen: !document.hidden });
  };
  tell(true);
  window.addEventListener("pagehide", () => tell(false));
  window.addEventListener("pageshow", (event) => event.persisted && tell(true));
  document.addEventListener("visibilitychange", () => isOpen && tell(true)); // a page that is left becomes hidden last
}

async function refresh() {
  const answer = await fetch(location.href);
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const one of page.querySelectorAll("[data-live]")) swap(one.id, one.dataset.live, one.innerHTML);
  for (const one of page.querySelectorAll("[data-epoch]")) {
    const first = Number(one.dataset.last) - one.childElementCount + 1;
    grow(one.id, one.dataset.epoch, [...one.children].map((item, i) => [first + i, item.outerHTML]));
  }
}

function duration(seconds) {
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const all = Math.round(seconds);
  const [hours, minutes] = [Math.floor(all / 3600), Math.floor(all / 60) % 60];
  if (!hours) return `${minutes} min ${String(all % 60).padStart(2, "0")} s`;
  return `${hours} h ${String(minutes).padStart(2, "0")} min`;
}

function count() {
  for (const one of document.querySelectorAll("[data-since]")) {
    one.textContent = duration(Math.max(0, (Date.now() - Date.parse(one.dataset.since)) / 1000));
  }
  for (const one of document.querySelectorAll("[data-paid-since]")) {
    const usd = (one.dataset.rate * (Date.now() - Date.parse(one.dataset.paidSince))) / 1000;
    one.textContent = usd < 0.005 ? "< $0.01" : `$${usd.toFixed(2)}`;
  }
}

// A running timeline: its bars grow to the edge; from then on the chart shrinks.
function growBars() {
  for (const chart of document.querySelectorAll("[data-origin]")) {
    const elapsed = (Date.now() - Date.parse(chart.dataset.origin)) / 1000;
    const span = Math.max(elapsed, Number(chart.dataset.span));
    const rank = Math.ceil(Math.log2(span / chart.dataset.span));
    for (const one of chart.querySelectorAll("[data-from]")) {
      one.setAttribute("x", `${(100 * one.dataset.from) / span}%`);
      if (one.localName === "rect") {
        const seconds = (one.dataset.to ?? elapsed) - one.dataset.from;
        one.setAttribute("width", `${Math.max(0.3, (100 * seconds) / span)}%`);
      } else one.toggleAttribute("hidden", one.dataset.rank < rank || one.dataset.from > span);
    }
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
  button.textContent = "copied";
});

// Chosen runs are in the address, so that going back, paging and sorting keep them.
document.addEventListener("change", ({ target }) => {
  if (!target.matches("[data-chosen]")) return;
  const here = new URL(location.href);
  const others = here.searchParams.getAll("run").filter((key) => key !== target.value);
  here.searchParams.delete("run");
  for (const key of target.checked ? [...others, target.value] : others) here.searchParams.append("run", key);
  history.replaceState(null, "", here);
});

function keep(params) {
  params.delete("run");
  for (const key of new URL(location.href).searchParams.getAll("run")) params.append("run", key);
}

document.addEventListener("click", ({ target }) => {
  const link = target.closest("a[data-keeps]");
  if (!link) return;
  const there = new URL(link.href);
  keep(there.searchParams);
  link.href = there;
});

document.addEventListener("formdata", ({ target, formData }) => {
  if (!target.matches(".filter")) return;
  for (const [name, value] of [...formData]) if (!value) formData.delete(name);
  keep(formData);
});

// Scroll a graph that is larger than its window to the active steps.
for (const graph of document.querySelectorAll(".graph")) {
  const node = graph.querySelector(".node.Failed, .node.Executing") ?? graph.querySelector(".node");
  const scroll = graph.closest(".scroll");
  const [all, one] = [graph, node].map((each) => each.getBoundingClientRect());
  scroll.scrollLeft = one.left - all.left - (scroll.clientWidth - one.width) / 2;
  scroll.scrollTop = one.top - all.top - (scroll.clientHeight - one.height) / 2;
}

if (topic) follow();
setInterval(count, 1000);
setInterval(growBars, 1000);
