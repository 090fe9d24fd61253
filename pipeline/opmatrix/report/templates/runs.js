// Earlier runs, and how long the steps last took.

const STAGE_ORDER = ["codegen", "compile", "data", "cases", "draw-inputs", "register", "export", "verify"];
const inOrder = (a, b) => (STAGE_ORDER.indexOf(a) + 1 || 99) - (STAGE_ORDER.indexOf(b) + 1 || 99);
const clock = (seconds) => (seconds >= 99.5 ? `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s` : `${seconds.toFixed(1)} s`);

// Bars of the seconds of each stage: of one operator, or of all.
function secondsByStage(op) {
  const sums = new Map();
  for (const [name, stages] of Object.entries(DATA.seconds)) {
    if (op !== undefined && name !== op) continue;
    for (const [stage, seconds] of Object.entries(stages)) sums.set(stage, (sums.get(stage) ?? 0) + seconds);
  }
  const shown = [...sums].filter(([, seconds]) => seconds > 0).sort(([a], [b]) => inOrder(a, b));
  if (!shown.length) return null;
  const most = Math.max(...shown.map(([, seconds]) => seconds)), total = shown.reduce((sum, [, seconds]) => sum + seconds, 0);
  const rows = shown.map(([stage, seconds]) => {
    const bar = make("i", {});
    bar.style.width = `${Math.max(0.5, seconds / most * 100)}%`;
    return make("tr", {}, make("th", { scope: "row" }, stage), make("td", { className: "bar" }, bar), make("td", {}, clock(seconds)));
  });
  return make("figure", {}, make("figcaption", {}, make("b", {}, "Seconds by stage"), make("span", {}, `${clock(total)}, each step when it last ran`)),
    make("table", { className: "bars" }, make("tbody", {}, ...rows)));
}

const dates = (every) => (_, splits) => splits.map((x) => (Number.isInteger(x) && DATA.history[x] && x % every === 0 ? DATA.history[x].time.slice(5, 16).replace("T", "\n") : ""));
const runAxis = () => axis("", { values: dates(Math.ceil(DATA.history.length / 6)), incrs: [1, 2, 5, 10], size: 36 });
const runScale = () => ({ time: false, range: [-0.6, DATA.history.length - 0.4] });

// How many cells were wrong, and how many there were, in the last runs.
function historyOfCells() {
  const runs = DATA.history;
  if (runs.length < 2) return null;
  const wrong = runs.map(({ cells }) => cells.failed + cells.mismatched), all = runs.map(({ cells }) => cells.all);
  const bars = (fill) => ({ paths: uPlot.paths.bars({ size: [0.7, 26] }), fill, width: 0, points: { show: false } });
  return plot("History", `cells, wrong ones in red, of ${runs.length} runs`, 150, [runs.map((_, x) => x), all, wrong], () => ({
    scales: { x: runScale(), y: { range: (_, low, high) => [0, Math.max(1, high) * 1.08] } },
    axes: [runAxis(), axis("", { values: briefly, size: 40 })],
    series: [{}, bars(colour("--share-ink")), bars(colour("--wrong"))],
  }), runs.map(({ time }, at) => `${time}: ${wrong[at]} of ${all[at]} wrong`).join("; "));
}

// The largest error of an operator in the last runs.
function historyOf(op) {
  const points = DATA.history.flatMap(({ operators }, x) => (operators[op] ? [[x, operators[op].tolerance_used, operators[op].wrong]] : []));
  if (points.length < 2) return null;
  const both = [[], []];
  for (const [x, used, wrong] of points) both[wrong ? 0 : 1].push([x, clampShare(used ?? (wrong ? 100 : 0))]);
  return plot("History", `largest error, of the tolerance, in ${points.length} runs; red: cells were wrong`, 165, columns(...both), () => ({
    scales: { x: runScale(), y: { distr: 3, log: 10, range: [LEAST_SHARE / 1.6, 160] } },
    axes: [runAxis(), logAxis("", 6, { values: shareTexts, size: 62 })],
    series: [{}, dots(colour("--wrong"), 7), dots(colour("--right-line"), 7)],
    hooks: { drawAxes: [(chart) => limitLine(chart, "y")] },
  }), points.map(([x, used, wrong]) => `${DATA.history[x].time}: ${percent(used)} %, ${wrong} cells wrong`).join("; "));
}
