// Draws the charts of a page with uPlot: points from the page or from /curves, zoom by mouse and keys,
// a logarithmic axis, smoothing. The words beside a chart come from the server.
"use strict";

const DASHES = [[], [7, 4], [2, 4], [9, 4, 2, 4], [14, 5], [4, 4], [9, 4, 2, 4, 2, 4]];
const HEIGHT = 230;
const WHOLE = [...Array(12).keys()].flatMap((power) => [1, 2, 5].map((n) => n * 10 ** power)); // between ticks
const charts = new Map(); // element of the plot → its chart
const look = { log: false, mean: 1 };
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

function short(value) {
  if (value == null) return "–";
  const size = Math.abs(value);
  return value && (size >= 1e7 || size < 1e-4) ? value.toExponential(3).replace(/\.?0+e/, "e") : String(+value.toPrecision(6));
}

// The points of a line by ascending x. Where x goes back, as after a restart, the newest value at an x counts;
// neighbours at one x, as of one moment, stand side by side.
function ordered({ x, y }) {
  if (x.some((at, i) => i && x[i - 1] > at)) {
    const known = new Map(x.map((at, i) => [at, y[i]]));
    const sorted = [...known.keys()].sort((a, b) => a - b);
    return [sorted, sorted.map((at) => known.get(at))];
  }
  const aside = (x.at(-1) - x[0] || 1) * 1e-9;
  let last = -Infinity;
  return [x.map((at) => (last = at > last ? at : last + aside)), y];
}

// Numbers as drawn: NaN and infinity, which arrive as texts, are gaps.
function heights(y, { marks }) {
  const known = y.map((value) => (typeof value !== "number" || (look.log && value <= 0) ? null : value));
  if (look.mean === 1 || marks) return known;
  let [sum, count] = [0, 0];
  return known.map((value, i) => {
    if (value !== null) [sum, count] = [sum + value, count + 1];
    const old = known[i - look.mean];
    if (old != null) [sum, count] = [sum - old, count - 1];
    return value === null ? null : sum / count;
  });
}

// Values without a height: a triangle at the top for infinity, at the foot for its negative, a cross for NaN.
function drawLost(plot, lines) {
  const { ctx, bbox } = plot;
  lines.forEach(({ x, y }, i) => {
    ctx.strokeStyle = colour(`--c${i % 8}`);
    ctx.lineWidth = 1.5;
    y.forEach((value, k) => {
      if (typeof value === "number") return;
      const [at, top, foot] = [plot.valToPos(x[k], "x", true), bbox.top + 4, bbox.top + bbox.height - 4];
      if (at < bbox.left || at > bbox.left + bbox.width) return;
      ctx.beginPath();
      if (value === "inf") ctx.moveTo(at - 4, top + 7), ctx.lineTo(at + 4, top + 7), ctx.lineTo(at, top), ctx.closePath();
      else if (value === "-inf") ctx.moveTo(at - 4, foot - 7), ctx.lineTo(at + 4, foot - 7), ctx.lineTo(at, foot), ctx.closePath();
      else ctx.moveTo(at - 4, foot - 8), ctx.lineTo(at + 4, foot), ctx.moveTo(at + 4, foot - 8), ctx.lineTo(at - 4, foot);
      ctx.stroke();
    });
  });
}

function series(line, i) {
  const stroke = colour(`--c${i % 8}`).trim();
  const label = look.mean > 1 && !line.marks ? `${line.label} (mean of ${look.mean})` : line.label;
  const base = { label, stroke, value: (_, value) => short(value) };
  if (line.marks) return { ...base, paths: () => null, points: { show: true, size: 9, fill: stroke } };
  return { ...base, width: 1.5, dash: DASHES[i % 7], points: { show: line.x.length < 40 } };
}

function isZoomed({ scales, data: [at] }) {
  return scales.x.min > at[0] || scales.x.max < at.at(-1);
}

