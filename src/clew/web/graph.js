// The picture of a graph: nodes in layers from start to end, with those the last round visited, is in, or failed in.

import { fetchJson } from "./api.js";
import { html } from "./html.js";
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
  if (last && !last.ended) found.set(last.text, timeline.status === "failed" ? "failed" : timeline.isOver ? "visited" : "current");
  return found;
}

function Picture({ drawn, marks }) {
  const places = layout(drawn);
  const width = Math.max(...[...places.values()].map(({ x }) => x + WIDTH)) + GAP.x;
  const height = Math.max(...[...places.values()].map(({ y }) => y + HEIGHT)) + GAP.y / 2;
  const of = (id) => marks.get(id) ?? marks.get(id.split(":").at(-1)) ?? "";
  const said = drawn.nodes.map(({ id }) => `${label(id)}${of(id) ? ` (${of(id)})` : ""}`).join(", ");
  return html`<div class="wide" tabindex="0" role="group" aria-label="Picture of the graph"><svg class="graph-picture" role="img" aria-label=${`Nodes: ${said}`} viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height}>
    <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" /></marker></defs>
    ${drawn.edges.map((edge) => html`<path key=${`${edge.source}>${edge.target}`} class=${edge.conditional ? "edge maybe" : "edge"} d=${curve(places.get(edge.source), places.get(edge.target))} marker-end="url(#tip)" />`)}
    ${drawn.nodes.map(({ id }) => {
      const { x, y } = places.get(id);
      return html`<g key=${id} class="node ${of(id)}" transform=${`translate(${x} ${y})`}>
        <rect width=${WIDTH} height=${HEIGHT} rx=${id.startsWith("__") ? HEIGHT / 2 : 8} />
        <text x=${WIDTH / 2} y=${HEIGHT / 2}>${label(id)}</text><title>${id}</title>
      </g>`;
    })}
  </svg></div>`;
}

function label(id) {
  const name = id === "__start__" ? "start" : id === "__end__" ? "end" : id;
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
