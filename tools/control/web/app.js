// The page as a whole: what is known, what is shown of it, and the stream that keeps it up to date.
import { el, health, show, title, when } from "./format.js";
import { Stream, get, save } from "./stream.js";
import { Tree } from "./tree.js";
import { Events, JobView, Jobs, NodeView, Nodes, Overview, Programs, damage } from "./views.js";

const FIRST_METRIC = "hearth_node_busy_ratio";
const byId = (id) => document.getElementById(id);

const app = {
  nodes: [], values: [], letters: "", jobOf: [], drained: {}, counters: {}, jobs: [], events: [], seen: new Set(), metrics: [], tree: [], all: null,
  metric: { name: FIRST_METRIC, unit: "ratio", help: "", counter: false }, strip: { healths: {}, active: 0, loss: 0 },
  at: Date.now(), live: true, seconds: 900, custom: null, ready: false, then: null,

  /** What is shown, in milliseconds since 1970. */
  range() {
    if (this.custom) return this.custom;
    const to = this.live ? this.at : this.pausedAt;
    return { from: to - this.seconds * 1000, to: to + 1 };
  },

  /** The instant that is shown: now, or the one at which the page stands still. */
  instant() {
    if (this.live) return this.at;
    return this.custom ? Math.min(this.custom.to, this.pausedAt) : this.pausedAt;
  },

  /** What was at that instant: values, states, jobs and drained marks of the nodes, all values of one. */
  shown() {
    const now = { values: this.values, letters: this.letters, jobs: this.jobOf, drained: this.drained, all: this.all };
    return this.live ? now : this.then || now;
  },

  columns() {
    const { values, letters, jobs, drained } = this.shown();
    return { nodes: this.nodes, values, healths: [...letters].map(health), jobs, drained };
  },

  saw(numbers) { this.seen = new Set(numbers); badge(); },
};

let view = null;
/** The node whose values the stream brings. */
let asked = null;

const stream = new Stream(frame, (word, text) => link(word, text));

function link(word, text) {
  const box = byId("link");
  if (box.textContent !== text) box.textContent = text;
  box.className = `link ${word}`;
}

function connect() {
  const query = new URLSearchParams({ metric: app.metric.name });
  const node = /^#\/node\/(\d+)$/.exec(location.hash);
  asked = node ? Number(node[1]) : null;
  if (node) query.set("node", node[1]);
  stream.open(`/v1/monitor/stream?${query}`);
}

function frame(kind, body) {
  // A page that is paused stands still; going on begins with a new snapshot.
  link("good", app.live ? "live" : "paused");
  if (!app.live && app.ready) return;
  const began = performance.now();
  take(body);
  if (kind === "snapshot") {
    snapshot(body);
  } else if (view) {
    view.frame(body);
  }
  strip();
  badge();
  // The layout belongs to the time that an update takes.
  document.body.dataset.height = String(byId("main").offsetHeight);
  document.body.dataset.updateMs = (performance.now() - began).toFixed(2);
  // How old the values are now that they are on the screen: from the begin of the tick in which the oldest was read.
  if (body.read) { document.body.dataset.read = String(body.read); document.body.dataset.ageMs = String(Date.now() - body.read); }
  document.body.dataset.frames = String(Number(document.body.dataset.frames || 0) + 1);
}

let turns = 0;

/** While the page stands still: gets what was then, of the metric chosen and the node looked at. False: something newer is under way. */
async function stand() {
  const turn = (turns += 1);
  if (app.live) return true;
  const time = app.instant();
  // What the page had itself when it was paused is that of then.
  const own = time === app.pausedAt;
  const query = new URLSearchParams({ metric: app.metric.name, time });
  const node = /^#\/node\/(\d+)$/.exec(location.hash);
  if (node) query.set("node", node[1]);
  let answer = { values: {}, letters: {}, jobs: {}, all: null };
  let why = "";
  try { answer = await get(`/v1/monitor/at?${query}`); } catch (error) { why = error.message; }
  if (turn !== turns || app.live) return false;
  const of = (list) => app.nodes.map((known) => list[known.n] ?? null);
  app.then = {
    values: own && app.metric.name === app.valuesOf ? app.values : of(answer.values),
    letters: own ? app.letters : of(answer.letters).map((letter) => letter || "u").join(""),
    jobs: own ? app.jobOf : of(answer.jobs),
    drained: own ? app.drained : {},
    all: answer.all || (own && node && Number(node[1]) === app.allOf ? app.all : null),
    own, why, damaged: own ? [] : answer.damaged, none: !own && !Object.keys(answer.letters).length,
  };
  return true;
}

