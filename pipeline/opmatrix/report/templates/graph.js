"use strict";
// The picture of a model: inputs at the top, outputs at the bottom, nodes between them, placed by dagre. Constants are in
// the nodes that use them.

const LETTER = 7.3; // of 12 px monospace, with room for fonts that are wider
const SMALL = 6.5;

// Return the boxes of a picture, and the wires between them: [{text, second, kind, title}], [[from, to]].
function boxesOf(graph) {
  const boxes = [], wires = [], maker = new Map();
  const add = (box) => boxes.push({ second: "", title: "", ...box }) - 1;
  for (const [value, name, type] of graph.inputs) maker.set(value, add(rim(name, type)));
  for (const node of graph.nodes) {
    const constants = node.in.filter((v) => typeof v === "string");
    const custom = Boolean(node.domain);
    const at = add({
      kind: custom ? "custom" : "node",
      text: node.op,
      second: custom ? `custom: ${node.domain} v${node.version}` : short(constants.join(" ")),
      title: describe(node),
    });
    for (const value of new Set(node.in)) if (maker.has(value)) wires.push([maker.get(value), at]);
    for (const value of node.out) if (value !== null) maker.set(value, at);
  }
  for (const [value, name, type] of graph.outputs) {
    const at = add(rim(name, typeof value === "string" ? `${type} ${value}` : type));
    if (maker.has(value)) wires.push([maker.get(value), at]);
  }
  for (const box of boxes) {
    box.width = Math.max(40, 16 + Math.max(box.text.length * LETTER, box.second.length * SMALL));
    box.height = box.second ? 36 : 22;
  }
  return [boxes, wires];
}

const rim = (name, type) => ({ kind: "rim", text: short(name), second: short(type), title: `${name} ${type}` });

function short(text, most = 28) {
  return text.length > most ? text.slice(0, most - 1) + "…" : text;
}

// Return a node as one line of text: `mydomain::op v1 (X, -, [0, 1]) → Y {axis=0}`, with values as %n.
function describe(node) {
  const name = (value) => (value === null ? "-" : typeof value === "string" ? value : `%${value}`);
  const attributes = Object.entries(node.attributes).map(([key, text]) => `${key}=${text}`);
  const op = node.domain ? `${node.domain}::${node.op} v${node.version}` : node.op;
  const braces = attributes.length ? ` {${attributes.join(", ")}}` : "";
  return `${op}(${node.in.map(name).join(", ")}) → ${node.out.map(name).join(", ")}${braces}`;
}

// Return the graph with a place for each box and points for each wire.
function placed(boxes, wires) {
  const layout = new dagre.graphlib.Graph({ multigraph: true });
  layout.setGraph({ nodesep: 18, edgesep: 12, ranksep: 28, marginx: 8, marginy: 8 });
  boxes.forEach((box, i) => layout.setNode(String(i), box));
  wires.forEach(([from, to], i) => layout.setEdge(String(from), String(to), {}, String(i)));
  dagre.layout(layout);
  return layout;
}

function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// Return the picture as an SVG element.
function drawGraph(graph, name) {
  const layout = placed(...boxesOf(graph));
  const wires = layout.edges().map((edge) => route(layout.node(edge.v), layout.node(edge.w), layout.edge(edge).points));
  const custom = graph.nodes.filter((node) => node.domain).length;
  const label = `Graph of ${name}: ${graph.nodes.length} nodes, ${custom} of them custom. Its nodes are listed below.`;
  // dagre's own size leaves out the bends of wires.
  const { width, height } = layout.graph(), bends = wires.flat().map(({ x }) => x);
  const left = Math.floor(Math.min(0, ...bends.map((x) => x - 8))), right = Math.ceil(Math.max(width, ...bends.map((x) => x + 8)));
  const drawn = svg("svg", {
    width: right - left, height: Math.ceil(height), role: "img", "aria-label": label,
    viewBox: `${left} 0 ${right - left} ${Math.ceil(height)}`,
  });
  drawn.style.minWidth = `${Math.ceil((right - left) * 0.6)}px`; // a smaller place shrinks it so far, and then scrolls
  for (const points of wires) drawn.append(...wire(points));
  for (const node of layout.nodes()) drawn.append(shape(layout.node(node)));
  return drawn;
}

// Return the points of a wire, from the lower side of a box to the upper side of another.
function route(from, to, points) {
  const bends = points.slice(1, -1);
  const beside = (box, { x }) => Math.min(Math.max(x, box.x - box.width / 2 + 9), box.x + box.width / 2 - 9);
  const start = { x: beside(from, bends[0]), y: from.y + from.height / 2 };
  const end = { x: beside(to, bends[bends.length - 1]), y: to.y - to.height / 2 };
  return bends.length < 2 ? [start, end] : [start, ...bends, end];
}

// Return a curve along the points, and the tip of an arrow at the last one.
function wire(points) {
  const at = ({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`, middle = (a, b) => ({ x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 });
  const tip = points[points.length - 1], end = { x: tip.x, y: tip.y - 5 }, parts = [`M${at(points[0])}`];
  if (points.length === 2) {
    const { y } = middle(points[0], end);
    parts.push(`C${at({ x: points[0].x, y })} ${at({ x: end.x, y })} ${at(end)}`);
  }
  for (let i = 1; i < points.length - 1; i++) {
    parts.push(`Q${at(points[i])} ${at(i === points.length - 2 ? end : middle(points[i], points[i + 1]))}`);
  }
  return [svg("path", { class: "edge", d: parts.join("") }), svg("path", { class: "arrow", d: `M${at(tip)} l-3.5 -6.5 h7 z` })];
}

// Return a box: a custom node is cut at its corners and has a second outline, inputs and outputs are round and dashed.
function shape({ kind, text, second, title, x, y, width, height }) {
  const left = x - width / 2, top = y - height / 2, group = svg("g", {});
  if (title) group.append(svg("title", {}, title));
  if (kind === "custom") {
    group.append(svg("path", { class: "custom", d: octagon(left, top, width, height, 7) }));
    group.append(svg("path", { class: "inner", d: octagon(left + 3, top + 3, width - 6, height - 6, 5.5) }));
  } else {
    group.append(svg("rect", { class: kind, x: left, y: top, width, height, rx: kind === "rim" ? height / 2 : 2 }));
  }
  group.append(svg("text", { class: kind === "custom" ? "custom-name" : "name", x, y: top + 15 }, text));
  if (second) group.append(svg("text", { class: "second", x, y: top + 28.5 }, second));
  return group;
}

function octagon(x, y, width, height, cut) {
  const [w, h] = [width - 2 * cut, height - 2 * cut];
  return `M${x + cut} ${y}h${w}l${cut} ${cut}v${h}l${-cut} ${cut}h${-w}l${-cut} ${-cut}v${-h}z`;
}
