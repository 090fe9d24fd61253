// What the page shows, put together from the data in it. pipeline/report/page.py says how that is written.

const DATA = JSON.parse(document.getElementById("data").textContent);
const CELLS = DATA.cells, CASES = DATA.cases, COUNT = CELLS.op.rows.length;

const MARKS = { verified: "✓", mismatched: "≠", failed: "✗", unsupported: "○" };
const CHANGES = {
  broken: ["▼", "newly broken"], fixed: ["▲", "newly fixed"], changed: ["~", "changed otherwise"], new: ["+", "new"],
};
const WRONG = new Set(["mismatched", "failed"]);
const METRICS = { outcome: "outcome", limit: "error, of limit", seconds: "seconds" };
const FACETS = ["outcome", "change", "lowering", "torch", "exporter", "opset", "ort"];
const TITLES = { ort: "ONNX Runtime", change: "since the previous run" };
const LISTED = 60; // reasons; a matrix in which all fails may have as many as cells

const of = (column, i) => CELLS[column].values[CELLS[column].rows[i]];
const caseOf = (column, k) => CASES[column].values[CASES[column].rows[k]];
const cases = (i) => [i ? CASES.ends[i - 1] : 0, CASES.ends[i]];
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
const seconds = (value) => (value >= 9.95 ? value.toFixed(0) : value.toFixed(value < 0.995 ? 2 : 1));

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

// What is chosen: values by facet (none of a facet: all), operators as text, what cells show, the cell that is open.
const chosen = { operator: "", metric: "outcome", open: null, case: null };
for (const facet of FACETS) chosen[facet] = new Set();

function spell(facet, value) {
  if (value === null) return "none";
  if (facet === "outcome") return `${MARKS[value]} ${value}`;
  if (facet === "change") return CHANGES[value].join(" ");
  return String(value);
}

// Return for each facet the places of the values that pass; an operator passes that holds one of the words.
function passing() {
  const words = chosen.operator.toLowerCase().split(/[\s,]+/).filter(Boolean);
  const found = {
    op: CELLS.op.values.map((op) => !words.length || words.some((word) => op.toLowerCase().includes(word))),
  };
  for (const facet of FACETS) {
    found[facet] = CELLS[facet].values.map((value) => !chosen[facet].size || chosen[facet].has(value));
  }
  return found;
}

// Return the visible cells, and how many each value of a facet would show with the other facets as they are.
function filtered() {
  const passes = passing(), facets = Object.keys(passes), visible = [];
  const counts = Object.fromEntries(FACETS.map((facet) => [facet, CELLS[facet].values.map(() => 0)]));
  for (let i = 0; i < COUNT; i++) {
    let failing = null, fails = 0;
    for (const facet of facets) {
      if (!passes[facet][CELLS[facet].rows[i]]) { failing = facet; if (++fails > 1) break; }
    }
    if (fails === 0) {
      visible.push(i);
      for (const facet of FACETS) counts[facet][CELLS[facet].rows[i]]++;
    } else if (fails === 1 && failing !== "op") counts[failing][CELLS[failing].rows[i]]++;
  }
  return [visible, counts];
}

// Filters.

const chips = new Map();

function buildFilters() {
  const box = byId("filters");
  for (const facet of FACETS) {
    const values = CELLS[facet].values.filter((v) => v !== "").sort(byFacet(facet));
    if (!values.length) continue;
    const set = make("fieldset", {}, make("legend", {}, TITLES[facet] ?? facet));
    for (const value of values) {
      const count = make("small");
      const chip = make("button", { type: "button", className: "chip", "aria-pressed": "false" }, spell(facet, value), count);
      chip.dataset.facet = facet;
      chip.dataset.value = String(value);
      chip.addEventListener("click", () => toggle(facet, value));
      chips.set(chip, [facet, value, count]);
      set.append(chip);
    }
    box.append(set);
  }
  const operators = make("datalist", { id: "operators" }, ...CELLS.op.values.map((op) => make("option", { value: op })));
  const input = make("input", { id: "operator", type: "search", placeholder: "all, or such as: norm gelu" });
  input.setAttribute("list", "operators");
  input.addEventListener("input", () => { chosen.operator = input.value; update(); });
  const label = make("label", { className: "soft", htmlFor: "operator" }, "operator");
  const clear = make("button", { id: "clear", type: "button", hidden: true }, "Clear filters");
  clear.addEventListener("click", () => {
    for (const facet of FACETS) chosen[facet].clear();
    input.value = chosen.operator = "";
    update();
    input.focus();
  });
  box.append(make("fieldset", {}, label, input, operators), clear);
}

