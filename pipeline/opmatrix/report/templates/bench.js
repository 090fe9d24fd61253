// What `doit bench` measured: times against sizes, and the ratios to peers. Only a page with times has this.

// A contestant has a shape and a colour; those of the operator are filled. As SVG draws them, one unit in each direction.
const SHAPES = [
  "M-1 0A1 1 0 1 0 1 0A1 1 0 1 0-1 0Z", "M-.9-.9H.9V.9H-.9Z", "M0-1.1L1.1.8H-1.1Z", "M0-1.3L1.3 0L0 1.3L-1.3 0Z",
  "M0 1.1L1.1-.8H-1.1Z", "M-.9-.9L.9.9M.9-.9L-.9.9", "M-1.2 0H1.2M0-1.2V1.2", "M-1.2-.5H1.2V.5H-1.2Z",
];
const LOOKS = ["--dtype-float32", "--dtype-float16", "--dtype-float64", "--dtype-bfloat16", "--map-most", "--dtype-other"];
const RADIUS = 4.5;

const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
function quantity(value, unit) {
  const [size, prefix] = value === 0 ? [1, ""] : PREFIXES.find(([least]) => value >= least * 0.9995) ?? PREFIXES.at(-1);
  return `${Number((value / size).toPrecision(3))} ${prefix}${unit}`.trim();
}
const between = ([median, low, high], shown) => `${shown(median)} (${shown(low)} to ${shown(high)})`;
const inSeconds = (value) => quantity(value, "s");
const asRatio = (value) => String(Number(value.toPrecision(3)));

function buildBench() {
  const section = make("section", { id: "bench" });
  section.setAttribute("aria-label", "Times");
  section.append(make("h2", {}, "Times ", make("span", {}, "measured by doit bench")));
  DATA.bench.forEach((found, at) => {
    if (found.problem) {
      section.append(make("p", { className: "reason" }, `${found.op}: ${found.problem}`));
      return;
    }
    const box = make("details", {}, make("summary", {}, make("b", {}, found.op), " ", make("span", { className: "soft" }, summaryOf(found))));
    box.addEventListener("toggle", () => { if (box.children.length === 1) box.append(...timesOf(found)); });
    box.open = at === 0;
    section.append(box);
  });
  byId("operators").after(section);
}

function summaryOf({ date, rows }) {
  const ratios = rows.flatMap((row) => (row.ratios ?? []).map(({ ratio }) => ratio[0]));
  const range = ratios.length ? `ours / peer ${asRatio(Math.min(...ratios))} to ${asRatio(Math.max(...ratios))}, ` : "";
  return `${range}${many(new Set(rows.map(({ name }) => name)).size, "row")}, ${date.slice(0, 10)}`;
}

function timesOf(found) {
  const timed = found.rows.filter(({ failed }) => !failed);
  const names = [...new Set(timed.flatMap((row) => timedOnes(row).sort((a, b) => b.ours - a.ours).map(({ name }) => name)))];
  const looks = new Map(names.map((name, at) => [name, {
    name, at: at % LOOKS.length, shape: SHAPES[at % SHAPES.length],
    ours: timed.some(({ contestants }) => contestants.some((one) => one.name === name && one.ours)),
  }]));
  const plots = make("div", { className: "plots" });
  const dtypes = valuesOf(timed, "dtype"), dtype = choiceOf("dtype", dtypes, (one) => one || "all");
  const threads = choiceOf("threads", valuesOf(timed, "threads").sort((a, b) => a - b), String);
  const draw = () => {
    const onThreads = timed.filter((row) => String(row.threads) === threads.value);
    const shown = onThreads.filter((row) => row.dtype === dtype.value);
    plots.replaceChildren(...[timePlot(shown, looks), ratioPlot(onThreads, dtypes, looks)].filter(Boolean));
  };
  for (const choice of [dtype, threads]) choice.addEventListener("change", draw);
  if (timed.length) draw();
  const choices = make("p", { className: "choices" }, make("label", {}, "dtype ", dtype), make("label", {}, "threads ", threads));
  return [conditionsOf(found), ...(timed.length ? [choices, keyOf([...looks.values()]), plots] : []), tableOf(found.rows)];
}

