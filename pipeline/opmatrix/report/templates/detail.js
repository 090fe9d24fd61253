// The cell that is open.

function open(i, wanted = null) {
  const other = chosen.open !== i;
  tdOf(chosen.open)?.classList.remove("open");
  chosen.open = i;
  tdOf(i)?.classList.add("open");
  const [from, to] = cases(i);
  if (wanted !== null) chosen.case = wanted;
  else if (other || chosen.case === null) {
    chosen.case = from;
    for (let k = to - 1; k >= from; k--) if (caseOf("outcome", k) !== "verified") chosen.case = k;
  }
  const box = byId("detail");
  box.hidden = false;
  byId("overview").classList.add("behind");
  box.setAttribute("aria-label", name(i));
  box.replaceChildren(...detail(i, from, to).filter(Boolean));
  if (other) box.scrollTop = 0;
  writeHash();
}

function close() {
  const i = chosen.open;
  chosen.open = chosen.case = null;
  byId("detail").hidden = true;
  byId("overview").classList.remove("behind");
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
  const title = make("h3", { className: "name" }, make("span", { className: `mark ${outcome}` }, MARKS[outcome]), ` ${of("op", i)}-${of("lowering", i)}`, make("small", {}, `@${cellName(i)}`));
  const said = make("dl", { className: "facts" });
  const say = (key, value) => said.append(make("div", {}, make("dt", {}, key), make("dd", {}, value)));
  say("outcome", outcome);
  say("worst error", number(CELLS.error[i]));
  say("ULP", number(CELLS.ulp[i]));
  say("of limit", CELLS.tolerance_used[i] === null ? "–" : `${percent(CELLS.tolerance_used[i])} %`);
  if (change) say("since the previous run", change === "new" ? "new" : `${CHANGES[change].join(" ")}: it was ${before}`);
  const origin = DATA.shared.find(({ steps }) => steps.includes(`verify:${name(i)}`));
  if (origin) say("from the shared cache", origin.signer ? `${origin.from}, signed by ${origin.signer}` : origin.from);
  const text = of("detail", i), log = of("log", i), k = chosen.case >= from && chosen.case < to ? chosen.case : null;
  const record = k === null ? null : mismatchOf(name(i), `${caseOf("case", k)}/${caseOf("model", k)}`);
  return [
    make("div", { className: "top" }, title, closing),
    said,
    text && section("Why", "", make("pre", { className: "text why" }, text)),
    section("Replay", "", copied(replayOf(i, k))),
    record && takeAway(`${saveOf(i)} --case ${nameOf(record)}`),
    record && section("Data", caseOf("case", k), ...showMismatch(record)),
    from < to && section("Cases", tally(from, to), caseTable(i, from, to, k)),
    graph(i, k),
    links(i, k),
    log && section("Log", "its last lines", logOf(log)),
  ];
}

// Return `9 cases: 7 verified, 2 unsupported`.
function tally(from, to) {
  const counts = new Map();
  for (let k = from; k < to; k++) counts.set(caseOf("outcome", k), (counts.get(caseOf("outcome", k)) ?? 0) + 1);
  return `${to - from}: ${[...counts].map(([outcome, count]) => `${count} ${outcome}`).join(", ")}`;
}

// `current` is the case that is shown, or null.
function caseTable(i, from, to, current) {
  const lines = [];
  for (let k = from; k < to; k++) {
    const outcome = caseOf("outcome", k), why = caseOf("detail", k), judge = caseOf("judged_in", k);
    const button = make("button", { type: "button", title: `model ${caseOf("model", k)}` }, caseOf("case", k));
    const line = make("tr", {},
      make("td", {}, make("span", { className: `mark ${outcome}`, title: outcome }, MARKS[outcome])), make("td", {}, button),
      ...[number(CASES.error[k]), number(CASES.ulp[k]), percent(CASES.tolerance_used[k])].map((text) => make("td", {}, text)),
      make("td", { title: judge }, judge.split(":")[0]));
    if (k === current) line.setAttribute("aria-current", "true");
    line.addEventListener("click", () => {
      chosen.case = k;
      open(i, k);
      byId("detail").querySelector('tr[aria-current="true"] button').focus();
    });
    lines.push(line);
    if (why) lines.push(make("tr", { className: "why" }, make("td"), make("td", { colSpan: 5 }, why)));
  }
  const titles = [make("td"), ...["case", "error", "ULP", "% of limit", "compared in"].map((title) => make("th", { scope: "col" }, title))];
  return make("table", { className: "cases" }, make("thead", {}, make("tr", {}, ...titles)), make("tbody", {}, ...lines));
}

function replayOf(i, k) {
  const words = [`${DATA.run}python -m opmatrix verify`, of("op", i), "--lowering", of("lowering", i), "--cell", cellName(i)];
  if (k !== null) words.push("--case", caseOf("case", k));
  return words.join(" ");
}

const saveOf = (i) => replayOf(i, null).replace("opmatrix verify", "opmatrix save-case");

const takeAway = (command) => section("Take it away", "a folder that replays without opmatrix", copied(command));

// A command with a button that copies it.
function copied(command) {
  const text = make("code", {}, command);
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
  return make("div", { className: "command" }, text, copy);
}

const logOf = (text) => make("pre", { className: "text log", tabIndex: 0 }, text);

// The model of a case as a picture; of another model where this cell has none of it.
function graph(i, k, plain = false) {
  const pictures = of("pictures", i);
  if (!pictures.length) return section("Graph", "", make("p", { className: "soft" }, "No model was written for this cell."));
  const wanted = k === null ? null : caseOf("model", k);
  const [model, at] = pictures.find(([other]) => other === wanted) ?? pictures[0];
  const shown = DATA.graphs[at], lines = shown.nodes.map((node) => make("li", {}, describe(node)));
  const list = make("details", {}, make("summary", {}, `${many(lines.length, "node")} in words`), make("ol", {}, ...lines));
  const missing = wanted && model !== wanted ? `${model}; of ${wanted} there is none` : model;
  const picture = make("div", { className: "picture", tabIndex: 0 }, drawGraph(shown, model));
  picture.setAttribute("role", "group");
  picture.setAttribute("aria-label", "Picture of the graph");
  const found = section("Graph", missing, picture, list);
  if (plain) found.className = "graph";
  return found;
}

// Links to the files of a cell, which are beside the report in the folder build.
function links(i, k) {
  if (!DATA.links) return null;
  const fields = { name: name(i), op: of("op", i), lowering: of("lowering", i), cell: cellName(i), export: exportName(i), model: k === null ? "" : caseOf("model", k) };
  const link = (title, address) => make("a", { href: address.replace(/\{(\w+)\}/g, (_, key) => encodeURIComponent(fields[key])) }, title);
  const logged = of("log", i) || of("outcome", i) === "verified"; // whose log is not in the page
  const found = [logged && !of("blocked", i) && link("log", DATA.links.log), of("pictures", i).length && fields.model && link("model", DATA.links.model), fields.model && link("data", DATA.links.data)].filter(Boolean);
  return found.length ? make("p", { className: "links" }, "Files: ", ...found.flatMap((one, at) => [at ? ", " : "", one])) : null;
}
