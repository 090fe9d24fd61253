// Moving between cells, by keys and by pointer.

function focusOn(i) {
  const before = tdOf(focused);
  if (before) before.tabIndex = -1;
  focused = i;
  const field = tdOf(i);
  field.tabIndex = 0;
  field.focus({ preventScroll: true });
  reveal(field);
}

// Scroll so that the sticky head and first column hide nothing of a field.
function reveal(field) {
  const box = byId("matrix"), place = field.getBoundingClientRect(), frame = box.getBoundingClientRect();
  const top = frame.top + box.querySelector("thead").offsetHeight;
  const left = frame.left + box.querySelector("tbody th").offsetWidth;
  const right = frame.left + box.clientWidth, bottom = frame.top + box.clientHeight;
  if (place.top < top) box.scrollTop -= top - place.top;
  else if (place.bottom > bottom) box.scrollTop += place.bottom - bottom;
  if (place.left < left) box.scrollLeft -= left - place.left;
  else if (place.right > right) box.scrollLeft += place.right - right;
  const now = field.getBoundingClientRect();
  if (now.top < 0 || now.bottom > innerHeight) field.scrollIntoView({ block: "nearest" });
}

// Return the next cell from a place in a direction: holes are passed over.
function step(i, rows, columns) {
  let [r, c] = places.get(i);
  for (;;) {
    r += rows;
    c += columns;
    if (!grid[r] || c < 0 || c >= grid[r].length) return i;
    if (grid[r][c] !== null) return grid[r][c];
  }
}

function toEnd(i, last) {
  const row = grid[places.get(i)[0]].filter((other) => other !== null);
  return last ? row[row.length - 1] : row[0];
}

function nextFault(i, forward) {
  const all = grid.flat().filter((other) => other !== null);
  if (!forward) all.reverse();
  const from = all.indexOf(i) + 1;
  return [...all.slice(from), ...all.slice(0, from)].find((other) => of("outcome", other) !== "verified") ?? i;
}

const MOVES = {
  ArrowUp: (i) => step(i, -1, 0), ArrowDown: (i) => step(i, 1, 0),
  ArrowLeft: (i) => step(i, 0, -1), ArrowRight: (i) => step(i, 0, 1),
  Home: (i) => toEnd(i, false), End: (i) => toEnd(i, true),
};

function listen() {
  const box = byId("matrix");
  box.addEventListener("click", (event) => {
    const field = event.target.closest("td[data-i]");
    if (field) { focusOn(Number(field.dataset.i)); open(Number(field.dataset.i)); }
  });
  box.addEventListener("mouseover", (event) => readout(event.target.closest("td[data-i]")));
  box.addEventListener("mouseleave", () => readout(document.activeElement?.closest("td[data-i]")));
  box.addEventListener("focusin", (event) => {
    const field = event.target.closest("td[data-i]");
    // Only now: to write ten thousand of them would take as long as the matrix.
    field?.setAttribute("aria-label", told(Number(field.dataset.i)));
    readout(field);
  });
  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || focused === null) return;
    if (MOVES[event.key]) moveTo(MOVES[event.key](focused));
    else if (event.key === "Enter" || event.key === " ") {
      if (chosen.open === focused || innerWidth <= 1000) { open(focused); byId("detail").focus(); } else open(focused);
    } else return;
    event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && chosen.open !== null) { close(); return; }
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("input, select, textarea")) return;
    const metric = Object.keys(METRICS)["12".indexOf(event.key)];
    if (metric) show(metric);
    else if (event.key === "/") byId("operator").focus();
    else if ((event.key === "n" || event.key === "p") && focused !== null && grid.length) moveTo(nextFault(focused, event.key === "n"));
    else return;
    event.preventDefault();
  });
  addEventListener("hashchange", readHash);
}

function moveTo(i) {
  focusOn(i);
  if (chosen.open !== null) open(i);
}

function readout(field) {
  const line = byId("readout");
  if (!field) {
    line.replaceChildren(make("span", { className: "hint" }, "Point at a cell, or move to it with the arrow keys; Enter or a click opens it."));
    return;
  }
  const i = Number(field.dataset.i), outcome = of("outcome", i);
  line.replaceChildren(make("span", { className: `mark ${outcome}` }, MARKS[outcome]), ` ${told(i)}`);
}