// The values of a field, those of most rows first.
function valuesOf(rows, field) {
  const counts = new Map();
  for (const row of rows) counts.set(row[field], (counts.get(row[field]) ?? 0) + 1);
  return [...counts].sort(([, a], [, b]) => b - a).map(([value]) => value);
}

function choiceOf(title, values, text) {
  const choice = make("select", {}, ...values.map((value) => make("option", { value: String(value) }, text(value))));
  choice.setAttribute("aria-label", `${title} of the times`);
  return choice;
}

function conditionsOf({ processor, processors, not_pinned: notPinned, versions, rows }) {
  const ended = rows.filter((row) => row.ended === "budget").length;
  const clocks = new Set(rows.filter(({ failed }) => !failed).map(({ clock }) => clock));
  const facts = [processor, many(processors, "processor"), ...Object.entries(versions).filter(([name]) => name === "torch" || name === "onnxruntime").map((one) => one.join(" "))];
  if (clocks.has("cpu")) facts.push("CPU seconds on one thread");
  if (clocks.has("wall")) facts.push("seconds that pass on several");
  if (notPinned) facts.push(`threads not pinned: ${notPinned}`);
  if (ended) facts.push(`${ended} of ${many(rows.length, "row")} ended by the budget, with wide intervals`);
  return make("p", { className: "conditions" }, facts.join("; "));
}

function keyOf(looks) {
  return make("p", { className: "key" }, ...looks.map(({ name, at, shape, ours }) => make("span", {},
    svg("svg", { width: 10, height: 10, viewBox: "-1.3 -1.3 2.6 2.6", class: `look-${at}`, "aria-hidden": "true" },
      svg("path", { d: shape, fill: ours ? "currentColor" : "none", stroke: "currentColor", "stroke-width": 0.4 })), name)));
}

const timedOnes = (row) => row.contestants.filter(({ seconds }) => seconds?.[0] > 0);

// Return a series for each contestant: its points, by x. `point` returns x, y and further fields, or null.
function seriesOf(rows, looks, point, joined = false) {
  const found = [...looks.values()].map((look) => ({ look, joined, points: rows.flatMap((row) =>
    timedOnes(row).filter(({ name }) => name === look.name).flatMap((one) => {
      const made = point(row, one);
      return made ? [{ ...made, row: row.name, text: `${row.name}, ${textOf(row, one)}` }] : [];
    })).sort((a, b) => a.x - b.x) }));
  return found.filter(({ points }) => points.length);
}

function textOf(row, { name, seconds }) {
  const parts = [`${name}: ${between(seconds, inSeconds)}`, quantity(row.bytes, "B"), quantity(row.bytes / seconds[0], "B/s")];
  if (row.flops !== null) parts.push(quantity(row.flops / seconds[0], "FLOP/s"));
  return parts.join(", ");
}

function timePlot(rows, looks) {
  const series = seriesOf(rows, looks, (row, { seconds }) => row.bytes > 0 && { x: row.bytes, y: seconds[0] }, true);
  return benchPlot("Time against size", "a call, median", series, { x: "bytes that a call moves", y: "time", units: ["B", "s"] });
}

// Each ratio with its interval, by dtype: a column for each, in which pairs and rows are next to each other.
function ratioPlot(rows, dtypes, looks) {
  const present = dtypes.filter((dtype) => rows.some((row) => row.dtype === dtype && row.ratios.length));
  const all = present.map((dtype) => rows.filter((row) => row.dtype === dtype).flatMap((row) => row.ratios.filter(({ ratio }) => ratio[1] > 0).map((one) => ({ row, ...one }))));
  const series = [...looks.values()].map((look) => ({ look, joined: false, points: all.flatMap((column, at) => column.flatMap(({ row, ours, peer, ratio }, n) =>
    (peer === look.name ? [{ x: at + 0.8 * ((n + 0.5) / column.length - 0.5), y: ratio[0], low: ratio[1], high: ratio[2], row: row.name,
      text: `${row.name}, ${ours} / ${peer}: ${between(ratio, asRatio)}` }] : []))) })).filter(({ points }) => points.length);
  if (!series.length) return null;
  return benchPlot("Ratio by dtype", "time of the operator / time of the peer, with its interval; below the line at 1 the operator is faster", series,
    { x: "dtype; each point is a row and a peer", y: "ours / peer", units: ["", ""], categories: present.map((dtype) => dtype || "all"), range: [-0.5, present.length - 0.5], line: [[-0.5, 1], [present.length - 0.5, 1]] });
}

