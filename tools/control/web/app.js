// The page as a whole: what is known, what is shown of it, and the stream that keeps it up to date.
import * as controls from "./controls.js";
import { Events } from "./events.js";
import { health } from "./format.js";
import * as header from "./header.js";
import { JobView } from "./job.js";
import { Jobs } from "./jobs.js";
import { NodeView } from "./node.js";
import { Nodes } from "./nodes.js";
import { Overview } from "./overview.js";
import { Programs } from "./programs.js";
import { Stream, get } from "./stream.js";
import { Tree } from "./tree.js";

const FIRST_METRIC = "hearth_node_busy_ratio";
const byId = (id) => document.getElementById(id);

const app = {
  cluster: "", version: "", nodes: [], values: [], letters: "", jobOf: [], drained: {}, counters: {}, jobs: [], events: [],
  seen: new Set(), metrics: [], tree: [], all: null,
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
    const { values, letters, jobOf: jobs, drained, all } = this;
    const now = { values, letters, jobs, drained, all };
    return this.live ? now : this.then || now;
  },

  columns() {
    const { values, letters, jobs, drained } = this.shown();
    return { nodes: this.nodes, values, healths: [...letters].map(health), jobs, drained };
  },

  saw(numbers) { this.seen = new Set(numbers); header.badge(this); },
};

let view = null;
/** The node whose values the stream brings. */
let asked = null;

const stream = new Stream(frame, (word, text) => header.link(word, text));

/** The number of the node that is looked at. */
function nodeInView() { return /^#\/node\/(\d+)$/.exec(location.hash)?.[1]; }

function connect() {
  const query = new URLSearchParams({ metric: app.metric.name });
  const node = nodeInView();
  asked = node ? Number(node) : null;
  if (node) query.set("node", node);
  stream.open(`/v1/monitor/stream?${query}`);
}

function frame(kind, body) {
  // A page that is paused stands still; going on begins with a new snapshot.
  header.link("good", app.live ? "live" : "paused");
  if (!app.live && app.ready) return;
  const began = performance.now();
  take(body);
  if (kind === "snapshot") {
    snapshot(body);
  } else if (view) {
    view.frame(body);
  }
  header.strip(app);
  header.badge(app);
  // The layout belongs to the time that an update takes.
  const { dataset } = document.body;
  dataset.height = String(byId("main").offsetHeight);
  dataset.updateMs = (performance.now() - began).toFixed(2);
  // How old the values are now that they are on the screen: from the begin of the tick in which the oldest was read.
  if (body.read) { dataset.read = String(body.read); dataset.ageMs = String(Date.now() - body.read); }
  dataset.frames = String(Number(dataset.frames || 0) + 1);
}

let turns = 0;

/**
 * While the page stands still: gets what was then, of the metric chosen and the node looked at.
 * False: something newer is under way.
 */
async function stand() {
  const turn = (turns += 1);
  if (app.live) return true;
  const time = app.instant();
  // What the page had itself when it was paused is that of then.
  const own = time === app.pausedAt;
  const query = new URLSearchParams({ metric: app.metric.name, time });
  const node = nodeInView();
  if (node) query.set("node", node);
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
    all: answer.all || (own && node && Number(node) === app.allOf ? app.all : null),
    own, why, damaged: own ? [] : answer.damaged, none: !own && !Object.keys(answer.letters).length,
  };
  return true;
}

/** Has the view drawn anew: after a choice of what is shown. */
async function again() {
  if (!await stand()) return;
  header.said(app);
  header.strip(app);
  if (view && view.reset) view.reset();
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
  app.cluster = body.cluster || "";
  app.version = body.version;
  app.nodes = body.nodes;
  app.tree = body.tree;
  app.metrics = body.metrics;
  app.metric = body.metrics.find((metric) => metric.name === body.metric);
  app.valuesOf = body.metric;
  header.cluster(app);
  controls.metrics(app);
  const first = !app.ready;
  app.ready = true;
  if (first || !view) route(); else if (view.reset) view.reset();
}

const ROUTES = {
  overview: Overview, nodes: Nodes, node: NodeView, jobs: Jobs, job: JobView, programs: Programs, program: Programs,
  tree: Tree, events: Events,
};
/** Views of one thing, and those that list all of them. */
const PARENTS = { node: "nodes", job: "jobs", program: "programs" };

function route() {
  const [, named = "overview", detail = ""] = location.hash.split("/");
  const name = Object.hasOwn(ROUTES, named) ? named : "overview";
  const View = ROUTES[name];
  if (view && view.close) view.close();
  const main = byId("main");
  main.replaceChildren();
  main.className = name;
  for (const link of document.querySelectorAll("nav a")) {
    const here = link.getAttribute("href") === `#/${PARENTS[name] || name}`;
    if (here) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  view = new View(app, plain(detail));
  controls.offer(app, View.controls);
  header.windowTitle(app, view);
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
  } else if (app.live) {
    app.pausedAt = app.at;
    app.then = { ...app.shown(), own: true };
  }
  app.live = live;
  controls.running(app);
  header.said(app);
  if (view) controls.offer(app, view.constructor.controls);
  if (live) { app.then = null; connect(); } else if (view) header.link("good", "paused");
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  byId("theme").textContent = name === "dark" ? "Light" : "Dark";
  if (app.ready && view?.chart?.plot) view.chart.draw();
}

controls.start(app, { connect, again, setLive, view: () => view });
byId("theme").addEventListener("click", () => {
  const name = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("hearth-theme", name);
  theme(name);
});
window.addEventListener("hashchange", () => {
  if (!app.ready) return;
  const before = app.all;
  // Not those of the node before.
  app.all = null;
  if (app.then) app.then = { ...app.then, all: null };
  route();
  // One node's values come by the stream.
  if (app.live && (nodeInView() || before)) connect();
  byId("main").focus({ preventScroll: true });
  scrollTo(0, 0);
});
window.addEventListener("resize", () => { if (app.ready && view?.chart) view.chart.draw(); });

const dark = matchMedia("(prefers-color-scheme: dark)");
theme(localStorage.getItem("hearth-theme") || (dark.matches ? "dark" : "light"));
dark.addEventListener("change", (event) => {
  if (!localStorage.getItem("hearth-theme")) theme(event.matches ? "dark" : "light");
});
connect();
