// The errors of a failing case. docs/report.md describes its record.

const MISMATCHES = DATA.mismatches, OVER = MISMATCHES.over ?? [];

// Return the record of a case, or null: the page has some of them only.
function mismatchOf(of, key) {
  const at = MISMATCHES.shown[of]?.[key];
  return at === undefined ? null : MISMATCHES.records[at];
}

// The name of the case that a record is of: of all drawn inputs, the one that failed.
const nameOf = (record) => record.drawn ?? record.case;

function showMismatch(record) {
  const shape = (of) => `${of.dtype}[${of.shape.join(", ")}]`;
  const attributes = Object.entries(record.attributes ?? {}).map(([key, value]) => `${key}=${value}`);
  const inputs = (record.inputs ?? []).map((input) => `${input.name} ${shape(input)}`);
  const facts = make("dl", { className: "facts" });
  const say = (key, ...value) => facts.append(make("div", {}, make("dt", {}, key), make("dd", {}, ...value)));
  const place = record.elements ? ` of ${record.elements.toLocaleString("en")}` : "";
  say("differ", `${record.differing.toLocaleString("en")}${place} elements of ${record.output} ${shape(record)}`);
  const { worst } = record;
  if (worst) {
    const parts = [worst.error === null ? "not a number" : number(worst.error)];
    if (worst.ulp) parts.push(`${number(worst.ulp)} ULP`);
    if (worst.tolerance_used !== null) parts.push(`${number(worst.tolerance_used)} × the tolerance`);
    say("worst error", parts.join(" = "));
    say(`at [${worst.at.join(", ")}]`, "expected ", make("b", {}, String(worst.expected)), ", actual ", make("b", {}, String(worst.actual)));
  }
  say("tolerance", `rtol=${record.rtol} atol=${record.atol}`);
  say("compared", `${record.actual_is} with ${record.expected_is}`);
  if (record.drawn) say("drawn input", record.drawn);
  say("inputs", [...inputs, ...attributes].join(", "));
  const inCommon = OVER[record.over]?.in_common;
  if (inCommon) say("over all cases", inCommon);
  if (record.problem || !worst) return [make("p", { className: "problem" }, record.problem), facts];
  return [facts, make("div", { className: "plots" }, ...[whereWrong, inUlps, byMagnitude, bothValues, bySize].map((draw) => draw(record)).filter(Boolean)), around(record)];
}

// Where in the tensor: the largest error for each two indices, over the other axes.
function whereWrong(record) {
  if (!record.maps.length) return null;
  const box = make("div", { className: "where" }), choice = make("select", {}), said = make("p", { className: "hover" });
  choice.setAttribute("aria-label", "Axes of the map");
  record.maps.forEach((map, at) => choice.append(make("option", { value: String(at) }, axesOf(map, record))));
  const usual = record.maps.map((map, at) => [spread(map), at]).sort((a, b) => b[0] - a[0])[0][1];
  choice.value = String(usual);
  const draw = () => box.replaceChildren(heatMap(record, record.maps[Number(choice.value)], said), said);
  choice.addEventListener("change", draw);
  draw();
  const title = make("b", {}, "Where it is wrong");
  const caption = make("figcaption", {}, title, " ", record.maps.length > 1 ? choice : make("span", {}, axesOf(record.maps[0], record)));
  return make("figure", {}, caption, box, keyOfMap(record));
}

function axesOf({ axes, step }, { shape }) {
  if (axes.length < 2) return `${shape.join(" × ") || "one"} elements, in memory order${step > 1 ? `, ${step} per field` : ""}`;
  return `axis ${axes[0]} (${shape[axes[0]]}) down, axis ${axes[1]} (${shape[axes[1]]}) across`;
}

// How unequal the rows and columns of a map are: where all are wrong alike, it shows nothing.
function spread({ rows }) {
  const wrong = rows.map((row) => [...row].map((digit) => Number(parseInt(digit, 16) > 3)));
  const share = wrong.flat().reduce((a, b) => a + b, 0) / Math.max(1, wrong.flat().length);
  return share * (1 - share) * 4 + Math.log10(1 + wrong.flat().length) / 10;
}

// Of what the digits are levels: from this digit on, an element is wrong.
const firstWrong = ({ map_of: of, levels }) => (of === "error" ? 1 : levels.indexOf(1) + 1);
const level = (digit) => (digit === "f" ? Infinity : parseInt(digit, 16));

function steps(record) {
  const wrong = firstWrong(record), count = record.levels.length;
  return (digit) => {
    const at = level(digit);
    if (at === 0) return colour("--map-equal");
    if (at < wrong) return colour("--map-within");
    if (at === Infinity) return colour("--map-none");
    const share = Math.min(1, (at - wrong) / Math.max(1, count - wrong));
    return `color-mix(in oklab, ${colour("--map-most")} ${Math.round(share * 100)}%, ${colour("--map-least")})`;
  };
}

