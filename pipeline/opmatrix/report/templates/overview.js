// The largest error of each operator and dtype, as a part of its tolerance.

const DTYPES = new Map(); // by graph and model
// Return the dtype of the first output of a case's model, from its picture.
function dtypeOf(i, k) {
  const model = caseOf("model", k), key = `${CELLS.pictures.rows[i]}\n${model}`;
  if (!DTYPES.has(key)) {
    const found = of("pictures", i).find(([other]) => other === model);
    const output = found && DATA.graphs[found[1]].outputs[0];
    DTYPES.set(key, output ? String(output[2]).split("[")[0] : "");
  }
  return DTYPES.get(key);
}

const DTYPE_ORDER = ["float64", "float32", "float16", "bfloat16"];
const dtypeColour = (dtype) => colour(`--dtype-${DTYPE_ORDER.includes(dtype) ? dtype : "other"}`);
const MOST_ROWS = 24, LEAST_SHARE = 1e-4;

function buildOverview() {
  const runs = [historyOfCells(), secondsByStage()].filter(Boolean), below = make("div", { className: "pair" }, ...runs);
  const rows = new Map(), dtypes = new Set();
  for (let i = 0; i < COUNT; i++) {
    const [from, to] = cases(i);
    if (from === to) continue;
    const title = of("lowering", i) === "custom" ? of("op", i) : `${of("op", i)}, ${of("lowering", i)}`;
    if (!rows.has(title)) rows.set(title, new Map());
    const row = rows.get(title);
    for (let k = from; k < to; k++) {
      const used = CASES.tolerance_used[k];
      if (used === null) continue;
      const dtype = dtypeOf(i, k);
      if (!dtype && !used) continue; // a case without a picture, such as the one of forbidden inputs
      dtypes.add(dtype);
      if (!(row.get(dtype) >= used)) row.set(dtype, used);
    }
  }
  const largest = (row) => Math.max(0, ...row.values());
  const measured = [...rows].filter(([, row]) => row.size);
  if (!measured.length) {
    byId("overview").append(below);
    byId("overview").hidden = !runs.length;
    return;
  }
  const shown = measured.sort(([, a], [, b]) => largest(b) - largest(a)).slice(0, MOST_ROWS).sort(([a], [b]) => byVersion(b, a));
  const titles = shown.map(([title]) => title);
  const series = [...dtypes].sort((a, b) => byVersion(a, b));
  const data = columns(...series.map((dtype, s) => shown.flatMap(([, row], y) => {
    const beside = (s - (series.length - 1) / 2) * Math.min(0.14, 0.6 / series.length); // dots of equal errors are next to each other
    return row.has(dtype) ? [[clampShare(row.get(dtype)), y - beside]] : [];
  })));
  const beyond = shown.some(([, row]) => largest(row) > 1);
  const widest = Math.max(...titles.map((title) => Math.min(24, title.length))) * 7 + 12;
  const marks = () => ({
    scales: { x: { time: false, distr: 3, log: 10, range: [LEAST_SHARE / 1.6, beyond ? 160 : 1.6] }, y: { range: [-0.6, titles.length - 0.4] } },
    axes: [
      logAxis("", 9, { values: shareTexts, size: 22 }),
      axis("", { splits: titles.map((_, y) => y), values: (_, splits) => splits.map((y) => short(titles[y], 24)), size: widest, font: "12px system-ui, sans-serif", stroke: colour("--ink"), gap: 8 }),
    ],
    series: [{}, ...series.map((dtype) => dots(dtypeColour(dtype), 7))],
    hooks: { drawAxes: [(chart) => limitLine(chart)] },
  });
  const spoken = shown.map(([title, row]) => `${title} ${percent(largest(row))} %`).reverse().join(", ");
  const note = measured.length > shown.length ? `the ${shown.length} largest of ${measured.length}` : "largest of all cells";
  byId("overview").append(plot("Error, of the tolerance", note, 40 + titles.length * 23, data, marks, spoken), dtypeKey(series), below);
}

function dtypeKey(dtypes) {
  return make("p", { className: "key" }, ...dtypes.map((dtype) =>
    make("span", {}, make("i", { className: `round dtype-${DTYPE_ORDER.includes(dtype) ? dtype : "other"}` }), dtype || "dtype unknown")));
}

const clampShare = (used) => Math.min(100, Math.max(LEAST_SHARE, used));
const shareTexts = (_, splits) => splits.map((x) => (!isPower(x) ? "" : x <= LEAST_SHARE ? "≤0.01 %" : x >= 100 ? "≥100 ×" : x > 1 ? `${x} ×` : `${brief(x * 100)} %`));

// The line at which an error is as large as the tolerance.
function limitLine(chart, scale = "x") {
  const at = chart.valToPos(1, scale, true), { left, top, width, height } = chart.bbox, { ctx } = chart;
  ctx.save();
  ctx.strokeStyle = colour("--wrong");
  ctx.lineWidth = devicePixelRatio * 1.5;
  ctx.beginPath();
  ctx.moveTo(...(scale === "x" ? [at, top] : [left, at]));
  ctx.lineTo(...(scale === "x" ? [at, top + height] : [left + width, at]));
  ctx.stroke();
  ctx.restore();
}
