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
    if (!values.length || CELLS[facet].values.length < 2) continue; // nothing to choose
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
  const operators = make("datalist", { id: "names" }, ...CELLS.op.values.map((op) => make("option", { value: op })));
  const input = make("input", { id: "operator", type: "search", placeholder: "all, or such as: norm gelu" });
  input.setAttribute("list", "names");
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
  const all = COUNT.toLocaleString("en");
  byId("totals").textContent = active ? `${visible.length.toLocaleString("en")} of ${all}` : all;
}
