// Numbers, times and states in words.

export const STATUS = {
  pending: "Not started",
  running: "Working",
  blocked: "Waiting for you",
  completed: "Done",
  failed: "Failed",
  stopped: "Stopped",
};

const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const second = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export function ago(text, now = Date.now()) {
  const seconds = Math.round((Date.parse(text) - now) / 1000);
  for (const [unit, length] of [["day", 86_400], ["hour", 3_600], ["minute", 60]]) {
    if (Math.abs(seconds) >= length) return relative.format(Math.trunc(seconds / length), unit);
  }
  return seconds > 0 ? "in a moment" : "just now";
}

export function timeOf(text) {
  return clock.format(new Date(text));
}

export function timeWithSeconds(text) {
  return second.format(new Date(text));
}

export function moment(text) {
  return full.format(new Date(text));
}

export function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  const [value, unit] = bytes < 1_000_000 ? [bytes / 1000, "kB"] : [bytes / 1_000_000, "MB"];
  return `${value.toFixed(value < 10 ? 1 : 0)} ${unit}`;
}

export function lasted(began, ended) {
  const seconds = Math.max(0, (Date.parse(ended) - Date.parse(began)) / 1000);
  if (seconds < 0.95) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  return seconds < 3600 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

// How long it is until then, to the second.
export function left(at, now = Date.now()) {
  const seconds = Math.max(0, Math.round((Date.parse(at) - now) / 1000));
  const parts = [["d", Math.floor(seconds / 86_400)], ["h", Math.floor(seconds / 3_600) % 24], ["min", Math.floor(seconds / 60) % 60], ["s", seconds % 60]];
  const first = parts.findIndex(([, count]) => count > 0);
  return first < 0 ? "0 s" : parts.slice(first, first + 2).map(([unit, count]) => `${count} ${unit}`).join(" ");
}

export function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

// The beginning of a text, to tell it from others by.
export function excerpt(text, most = 60) {
  const line = text.trim().replace(/\s+/g, " ");
  return line.length > most ? `${line.slice(0, most).trimEnd()}…` : line;
}

export function fileName({ name, ext }) {
  return ext ? `${name}.${ext}` : name;
}

// `projectManager` and `project_manager` as one would write them.
export function named(agent) {
  const words = agent.replace(/([a-z])([A-Z])/g, "$1 $2").replaceAll("_", " ").toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

// Values that a user decides about are shown completely.
export function exactly(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}
