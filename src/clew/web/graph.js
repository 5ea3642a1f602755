// The picture of a graph: nodes in layers from start to end, with those the last round visited, is in, or failed in.

import { fetchJson } from "./api.js";
import { Component, html } from "./html.js";
import { Loaded } from "./loaded.js";

const WIDTH = 168;
const HEIGHT = 36;
const GAP = { x: 32, y: 44 };

export function Graph({ model, current }) {
  const load = () => fetchJson(`assistants/${encodeURIComponent(current.thread.graph)}/graph?xray=true`);
  return html`<div class="panel">
    <${Loaded} key=${current.id} model=${model} load=${load}>
      ${(drawn) => html`<${Picture} drawn=${drawn} marks=${marks(current.timeline)} />`}
    <//>
    <p class="legend"><span class="visited">visited</span> <span class="current">current</span> <span class="failed">failed</span></p>
  </div>`;
}

// The state of each node in the last round. The name of a node in a subgraph follows those of the graphs around it.
function marks(timeline) {
  const found = new Map();
  const stages = timeline.round?.activity.filter(({ kind }) => kind === "stage") ?? [];
  for (const stage of stages) found.set(stage.text, "visited");
  const last = stages.at(-1);
  if (last && (!last.ended || last.isHeld)) found.set(last.text, timeline.status === "failed" ? "failed" : timeline.isOver ? "visited" : "current");
  return found;
}

// Subgraphs are closed at first: one node each, which opens.
class Picture extends Component {
  state = { open: new Set() };

  #toggle(name) {
    const { open } = this.state;
    this.setState({ open: open.has(name) ? new Set([...open].filter((one) => one !== name && !one.startsWith(`${name}:`))) : new Set([...open, name]) });
  }

  render({ drawn: whole, marks }, { open }) {
    const drawn = folded(whole, open);
    const places = layout(drawn);
    const width = Math.max(...[...places.values()].map(({ x }) => x + WIDTH)) + GAP.x;
    const height = Math.max(...[...places.values()].map(({ y }) => y + HEIGHT)) + GAP.y / 2;
    const of = (id) => stateOf(id, marks, whole);
    const said = drawn.nodes.map(({ id }) => `${label(id)}${of(id) ? ` (${of(id)})` : ""}`).join(", ");
    return html`${drawn.groups.length > 0 && html`<div class="bar-of-tools" role="group" aria-label="Subgraphs">Subgraphs
        ${drawn.groups.map((name) => html`<button key=${name} class="chip status" aria-pressed=${open.has(name)} onClick=${() => this.#toggle(name)}>${name.replaceAll(":", " › ")}</button>`)}
      </div>`}
      <div class="wide" tabindex="0" role="group" aria-label="Picture of the graph"><svg class="graph-picture" role="img" aria-label=${`Nodes: ${said}`} viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height}>
      <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" /></marker></defs>
      ${[...open].map((name) => html`<${Frame} key=${name} name=${name} look=${of(name)} places=${places} />`)}
      ${drawn.edges.map((edge) => html`<path key=${`${edge.source}>${edge.target}`} class=${edge.conditional ? "edge maybe" : "edge"} d=${curve(places.get(edge.source), places.get(edge.target))} marker-end="url(#tip)" />`)}
      ${drawn.nodes.map(({ id, isGroup }) => {
        const { x, y } = places.get(id);
        return html`<g key=${id} class="node ${of(id)} ${isGroup ? "group" : ""}" transform=${`translate(${x} ${y})`} onClick=${isGroup ? () => this.#toggle(id) : null}>
          ${isGroup && html`<rect x="4" y="4" width=${WIDTH} height=${HEIGHT} rx="8" />`}
          <rect width=${WIDTH} height=${HEIGHT} rx=${id.startsWith("__") ? HEIGHT / 2 : 8} />
          <text x=${WIDTH / 2} y=${HEIGHT / 2}>${label(id)}${isGroup ? " ▸" : ""}</text><title>${id}</title>
        </g>`;
      })}
    </svg></div>`;
  }
}