/** Has the view drawn anew: after a choice of what is shown. */
async function again() {
  if (!await stand()) return;
  said();
  strip();
  if (view && view.reset) view.reset();
}

/** Says which time the parts of the page are of, while that is not now. */
function said() {
  const box = byId("then");
  box.hidden = app.live;
  if (app.live) return;
  const { own, why, none, damaged } = app.then || { own: true };
  const paused = when(app.pausedAt);
  let text = own ? `Paused: nodes, jobs and events are those of ${paused}. Programs and tree are those of now.`
    : `Nodes are those of ${when(app.instant())}, the end of the range. Jobs and events are those of ${paused}, programs and tree those of now.`;
  if (why) text += ` Values of then could not be read: ${why}.`;
  else if (none) text += " No node's values were kept at that instant.";
  text += damage(damaged);
  if (box.textContent !== text) box.textContent = text;
}

function take(body) {
  app.at = body.at;
  app.values = body.v;
  app.letters = body.h;
  app.strip = body.strip;
  app.all = body.all || null;
  app.allOf = asked;
  app.counters = body.counters || {};
  if (body.d) app.drained = body.d;
  if (body.jobs) app.jobs = body.jobs;
  if (body.job) app.jobOf = body.job;
  if (body.events) app.events = body.events;
  if (body.seen) app.seen = new Set(body.seen);
}

function snapshot(body) {
  app.nodes = body.nodes;
  app.tree = body.tree;
  app.metrics = body.metrics;
  app.metric = body.metrics.find((metric) => metric.name === body.metric);
  app.valuesOf = body.metric;
  byId("version").textContent = `${body.version}, ${body.nodes.length} nodes`;
  byId("help").textContent = app.metric.help;
  const select = byId("metric");
  if (select.options.length !== app.metrics.length) {
    select.replaceChildren(...app.metrics.map((metric) => el("option", { value: metric.name }, title(metric))));
  }
  select.value = app.metric.name;
  const first = !app.ready;
  app.ready = true;
  if (first || !view) route(); else if (view.reset) view.reset();
}

function strip() {
  const then = app.live ? null : app.then;
  const healths = app.strip.healths;
  const up = (healths.idle || 0) + (healths.busy || 0);
  let entries = [
    ["Up", up, up ? "good" : ""], ["Busy", healths.busy || 0, ""], ["Slow", healths.slow || 0, healths.slow ? "warn" : ""],
    ["Stale", healths.stale || 0, healths.stale ? "warn" : ""], ["Lost", healths.lost || 0, healths.lost ? "bad" : ""],
    ["Awaited", healths.awaited || 0, ""], ["Absent", (healths.absent || 0) + (healths.left || 0), ""], ["Drained", Object.keys(app.drained).length, Object.keys(app.drained).length ? "warn" : ""], ["Loss", show(app.strip.loss, { unit: "ratio" }), app.strip.loss > 0.01 ? "warn" : ""],
    ["Jobs", app.strip.active, ""],
  ];
  if (then && !then.own) {
    // What is kept of the past says who was up, and with which job; nothing of the rest.
    const count = (letters) => [...then.letters].filter((letter) => letters.includes(letter)).length;
    const known = { Up: count("ib"), Busy: count("b"), Slow: count("s"), Jobs: new Set(then.jobs.filter(Boolean)).size };
    entries = entries.map(([name]) => [name, name in known && !then.none && !then.why ? known[name] : "-", ""]);
  }
  const box = byId("strip");
  if (!box.children.length) box.append(...entries.map(([name]) => el("div", {}, el("dt", {}, name), el("dd", {}))));
  entries.forEach(([name, value, tone], index) => {
    const entry = box.children[index];
    const text = String(value);
    if (entry.lastChild.textContent !== text) entry.lastChild.textContent = text;
    if (entry.className !== tone) entry.className = tone;
    // Only for seconds after control was started again.
    if (name === "Awaited") entry.hidden = !value || value === "-";
  });
  const trouble = app.strip.trouble;
  byId("trouble").hidden = !trouble;
  if (trouble) byId("trouble").textContent = `Values are not kept: ${trouble}`;
}

