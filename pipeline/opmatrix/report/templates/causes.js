// What is wrong, by cause: cells and checks with the same message, or behind the same failed step, are one.

// What differs between cells with the same fault: their names, and seconds.
const generic = (text) => text.replace(/(torch[\d.+]+-)?(legacy|dynamo|node)-opset\d+(-ort[\d.]+)?/g, "…").replace(/\d+(\.\d+)? s\b/g, "… s");

// Return the place of the first case of a cell that is wrong, or null.
function wrongCase(i) {
  const [from, to] = cases(i);
  for (let k = from; k < to; k++) if (WRONG.has(caseOf("outcome", k))) return k;
  return null;
}

function findCauses() {
  const found = new Map();
  const cause = (key, start) => {
    if (!found.has(key)) found.set(key, { cells: [], checks: [], ...start });
    return found.get(key);
  };
  const kernels = new Map(); // by operator: the first cause of wrong outputs of its own kernel
  for (let i = 0; i < COUNT; i++) {
    const outcome = of("outcome", i);
    if (!WRONG.has(outcome)) continue;
    const [op, lowering, blocked, k] = [of("op", i), of("lowering", i), of("blocked", i), wrongCase(i)];
    const detail = (k !== null && caseOf("detail", k)) || of("detail", i);
    const key = blocked ? blocked : [op, lowering, outcome, generic(detail)].join("\n");
    const one = cause(key, { title: blocked || `${op}-${lowering}`, blocked, outcome, detail });
    one.cells.push(i);
    if (outcome === "mismatched" && lowering === "custom" && !kernels.has(op)) kernels.set(op, one);
  }
  for (const check of CHECKS) {
    if (!WRONG.has(check.outcome)) continue;
    // The kernel that computes wrong values in ONNX Runtime also computes them in torch.
    const same = !check.blocked && ["kernel", "search"].includes(check.check) && kernels.get(check.op);
    const one = same || cause(check.blocked || check.name, { title: check.blocked || check.name, blocked: check.blocked, outcome: check.outcome, detail: check.detail });
    one.checks.push(check);
  }
  const ranks = ["failed", "mismatched"];
  return [...found.values()].sort((a, b) => ranks.indexOf(a.outcome) - ranks.indexOf(b.outcome) || b.cells.length - a.cells.length);
}
const CAUSES = findCauses();

const CARDS = 8; // causes that are shown at once
function buildCauses() {
  if (!CAUSES.length) return;
  byId("causes").append(...CAUSES.slice(0, CARDS).map((cause, at) => causeCard(cause, at === 0)));
  const rest = CAUSES.slice(CARDS, LISTED + CARDS);
  if (!rest.length) return;
  const more = make("details", { className: "more" }, make("summary", {}, many(CAUSES.length - CARDS, "further cause")));
  more.addEventListener("toggle", () => {
    more.append(...rest.map((cause) => causeCard(cause, false)));
    if (CAUSES.length > CARDS + LISTED) more.append(make("p", { className: "soft" }, `and ${CAUSES.length - CARDS - LISTED} further causes`));
  }, { once: true });
  byId("causes").append(more);
}

function causeCard(cause, first) {
  const { title, outcome, blocked, cells, checks } = cause, detail = cause.detail.replace(`not run: ${blocked} failed: `, "");
  const counts = [cells.length && many(cells.length, "cell"), checks.length && many(checks.length, "check")].filter(Boolean).join(", ");
  const summary = make("summary", {},
    make("span", { className: `mark ${outcome}`, title: outcome }, MARKS[outcome]),
    make("span", { className: "title" }, make("h2", {}, title), make("span", { className: "sentence" }, sentenceOf(detail))),
    make("span", { className: "soft" }, counts));
  const card = make("details", { className: "cause", open: first }, summary);
  let built = false;
  const build = () => {
    if (built) return;
    built = true;
    card.append(make("div", { className: "body" }, ...causeBody(cause).filter(Boolean)));
  };
  if (first) build();
  card.addEventListener("toggle", build);
  return card;
}