function toggle(facet, value) {
  if (!chosen[facet].delete(value)) chosen[facet].add(value);
  update();
}

function showFilters(counts, visible) {
  for (const [chip, [facet, value, count]] of chips) {
    const found = counts[facet][CELLS[facet].values.indexOf(value)];
    chip.setAttribute("aria-pressed", String(chosen[facet].has(value)));
    chip.classList.toggle("none", !found);
    count.textContent = String(found);
  }
  const active = chosen.operator || FACETS.some((facet) => chosen[facet].size);
  byId("clear").hidden = !active;
  const cells = `${COUNT.toLocaleString("en")} cell${COUNT === 1 ? "" : "s"}`;
  byId("totals").textContent = active ? `${visible.length.toLocaleString("en")} of ${cells}` : cells;
}

// The matrix: operator, lowering and ONNX Runtime down, torch, exporter and opset across.

const runtimes = [...CELLS.ort.values].sort(byVersion);
let grid = []; // rows of the places of visible cells, with holes
let places = new Map(); // cell -> [row, column]
let focused = null;

function axes(visible) {
  const rows = new Map(), columns = new Map();
  for (const i of visible) {
    const row = [of("op", i), of("lowering", i), of("ort", i)];
    const column = [of("torch", i), of("exporter", i), of("opset", i)];
    const [r, c] = [row.join("\n"), column.join("\n")];
    if (!rows.has(r)) rows.set(r, row);
    if (!columns.has(c)) columns.set(c, column);
  }
  const exporters = byFacet("exporter");
  const across = [...columns].sort(([, a], [, b]) => byVersion(a[0], b[0]) || exporters(a[1], b[1]) || a[2] - b[2]);
  const down = [...rows].sort(([, a], [, b]) => byVersion(a[0], b[0]) || byVersion(a[1], b[1]) || byVersion(a[2], b[2]));
  return [down, across];
}

function buildMatrix(visible) {
  const box = byId("matrix");
  if (!visible.length) {
    grid = [];
    places = new Map();
    box.replaceChildren(make("p", { id: "empty" }, COUNT ? "No cell passes these filters." : "No cell was asked for."));
    return;
  }
  const [down, across] = axes(visible);
  const rowOf = new Map(down.map(([key], r) => [key, r])), columnOf = new Map(across.map(([key], c) => [key, c]));
  grid = down.map(() => new Array(across.length).fill(null));
  places = new Map();
  for (const i of visible) {
    const r = rowOf.get(`${of("op", i)}\n${of("lowering", i)}\n${of("ort", i)}`);
    const c = columnOf.get(`${of("torch", i) ?? ""}\n${of("exporter", i)}\n${of("opset", i)}`);
    grid[r][c] = i;
    places.set(i, [r, c]);
  }
  const widths = make("colgroup", {}, make("col", { className: "row" }), ...across.map(() => make("col", { className: chosen.metric })));
  const table = make("table", {}, widths, head(across), body(down, across, visible));
  table.setAttribute("role", "grid");
  table.setAttribute("aria-label", "Cells: operators down, torch, exporter and opset across");
  const titles = WIDTHS.map((letters) => Math.min(letters, 26) * 0.6 + 0.9).reduce((a, b) => a + b) + (runtimes.length > 1 ? 3.6 : 0);
  table.style.setProperty("--title", `calc(${titles}em + 10px)`);
  const { scrollTop, scrollLeft } = box;
  box.replaceChildren(table);
  box.scrollTo(scrollLeft, scrollTop);
  if (!places.has(focused)) focused = places.has(chosen.open) ? chosen.open : grid.flat().find((i) => i !== null);
  tdOf(focused).tabIndex = 0;
}

