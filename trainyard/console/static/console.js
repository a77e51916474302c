// Asks for live pages again, counts running durations on, copies text.
"use strict";

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

const LONGEST = 5000; // most lines of a log; the oldest are removed, and a link leads to them

// Add the lines that a log has got. A box that opens at its end has scrollTop 0 there.
async function grow(lines) {
  const { more, token } = lines.dataset;
  const answer = await fetch(more + encodeURIComponent(token));
  if (!answer.ok) return;
  const found = await answer.json();
  lines.dataset.token = found.token;
  if (!found.goes_on) document.body.dataset.poll = "";
  const status = document.querySelector("h1 span");
  status.className = status.textContent = found.status;
  const box = lines.closest(".end");
  const [from, height] = [box.scrollTop, box.scrollHeight];
  lines.insertAdjacentHTML("beforeend", found.html);
  if (from < -4) box.scrollTop = from - (box.scrollHeight - height); // the reader has scrolled up
  while (lines.childElementCount > LONGEST) lines.firstElementChild.remove();
  const older = document.querySelector("[data-older]");
  const first = lines.querySelector(".l[id]");
  if (older && first) older.href = older.href.replace(/before=[^&]*/, `before=${first.id}`);
}

// Ask for the page with the version that is here; the answer is 304 if nothing has changed.
async function renew() {
  const here = document.body.dataset;
  const answer = await fetch(location.href, { headers: { "If-None-Match": `"${here.version}"` } });
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const one of page.querySelectorAll("[data-live]")) swap(one.id, one.dataset.live, one.innerHTML);
  const { version, poll } = page.body.dataset;
  Object.assign(here, { version: version ?? "", poll: poll ?? "" });
}

let next = 0;

async function follow() {
  clearTimeout(next);
  if (!document.body.dataset.poll) return;
  const lines = document.querySelector("[data-more]");
  try {
    if (!document.hidden) await (lines ? grow(lines) : renew());
  } catch {} // the console does not answer: it is asked again
  later();
}

function later() {
  clearTimeout(next);
  const { poll } = document.body.dataset;
  if (poll) next = setTimeout(follow, Number(poll));
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

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
  button.textContent = "copied";
});

// Scroll a graph that is larger than its window to the active steps.
for (const graph of document.querySelectorAll(".graph")) {
  const node = graph.querySelector(".node.Failed, .node.Executing") ?? graph.querySelector(".node");
  const scroll = graph.closest(".scroll");
  const [all, one] = [graph, node].map((each) => each.getBoundingClientRect());
  scroll.scrollLeft = one.left - all.left - (scroll.clientWidth - one.width) / 2;
  scroll.scrollTop = one.top - all.top - (scroll.clientHeight - one.height) / 2;
}

document.addEventListener("visibilitychange", () => document.hidden || follow());
setInterval(count, 1000);
later();