function badge() {
  const unseen = app.events.filter((event) => event.severity !== "info" && !app.seen.has(event.seq)).length;
  byId("unseen").hidden = !unseen;
  byId("unseen").textContent = String(unseen);
  byId("unseen").setAttribute("aria-label", `${unseen} not acknowledged`);
}

const ROUTES = {
  overview: Overview, nodes: Nodes, node: NodeView, jobs: Jobs, job: JobView, programs: Programs, program: Programs, tree: Tree, events: Events,
};

function route() {
  const [, name = "overview", detail = ""] = location.hash.split("/");
  const View = Object.hasOwn(ROUTES, name) ? ROUTES[name] : Overview;
  if (view && view.close) view.close();
  const main = byId("main");
  main.replaceChildren();
  const parent = { node: "nodes", job: "jobs", program: "programs" }[name] || name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${parent}`) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  view = new View(app, plain(detail));
  view.open(main);
  if (!app.live) again();
}

/** A part of the address as it is meant, or as it is where that makes no sense. */
function plain(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function setLive(live) {
  if (live) {
    app.custom = null;
    if (byId("range").value === "custom") { byId("range").value = "900"; app.seconds = 900; byId("custom").hidden = true; }
  } else if (app.live) {
    app.pausedAt = app.at;
    app.then = { ...app.shown(), own: true };
  }
  app.live = live;
  byId("live").setAttribute("aria-pressed", String(live));
  byId("live").textContent = live ? "Live" : "Paused";
  said();
  if (live) { app.then = null; connect(); } else if (view) link("good", "paused");
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  byId("theme").textContent = name === "dark" ? "Light" : "Dark";
  if (view && app.ready) { if (view.chart && view.chart.plot) view.chart.draw(); }
}

function local(ms) {
  const date = new Date(ms - new Date(ms).getTimezoneOffset() * 60_000);
  return date.toISOString().slice(0, 19);
}

byId("metric").addEventListener("change", (event) => {
  app.metric = app.metrics.find((metric) => metric.name === event.target.value);
  if (app.live) { connect(); return; }
  byId("help").textContent = app.metric.help;
  again();
});
byId("range").addEventListener("change", (event) => {
  const custom = event.target.value === "custom";
  byId("custom").hidden = !custom;
  if (custom) {
    const range = app.range();
    byId("from").value = local(range.from);
    byId("to").value = local(range.to);
    return;
  }
  app.custom = null;
  app.seconds = Number(event.target.value);
  again();
});
byId("apply").addEventListener("click", () => {
  const from = new Date(byId("from").value).getTime();
  const to = new Date(byId("to").value).getTime();
  const complete = Number.isFinite(from) && Number.isFinite(to);
  byId("wrong").textContent = !complete ? "Fill in both times." : from < to ? "" : "From must be before To.";
  if (!(from < to)) return;
  setLive(false);
  app.custom = { from, to };
  again();
});
byId("live").addEventListener("click", () => setLive(!app.live));
byId("controls").addEventListener("submit", (event) => event.preventDefault());
byId("csv").addEventListener("click", () => {
  const { from, to } = app.range();
  const query = new URLSearchParams({ from, to, metrics: app.metric.name, points: 5000 });
  const node = /^#\/node\/(\d+)$/.exec(location.hash);
  if (node) { query.set("nodes", `n${node[1]}`); query.delete("metrics"); }
  save(`/v1/monitor/csv?${query}`, `hearth-${new Date(to).toISOString().replaceAll(/[:.]/g, "-")}.csv`).catch((error) => link("bad", error.message));
});
byId("theme").addEventListener("click", () => {
  const name = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("hearth-theme", name);
  theme(name);
});
window.addEventListener("hashchange", () => {
  if (!app.ready) return;
  const node = location.hash.startsWith("#/node/");
  const before = app.all;
  // Not those of the node before.
  app.all = null;
  if (app.then) app.then = { ...app.then, all: null };
  route();
  // One node's values come by the stream.
  if (app.live && (node || before)) connect();
  byId("main").focus({ preventScroll: true });
  scrollTo(0, 0);
});
window.addEventListener("resize", () => { if (view && view.chart && app.ready) view.chart.draw(); });

const dark = matchMedia("(prefers-color-scheme: dark)");
theme(localStorage.getItem("hearth-theme") || (dark.matches ? "dark" : "light"));
dark.addEventListener("change", (event) => { if (!localStorage.getItem("hearth-theme")) theme(event.matches ? "dark" : "light"); });
connect();
