// One connection for all tabs of the browser: HTTP/1.1 allows six per server.
"use strict";

const stream = crypto.randomUUID();
const pages = new Map(); // topic → port of each tab that has it → whether the tab is visible
let source = null;

function say(topics) {
  fetch(`/events/${stream}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(topics),
  });
}

// Report a page to the console: visible in a tab, hidden in all tabs that have it, or closed.
function state(topic) {
  return [...pages.get(topic).values()].includes(true) || "hidden";
}

function connect() {
  source = new EventSource(`/events/${stream}`);
  source.onopen = () => say(Object.fromEntries([...pages.keys()].map((topic) => [topic, state(topic)])));
  source.onmessage = (event) => {
    const told = JSON.parse(event.data);
    for (const port of pages.get(told.topic)?.keys() ?? []) port.postMessage(told);
  };
}

function opened(topic, port, isSeen) {
  if (!pages.has(topic)) pages.set(topic, new Map());
  pages.get(topic).set(port, isSeen);
  if (!source) connect();
  else if (source.readyState === EventSource.OPEN) say({ [topic]: state(topic) });
}

function closed(topic, port) {
  const ports = pages.get(topic);
  if (!ports?.delete(port)) return;
  if (ports.size) {
    if (source.readyState === EventSource.OPEN) say({ [topic]: state(topic) });
    return;
  }
  pages.delete(topic);
  if (pages.size === 0) {
    source?.close();
    source = null;
  } else if (source.readyState === EventSource.OPEN) say({ [topic]: false });
}

self.onconnect = (event) => {
  const port = event.ports[0];
  port.onmessage = ({ data }) => (data.open ? opened : closed)(data.topic, port, data.isSeen);
};