// Return the values at which a logarithmic axis has lines: 1, 2 and 5, or powers of ten, with room for `room` numbers.
function logTicks(low, high, room) {
  const [from, to] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))], found = [];
  const digits = (to - from) * 3 <= room + 2 ? [1, 2, 5] : [1], every = Math.max(1, Math.ceil((to - from) / room));
  for (let power = from; power <= to; power += every) for (const digit of digits) found.push(Number(`${digit}e${power}`));
  return found.filter((value) => value >= low && value <= high);
}

function benchPlot(title, note, series, { x, y, units, range, line = [], categories }) {
  if (!series.length) return null;
  const points = series.flatMap((one) => one.points.map((point) => ({ ...point, look: one.look })));
  const ys = [...points.flatMap(({ y: at, low, high }) => [low ?? at, high ?? at]), ...line.map(([, at]) => at)];
  const xs = range ?? [Math.min(...points.map((one) => one.x)) / 1.7, Math.max(...points.map((one) => one.x)) * 1.7];
  const heights = [Math.min(...ys) / 1.7, Math.max(...ys) * 1.7];
  const named = (unit) => (_, splits) => splits.map((value) => quantity(value, unit)), keep = (_, splits) => splits;
  const logarithmic = (label, unit, room, more) => axis(label, {
    splits: (_chart, _axis, low, high) => logTicks(low, high, room), values: unit ? named(unit) : (_, splits) => splits.map(asRatio),
    filter: keep, grid: { stroke: colour("--grid"), width: 1, filter: keep }, ...more,
  });
  const state = { chart: null, at: null };
  const options = () => ({
    scales: { x: categories ? { time: false, range: xs } : { ...LOGARITHMIC, range: xs }, y: { distr: 3, log: 10, range: heights } },
    axes: [
      categories ? axis(x, { splits: categories.map((_, at) => at), values: (_, splits) => splits.map((at) => categories[at]), size: 22 }) : logarithmic(x, units[0], 5, { size: 22 }),
      logarithmic(y, units[1], 7, { size: 74 }),
    ],
    series: [{}, ...series.map(() => ({ paths: () => null, points: { show: false } }))],
    hooks: { draw: [(chart) => { state.chart = chart; paint(chart, series, line, points[state.at]); }] },
  });
  const data = columns(...series.map((one) => one.points.map((point) => [point.x, point.y])));
  const spoken = `${note}; ${many(points.length, "point")}. The arrow keys move between them; the table has the same values`;
  return readable(plot(title, note, 260, data, options, spoken), points, state);
}

function paint(chart, series, line, chosen) {
  const { ctx, bbox: { left, top, width, height } } = chart, scale = devicePixelRatio;
  const place = (x, y) => [chart.valToPos(x, "x", true), chart.valToPos(y, "y", true)];
  const stroke = (points, style, thick, dash = []) => {
    ctx.strokeStyle = style;
    ctx.lineWidth = thick * scale;
    ctx.setLineDash(dash.map((length) => length * scale));
    ctx.beginPath();
    points.forEach(([x, y], at) => (at ? ctx.lineTo(...place(x, y)) : ctx.moveTo(...place(x, y))));
    ctx.stroke();
    ctx.setLineDash([]);
  };
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  if (line.length) stroke(line, colour("--wrong"), 1.5);
  for (const { look, joined, points } of series) {
    const style = colour(LOOKS[look.at]), path = new Path2D(look.shape);
    if (joined) stroke(points.map(({ x, y }) => [x, y]), style, 1, look.ours ? [] : [5, 3]);
    for (const { x, y, low, high } of points) {
      const [px, py] = place(x, y);
      if (low !== undefined) {
        stroke([[x, low], [x, high]], style, 1.5);
        for (const end of [low, high]) ctx.strokeRect(px - 3 * scale, place(x, end)[1], 6 * scale, 0);
      }
      const marker = new Path2D(), r = RADIUS * scale;
      marker.addPath(path, new DOMMatrix([r, 0, 0, r, px, py]));
      ctx.fillStyle = look.ours ? style : colour("--paper");
      ctx.strokeStyle = style;
      ctx.lineWidth = 1.6 * scale;
      ctx.fill(marker);
      ctx.stroke(marker);
    }
  }
  if (chosen) {
    ctx.strokeStyle = colour("--ink");
    ctx.lineWidth = 2 * scale;
    ctx.beginPath();
    ctx.arc(...place(chosen.x, chosen.y), 2 * RADIUS * scale, 0, 2 * Math.PI);
    ctx.stroke();
  }
  ctx.restore();
}