const many = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

// Return the first sentence of a message, or its first line.
function sentenceOf(text) {
  const line = text.split("\n")[0], end = line.search(/\. [A-Z]|; worst at/);
  return short(end > 0 ? line.slice(0, end) : line, 160);
}

function causeBody({ blocked, detail, cells, checks }) {
  const i = cells.find((one) => MISMATCHES.shown[name(one)]) ?? cells[0], k = i === undefined ? null : wrongCase(i);
  const known = i === undefined ? null : mismatchIn(i, k);
  const check = checks.find(({ name }) => MISMATCHES.shown[name]) ?? checks[0];
  const checked = !known && check ? Object.values(MISMATCHES.shown[check.name] ?? {}).map((at) => MISMATCHES.records[at])[0] : null;
  const record = known ?? checked;
  const command = blocked ? `${DATA.run}doit ${blocked}` : i === undefined ? check.replay : replayOf(i, k);
  const log = i === undefined ? "" : of("log", i);
  return [
    why(detail, record ? 3 : 12),
    command && copied(command),
    make("div", { className: record ? "evidence" : "evidence plain" }, ...[
      record && make("div", { className: "data" }, ...showMismatch(record)),
      !record && log && make("div", { className: "data" }, logOf(log)),
      i !== undefined && !blocked && of("pictures", i).length > 0 && graph(i, k, true),
    ].filter(Boolean)),
    i !== undefined && places_(cells),
    i !== undefined && caseList(i),
    checks.length > 0 && make("details", {}, make("summary", {}, `${many(checks.length, "check")} in torch and of files`), ...checks.map(checkItem)),
    record && log && make("details", {}, make("summary", {}, "Log"), logOf(log)),
    i !== undefined && !blocked && links(i, k),
    record && record.saved !== false && takeAway(known ? `${saveOf(i)} --case ${nameOf(record)}` : `${DATA.run}python -m opmatrix save-case ${check.op} --case ${nameOf(record)}`),
  ];
}

function mismatchIn(i, k) {
  const shown = MISMATCHES.shown[name(i)];
  if (!shown) return null;
  const at = k === null ? Object.values(shown)[0] : shown[`${caseOf("case", k)}/${caseOf("model", k)}`];
  return at === undefined ? null : MISMATCHES.records[at];
}

function why(detail, lines) {
  const text = make("pre", { className: "text why" }, detail);
  if (detail.length < 110 * lines) return text;
  const start = make("pre", { className: "text why" }, `${detail.slice(0, 100 * lines)} …`);
  return make("details", { className: "long" }, make("summary", {}, start), text);
}

// The cells of a cause, by torch and ONNX Runtime: each opens on a click.
function places_(cells) {
  const groups = new Map();
  for (const i of cells) {
    const torch = of("torch", i), key = `${of("op", i)}-${of("lowering", i)}, ${torch === null ? "" : `torch ${torch} `}${of("exporter", i)}, ONNX Runtime ${of("ort", i)}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(i);
  }
  const rows = [...groups].slice(0, LISTED).map(([key, some]) => {
    const links_ = some.map((i) => {
      const button = make("button", { type: "button", className: "chip", title: name(i) }, `opset ${of("opset", i)}`);
      button.addEventListener("click", () => { if (places.has(i)) focusOn(i); open(i); byId("detail").scrollIntoView({ block: "nearest" }); });
      return button;
    });
    return make("p", { className: "place" }, make("span", {}, `${key}: `), ...links_);
  });
  if (groups.size > LISTED) rows.push(make("p", { className: "soft" }, `and ${groups.size - LISTED} further`));
  return make("details", {}, make("summary", {}, `In ${many(cells.length, "cell")}`), ...rows);
}

function caseList(i) {
  const [from, to] = cases(i);
  if (from === to) return null;
  return make("details", {}, make("summary", {}, `Cases of ${cellName(i)}: ${tally(from, to)}`), caseTable(i, from, to, null));
}
