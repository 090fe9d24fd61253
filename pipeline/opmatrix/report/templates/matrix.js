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
  const table = make("table", {}, widths, head(across), body(down, across));
  if (across.length <= 20) table.className = "few";
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

function body(down, across) {
  const section = make("tbody"), borders = across.map((_, c) => border(across, c));
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
      else fill(field, i, borders[c]);
      line.append(field);
    });
    section.append(line);
  });
  return section;
}

// Make a field of the matrix show a cell. Every state has a mark or a number: nothing hangs on a colour.
function fill(field, i, side) {
  const outcome = of("outcome", i), share = CELLS.tolerance_used[i];
  field.dataset.i = i;
  field.tabIndex = -1;
  let text = MARKS[outcome], kind = outcome;
  if (chosen.metric === "outcome") {
    // In steps of a pixel or so: the browser computes a style once for all cells that have it alike.
    if (share) { kind += " share"; field.style.setProperty("--share", `${Math.ceil(Math.min(1, share) * 20) * 5}%`); }
  } else if (share !== null) {
    text = percent(share);
    kind += " heat";
    field.style.setProperty("--heat-of", Math.ceil(Math.sqrt(Math.min(1, share)) * 19 + 1) * 3);
  }
  field.textContent = text;
  field.className = side ? `${kind} ${side}` : kind;
  const change = of("change", i);
  if (change) field.dataset.change = CHANGES[change][0];
}

function told(i) {
  const parts = [`${name(i)}`, of("outcome", i)];
  if (CELLS.error[i] !== null) parts.push(`error ${number(CELLS.error[i])}`);
  if (CELLS.tolerance_used[i] !== null) parts.push(`${percent(CELLS.tolerance_used[i])} % of limit`);
  const change = of("change", i);
  if (change) parts.push(CHANGES[change][1]);
  return parts.join(", ");
}

const tdOf = (i) => byId("matrix").querySelector(`td[data-i="${i}"]`);
