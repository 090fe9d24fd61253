"use strict";
// The picture of a model: inputs at the top, outputs at the bottom, nodes in layers between them. Constants stand in
// the nodes that use them. The layers are those of Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of
// Hierarchical System Structures" (1981); places within a layer are the nearest to the neighbours' mean that keep
// the order, by pooling adjacent violators.

const LETTER = 7.3; // of 12 px monospace, with room for fonts that are wider
const SMALL = 6.5;
const GAP = { across: 18, down: 26 };

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

function short(text) {
  return text.length > 28 ? text.slice(0, 27) + "…" : text;
}

// Return a node as one line of text: `mydomain::op v1 (X, -, [0, 1]) → Y {axis=0}`, with values as %n.
function describe(node) {
  const name = (value) => (value === null ? "-" : typeof value === "string" ? value : `%${value}`);
  const attributes = Object.entries(node.attributes).map(([key, text]) => `${key}=${text}`);
  const op = node.domain ? `${node.domain}::${node.op} v${node.version}` : node.op;
  const braces = attributes.length ? ` {${attributes.join(", ")}}` : "";
  return `${op}(${node.in.map(name).join(", ")}) → ${node.out.map(name).join(", ")}${braces}`;
}

// Give each box a layer: below all that it reads from, and no further up than what reads it allows.
function layersOf(boxes, wires) {
  const below = boxes.map(() => []), above = boxes.map(() => []);
  for (const [from, to] of wires) { below[from].push(to); above[to].push(from); }
  const layer = boxes.map(() => 0);
  // Makers come before readers in ONNX, so that one pass is enough each way.
  boxes.forEach((_, i) => { for (const from of above[i]) layer[i] = Math.max(layer[i], layer[from] + 1); });
  for (let i = boxes.length - 1; i >= 0; i--) {
    if (below[i].length) layer[i] = Math.min(...below[i].map((to) => layer[to])) - 1;
  }
  return layer;
}

// Return the layers as lists of places, wires longer than one layer led through bends.
function layered(boxes, wires) {
  const layer = layersOf(boxes, wires);
  const places = boxes.map((box, i) => ({ box, layer: layer[i], up: [], down: [] }));
  const paths = wires.map(([from, to]) => {
    const path = [places[from]];
    for (let at = layer[from] + 1; at < layer[to]; at++) {
      const bend = { box: { width: 6, height: 0 }, layer: at, up: [], down: [], bend: true };
      places.push(bend);
      path.push(bend);
    }
    path.push(places[to]);
    for (let i = 1; i < path.length; i++) { path[i - 1].down.push(path[i]); path[i].up.push(path[i - 1]); }
    return path;
  });
  const layers = [];
  for (const place of places) (layers[place.layer] ??= []).push(place);
  return [layers, paths];
}

// Order each layer so that few wires cross: by the mean position of neighbours, down and up, the best order kept.
function order(layers) {
  const number = () => layers.forEach((layer) => layer.forEach((place, i) => { place.at = i; }));
  const sort = (layer, side) => {
    const key = new Map(layer.map((p) => [p, p[side].length ? mean(p[side].map((q) => q.at)) : p.at]));
    layer.sort((a, b) => key.get(a) - key.get(b) || a.at - b.at);
    layer.forEach((place, i) => { place.at = i; });
  };
  number();
  let best = null, fewest = Infinity;
  for (let round = 0; round < 8 && fewest; round++) {
    if (round % 2) for (let i = layers.length - 2; i >= 0; i--) sort(layers[i], "down");
    else for (let i = 1; i < layers.length; i++) sort(layers[i], "up");
    const count = crossings(layers);
    if (count < fewest) { fewest = count; best = layers.map((layer) => [...layer]); }
  }
  if (best) best.forEach((layer, i) => { layers[i] = layer; });
  number();
}

function crossings(layers) {
  let count = 0;
  for (const layer of layers) {
    const wires = layer.flatMap((p) => p.down.map((q) => [p.at, q.at]));
    for (let i = 0; i < wires.length; i++) {
      for (let j = 0; j < i; j++) {
        if ((wires[i][0] - wires[j][0]) * (wires[i][1] - wires[j][1]) < 0) count++;
      }
    }
  }
  return count;
}

const mean = (numbers) => numbers.reduce((a, b) => a + b, 0) / numbers.length;

