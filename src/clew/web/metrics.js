// Metrics: charts of the last hours of the server process that answers.

import { fetchJson } from "./api.js";
import { html } from "./html.js";
import { Loaded } from "./loaded.js";
import { timeOf, timeWithSeconds } from "./words.js";

const WIDTH = 480;
const HEIGHT = 120;
// A server that has just started fills a part of the chart.
const LEAST_SPAN = 15 * 60_000;
const count = (value) => String(Math.round(value * 10) / 10);
const seconds = (value) => (value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(1)} s`);

// A minute has just begun when it is read: what it holds is no rate yet.
const MINUTE = 5;
const perMinute = (name) => (point) => (point.seconds < MINUTE ? null : (point[name] * 60) / point.seconds);

const CHARTS = [
  ["Rounds a minute", count, [["ended", perMinute("rounds"), "first"], ["failed", perMinute("failedRounds"), "bad"]]],
  ["Duration of a round", seconds, [["p50", ({ roundP50 }) => roundP50, "first"], ["p95", ({ roundP95 }) => roundP95, "second"]]],
  ["Threads", count, [["running", ({ running }) => running, "first"], ["waiting for a person or a client", ({ waiting }) => waiting, "second"]]],
  ["Requests a minute", count, [["answered", perMinute("requests"), "first"], ["errors", perMinute("errors"), "bad"]]],
  ["Duration of a request", seconds, [["p50", ({ requestP50 }) => requestP50, "first"], ["p95", ({ requestP95 }) => requestP95, "second"]]],
];

export function Metrics({ model }) {
  return html`<${Loaded} model=${model} load=${() => fetchJson("api/metrics/recent")} every=${10}>
    ${({ points }) => html`<div class="charts">
      ${CHARTS.map(([title, written, lines]) => html`<${Chart} key=${title} title=${title} written=${written} lines=${lines} points=${points} />`)}
    </div>
    <p class="hint">The last six hours of the server process that answered, since ${timeWithSeconds(points[0].at)}. A restart begins anew; for longer times let Prometheus read <code>/metrics</code>.</p>`}
  <//>`;
}

function Chart({ title, written, lines, points }) {
  const to = Date.parse(points.at(-1).at);
  const from = Math.min(Date.parse(points[0].at), to - LEAST_SPAN);
  const x = ({ at }) => ((Date.parse(at) - from) / (to - from)) * (WIDTH - 6) + 3; // a dot at either end is seen whole
  const series = lines.map(([name, of, look]) => ({ name, look, values: points.map(of) }));
  const most = Math.max(...series.flatMap(({ values }) => values.filter((value) => value !== null)), 0) || 1;
  const y = (value) => HEIGHT - (value / most) * (HEIGHT - 4) - 2;
  const last = ({ values }) => values.findLast((value) => value !== null);
  const said = series.map((one) => `${one.name} ${last(one) === undefined ? "none" : written(last(one))}`).join(", ");
  return html`<figure class="chart">
    <figcaption>${title} <span class="facts">${series.map((one) => html`<span class=${one.look} key=${one.name}>${one.name} ${last(one) === undefined ? "–" : written(last(one))}</span> `)}</span></figcaption>
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${`${title}: ${said}; at most ${written(most)}`}>
      <path class="ground" d=${`M0 ${HEIGHT - 1}H${WIDTH}M0 1H${WIDTH}`} />
      ${series.map(({ name, look, values }) => html`<path key=${name} class=${`line ${look}`} d=${path(points, values, x, y)} />`)}
    </svg>
    <p class="axis" aria-hidden="true"><span>${timeOf(from)}</span><span>most ${written(most)}</span><span>${timeOf(points.at(-1).at)}</span></p>
  </figure>`;
}

// A value alone is a dot; where there is none the line is broken.
function path(points, values, x, y) {
  let isDrawn = false;
  return values.map((value, place) => {
    if (value === null) {
      isDrawn = false;
      return "";
    }
    const at = `${x(points[place]).toFixed(1)} ${y(value).toFixed(1)}`;
    const step = isDrawn ? `L${at}` : `M${at}${values[place + 1] == null ? "h0.01" : ""}`;
    isDrawn = true;
    return step;
  }).join("");
}