function draw(chart) {
  const { place, lines, x, plot } = chart;
  const zoom = plot && isZoomed(plot) ? { min: plot.scales.x.min, max: plot.scales.x.max } : null;
  const cursor = plot?.cursor;
  const [ink, grid] = [colour("--quiet").trim(), colour("--line").trim()];
  const axis = { stroke: ink, font: "12px system-ui", grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
  const values = (_, splits) => splits.map((value) => (value == null ? "" : short(value)));
  const steps = lines.every((line) => line.x.every(Number.isInteger)) ? { incrs: WHOLE } : {};
  const data = uPlot.join(lines.map((line) => { const [at, y] = ordered(line); return [at, heights(y, line)]; }));
  plot?.destroy();
  chart.plot = new uPlot(
    {
      width: place.clientWidth,
      height: HEIGHT,
      scales: { x: { time: false }, y: { distr: look.log ? 3 : 1 } },
      series: [{ label: x, value: (_, value) => short(value) }, ...lines.map(series)],
      axes: [{ ...axis, ...steps, values, size: 34 }, { ...axis, values, size: 62 }],
      cursor: { sync: { key: x }, drag: { x: true, y: false } },
      hooks: { draw: [(one) => drawLost(one, lines)] },
    },
    data,
    place,
  );
  if (zoom) chart.plot.setScale("x", zoom);
  if (cursor && cursor.left >= 0) chart.plot.setCursor({ left: cursor.left, top: cursor.top });
  place.dataset.drawn = data[0].length;
}

// Fetch the points that are new since the last time; all of them when the horizontal axis has another meaning.
async function more(chart, source) {
  const answer = await fetch(`${source}&after=${chart.lines.map((line) => line.to).join(",")}`);
  if (!answer.ok) return;
  const found = await answer.json();
  if (chart.x && chart.x !== found.x) {
    chart.x = "";
    chart.lines.forEach((line) => Object.assign(line, { x: [], y: [], to: 0 }));
    return more(chart, source);
  }
  chart.x = found.x;
  found.lines.forEach(({ to, x, y }, i) => {
    const line = chart.lines[i];
    Object.assign(line, { to, x: line.x.concat(x), y: line.y.concat(y) });
  });
}

async function refresh(chart, asked) {
  const { source, lines, x } = JSON.parse(asked);
  const isSame = chart.source === source && chart.lines?.length === lines.length;
  chart.source = source;
  if (!source) Object.assign(chart, { lines, x });
  else {
    if (!isSame) Object.assign(chart, { x: "", lines: lines.map((line) => ({ ...line, x: [], y: [], to: 0 })) });
    await more(chart, source);
  }
  if (chart.place.isConnected) draw(chart);
}

function show(figure) {
  const place = figure.querySelector(".plot");
  if (!charts.has(place)) charts.set(place, begin(place));
  const chart = charts.get(place);
  const asked = `${figure.dataset.count} ${figure.dataset.chart}`;
  if (chart.asked === asked) return;
  chart.asked = asked;
  chart.work = chart.work.then(() => refresh(chart, figure.dataset.chart));
}

function begin(place) {
  const chart = { place, work: Promise.resolve() };
  place.addEventListener("keydown", (event) => press(chart, event));
  new ResizeObserver(() => chart.plot?.setSize({ width: place.clientWidth, height: HEIGHT })).observe(place);
  return chart;
}

// Arrow keys move from point to point, + and - zoom there, 0 shows all.
function press(chart, event) {
  const { plot, place } = chart;
  if (!plot || event.ctrlKey || event.metaKey || event.altKey) return;
  const at = plot.data[0];
  const [first, last] = [plot.valToIdx(plot.scales.x.min), plot.valToIdx(plot.scales.x.max)];
  const here = plot.cursor.idx ?? first;
  const far = event.shiftKey ? 10 : 1;
  const there = { ArrowLeft: here - far, ArrowRight: here + far, Home: first, End: last }[event.key];
  const factor = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
  if (there !== undefined) {
    const idx = Math.min(last, Math.max(first, there));
    plot.setCursor({ left: plot.valToPos(at[idx], "x"), top: plot.over.clientHeight / 2 });
    const values = plot.data.slice(1).map((y, i) => `${plot.series[i + 1].label} ${short(y[idx])}`);
    place.parentElement.querySelector("output").textContent = `${chart.x} ${short(at[idx])}: ${values.join(", ")}`;
  } else if (factor) {
    const half = ((plot.scales.x.max - plot.scales.x.min) * factor) / 2;
    const [min, max] = [Math.max(at[0], at[here] - half), Math.min(at.at(-1), at[here] + half)];
    if (max > min) plot.setScale("x", { min, max });
  } else if (event.key === "0") whole(chart);
  else return;
  event.preventDefault();
}

function whole(chart) {
  chart.plot?.setData(chart.plot.data);
}

function redraw() {
  for (const [place, chart] of charts) {
    if (!place.isConnected) charts.delete(place);
    else if (chart.plot) draw(chart);
  }
}

function prepare(inside) {
  for (const tools of inside.querySelectorAll(".tools")) {
    tools.hidden = false;
    tools.onchange = () => {
      Object.assign(look, { log: tools.log.checked, mean: Number(tools.mean.value) });
      redraw();
    };
    tools.all.onclick = () => charts.forEach(whole);
  }
  inside.querySelectorAll("figure.chart").forEach(show);
}

document.addEventListener("swapped", (event) => prepare(event.detail));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
prepare(document);
