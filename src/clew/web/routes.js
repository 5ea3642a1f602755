// Addresses of the page: which view they name, and the filter of the list, which every one of them carries.

export const TABS = ["chat", "run", "graph", "state", "documents", "log"];
// Each section of Operate, and the scope without which it has nothing to show.
export const SECTIONS = {
  storage: "read",
  queue: "admin",
  metrics: "metrics",
  crons: "read",
  assistants: "read",
  webhooks: "admin",
  store: "read",
  files: "read",
  keys: "admin",
  settings: "operator",
  audit: "admin",
};

const FILTERS = ["status", "graph", "tenant", "user", "since", "sort", "q"];

export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [view = "", id = "", tab = ""] = path.split("/").map(decodeURIComponent);
  const given = new URLSearchParams(query);
  const filter = Object.fromEntries(FILTERS.map((name) => [name, given.get(name) ?? ""]));
  if (view === "threads" && id) return { view: "thread", id, tab: TABS.includes(tab) ? tab : "chat", filter };
  if (view === "waiting") return { view, filter };
  if (view === "operate") return { view, section: id in SECTIONS ? id : "storage", filter };
  return { view: "start", filter };
}

export function toThread(id, filter = {}, tab = "chat") {
  return write(["threads", id, ...(tab === "chat" ? [] : [tab])], filter);
}

export function toWaiting(filter) {
  return write(["waiting"], filter);
}

export function toOperate(section, filter) {
  return write(["operate", section], filter);
}

export function toStart(filter) {
  return write([], filter);
}

function write(parts, filter = {}) {
  const query = new URLSearchParams(FILTERS.filter((name) => filter[name]).map((name) => [name, filter[name]])).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${query && `?${query}`}`;
}