const starts = (across, c, parts) => c === 0 || across[c][1].slice(0, parts).join() !== across[c - 1][1].slice(0, parts).join();
const border = (across, c) => (starts(across, c, 1) ? "group" : starts(across, c, 2) ? "half" : "");

function head(across) {
  const titles = [
    ([torch]) => (torch === null ? ["no torch"] : ["torch ", make("b", {}, torch)]),
    ([, exporter]) => [exporter],
  ];
  const lines = titles.map((title, level) => {
    const line = make("tr");
    for (let c = 0, end; c < across.length; c = end) {
      for (end = c + 1; end < across.length && !starts(across, end, level + 1); end++);
      line.append(make("th", { colSpan: end - c, scope: "colgroup", className: border(across, c) }, ...title(across[c][1])));
    }
    return line;
  });
  lines[0].prepend(make("th", { className: "row", rowSpan: 3, scope: "col" }, ...rowTitle("operator", "lowering", "ORT")));
  const opsets = across.map(([, [, , opset]], c) => make("th", { scope: "col", className: border(across, c) }, String(opset)));
  lines.push(make("tr", { className: "opset" }, ...opsets));
  return make("thead", {}, ...lines);
}

const WIDTHS = [0, 1].map((part) => Math.max(8, ...CELLS[part ? "lowering" : "op"].values.map((text) => text.length)));

function rowTitle(op, lowering, ort) {
  const spans = [make("span", { title: op }, op), make("span", { className: "soft" }, lowering)];
  spans.forEach((span, part) => { span.style.width = `${Math.min(WIDTHS[part], 26) * 0.6 + 0.9}em`; });
  if (runtimes.length > 1) spans.push(make("span", { className: "soft" }, ort));
  return spans;
}

function body(down, across, visible) {
  const section = make("tbody"), borders = across.map((_, c) => border(across, c));
  const slowest = Math.max(...visible.map((i) => CELLS.seconds[i]), 1e-9);
  const blank = document.createElement("td");
  down.forEach(([, [op, lowering, ort]], r) => {
    const line = make("tr"), before = r ? down[r - 1][1] : [];
    const first = op !== before[0], second = first || lowering !== before[1];
    if (first) line.className = "first";
    const title = make("th", { className: "row", scope: "row" }, ...rowTitle(first ? op : "", second ? lowering : "", ort));
    title.setAttribute("aria-label", `${op} ${lowering} ORT ${ort}`);
    line.append(title);
    grid[r].forEach((i, c) => {
      const field = blank.cloneNode();
      if (i === null) field.className = borders[c];
      else fill(field, i, borders[c], slowest);
      line.append(field);
    });
    section.append(line);
  });
  return section;
}

// Make a field of the matrix show a cell. Every state has a mark or a number: nothing hangs on a colour.
function fill(field, i, side, slowest) {
  const outcome = of("outcome", i), share = CELLS.limit[i];
  field.dataset.i = i;
  field.tabIndex = -1;
  let text = MARKS[outcome], kind = outcome;
  if (chosen.metric === "outcome") {
    // In steps of a pixel or so: the browser computes a style once for all cells that have it alike.
    if (share) { kind += " share"; field.style.setProperty("--share", `${Math.ceil(Math.min(1, share) * 20) * 5}%`); }
  } else if (!WRONG.has(outcome) || chosen.metric === "seconds" || share !== null) {
    const value = chosen.metric === "limit" ? share : CELLS.seconds[i];
    const part = chosen.metric === "limit" ? value : value / slowest;
    if (value !== null) {
      text = chosen.metric === "limit" ? percent(value) : seconds(value);
      kind += " heat";
      field.style.setProperty("--heat-of", Math.ceil(Math.sqrt(Math.min(1, part)) * 19 + 1) * 3);
    }
  }
  field.textContent = text;
  field.className = side ? `${kind} ${side}` : kind;
  const change = of("change", i);
  if (change) field.dataset.change = CHANGES[change][0];
}