// Around the nodes of an open subgraph.
function Frame({ name, look, places }) {
  const inside = [...places].filter(([id]) => id.startsWith(`${name}:`)).map(([, place]) => place);
  if (!inside.length) return null;
  const [left, top] = ["x", "y"].map((axis) => Math.min(...inside.map((place) => place[axis])) - 12);
  const [right, bottom] = [WIDTH, HEIGHT].map((size, axis) => Math.max(...inside.map((place) => place["xy"[axis]])) + size + 12);
  return html`<rect class=${`frame ${look}`} x=${left} y=${top} width=${right - left} height=${bottom - top} rx="12" />`;
}

// A subgraph that is not open takes the place of its nodes, and of the edges that lead into it and out of it.
function folded({ nodes, edges }, open) {
  const shown = (id) => {
    const parts = id.split(":");
    return parts.map((_, count) => parts.slice(0, count + 1).join(":")).find((part) => part === id || !open.has(part));
  };
  const around = nodes.flatMap(({ id }) => id.split(":").slice(0, -1).map((_, count) => id.split(":").slice(0, count + 1).join(":")));
  const groups = [...new Set(around)].filter((name) => shown(name) === name);
  const kept = new Map(nodes.map(({ id }) => [shown(id), { id: shown(id), isGroup: shown(id) !== id }]));
  const joined = new Map();
  for (const { source, target, conditional } of edges) {
    const [from, to] = [shown(source), shown(target)];
    if (from === to && source !== target) continue;
    const known = joined.get(`${from}>${to}`);
    joined.set(`${from}>${to}`, { source: from, target: to, conditional: Boolean(conditional) && (known?.conditional ?? true) });
  }
  return { nodes: [...kept.values()], edges: [...joined.values()], groups };
}

// Of a subgraph: where the round is in it, or was last.
function stateOf(id, marks, { nodes }) {
  const states = nodes.filter((node) => node.id === id || node.id.startsWith(`${id}:`)).map((node) => marks.get(node.id) ?? marks.get(node.id.split(":").at(-1)));
  return ["failed", "current", "visited"].find((state) => states.includes(state)) ?? marks.get(id) ?? "";
}

function label(id) {
  const name = id === "__start__" ? "start" : id === "__end__" ? "end" : id.split(":").at(-1);
  return name.length > 22 ? `${name.slice(0, 21)}…` : name;
}

// A node's layer is the longest way to it from the start; edges that lead back do not count.
function layout({ nodes, edges }) {
  const layers = new Map();
  const next = (id) => edges.filter(({ source }) => source === id).map(({ target }) => target);
  const walk = (id, depth, way) => {
    if (way.has(id) || (layers.get(id) ?? -1) >= depth) return;
    layers.set(id, depth);
    for (const target of next(id)) walk(target, depth + 1, new Set([...way, id]));
  };
  walk(nodes[0].id, 0, new Set());
  const rows = [];
  for (const { id } of nodes) (rows[layers.get(id) ?? 0] ??= []).push(id);
  const widest = Math.max(...rows.filter(Boolean).map((row) => row.length));
  const places = new Map();
  rows.forEach((row, depth) => row?.forEach((id, column) => {
    const inset = ((widest - row.length) * (WIDTH + GAP.x)) / 2;
    places.set(id, { x: GAP.x + inset + column * (WIDTH + GAP.x), y: GAP.y / 2 + depth * (HEIGHT + GAP.y) });
  }));
  return places;
}

function curve(from, to) {
  const [x1, y1, x2, y2] = [from.x + WIDTH / 2, from.y + HEIGHT, to.x + WIDTH / 2, to.y];
  if (from === to) return `M${from.x + WIDTH} ${from.y + 10}h14v16h-12`;
  if (to.y > from.y) return `M${x1} ${y1}C${x1} ${y1 + 24} ${x2} ${y2 - 24} ${x2} ${y2 - 2}`;
  // Back: around the side the edge begins at.
  const [edge, out] = from.x < to.x ? [0, -1] : [WIDTH, 1];
  const side = out * Math.max(out * from.x, out * to.x) + edge + out * 28;
  const [fromY, toY] = [from.y + HEIGHT / 2, to.y + HEIGHT / 2];
  return `M${from.x + edge} ${fromY}C${side} ${fromY} ${side} ${toY} ${to.x + edge + 2 * out} ${toY}`;
}
