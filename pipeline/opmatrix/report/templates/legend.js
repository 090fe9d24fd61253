// What the fields show, and what that means.

function buildMetrics() {
  Object.entries(METRICS).forEach(([metric, title]) => {
    const chip = make("button", { type: "button", className: "chip" }, title);
    chip.dataset.metric = metric;
    chip.addEventListener("click", () => show(metric));
    byId("metrics").append(chip);
  });
}

function show(metric) {
  chosen.metric = metric;
  update();
}

function showLegend() {
  for (const chip of byId("metrics").children) chip.setAttribute("aria-pressed", String(chip.dataset.metric === chosen.metric));
  const items = chosen.metric === "outcome"
    ? DATA.outcomes.map((outcome) => make("span", {}, make("i", { className: `k ${outcome}` }, MARKS[outcome]), outcome))
    : [make("span", {}, "largest share of a tolerance that was used up, in percent")];
  if (chosen.metric === "outcome") items.push(make("span", {}, "underlined as far as the tolerance was used up"));
  else items.push(make("span", {}, make("i", { className: "k heat failed" }, "9"), "outlined: wrong"));
  const found = CELLS.change.values.filter((kind) => kind).sort(byFacet("change"));
  items.push(...found.map((kind) => make("span", {}, `${CHANGES[kind][0]} ${CHANGES[kind][1]}`)));
  byId("legend").replaceChildren(...items);
}