function told(i) {
  const parts = [`${name(i)}`, of("outcome", i)];
  if (CELLS.error[i] !== null) parts.push(`error ${number(CELLS.error[i])}`);
  if (CELLS.limit[i] !== null) parts.push(`${percent(CELLS.limit[i])} % of limit`);
  parts.push(`${seconds(CELLS.seconds[i])} s`);
  const change = of("change", i);
  if (change) parts.push(CHANGES[change][1]);
  return parts.join(", ");
}

const tdOf = (i) => byId("matrix").querySelector(`td[data-i="${i}"]`);

function focusOn(i) {
  const before = tdOf(focused);
  if (before) before.tabIndex = -1;
  focused = i;
  const field = tdOf(i);
  field.tabIndex = 0;
  field.focus({ preventScroll: true });
  reveal(field);
}

// Scroll so that the sticky head and first column hide nothing of a field.
function reveal(field) {
  const box = byId("matrix"), place = field.getBoundingClientRect(), frame = box.getBoundingClientRect();
  const top = frame.top + box.querySelector("thead").offsetHeight;
  const left = frame.left + box.querySelector("tbody th").offsetWidth;
  const right = frame.left + box.clientWidth, bottom = frame.top + box.clientHeight;
  if (place.top < top) box.scrollTop -= top - place.top;
  else if (place.bottom > bottom) box.scrollTop += place.bottom - bottom;
  if (place.left < left) box.scrollLeft -= left - place.left;
  else if (place.right > right) box.scrollLeft += place.right - right;
  const now = field.getBoundingClientRect();
  if (now.top < 0 || now.bottom > innerHeight) field.scrollIntoView({ block: "nearest" });
}

// Return the next cell from a place in a direction: holes are passed over.
function step(i, rows, columns) {
  let [r, c] = places.get(i);
  for (;;) {
    r += rows;
    c += columns;
    if (!grid[r] || c < 0 || c >= grid[r].length) return i;
    if (grid[r][c] !== null) return grid[r][c];
  }
}

function toEnd(i, last) {
  const row = grid[places.get(i)[0]].filter((other) => other !== null);
  return last ? row[row.length - 1] : row[0];
}

function nextFault(i, forward) {
  const all = grid.flat().filter((other) => other !== null);
  if (!forward) all.reverse();
  const from = all.indexOf(i) + 1;
  return [...all.slice(from), ...all.slice(0, from)].find((other) => of("outcome", other) !== "verified") ?? i;
}

const MOVES = {
  ArrowUp: (i) => step(i, -1, 0), ArrowDown: (i) => step(i, 1, 0),
  ArrowLeft: (i) => step(i, 0, -1), ArrowRight: (i) => step(i, 0, 1),
  Home: (i) => toEnd(i, false), End: (i) => toEnd(i, true),
};

function listen() {
  const box = byId("matrix");
  box.addEventListener("click", (event) => {
    const field = event.target.closest("td[data-i]");
    if (field) { focusOn(Number(field.dataset.i)); open(Number(field.dataset.i)); }
  });
  box.addEventListener("mouseover", (event) => readout(event.target.closest("td[data-i]")));
  box.addEventListener("mouseleave", () => readout(document.activeElement?.closest("td[data-i]")));
  box.addEventListener("focusin", (event) => {
    const field = event.target.closest("td[data-i]");
    // Only now: to write ten thousand of them would take as long as the matrix.
    field?.setAttribute("aria-label", told(Number(field.dataset.i)));
    readout(field);
  });
  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || focused === null) return;
    if (MOVES[event.key]) moveTo(MOVES[event.key](focused));
    else if (event.key === "Enter" || event.key === " ") {
      if (chosen.open === focused || innerWidth <= 1000) { open(focused); byId("detail").focus(); } else open(focused);
    } else return;
    event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && chosen.open !== null) { close(); return; }
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("input, select, textarea")) return;
    const metric = Object.keys(METRICS)["123".indexOf(event.key)];
    if (metric) show(metric);
    else if (event.key === "/") byId("operator").focus();
    else if ((event.key === "n" || event.key === "p") && focused !== null && grid.length) moveTo(nextFault(focused, event.key === "n"));
    else return;
    event.preventDefault();
  });
  addEventListener("hashchange", readHash);
}

function moveTo(i) {
  focusOn(i);
  if (chosen.open !== null) open(i);
}