function heatMap(record, map, said) {
  const across = Math.max(...map.rows.map((row) => row.length)), down = map.rows.length;
  const side = Math.max(3, Math.min(24, Math.floor(380 / across), Math.floor(126 / down)));
  const canvas = make("canvas", { width: across * side * 2, height: down * side * 2 }), brush = canvas.getContext("2d");
  canvas.style.width = `${across * side}px`;
  canvas.style.height = `${down * side}px`;
  const wrong = firstWrong(record), count = map.rows.flatMap((row) => [...row]).filter((digit) => level(digit) >= wrong).length;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `${axesOf(map, record)}: ${count} of ${map.rows.join("").length} fields are wrong`);
  const draw = () => {
    const paint = steps(record), gap = side > 6 ? 2 : 0;
    brush.clearRect(0, 0, canvas.width, canvas.height);
    map.rows.forEach((row, r) => [...row].forEach((digit, c) => {
      brush.fillStyle = paint(digit);
      brush.fillRect(c * side * 2, r * side * 2, side * 2 - gap, side * 2 - gap);
      if (side < 10 || level(digit) < wrong) return;
      brush.fillStyle = colour("--paper"); // a mark besides the colour
      brush.fillRect((c + 0.5) * side * 2 - gap / 2 - 2, (r + 0.5) * side * 2 - gap / 2 - 2, 4, 4);
    }));
  };
  draw();
  drawings.add(draw);
  const read = (event) => {
    const frame = canvas.getBoundingClientRect();
    const c = Math.floor((event.clientX - frame.left) / side), r = Math.floor((event.clientY - frame.top) / side);
    if (map.rows[r]?.[c] !== undefined) said.textContent = `${indexAt(record, map, r, c)}: ${levelText(record, map.rows[r][c])}`;
  };
  canvas.addEventListener("mousemove", read);
  canvas.addEventListener("mouseleave", () => { said.textContent = hint; });
  const hint = `${count.toLocaleString("en")} of ${map.rows.join("").length.toLocaleString("en")} fields have a wrong element`;
  said.textContent = hint;
  return canvas;
}

function indexAt({ shape }, { axes, step, rows }, r, c) {
  if (axes.length < 2) {
    const from = (r * rows[0].length + c) * step;
    return step > 1 ? `elements from ${from}` : `element ${from}`;
  }
  const index = (axis, at, fields) => {
    const low = Math.floor(shape[axis] * at / fields), high = Math.floor(shape[axis] * (at + 1) / fields) - 1;
    return high > low ? `${low} to ${high}` : String(low);
  };
  const parts = shape.map((_, axis) => (axis === axes[0] ? index(axis, r, rows.length) : axis === axes[1] ? index(axis, c, rows[0].length) : ":"));
  return `[${parts.join(", ")}]`;
}

function levelText(record, digit) {
  const at = level(digit), { levels } = record;
  const amount = (value) => (record.map_of === "error" ? number(value) : value >= 1 ? `${number(value)} × the tolerance` : `${percent(value)} % of the tolerance`);
  if (at === Infinity) return "NaN or infinite on one side";
  if (at === 0) return "equal";
  return at < levels.length ? `error up to ${amount(levels[at])}` : `error above ${amount(levels[levels.length - 1])}`;
}

function keyOfMap(record) {
  const wrong = firstWrong(record), digits = [...new Set(record.maps.flatMap((map) => map.rows).join(""))];
  const items = [["equal", "equal"], wrong > 1 && ["within", "within the tolerance"], ["least", "wrong"], ["most", "most"]].filter(Boolean);
  if (digits.includes("f")) items.push(["none", "NaN or infinite"]);
  return make("p", { className: "key" }, ...items.map(([name, text]) => make("span", {}, make("i", { className: `map-${name}` }), text)));
}

// How many elements have an error of how many ULP.
function inUlps(record) {
  const { equal, without, first, counts } = record.ulps;
  if (!counts.length) return null;
  const others = [equal && `${equal.toLocaleString("en")} equal`, without && `${without.toLocaleString("en")} without`].filter(Boolean);
  const data = [counts.map((_, i) => first + i), counts];
  const power = (_, splits) => splits.map((n) => (Number.isInteger(n) ? (n < 0 ? `2^${n}` : n < 14 ? String(2 ** n) : `2^${n}`) : ""));
  return plot("Errors in ULP", others.join(", "), 165, data, () => ({
    scales: { x: { time: false, range: [first - 1, first + counts.length] }, y: { range: (_, low, high) => [0, Math.max(1, high) * 1.08] } },
    axes: [axis("error, up to", { values: power, incrs: [1, 2, 4, 8, 16, 32, 64, 128, 256], size: 22 }), axis("elements", { values: briefly, size: 40 })],
    series: [{}, { paths: uPlot.paths.bars({ size: [0.86, 40] }), fill: colour("--mark"), width: 0, points: { show: false } }],
  }), counts.map((count, i) => `${count} up to 2^${first + i}`).join(", "));
}

const finite = (value) => (typeof value === "number" ? value : typeof value === "boolean" ? Number(value) : null);