// Put each place of a layer as near as may be to where its neighbours are.
function settle(layer, wanted) {
  // Without the room between them, the places need only be in order: pool those whose wishes are not.
  const offsets = [];
  layer.forEach((place, i) => {
    const before = layer[i - 1];
    offsets.push(i ? offsets[i - 1] + (before.box.width + place.box.width) / 2 + GAP.across : 0);
  });
  const pools = [];
  layer.forEach((place, i) => {
    pools.push({ sum: (wanted(place) - offsets[i]) * weight(place), weight: weight(place), count: 1 });
    while (pools.length > 1) {
      const last = pools[pools.length - 1], before = pools[pools.length - 2];
      if (before.sum / before.weight <= last.sum / last.weight) break;
      pools.pop();
      before.sum += last.sum;
      before.weight += last.weight;
      before.count += last.count;
    }
  });
  let i = 0;
  for (const pool of pools) for (let n = 0; n < pool.count; n++, i++) layer[i].x = pool.sum / pool.weight + offsets[i];
}

const weight = (place) => (place.bend ? 6 : 1); // long wires are better straight

function arrange(layers) {
  for (const layer of layers) {
    let x = 0;
    for (const place of layer) { place.x = x + place.box.width / 2; x += place.box.width + GAP.across; }
  }
  for (let round = 0; round < 24; round++) {
    const down = round % 2 === 0, walk = down ? layers : [...layers].reverse();
    for (const layer of walk) {
      settle(layer, (place) => {
        const near = round < 18 ? place[down ? "up" : "down"] : [...place.up, ...place.down];
        return near.length ? mean(near.map((q) => q.x)) : place.x;
      });
    }
  }
  let y = 12;
  for (const layer of layers) {
    const height = Math.max(...layer.map((place) => place.box.height), 8);
    for (const place of layer) { place.y = y; place.height = place.bend ? height : place.box.height; }
    y += height + GAP.down;
  }
  const left = Math.min(...layers.flat().map((p) => p.x - p.box.width / 2)) - 14;
  for (const place of layers.flat()) place.x -= left;
  const width = Math.max(...layers.flat().map((p) => p.x + p.box.width / 2)) + 14;
  return { width, height: y - GAP.down + 12 };
}

function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// Return the picture as an SVG element.
function drawGraph(graph, name) {
  const [boxes, wires] = boxesOf(graph);
  const [layers, paths] = layered(boxes, wires);
  order(layers);
  const size = arrange(layers);
  const custom = graph.nodes.filter((node) => node.domain).length;
  const label = `Graph of ${name}: ${graph.nodes.length} nodes, ${custom} of them custom. Its nodes are listed below.`;
  const drawn = svg("svg", {
    width: Math.ceil(size.width), height: Math.ceil(size.height), role: "img", "aria-label": label,
    viewBox: `0 0 ${Math.ceil(size.width)} ${Math.ceil(size.height)}`,
  });
  for (const path of paths) drawn.append(...wire(path));
  for (const layer of layers) for (const place of layer) if (!place.bend) drawn.append(shape(place));
  return drawn;
}

function wire(path) {
  const first = path[0], last = path[path.length - 1];
  let [x, y] = [first.x, first.y + first.height];
  const parts = [`M${x.toFixed(1)} ${y.toFixed(1)}`];
  for (const place of path.slice(1)) {
    const end = place === last ? place.y - 5 : place.y, middle = (y + end) / 2;
    parts.push(`C${[x, middle, place.x, middle, place.x, end].map((n) => n.toFixed(1)).join(" ")}`);
    [x, y] = [place.x, end];
    if (place.bend) { y = place.y + place.height; parts.push(`V${y.toFixed(1)}`); }
  }
  const tip = `M${last.x} ${last.y} l-3.5 -6.5 h7 z`;
  return [svg("path", { class: "edge", d: parts.join("") }), svg("path", { class: "arrow", d: tip })];
}

// Return a box: a custom node is cut at its corners and has a second outline, inputs and outputs are round and dashed.
function shape({ box, x, y }) {
  const left = x - box.width / 2, group = svg("g", {});
  if (box.title) group.append(svg("title", {}, box.title));
  if (box.kind === "custom") {
    group.append(svg("path", { class: "custom", d: octagon(left, y, box.width, box.height, 7) }));
    group.append(svg("path", { class: "inner", d: octagon(left + 3, y + 3, box.width - 6, box.height - 6, 5.5) }));
  } else {
    const round = box.kind === "rim" ? box.height / 2 : 2;
    group.append(svg("rect", { class: box.kind, x: left, y, width: box.width, height: box.height, rx: round }));
  }
  const name = box.kind === "custom" ? "custom-name" : "name";
  group.append(svg("text", { class: name, x, y: y + 15 }, box.text));
  if (box.second) group.append(svg("text", { class: "second", x, y: y + 28.5 }, box.second));
  return group;
}

function octagon(x, y, width, height, cut) {
  const [w, h] = [width - 2 * cut, height - 2 * cut];
  return `M${x + cut} ${y}h${w}l${cut} ${cut}v${h}l${-cut} ${cut}h${-w}l${-cut} ${-cut}v${-h}z`;
}
