// What is unsupported, the checks, and what else is known of the operators.

// Cells that are unsupported, and unsupported cases in cells that are verified by their others, by reason.
function buildFaults(visible) {
  const groups = new Map();
  const put = (key, fault, i) => {
    if (!groups.has(key)) groups.set(key, { ...fault, cells: [] });
    groups.get(key).cells.push(i);
  };
  const refused = CASES.outcome.values.indexOf("unsupported");
  for (const i of visible) {
    const outcome = of("outcome", i);
    if (outcome === "unsupported") {
      put(`${outcome}\n${CELLS.detail.rows[i]}`, { title: name(i), detail: of("detail", i) }, i);
    } else if (outcome === "verified" && refused >= 0) {
      const [from, to] = cases(i);
      for (let k = from; k < to; k++) {
        if (CASES.outcome.rows[k] !== refused) continue;
        const title = `${of("op", i)}-${of("lowering", i)}`;
        const at = `${title}\n${generic(caseOf("detail", k))}`;
        put(at, { title, detail: caseOf("detail", k), names: new Set() }, i);
        groups.get(at).names.add(caseOf("case", k));
      }
    }
  }
  const box = byId("faults"), sorted = [...groups.values()];
  box.replaceChildren();
  if (!sorted.length) return;
  box.append(make("h2", {}, "Unsupported ", make("span", {}, many(sorted.length, "reason"))));
  const items = sorted.slice(0, LISTED).map(fault), few = items.slice(0, FEW), rest = items.slice(FEW);
  box.append(...few);
  if (rest.length) box.append(make("details", {}, make("summary", {}, `${rest.length} more`), ...rest));
  if (sorted.length > LISTED) box.append(make("p", { className: "soft" }, `and ${sorted.length - LISTED} further reasons`));
}
const FEW = 4;

function fault({ title, detail, names, cells }) {
  const different = new Set(cells);
  const button = make("button", { type: "button", className: "link mono" }, title);
  button.addEventListener("click", () => { if (places.has(cells[0])) focusOn(cells[0]); open(cells[0]); });
  const more = different.size > 1 ? ` and ${different.size - 1} more` : "";
  const where = names ? ` ${[...names].join(", ")} in ${many(different.size, "cell")}` : more;
  const said = make("div", {}, button, make("span", { className: "soft" }, where), make("p", { className: "reason" }, detail));
  return make("div", { className: "fault" }, make("span", { className: "mark unsupported", title: "unsupported" }, MARKS.unsupported), said);
}

// The checks that pass the filters: the wrong ones with their reason, the others folded. A facet that a check does not
// have, such as the opset, is no reason to hide it.
function buildChecks() {
  const words = chosen.operator.toLowerCase().split(/[\s,]+/).filter(Boolean);
  const passes = (facet, values) => !chosen[facet].size || !values.length || values.some((value) => chosen[facet].has(value));
  const shown = CHECKS.filter((check) =>
    (!words.length || words.some((word) => check.op.toLowerCase().includes(word))) &&
    passes("outcome", [check.outcome]) && passes("change", [check.change]) &&
    passes("lowering", check.lowering ? [check.lowering] : []) && passes("torch", check.torch ? check.torch.split("+") : []));
  const box = byId("checks");
  box.replaceChildren();
  if (!shown.length) return;
  const shownOpen = ({ outcome, weak }) => WRONG.has(outcome) || weak.length > 0;
  const wrong = shown.filter(shownOpen), right = shown.filter((check) => !shownOpen(check));
  const counts = DATA.outcomes.map((outcome) => [outcome, shown.filter((check) => check.outcome === outcome).length]);
  const total = counts.filter(([, count]) => count).map(([outcome, count]) => `${count} ${outcome}`).join(", ");
  box.append(make("h2", {}, "Checks ", make("span", {}, `${shown.length}: ${total}`)), ...wrong.slice(0, LISTED).map(checkItem));
  if (wrong.length > LISTED) box.append(make("p", { className: "soft" }, `and ${wrong.length - LISTED} further checks`));
  if (right.length) box.append(make("details", {}, make("summary", {}, right.length < shown.length && wrong.some(({ weak }) => weak.length) ? "The others" : "Those that are not wrong"), ...right.map(checkItem)));
}

function checkItem({ name, outcome, detail, change, weak, notes }) {
  const mark = weak.length ? make("span", { className: "mark weak", title: "weak" }, "!") : make("span", { className: `mark ${outcome}`, title: outcome }, MARKS[outcome]);
  const texts = [detail && ["reason", detail], weak.length && ["reason", weak.join("\n")], notes.length && ["reason soft", [...new Set(notes)].join("\n")]].filter(Boolean);
  return make("div", { className: "fault" }, mark, make("div", {}, make("span", { className: "mono" }, name),
    make("span", { className: "soft" }, change ? ` ${CHANGES[change].join(" ")}` : ""), ...texts.map(([className, text]) => folded(make("p", { className }, text), text))));
}

// Fold a long text behind its first sentence.
function folded(element, text) {
  return text.length > 300 ? make("details", {}, make("summary", {}, sentenceOf(text)), element) : element;
}

// What a torch cannot check at all, whatever is filtered.
function buildSkipped() {
  const skipped = DATA.skipped;
  if (!skipped.length) return;
  const item = ({ torch, reason, checks, ops }) => make("li", {},
    `torch ${torch}: ${checks.join(", ")} `, make("span", { className: "soft" }, `${reason} (${ops.join(", ")})`));
  byId("skipped").append(make("h2", {}, "Not checked, and why"), make("ul", {}, ...skipped.map(item)));
}

// What works in torch beyond eager mode, whatever is filtered.
const ROW_MARKS = { works: "✓", refused: "○", failed: "✗" };
function buildCompat() {
  if (!DATA.compat.length) return;
  const row = ({ name, outcome }) =>
    make("span", { className: outcome === "failed" ? "row wrong" : "row" }, `${ROW_MARKS[outcome]}\u00a0${name}`);
  const item = ({ op, torch, rows }) => {
    const line = [`${op}, torch ${torch}: `, ...rows.flatMap((one) => [row(one), " "])];
    const noted = rows.filter(({ detail }) => detail);
    if (!noted.length) return make("li", {}, ...line);
    const list = make("ul", {}, ...noted.map((one) => make("li", {},
      row(one), " ", make("span", { className: "soft" }, `${one.outcome}: ${one.detail}`))));
    const open = rows.some(({ outcome }) => outcome === "failed");
    return make("li", {}, make("details", { open }, make("summary", {}, ...line), list));
  };
  byId("compat").append(make("h2", {}, "Beyond eager mode"), make("ul", {}, ...DATA.compat.map(item)));
}

function buildGone() {
  const gone = DATA.changes?.gone ?? [];
  if (!gone.length) return;
  const list = make("ul", {}, ...gone.map(({ name, before }) => make("li", {}, `${MARKS[before]} ${name}`)));
  byId("gone").append(make("details", {}, make("summary", {}, `Gone since the previous run: ${gone.length}`), list));
}