function readout(field) {
  const line = byId("readout");
  if (!field) {
    line.replaceChildren(make("span", { className: "hint" }, "Point at a cell, or move to it with the arrow keys; Enter or a click opens it."));
    return;
  }
  const i = Number(field.dataset.i), outcome = of("outcome", i);
  line.replaceChildren(make("span", { className: `mark ${outcome}` }, MARKS[outcome]), ` ${told(i)}`);
}

function buildMetrics() {
  Object.entries(METRICS).forEach(([metric, title]) => {
    const chip = make("button", { type: "button", className: "chip" }, title);
    chip.dataset.metric = metric;
    chip.addEventListener("click", () => show(metric));
    byId("metrics").append(chip);
  });
}

function show(metric) {
  chosen.metric = metric;
  update();
}

function showLegend() {
  for (const chip of byId("metrics").children) chip.setAttribute("aria-pressed", String(chip.dataset.metric === chosen.metric));
  const items = chosen.metric === "outcome"
    ? DATA.outcomes.map((outcome) => make("span", {}, make("i", { className: `k ${outcome}` }, MARKS[outcome]), outcome))
    : [make("span", {}, chosen.metric === "limit" ? "largest share of a tolerance that was used up, in percent" : "wall time of the verify step")];
  if (chosen.metric === "outcome") items.push(make("span", {}, "underlined as far as the tolerance was used up"));
  else items.push(make("span", {}, make("i", { className: "k heat failed" }, "9"), "outlined: wrong"));
  const found = CELLS.change.values.filter((kind) => kind).sort(byFacet("change"));
  items.push(...found.map((kind) => make("span", {}, `${CHANGES[kind][0]} ${CHANGES[kind][1]}`)));
  byId("legend").replaceChildren(...items);
}

// What is not verified, by reason: cells, and unsupported cases in cells that are verified by their others.

function buildFaults(visible) {
  const groups = new Map();
  const put = (key, fault, i) => {
    if (!groups.has(key)) groups.set(key, { ...fault, cells: [] });
    groups.get(key).cells.push(i);
  };
  const refused = CASES.outcome.values.indexOf("unsupported");
  for (const i of visible) {
    const outcome = of("outcome", i);
    if (outcome !== "verified") {
      put(`${outcome}\n${CELLS.detail.rows[i]}`, { outcome, title: name(i), detail: of("detail", i) }, i);
      continue;
    }
    const [from, to] = cases(i);
    for (let k = from; k < to; k++) {
      if (CASES.outcome.rows[k] !== refused) continue;
      const title = `${of("op", i)}-${of("lowering", i)}-${caseOf("case", k)}`;
      put(title, { outcome: "unsupported", title, detail: caseOf("detail", k), single: true }, i);
    }
  }
  const ranks = ["failed", "mismatched", "unsupported"];
  const sorted = [...groups.values()].sort((a, b) => ranks.indexOf(a.outcome) - ranks.indexOf(b.outcome));
  const box = byId("faults");
  box.replaceChildren();
  if (!sorted.length) return;
  box.append(make("h2", {}, "Not verified, by reason"), ...sorted.slice(0, LISTED).map(fault));
  if (sorted.length > LISTED) box.append(make("p", { className: "soft" }, `and ${sorted.length - LISTED} further reasons`));
}

function fault({ outcome, title, detail, single, cells }) {
  const button = make("button", { type: "button", className: "mono" }, title);
  button.addEventListener("click", () => { focusOn(cells[0]); open(cells[0]); });
  const more = cells.length > 1 ? ` and ${cells.length - 1} more` : "";
  const where = single ? ` in ${cells.length} cell${cells.length === 1 ? "" : "s"}` : more;
  const said = make("div", {}, button, make("span", { className: "soft" }, where), make("pre", {}, detail));
  return make("div", { className: "fault" }, make("span", { className: `mark ${outcome}`, title: outcome }, MARKS[outcome]), said);
}

function buildGone() {
  const gone = DATA.changes?.gone ?? [];
  if (!gone.length) return;
  const list = make("ul", {}, ...gone.map(({ cell, before }) => make("li", {}, `${MARKS[before]} ${cell}`)));
  byId("gone").append(make("details", {}, make("summary", {}, `Gone since the previous run: ${gone.length}`), list));
}

