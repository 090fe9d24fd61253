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
  buildChecks();
  writeHash();
}

function buildHeader() {
  const parts = Object.entries(DATA.environments.main).flatMap(([key, version], at) => [at ? " · " : "", `${key} `, make("b", {}, version)]);
  const compared = DATA.changes === null ? " · no previous run to compare with" : "";
  byId("versions").append(...parts, compared, ` · written ${new Date(document.lastModified).toLocaleString("sv")}`);
}

// A table of the environments beside the main one: each torch and each ONNX Runtime has its own packages.
function buildEnvironments() {
  const beside = Object.entries(DATA.environments).filter(([name]) => name !== "main");
  if (!beside.length) return;
  const packages = [...new Set(beside.flatMap(([, versions]) => Object.keys(versions)))];
  const head = make("tr", {}, make("th", { scope: "col" }, "environment"), ...packages.map((key) => make("th", { scope: "col" }, key)));
  const rows = beside.map(([name, versions]) =>
    make("tr", {}, make("th", { scope: "row" }, name), ...packages.map((key) => make("td", {}, versions[key] ?? ""))));
  const count = `${beside.length} environment${beside.length === 1 ? "" : "s"}`;
  byId("environments").append(make("details", {}, make("summary", {}, `Versions in ${count} besides the main one`),
    make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))));
}

readout(null);
buildBanner();
buildCauses();
buildHeader();
buildEnvironments();
buildFilters();
buildMetrics();
buildOverview();
buildOperators();
buildSkipped();
buildCompat();
buildGone();
listen();
readHash();
