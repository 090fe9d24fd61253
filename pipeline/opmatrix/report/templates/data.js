// What the page shows, put together from the data in it. pipeline/opmatrix/report/page.py says how that is written.

const DATA = JSON.parse(document.getElementById("data").textContent);
const CELLS = DATA.cells, CASES = DATA.cases, CHECKS = DATA.checks, COUNT = CELLS.op.rows.length;

const MARKS = { verified: "✓", mismatched: "≠", failed: "✗", unsupported: "○" };
const CHANGES = {
  broken: ["▼", "newly broken"], fixed: ["▲", "newly fixed"], changed: ["~", "changed otherwise"], new: ["+", "new"],
};
const WRONG = new Set(["mismatched", "failed"]);
const METRICS = { outcome: "outcome", tolerance_used: "error, of limit" };
const FACETS = ["outcome", "change", "lowering", "torch", "exporter", "opset", "ort"];
const TITLES = { ort: "ONNX Runtime", change: "since the previous run" };
const LISTED = 60; // reasons; a matrix in which all fails may have as many as cells

const of = (column, i) => CELLS[column].values[CELLS[column].rows[i]];
const caseOf = (column, k) => CASES[column].values[CASES[column].rows[k]];
const cases = (i) => [CELLS.cases[i] ? CASES.ends[CELLS.cases[i] - 1] : 0, CASES.ends[CELLS.cases[i]]];
const byId = (id) => document.getElementById(id);

// Make an element: its properties, and what is in it. Texts become text, never markup.
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined) continue;
    if (key in element) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

function exportName(i) {
  const torch = of("torch", i), maker = torch === null ? of("exporter", i) : `torch${torch}-${of("exporter", i)}`;
  return `${maker}-opset${of("opset", i)}`;
}
const cellName = (i) => `${exportName(i)}-ort${of("ort", i)}`;
const name = (i) => `${of("op", i)}-${of("lowering", i)}@${cellName(i)}`;

function number(value) {
  if (value === null) return "–";
  if (value === 0) return "0";
  return value < 0.001 || value >= 10000 ? value.toExponential(1) : String(Number(value.toPrecision(2)));
}
function percent(share) {
  if (share === null) return "–";
  const whole = share * 100;
  if (whole >= 999.5) return ">999";
  return whole > 0 && whole < 0.95 ? "<1" : whole.toFixed(0);
}

// Versions by their numbers, texts by the alphabet, and cells without torch last.
function byVersion(a, b) {
  if (a === null || b === null) return (a === null) - (b === null);
  return String(a).localeCompare(String(b), "en", { numeric: true });
}
const RANKS = { outcome: DATA.outcomes, exporter: DATA.exporters, change: Object.keys(CHANGES) };
function byFacet(facet) {
  const ranks = RANKS[facet];
  return ranks ? (a, b) => ranks.indexOf(a) - ranks.indexOf(b) : byVersion;
}