// The cell that is open.

function open(i) {
  const other = chosen.open !== i;
  tdOf(chosen.open)?.classList.remove("open");
  chosen.open = i;
  tdOf(i)?.classList.add("open");
  const [from, to] = cases(i);
  if (other || chosen.case === null) {
    chosen.case = from;
    for (let k = to - 1; k >= from; k--) if (caseOf("outcome", k) !== "verified") chosen.case = k;
  }
  const box = byId("detail");
  box.hidden = false;
  box.setAttribute("aria-label", name(i));
  box.replaceChildren(...detail(i, from, to).filter(Boolean));
  if (other) box.scrollTop = 0;
  writeHash();
}

function close() {
  const i = chosen.open;
  chosen.open = chosen.case = null;
  byId("detail").hidden = true;
  tdOf(i)?.classList.remove("open");
  if (places.has(i)) focusOn(i);
  writeHash();
}

function section(title, note, ...content) {
  const heading = make("h3", {}, title);
  if (note) heading.append(make("span", { className: "note" }, note));
  return make("section", {}, heading, ...content);
}

function detail(i, from, to) {
  const outcome = of("outcome", i), change = of("change", i), before = of("before", i);
  const closing = make("button", { type: "button", className: "close", title: "Esc" }, "Close");
  closing.addEventListener("click", close);
  const title = make("h2", {}, make("span", { className: `mark ${outcome}` }, MARKS[outcome]), ` ${of("op", i)}-${of("lowering", i)}`, make("small", {}, `@${cellName(i)}`));
  const said = make("dl", { className: "said" });
  const say = (key, value) => said.append(make("div", {}, make("dt", {}, key), make("dd", {}, value)));
  say("outcome", outcome);
  say("worst error", number(CELLS.error[i]));
  say("ULP", number(CELLS.ulp[i]));
  say("of limit", CELLS.limit[i] === null ? "–" : `${percent(CELLS.limit[i])} %`);
  say("time", `${seconds(CELLS.seconds[i])} s`);
  if (change) say("since the previous run", change === "new" ? "new" : `${CHANGES[change].join(" ")}: it was ${before}`);
  const why = of("detail", i), log = of("log", i);
  return [
    make("div", { className: "top" }, title, closing),
    said,
    why && section("Why", "", make("pre", { className: "text" }, why)),
    from < to && section("Cases", tally(from, to), caseTable(i, from, to)),
    replay(i),
    graph(i),
    log && section("Log", "its last lines", make("pre", { className: "text" }, log)),
  ];
}

// Return `9 cases: 7 verified, 2 unsupported`.
function tally(from, to) {
  const counts = new Map();
  for (let k = from; k < to; k++) counts.set(caseOf("outcome", k), (counts.get(caseOf("outcome", k)) ?? 0) + 1);
  return `${to - from}: ${[...counts].map(([outcome, count]) => `${count} ${outcome}`).join(", ")}`;
}

function caseTable(i, from, to) {
  const lines = [];
  for (let k = from; k < to; k++) {
    const outcome = caseOf("outcome", k), why = caseOf("detail", k);
    const button = make("button", { type: "button", title: `model ${caseOf("model", k)}` }, caseOf("case", k));
    const line = make("tr", {},
      make("td", {}, make("span", { className: `mark ${outcome}`, title: outcome }, MARKS[outcome])), make("td", {}, button),
      ...[number(CASES.error[k]), number(CASES.ulp[k]), percent(CASES.limit[k])].map((text) => make("td", {}, text)));
    if (k === chosen.case) line.setAttribute("aria-current", "true");
    line.addEventListener("click", () => {
      chosen.case = k;
      open(i);
      byId("detail").querySelector('tr[aria-current="true"] button').focus();
    });
    lines.push(line);
    if (why) lines.push(make("tr", { className: "why" }, make("td"), make("td", { colSpan: 4 }, why)));
  }
  const titles = ["", "case", "error", "ULP", "% of limit"].map((title) => make("th", { scope: "col" }, title));
  return make("table", { className: "cases" }, make("thead", {}, make("tr", {}, ...titles)), make("tbody", {}, ...lines));
}