// Return the elements of a record as [[expected, actual, error], ...]: the wrong ones, and some of the others.
function elements({ points, rtol, atol }) {
  const wrong = [], right = [];
  points.at.forEach((_, i) => {
    const [expected, actual, error] = [finite(points.expected[i]), finite(points.actual[i]), points.error[i]];
    if (expected === null || actual === null || error === null) return;
    (error > atol + rtol * Math.abs(expected) ? wrong : right).push([expected, actual, error]);
  });
  return [wrong, right];
}

function byMagnitude(record) {
  const both = elements(record).map((some) => some.filter(([expected, , error]) => expected !== 0 && error > 0).map(([expected, , error]) => [Math.abs(expected), error]));
  if (both.flat().length < 3) return null;
  const sizes = both.flat().map(([x]) => x), low = Math.min(...sizes), high = Math.max(...sizes);
  const limit = [];
  for (let n = 0; n <= 24; n++) { const x = low * (high / low) ** (n / 24); limit.push([x, record.atol + record.rtol * x]); }
  const limited = record.atol + record.rtol > 0;
  const data = columns(...both, ...(limited ? [limit] : []));
  return plot("Error against magnitude", limited ? "dashed: the tolerance" : "", 165, data, () => ({
    scales: { x: LOGARITHMIC, y: { distr: 3, log: 10 } },
    axes: [logAxis("expected, absolute", 5, { size: 22 }), logAxis("error", 6, { size: 46 })],
    series: [{}, dots(colour("--wrong")), dots(colour("--dot"), 4), ...(limited ? [line(colour("--soft"))] : [])],
  }), `${both[0].length} wrong and ${both[1].length} other elements`);
}

function bothValues(record) {
  const both = elements(record);
  if (both.flat().length < 2) return null;
  const values = both.flat().map(([expected]) => expected), low = Math.min(...values), high = Math.max(...values);
  const data = columns(...both.map((some) => some.map(([expected, actual]) => [expected, actual])), [[low, low], [high, high]]);
  return plot("Actual against expected", "dashed: equal", 165, data, () => ({
    scales: { x: { time: false } },
    axes: [axis("expected", { values: briefly, size: 22 }), axis("actual", { values: briefly, size: 46 })],
    series: [{}, dots(colour("--wrong")), dots(colour("--dot"), 4), line(colour("--soft"))],
  }), `${both[0].length} wrong and ${both[1].length} other elements`);
}

// All cases of the operator, by a size of their inputs that is chosen: those that fail as this one, and those that pass.
function bySize(record) {
  const over = OVER[record.over];
  if (!over || !Object.keys(over.sizes).length) return null;
  const names = Object.keys(over.sizes), choice = make("select", {}), box = make("div", {});
  choice.setAttribute("aria-label", "Size of the cases");
  for (const one of names) choice.append(make("option", { value: one }, one));
  choice.value = names.find((one) => over.in_common.includes(` ${one} = `)) ?? names.find((one) => one.endsWith(".numel()")) ?? names[0];
  const draw = () => box.replaceChildren(sizePlot(over, choice));
  choice.addEventListener("change", () => { draw(); choice.focus(); });
  draw();
  return box;
}

function sizePlot(over, choice) {
  const both = [[], []];
  over.sizes[choice.value].forEach((size, k) => {
    const used = over.tolerance_used[k] ?? (over.wrong[k] ? Infinity : 0); // a wrong case without a number: a NaN, another shape
    both[over.wrong[k] ? 0 : 1].push([Math.max(size, 0.5), clampShare(used)]); // an empty one is left of 1
  });
  const figure = plot("Error against size", "", 165, columns(...both), () => ({
    scales: { x: LOGARITHMIC, y: { distr: 3, log: 10, range: [LEAST_SHARE / 1.6, 160] } },
    axes: [logAxis(choice.value, 6, { size: 22 }), logAxis("", 6, { values: shareTexts, size: 62 })],
    series: [{}, dots(colour("--wrong")), dots(colour("--dot"), 5)],
    hooks: { drawAxes: [(chart) => limitLine(chart, "y")] },
  }), `${both[0].length} wrong and ${both[1].length} other cases, by ${choice.value}`);
  figure.querySelector("figcaption").append(choice);
  return figure;
}

function around(record) {
  const { from, expected, actual } = record.around, { worst, shape, rtol, atol } = record;
  const before = worst.at.slice(0, -1);
  const rows = expected.map((value, i) => {
    const [e, a] = [finite(value), finite(actual[i])];
    const off = e === null || a === null ? null : Math.abs(a - e), wrong = off === null ? value !== actual[i] : off > atol + rtol * Math.abs(e);
    const index = shape.length ? `[${[...before, from + i].join(", ")}]` : "";
    const cells = [index, String(value), String(actual[i]), off === null ? (wrong ? "differs" : "0") : number(off)].map((text) => make("td", {}, text));
    return make("tr", { className: wrong ? "wrong" : "" }, make("td", {}, wrong ? "✗" : ""), ...cells);
  });
  const head = make("tr", {}, make("td"), ...["index", "expected", "actual", "error"].map((text) => make("th", { scope: "col" }, text)));
  return make("details", {}, make("summary", {}, "Values around the worst"), make("table", { className: "around" }, make("thead", {}, head), make("tbody", {}, ...rows)));
}
