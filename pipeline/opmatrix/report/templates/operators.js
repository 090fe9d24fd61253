// Each operator: its cells, errors, checks in torch, and how strong they are.

function buildOperators() {
  const found = new Map(CELLS.op.values.map((op) => [op, { op, cells: [], checks: [] }]));
  for (let i = 0; i < COUNT; i++) found.get(of("op", i)).cells.push(i);
  for (const check of CHECKS) found.get(check.op)?.checks.push(check);
  const shown = [...found.values()].sort((a, b) => byVersion(a.op, b.op));
  if (!shown.length) return;
  const titles = ["operator", "cells", "error, of the tolerance", "checks", "inputs of the search", "mutants killed"];
  const head = make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title)));
  const body = make("tbody", {}, ...shown.slice(0, LISTED).map(operatorRow));
  const more = shown.slice(LISTED);
  const box = byId("operators");
  box.append(make("h2", {}, "Operators ", make("span", {}, String(shown.length))),
    make("div", { className: "wide", tabIndex: 0 }, make("table", {}, make("thead", {}, head), body)));
  box.querySelector(".wide").setAttribute("role", "group");
  box.querySelector(".wide").setAttribute("aria-label", "Table of operators");
  if (!more.length) return;
  const all = make("button", { type: "button", className: "link" }, `Show ${many(more.length, "further operator")}`);
  all.addEventListener("click", () => { body.append(...more.map(operatorRow)); all.remove(); });
  box.append(all);
}

function operatorRow(operator) {
  const { op, cells, checks } = operator;
  const button = make("button", { type: "button", className: "fold" }, op);
  button.setAttribute("aria-expanded", "false");
  const row = make("tr", {}, make("th", { scope: "row" }, button), make("td", {}, tallyOf(cells.map((i) => of("outcome", i)))),
    make("td", {}, ...shareBar(cells)), make("td", {}, tallyOf(checks.map(({ outcome, weak }) => (weak.length ? "weak" : outcome)))),
    make("td", {}, searchOf(checks)), make("td", {}, mutantsOf(op)));
  button.addEventListener("click", () => {
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    if (open) row.nextSibling.remove();
    else row.after(make("tr", { className: "panel" }, make("td", { colSpan: 6 }, ...operatorPanel(operator).filter(Boolean))));
  });
  return row;
}

// Return how many there are of each outcome, with its mark.
function tallyOf(outcomes) {
  const counts = new Map();
  for (const outcome of outcomes) counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
  const order = ["failed", "mismatched", "weak", "verified", "unsupported"].filter((outcome) => counts.has(outcome));
  const parts = order.map((outcome) => {
    const mark = make("span", { className: `mark ${outcome}` }, MARKS[outcome] ?? "!");
    mark.setAttribute("aria-hidden", "true");
    return make("span", { className: "count", title: outcome }, mark, `${counts.get(outcome)}`, make("span", { className: "unseen" }, ` ${outcome}`));
  });
  return make("span", {}, ...(parts.length ? parts : ["–"]));
}

function shareBar(cells) {
  const shares = cells.map((i) => CELLS.tolerance_used[i]).filter((share) => share !== null);
  if (!shares.length) return ["–"];
  const largest = shares.reduce((a, b) => Math.max(a, b)), bar = make("span", { className: largest > 1 ? "meter beyond" : "meter" }, make("i"));
  bar.firstChild.style.width = `${Math.min(100, largest * 100)}%`;
  return [bar, ` ${percent(largest)} %`];
}

function searchOf(checks) {
  const drawn = checks.map(({ search }) => search).find(Boolean);
  if (!drawn) return make("span", { className: "soft" }, "–");
  const refused = drawn.refused ? `, ${drawn.refused} refused` : "";
  return make("span", {}, `${drawn.examples}`, make("span", { className: "soft" }, `, ${drawn.new_shapes} new shapes${refused}`));
}

const scoreText = (score) => (score === null ? "–" : `${(Math.floor(score * 1000) / 10).toFixed(1)} %`);
function mutantsOf(op) {
  const score = DATA.mutation.find((one) => one.op === op);
  if (!score) return make("span", { className: "soft" }, "not tried");
  return make("span", {}, scoreText(score.score), make("span", { className: "soft" }, ` of ${score.killed + score.survived}${score.current ? "" : ", earlier version"}`));
}

function operatorPanel({ op, cells, checks }) {
  const score = DATA.mutation.find((one) => one.op === op), search = checks.map((check) => check.search).find(Boolean);
  const records = make("table", { className: "records" }, make("tbody", {}, ...checks.map(checkRow)));
  return [
    errorsByCell(cells),
    make("div", { className: "pair" }, ...[historyOf(op), secondsByStage(op)].filter(Boolean)),
    checks.length > 0 && make("h3", {}, "Checks"),
    checks.length > 0 && records,
    search && make("h3", {}, "What the search tried"),
    search && searchFacts(search),
    score && make("h3", {}, "Mutants"),
    score && mutantFacts(score),
  ];
}

