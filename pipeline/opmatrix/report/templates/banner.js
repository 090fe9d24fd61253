// Is it right? The answer, and what it covers.

function buildBanner() {
  const counts = Object.fromEntries(DATA.outcomes.map((outcome) => [outcome, 0]));
  for (let i = 0; i < COUNT; i++) counts[of("outcome", i)]++;
  const checks = Object.fromEntries(DATA.outcomes.map((outcome) => [outcome, CHECKS.filter((check) => check.outcome === outcome).length]));
  const wrongCells = counts.failed + counts.mismatched, wrongChecks = checks.failed + checks.mismatched;
  const weak = CHECKS.filter((check) => check.weak.length).length;
  const part = (wrong, all, noun) => all > 0 && `${wrong.toLocaleString("en")} of ${many(all, noun)}`;
  let state = "right", answer = "Verified", sentence;
  if (CAUSES.length) {
    [state, answer] = ["wrong", `Not verified: ${many(CAUSES.length, "cause")}`];
    const parts = [part(wrongCells, COUNT, "cell"), part(wrongChecks, CHECKS.length, "check")].filter(Boolean);
    sentence = `${parts.join(" and ")} ${wrongCells + wrongChecks === 1 ? "is" : "are"} wrong.`;
    if (counts.verified) sentence += ` ${many(counts.verified, "cell")} ${counts.verified === 1 ? "is" : "are"} verified.`;
  } else if (!counts.verified) {
    [state, answer] = ["nothing", "Nothing verified"];
    sentence = COUNT ? "Every cell is unsupported, for a stated reason." : "No cell was asked for.";
  } else {
    sentence = `ONNX Runtime computes what the references compute, in ${counts.verified === COUNT ? "all" : `${counts.verified.toLocaleString("en")} of`} ${many(COUNT, "cell")}.`;
    if (checks.verified) sentence += ` ${many(checks.verified, "check")} passed.`;
  }
  byId("banner").className = state;
  byId("answer").append(make("span", { className: "sign" }, { right: "✓", wrong: "✗", nothing: "○" }[state]), ` ${answer}`);
  byId("sentence").textContent = sentence;
  byId("notes").append(...notRun(counts, checks, weak));
  buildTiles(counts, checks);
  buildShare(counts);
}

// What did not run, or proves little, each with a link to the reasons; and what changed.
function notRun(counts, checks, weak) {
  const found = [];
  const note = (text, target) => {
    const button = target && make("button", { type: "button", className: "link" }, text);
    button?.addEventListener("click", () => { const place = byId(target); place.scrollIntoView({ block: "start" }); place.querySelector("details")?.setAttribute("open", ""); });
    found.push(make("li", {}, button ?? text));
  };
  if (DATA.shard) note(`shard ${DATA.shard.number} of ${DATA.shard.of}: the other shards have the rest of ${many(DATA.shard.cells, "cell")} and ${many(DATA.shard.checks, "check")}`);
  for (const { from, signer, steps } of DATA.shared) note(`${many(steps.length, "result")} from the shared cache ${from}${signer ? `, signed by ${signer}` : ""}`);
  const blocked = countRows(CELLS.blocked, (step) => step !== "");
  const uncached = countRows(CELLS.detail, (detail) => detail.startsWith("not run: the shared cache has"));
  if (uncached) note(`${many(uncached, "cell")} did not run, because the shared cache has no result`);
  if (blocked > uncached) note(`${many(blocked - uncached, "cell")} did not run, because an earlier step failed`);
  if (counts.unsupported) note(`${many(counts.unsupported, "cell")} unsupported`, "faults");
  const refused = countCases("unsupported");
  if (refused) note(`${many(refused, "case")} unsupported`, "faults");
  if (checks.unsupported) note(`${many(checks.unsupported, "check")} unsupported`, "checks");
  if (DATA.skipped.length) note(`not checked in torch ${[...new Set(DATA.skipped.map(({ torch }) => torch))].join(", ")}: ${many(DATA.skipped.length, "item")}`, "skipped");
  if (weak) note(`${many(weak, "check")} ${weak === 1 ? "proves" : "prove"} little`, "checks");
  const changes = DATA.changes && Object.entries(CHANGES).map(([kind, [sign, text]]) => [DATA.changes[kind].length, sign, text]).filter(([count]) => count);
  if (changes?.length) note(`since the previous run: ${changes.map(([count, sign, text]) => `${sign} ${count.toLocaleString("en")} ${text}`).join(", ")}`);
  return found;
}

function countRows({ values, rows }, passes) {
  const counted = values.map(passes);
  return rows.reduce((sum, row) => sum + counted[row], 0);
}

// Return the number of cases of all cells, or of those with an outcome.
function countCases(outcome) {
  const wanted = CASES.outcome.values.indexOf(outcome), { rows } = CASES.outcome;
  let count = 0;
  for (let i = 0; i < COUNT; i++) {
    const [from, to] = cases(i);
    if (outcome === undefined) count += to - from;
    else for (let k = from; k < to; k++) count += Number(rows[k] === wanted);
  }
  return count;
}

function buildTiles(counts, checks) {
  const tile = (title, value, more) => byId("tiles").append(make("div", {}, make("dt", {}, title), make("dd", {}, value), more ? make("dd", { className: "more" }, more) : ""));
  const verified = (all, right) => (right === all ? "all verified" : `${right.toLocaleString("en")} verified`);
  tile("operators", CELLS.op.values.length.toLocaleString("en"), versionsOf("torch", "torch"));
  tile("cells", COUNT.toLocaleString("en"), verified(COUNT, counts.verified));
  const ran = countCases();
  tile("cases", ran.toLocaleString("en"), verified(ran, countCases("verified")));
  tile("checks", CHECKS.length.toLocaleString("en"), verified(CHECKS.length, checks.verified));
}

function versionsOf(column, title) {
  const found = CELLS[column].values.filter((value) => value !== null).length;
  return found ? `${found} ${title}, ${runtimes.length} ORT` : "";
}

// A line with the part of the cells of each outcome.
function buildShare(counts) {
  if (!COUNT) return;
  const spoken = DATA.outcomes.filter((outcome) => counts[outcome]).map((outcome) => `${counts[outcome]} ${outcome}`).join(", ");
  const bar = byId("share");
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", `Of ${COUNT} cells: ${spoken}`);
  for (const outcome of DATA.outcomes) {
    if (!counts[outcome]) continue;
    const piece = make("i", { className: outcome, title: `${counts[outcome]} ${outcome}` });
    piece.style.flexGrow = String(counts[outcome]);
    bar.append(piece);
  }
}
