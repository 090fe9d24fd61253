// Plots by uPlot: each is as wide as its place, and is drawn again when the colours of the page change.

const colour = (variable) => getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
const drawings = new Set(); // of functions that draw a plot again
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawings.forEach((draw) => draw()));

// Return a figure. `options` returns those of uPlot, which need no size; it is called when the figure has a width.
function plot(title, note, height, data, options, spoken = "") {
  const box = make("div", { className: "plot" });
  box.style.height = `${height}px`;
  box.setAttribute("role", "img");
  box.setAttribute("aria-label", `${title}: ${spoken || note}`);
  let chart = null;
  const draw = () => {
    const width = Math.floor(box.clientWidth);
    if (chart) chart.destroy();
    chart = null;
    if (width > 40) chart = new uPlot({ legend: { show: false }, cursor: { show: false }, ...options(), width, height }, data, box);
  };
  new ResizeObserver(() => {
    if (!box.isConnected) { drawings.delete(draw); return; }
    drawings.add(draw);
    const width = Math.floor(box.clientWidth);
    if (!chart) draw();
    else if (width > 40 && chart.width !== width) chart.setSize({ width, height });
  }).observe(box);
  return make("figure", {}, make("figcaption", {}, make("b", {}, title), " ", make("span", {}, note)), box);
}

function axis(label, more = {}) {
  return {
    stroke: colour("--soft"), font: "11px system-ui, sans-serif", labelFont: "11px system-ui, sans-serif", label, labelSize: label ? 14 : 0, labelGap: 0,
    grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false }, gap: 3, ...more,
  };
}

const brief = (value) => {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size < 0.001 || size >= 1e5 ? value.toExponential(0).replace("e+", "e") : String(Number(value.toPrecision(3)));
};
const briefly = (_, splits) => splits.map((value) => (value === null ? "" : brief(value)));
// A logarithmic axis: lines at powers of ten, and as many numbers as there is room for.
const isPower = (value) => value !== null && Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-9;
const onlyPowers = (_, splits) => splits.map((value) => (isPower(value) ? value : null));
function logAxis(label, room, more = {}) {
  const values = (_, splits) => {
    const tens = splits.filter(isPower), every = Math.max(1, Math.ceil(tens.length / room));
    return splits.map((value) => (tens.indexOf(value) % every === 0 && isPower(value) ? brief(value) : ""));
  };
  return axis(label, { values, filter: onlyPowers, grid: { stroke: colour("--grid"), width: 1, filter: onlyPowers }, ...more });
}

const dots = (fill, size = 5) => ({ paths: () => null, points: { show: true, size, fill, stroke: fill, width: 0 } });
const line = (stroke) => ({ stroke, width: 1, dash: [4, 3], points: { show: false }, spanGaps: true });
const LOGARITHMIC = { time: false, distr: 3, log: 10 };

// Return columns for uPlot, which needs x in order: x, then a column for each series of [x, y].
function columns(...series) {
  const rows = series.flatMap((points, s) => points.map(([x, y]) => [x, y, s])).sort((a, b) => a[0] - b[0]);
  return [rows.map(([x]) => x), ...series.map((_, s) => rows.map(([, y, of]) => (of === s ? y : null)))];
}