// Let the pointer and the arrow keys choose a point, whose values are below the plot.
function readable(figure, points, state) {
  const box = figure.querySelector(".plot"), hint = "Point at a mark, or use the arrow keys.", said = make("output", { className: "hover" }, hint);
  box.tabIndex = 0;
  box.setAttribute("role", "application");
  box.setAttribute("aria-roledescription", "plot");
  const choose = (at) => {
    if (at === state.at) return;
    state.at = at;
    said.textContent = at === null ? hint : points[at].text;
    state.chart?.redraw(false, false);
  };
  const beside = (from, by) => { // the same row of the next contestant
    const looks = [...new Set(points.map(({ look }) => look))], { look, row } = points[from];
    const other = looks[(looks.indexOf(look) + by + looks.length) % looks.length];
    const same = points.findIndex((point) => point.look === other && point.row === row);
    return same >= 0 ? same : points.findIndex((point) => point.look === other);
  };
  const last = points.length - 1;
  const moves = {
    ArrowRight: (at) => Math.min(last, at + 1), ArrowLeft: (at) => Math.max(0, at - 1), ArrowDown: (at) => beside(at, 1), ArrowUp: (at) => beside(at, -1),
    Home: () => 0, End: () => last,
  };
  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (moves[event.key]) choose(state.at === null ? (event.key === "End" ? last : 0) : moves[event.key](state.at));
    else if (event.key === "Escape" && state.at !== null) choose(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  box.addEventListener("mousemove", ({ clientX, clientY }) => {
    if (!state.chart) return;
    const frame = box.getBoundingClientRect(), [x, y] = [clientX - frame.left, clientY - frame.top];
    const far = points.map((point) => Math.hypot(state.chart.valToPos(point.x, "x", true) / devicePixelRatio - x, state.chart.valToPos(point.y, "y", true) / devicePixelRatio - y));
    const nearest = far.indexOf(Math.min(...far));
    choose(far[nearest] < 30 ? nearest : null);
  });
  box.addEventListener("mouseleave", () => choose(null));
  box.addEventListener("blur", () => choose(null));
  figure.append(said);
  return figure;
}

// All values, also those of rows that the plots do not show.
function tableOf(rows) {
  const titles = ["row", "dtype", "threads", "contestant", "time (interval)", "ours / peer (interval)", "bandwidth", "FLOP/s", "peak memory", "error, of the tolerance"];
  const text = (at) => ({ className: at < 4 && at !== 2 ? "text" : "" });
  const head = make("tr", {}, ...titles.map((title, at) => make("th", { scope: "col", ...text(at) }, title)));
  const body = rows.flatMap((row) => {
    const first = [row.name, row.dtype, String(row.threads)];
    const lineOf = (values) => make("tr", {}, ...[...first, ...values].map((value, at) => (at ? make("td", text(at), value) : make("th", { scope: "row", ...text(at) }, value))));
    const without = (name, why) => { const made = lineOf([name]); made.append(make("td", { className: "text why", colSpan: titles.length - 4 }, why)); return made; };
    if (row.failed) return [without("", `failed: ${row.failed}`)];
    return row.contestants.map((one) => {
      if (one.seconds === null) return without(one.name, `skipped: ${one.skipped}`);
      const ratio = row.ratios.find(({ peer }) => peer === one.name), [median] = one.seconds;
      return lineOf([one.name, between(one.seconds, inSeconds), ratio ? between(ratio.ratio, asRatio) : "", quantity(row.bytes / median, "B/s"),
        row.flops === null ? "–" : quantity(row.flops / median, "FLOP/s"),
        one.peak_memory === null ? "–" : quantity(one.peak_memory, "B"), number(one.tolerance_used)]);
    });
  });
  const wide = make("div", { className: "wide", tabIndex: 0 }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
  wide.setAttribute("role", "group");
  wide.setAttribute("aria-label", "Table of the times");
  return make("details", { className: "values" }, make("summary", {}, "The values as a table"), wide);
}

buildBench();