function replay(i) {
  const known = chosen.case !== null && chosen.case < cases(i)[1] && chosen.case >= cases(i)[0];
  const words = ["python -m pipeline verify", of("op", i), "--lowering", of("lowering", i), "--cell", cellName(i)];
  if (known) words.push("--case", caseOf("case", chosen.case));
  const command = words.join(" "), text = make("pre", { className: "text" }, command);
  const copy = make("button", { type: "button", className: "copy" }, "Copy");
  copy.addEventListener("click", async () => {
    getSelection().selectAllChildren(text);
    try {
      await navigator.clipboard.writeText(command);
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Selected"; // where a page may not write to the clipboard
    }
  });
  return section("Replay", copy, text);
}

function graph(i) {
  const pictures = of("pictures", i);
  if (!pictures.length) return section("Graph", "", make("p", { className: "soft" }, "No model was written for this cell."));
  const wanted = chosen.case < cases(i)[1] ? caseOf("model", chosen.case) : null;
  const [model, at] = pictures.find(([other]) => other === wanted) ?? pictures[0];
  const shown = DATA.graphs[at], lines = shown.nodes.map((node) => make("li", {}, describe(node)));
  const list = make("details", {}, make("summary", {}, `${lines.length} node${lines.length === 1 ? "" : "s"} in words`), make("ol", {}, ...lines));
  const missing = wanted && model !== wanted ? `${model}; of ${wanted} there is none` : model;
  const picture = make("div", { className: "picture", tabIndex: 0 }, drawGraph(shown, model));
  picture.setAttribute("role", "group");
  picture.setAttribute("aria-label", "Picture of the graph");
  return section("Graph", missing, picture, list);
}

// The address keeps what is chosen, so that it can be sent to somebody, or gone back to.

// Browsers refuse more than a hundred changes of it in half a minute, which a key that is held down makes.
let writing = null;
function writeHash() {
  clearTimeout(writing);
  writing = setTimeout(() => {
    const hash = spellHash();
    if (hash !== location.hash.slice(1)) history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
  }, 150);
}

function spellHash() {
  const parts = new URLSearchParams();
  for (const facet of FACETS) for (const value of chosen[facet]) parts.append(facet, String(value));
  if (chosen.operator) parts.set("operator", chosen.operator);
  if (chosen.metric !== "outcome") parts.set("show", chosen.metric);
  if (chosen.open !== null) parts.set("cell", name(chosen.open));
  return parts.toString();
}

function readHash() {
  const parts = new URLSearchParams(location.hash.slice(1));
  for (const facet of FACETS) {
    const asked = new Set(parts.getAll(facet));
    chosen[facet] = new Set(CELLS[facet].values.filter((value) => asked.has(String(value))));
  }
  byId("operator").value = chosen.operator = parts.get("operator") ?? "";
  chosen.metric = parts.get("show") in METRICS ? parts.get("show") : "outcome";
  const asked = parts.get("cell");
  let found = null;
  for (let i = 0; asked && found === null && i < COUNT; i++) if (name(i) === asked) found = i;
  update();
  if (found === null) { if (chosen.open !== null) close(); return; }
  if (places.has(found)) focusOn(found);
  open(found);
}

function update() {
  const [visible, counts] = filtered();
  showFilters(counts, visible);
  showLegend();
  const within = document.activeElement?.closest("td[data-i]");
  buildMatrix(visible);
  if (within && focused !== null && grid.length) focusOn(focused);
  if (chosen.open !== null) tdOf(chosen.open)?.classList.add("open");
  buildFaults(visible);
  writeHash();
}

function buildHeader() {
  const parts = Object.entries(DATA.versions).flatMap(([key, version], at) => [at ? " · " : "", `${key} `, make("b", {}, version)]);
  const compared = DATA.changes === null ? " · no previous run to compare with" : "";
  byId("versions").append(...parts, compared, ` · written ${new Date(document.lastModified).toLocaleString("sv")}`);
}

readout(null);
buildHeader();
buildFilters();
buildMetrics();
buildGone();
listen();
readHash();