function checkRow({ check, torch, lowering, outcome, weak, detail, notes, checked }) {
  const mark = weak.length ? "weak" : outcome, text = weak.join("\n") || detail || [...new Set(notes)].join("\n");
  const where = [lowering, torch && `torch ${torch}`].filter(Boolean).join(", ");
  return make("tr", {}, make("td", {}, make("span", { className: `mark ${mark}`, title: mark }, MARKS[mark] ?? "!")), make("td", {}, check), make("td", { className: "soft" }, where),
    make("td", { className: "soft" }, checked ? many(checked, "result") : ""), make("td", {}, text && folded(make("p", { className: "reason" }, text), text)));
}

function searchFacts(search) {
  const facts = make("dl", { className: "facts" });
  const say = (key, value) => facts.append(make("div", {}, make("dt", {}, key), make("dd", {}, value)));
  const counted = (object) => Object.entries(object).map(([key, count]) => `${key} ${count}`).join(", ");
  say("random inputs", String(search.examples));
  say("refused by the reference", String(search.refused));
  say("shapes that no case has", String(search.new_shapes));
  if (Object.keys(search.attributes).length) say("values of attributes that no case has", counted(search.attributes));
  if (Object.keys(search.dtypes).length) say("dtypes", counted(search.dtypes));
  if (search.large.length) say("elements of large inputs", search.large.map((count) => count.toLocaleString("en")).join(", "));
  if (Object.keys(search.dropped).length) say("dropped", counted(search.dropped));
  return facts;
}

function mutantFacts({ score, killed, survived, date, current, survivors }) {
  const line = `${scoreText(score)}: ${killed} killed, ${survived} survived, ${date}${current ? "" : ", of an earlier version"}`;
  if (!survivors.length) return make("p", {}, line);
  return make("details", {}, make("summary", {}, line), make("ul", {}, ...survivors.map((text) => make("li", {}, make("code", {}, text)))));
}

// The largest error of each cell and dtype, in the order of the matrix.
function errorsByCell(cells) {
  const dtypes = new Map();
  const ordered = [...cells].sort((a, b) => byVersion(of("lowering", a), of("lowering", b)) || byVersion(of("torch", a), of("torch", b)) ||
    byFacet("exporter")(of("exporter", a), of("exporter", b)) || of("opset", a) - of("opset", b) || byVersion(of("ort", a), of("ort", b)));
  ordered.forEach((i, x) => {
    const largest = new Map(), [from, to] = cases(i);
    for (let k = from; k < to; k++) {
      const used = CASES.tolerance_used[k], dtype = used === null ? "" : dtypeOf(i, k);
      if (dtype && !(largest.get(dtype) >= used)) largest.set(dtype, used);
    }
    for (const [dtype, used] of largest) {
      if (!dtypes.has(dtype)) dtypes.set(dtype, []);
      dtypes.get(dtype).push([x, clampShare(used)]);
    }
  });
  if (!dtypes.size) return null;
  const series = [...dtypes].sort(([a], [b]) => byVersion(a, b));
  // The opset, and below it what begins there: exporter, torch, lowering.
  const facets = ["exporter", ...["torch", "ort", "lowering"].filter((facet) => new Set(cells.map((i) => of(facet, i))).size > 1)];
  const texts = { torch: (torch) => (torch === null ? "no torch" : `torch ${torch}`), ort: (ort) => `ORT ${ort}` };
  const title = (i, x) => [of("opset", i), ...facets.map((facet, n) => {
    const begins = x === 0 || facets.slice(n).some((outer) => of(outer, i) !== of(outer, ordered[x - 1]));
    return begins ? (texts[facet] ?? String)(of(facet, i)) : "";
  })].join("\n");
  const every = Math.ceil(ordered.length / 24), beyond = series.some(([, points]) => points.some(([, y]) => y > 1));
  const figure = plot("Error by cell and dtype", "of the tolerance", 200, columns(...series.map(([, points]) => points)), () => ({
    scales: { x: { time: false, range: [-0.7, ordered.length - 0.3] }, y: { distr: 3, log: 10, range: [LEAST_SHARE / 1.6, beyond ? 160 : 1.6] } },
    axes: [
      axis("", { splits: ordered.map((_, x) => x).filter((x) => x % every === 0), values: (_, splits) => splits.map((x) => (every === 1 ? title(ordered[x], x) : String(x + 1))), size: 22 + (every === 1 ? 14 * facets.length : 0) }),
      logAxis("", 6, { values: shareTexts, size: 62 }),
    ],
    series: [{}, ...series.map(([dtype]) => dots(dtypeColour(dtype), 7))],
    hooks: { drawAxes: [(chart) => limitLine(chart, "y")] },
  }), series.map(([dtype, points]) => `${dtype} up to ${percent(Math.max(...points.map(([, y]) => y)))} %`).join(", "));
  figure.append(dtypeKey(series.map(([dtype]) => dtype)));
  return figure;
}
