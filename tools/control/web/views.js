// The views: each is made when it is opened, and told of every frame while it is open.
import { el, hostlist, redraw, show, span, title, when } from "./format.js";
import { get, post } from "./stream.js";
import { Grid } from "./grid.js";

const ROWS_MOST = 200;
const SPARK_TICKS = 60;
const COUNTERS = 16;
// A name, not an address: nothing is fetched.
const SVG = `${"http:"}//www.w3.org/2000/svg`;

export function panel(heading, ...children) {
  const id = `h${heading.replaceAll(/[^a-zA-Z]/g, "")}`;
  return el("section", { class: "panel", "aria-labelledby": id }, el("h2", { id }, heading), ...children);
}

export function facts(pairs) {
  const list = el("dl", { class: "facts" });
  for (const [name, value] of pairs) list.append(el("dt", {}, name), el("dd", {}, value instanceof Node ? value : String(value ?? "")));
  return list;
}

function state(word) {
  const first = word.split(",")[0];
  return el("span", { class: `state-${/^[a-z-]+$/.test(first) ? first : "other"}` }, word);
}
export function nodeLink(number) { return el("a", { href: `#/node/${number}` }, `n${number}`); }
function jobLink(job) { return job ? el("a", { href: `#/job/${job}` }, String(job)) : ""; }

/** What a program calls its counter. */
function counterName(job, counter) { return (job && job.counters && job.counters[counter]) || `Counter ${counter}`; }

/** What is to be said of damaged files in an answer, by their days. */
export function damage(days) { return days?.length ? ` The files of ${days.join(", ")} are damaged: what can be read of them is shown.` : ""; }

/** Seconds without a value before a line that goes on live is broken: the files, where it begins, are up to three behind. */
const BROKEN_AFTER_S = 5;
/** Ticks before and after one that say how many nodes it should have. */
const AROUND = 3;

/** Leaves out ticks that lack nodes which those before and after them have: the mean of the others would be a false peak. */
function wholeTicks({ level, nodes }) {
  const most = (from, to) => Math.max(0, ...nodes.slice(Math.max(0, from), to));
  const lacks = (nodesHere, at) => nodesHere < Math.min(most(at - AROUND, at), most(at + 1, at + 1 + AROUND));
  const kept = nodes.map((nodesHere, at) => level !== "tick" || !lacks(nodesHere, at));
  return (list) => list.filter((_, at) => kept[at]);
}

/** A line over time: mean of the nodes, with the smallest and largest around it. */
export class Chart {
  constructor(app, nodes) {
    this.app = app;
    this.nodes = nodes;
    this.box = el("div", { class: "chart" });
    this.note = el("p", { class: "quiet" });
    this.data = [[], [], [], []];
    this.loading = 0;
    this.failed = "";
    this.damaged = "";
  }

  element() { return [this.box, this.note]; }

  /** The nodes' list has changed. */
  async load() {
    const turn = (this.loading += 1);
    const began = performance.now();
    const { from, to } = this.app.range();
    const query = new URLSearchParams({ metric: this.app.metric.name, from, to, points: 1000 });
    if (this.nodes !== null) query.set("nodes", this.nodes);
    this.loaded = Date.now();
    let answer;
    let failed = "";
    try {
      answer = await get(`/v1/monitor/series?${query}`);
    } catch (error) {
      failed = `No history: ${error.message}`;
      answer = { level: "tick", at_ms: [], min: [], mean: [], max: [], nodes: [] };
    }
    if (turn !== this.loading) return;
    this.failed = failed;
    this.level = answer.level;
    const whole = wholeTicks(answer);
    const seconds = whole(answer.at_ms).map((ms) => ms / 1000);
    this.data = [seconds, whole(answer.mean), whole(answer.min), whole(answer.max)];
    this.nodesNow = answer.nodes.at(-1) ?? 0;
    this.damaged = damage(answer.damaged);
    this.gaps();
    this.draw();
    // What it took until the line could be seen, and how long the page has been open.
    requestAnimationFrame((now) => {
      const shown = document.body.dataset;
      shown.chartMs = (now - began).toFixed(1);
      shown.chartAtMs = now.toFixed(1);
      shown.chartPoints = String(seconds.length);
      shown.charts = String(Number(shown.charts || 0) + 1);
    });
  }

  /** Breaks the lines where nothing was measured. */
  gaps() {
    const apart = { tick: 3, minute: 130, hour: 7300 }[this.level];
    const out = [[], [], [], []];
    for (let index = 0; index < this.data[0].length; index += 1) {
      const before = this.data[0][index - 1];
      if (index && this.data[0][index] - before > apart) {
        out[0].push(before + apart / 2);
        for (let line = 1; line < 4; line += 1) out[line].push(null);
      }
      for (let line = 0; line < 4; line += 1) out[line].push(this.data[line][index]);
    }
    this.data = out;
  }

  frame() {
    if (!this.app.live) return;
    if (this.level !== "tick") {
      if (Date.now() - this.loaded > 30_000) this.load();
      return;
    }
    const values = this.pick().filter((value) => value !== null && value !== undefined);
    const at = this.app.at / 1000;
    if (this.data[0].length && at <= this.data[0].at(-1)) return;
    if (this.data[0].length && at - this.data[0].at(-1) > BROKEN_AFTER_S) this.push(at - 1, [null, null, null]);
    if (values.length) {
      const sum = values.reduce((total, value) => total + value, 0);
      this.push(at, [sum / values.length, Math.min(...values), Math.max(...values)]);
    }
    this.nodesNow = values.length;
    const from = this.app.range().from / 1000;
    let old = 0;
    while (old < this.data[0].length && this.data[0][old] < from) old += 1;
    if (old) this.data = this.data.map((line) => line.slice(old));
    this.draw();
  }

  push(at, values) {
    this.data[0].push(at);
    values.forEach((value, index) => this.data[index + 1].push(value));
  }

  pick() {
    if (this.nodes === null) return this.app.values;
    if (!this.wanted) this.wanted = new Set(hostlist(this.nodes));
    return this.app.values.filter((_, index) => this.wanted.has(this.app.nodes[index].n));
  }

  draw() {
    const metric = this.app.metric;
    this.note.textContent = this.data[0].length
      ? `${title(metric)}: ${this.nodesNow === 1 ? "one node" : `mean, smallest and largest of ${this.nodesNow} nodes`}, by ${this.level}. ${metric.help}${this.damaged}`
      : this.failed || (this.level ? `No data in this range.${this.damaged}` : "");
    const width = Math.max(240, this.box.clientWidth || 600);
    const key = `${metric.name} ${document.documentElement.dataset.theme} ${width}`;
    if (this.plot && this.key === key) { this.plot.setData(this.data); return; }
    if (this.plot) this.plot.destroy();
    this.key = key;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const value = (_, raw) => (raw === null || raw === undefined ? "-" : show(raw, metric));
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    this.plot = new uPlot({
      width, height: 220, cursor: { drag: { x: true, y: false } },
      scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.05 : 1] } },
      axes: [axis, { ...axis, size: 78, values: (_, ticks) => ticks.map((tick) => show(tick, metric)) }],
      series: [{}, { label: "mean", stroke: colour("--accent"), width: 2, value },
        { label: "smallest", stroke: colour("--quiet"), width: 1, value }, { label: "largest", stroke: colour("--quiet"), width: 1, value }],
      bands: [{ series: [3, 2], fill: `${colour("--c3")}44` }],
    }, this.data, this.box);
  }

  close() { if (this.plot) this.plot.destroy(); }
}

/** Grid and chart. */
export class Overview {
  constructor(app) {
    this.app = app;
    this.grid = new Grid((index) => { location.hash = `#/node/${app.nodes[index].n}`; });
    this.chart = new Chart(app, null);
  }

  open(main) {
    main.append(panel("Nodes", ...this.grid.element()), panel("All nodes over time", ...this.chart.element()));
    this.reset();
  }

  reset() {
    this.grid.build(this.app.nodes, this.app.tree);
    this.update();
    this.chart.load();
  }

  update() {
    const { values, letters, drained } = this.app.shown();
    this.grid.update(values, letters, this.app.metric, drained);
  }

  frame() {
    if (!this.app.live) return;
    this.update();
    this.chart.frame();
  }

  close() { this.chart.close(); }
}

/** A table of nodes with filter, order and small lines. */
export class Nodes {
  constructor(app) {
    this.app = app;
    this.order = "name";
    this.down = false;
    this.made = new Map();
  }

  open(main) {
    this.filter = el("input", { type: "search", id: "filter", placeholder: "n12, busy, 52:54:00 ...", oninput: () => this.draw() });
    this.count = el("span", { class: "quiet", role: "status" });
    const head = el("tr");
    this.heads = {};
    for (const [key, text] of [["name", "Node"], ["health", "State"], ["job", "Job"], ["value", "Value"]]) {
      this.heads[key] = el("th", { scope: "col" }, el("button", { type: "button", onclick: () => this.sort(key) }, text));
      head.append(this.heads[key]);
    }
    head.append(el("th", { scope: "col" }, "Last minute"), el("th", { scope: "col", class: "wide" }, "Address"), el("th", { scope: "col", class: "wide" }, "MAC"));
    this.body = el("tbody");
    main.append(panel("Nodes", el("div", { class: "row" }, el("label", {}, "Filter ", this.filter), this.count),
      el("table", {}, el("thead", {}, head), this.body)));
    this.reset();
  }

  sort(key) { this.down = this.order === key ? !this.down : false; this.order = key; this.draw(); }
  reset() { this.lines = new Map(); this.past(); this.draw(); }

  /** What the small lines begin with. */
  async past() {
    const shown = this.list().slice(0, ROWS_MOST).map((row) => row.node.n);
    if (!shown.length) return;
    const to = this.app.instant() + 1;
    const query = new URLSearchParams({ metric: this.app.metric.name, nodes: `n[${shown.join(",")}]`, from: to - SPARK_TICKS * 1000, to, level: "tick" });
    const lines = this.lines;
    try {
      const answer = await get(`/v1/monitor/nodes?${query}`);
      if (lines !== this.lines) return;
      for (const [node, points] of Object.entries(answer.nodes)) {
        const known = lines.get(Number(node)) || [];
        lines.set(Number(node), [...points.map((point) => point[1]), ...known].slice(-SPARK_TICKS));
      }
      this.draw();
    } catch { /* without history the lines begin now */ }
  }

  list() {
    const { nodes, values, healths, jobs, drained } = this.app.columns();
    const words = (this.filter ? this.filter.value : "").toLowerCase().split(/[\s,]+/).filter(Boolean);
    const rows = nodes.map((node, index) => ({ node, value: values[index], health: node.n in drained ? `${healths[index]}, drained` : healths[index], job: jobs[index] }));
    const has = (row, word) => row.node.name === word || row.health.includes(word) || (row.node.mac || "").includes(word)
      || (row.node.address || "").includes(word) || (word.length > 1 && row.node.name.startsWith(word)) || `job${row.job}` === word;
    return words.length ? rows.filter((row) => words.some((word) => has(row, word))) : rows;
  }

  draw() {
    const keys = { name: (row) => row.node.n, health: (row) => row.health, job: (row) => row.job || Infinity, value: (row) => row.value ?? -Infinity };
    const key = keys[this.order];
    const rows = this.list();
    rows.sort((a, b) => ((key(a) > key(b)) - (key(a) < key(b))) * (this.down ? -1 : 1) || a.node.n - b.node.n);
    for (const [name, head] of Object.entries(this.heads)) head.setAttribute("aria-sort", name === this.order ? (this.down ? "descending" : "ascending") : "none");
    this.count.textContent = rows.length > ROWS_MOST ? `${ROWS_MOST} of ${rows.length} nodes shown: filter for others` : `${rows.length} nodes`;
    this.place(rows.slice(0, ROWS_MOST).map((row) => this.row(row)));
  }

  /** Puts the rows in their order. One that has the focus stays where it is and the others go around it: what is moved loses it. */
  place(rows) {
    const wanted = new Set(rows);
    for (const row of [...this.body.children]) if (!wanted.has(row)) row.remove();
    const held = rows.find((row) => row.contains(document.activeElement));
    let at = this.body.firstChild;
    for (const row of rows) {
      if (row === held) while (at !== held) { const moved = at; at = at.nextSibling; this.body.append(moved); }
      if (row === at) at = at.nextSibling; else this.body.insertBefore(row, at);
    }
  }

  /** The row of a node, made once and changed after that: what has the focus in it keeps it. */
  row({ node, health, job, value }) {
    let made = this.made.get(node.n);
    if (!made) {
      const cells = Array.from({ length: 7 }, (_, place) => el("td", { class: place > 4 ? "wide" : "" }));
      const { svg, path } = this.spark();
      cells[0].append(nodeLink(node.n));
      cells[4].append(svg);
      made = { row: el("tr", { "data-node": node.n }, ...cells), cells, path, texts: [] };
      this.made.set(node.n, made);
    }
    const put = (place, text, make) => {
      if (made.texts[place] === text) return;
      made.texts[place] = text;
      const held = made.cells[place].contains(document.activeElement);
      made.cells[place].replaceChildren(make ? make() : text);
      // A link that is gone, to a job that is over, leaves the focus in its row.
      if (held) made.cells[0].firstChild.focus({ preventScroll: true });
    };
    put(1, health, () => state(health));
    put(2, String(job || ""), () => jobLink(job));
    put(3, show(value, this.app.metric));
    put(5, node.address || "");
    put(6, node.mac || "");
    const line = this.line(node.n);
    if (made.texts[4] !== line) { made.texts[4] = line; made.path.setAttribute("d", line); }
    return made.row;
  }

  spark() {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 ${SPARK_TICKS} 20`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("class", "spark");
    svg.setAttribute("aria-hidden", "true");
    const path = document.createElementNS(svg.namespaceURI, "path");
    svg.append(path);
    return { svg, path };
  }

  /** The path of a node's last minute. */
  line(number) {
    const line = this.lines.get(number) || [];
    const most = Math.max(...line.filter((value) => value !== null), 0) || 1;
    let draw = "";
    let pen = "M";
    line.forEach((value, index) => {
      if (value === null || value === undefined) { pen = "M"; return; }
      draw += `${pen}${index + SPARK_TICKS - line.length} ${(19 - (value / most) * 18).toFixed(1)}`;
      pen = "L";
    });
    return draw;
  }

  frame() {
    if (!this.app.live) return;
    this.app.nodes.forEach((node, index) => {
      const line = this.lines.get(node.n) || [];
      line.push(this.app.values[index]);
      if (line.length > SPARK_TICKS) line.shift();
      this.lines.set(node.n, line);
    });
    this.draw();
  }
}

/** One node. */
export class NodeView {
  constructor(app, name) {
    this.app = app;
    this.name = name;
    this.number = /^\d+$/.test(name) ? Number(name) : null;
    this.chart = this.number === null ? null : new Chart(app, `n${this.number}`);
  }

  open(main) {
    this.about = el("div");
    if (!this.chart) { main.append(panel("Node", this.about)); this.about.replaceChildren(`There is no node ${this.name}: nodes have numbers.`); return; }
    this.values = el("tbody");
    main.append(panel(`Node n${this.number}`, this.about), panel("Over time", ...this.chart.element()),
      panel("All values", el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Metric"), el("th", { scope: "col", class: "number" }, "Value"), el("th", { scope: "col", class: "wide" }, "Meaning"))), this.values)));
    this.reset();
  }

  reset() { if (this.chart) { this.draw(); this.chart.load(); } }

  draw() {
    const index = this.app.nodes.findIndex((node) => node.n === this.number);
    if (index < 0) { this.about.replaceChildren(`There is no node n${this.number}.`); return; }
    const node = this.app.nodes[index];
    const { healths, jobs, drained } = this.app.columns();
    const { all, own } = this.app.shown();
    const why = drained[this.number];
    const pairs = [["State", state(healths[index])], ["Job", jobLink(jobs[index])], ["Address", node.address], ["MAC", node.mac]];
    if (why !== undefined) pairs.splice(1, 0, ["Drained", why]);
    const job = this.app.jobs.find((known) => known.id === jobs[index]);
    // What programs count is known of now, and of the instant of a pause.
    const counters = this.app.live || own ? this.app.counters[this.number] || [] : [];
    counters.forEach((value, counter) => {
      if (value !== null) pairs.push([counterName(job, counter), String(value)]);
    });
    redraw(this.about, facts(pairs));
    // Until they have come nothing is said of them; counters that no program on the node sets are not said to lack data.
    const isSet = ([metric, value]) => !metric.name.startsWith("hearth_program_counter_") || (value !== null && value !== undefined);
    const shown = this.app.metrics.map((metric, place) => [metric, all ? all[place] : null]).filter(isSet);
    this.values.replaceChildren(...shown.map(([metric, value]) => el("tr", {}, el("td", {}, title(metric)),
      el("td", { class: "number" }, all ? show(value, metric) : ""), el("td", { class: "wide quiet" }, metric.help))));
  }

  frame() { if (this.app.live && this.chart) { this.draw(); this.chart.frame(); } }
  close() { if (this.chart) this.chart.close(); }
}

function jobRow(job) {
  const took = job.started_unix_us ? span(((job.ended_unix_us || Date.now() * 1000) - job.started_unix_us) / 1e6) : "";
  return el("tr", {}, el("td", {}, jobLink(job.id)), el("td", {}, job.name), el("td", {}, state(job.state)), el("td", {}, String(job.ranks)),
    el("td", {}, job.nodes), el("td", {}, took), el("td", { class: "wide" }, job.user), el("td", { class: "wide" }, job.reason));
}

function jobTable(jobs, empty) {
  if (!jobs.length) return el("p", { class: "quiet" }, empty);
  const heads = ["Job", "Program", "State", "Ranks", "Nodes", "Time"].map((text) => el("th", { scope: "col" }, text));
  heads.push(...["User", "Why"].map((text) => el("th", { scope: "col", class: "wide" }, text)));
  return el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...jobs.map(jobRow)));
}

/** Queue, running jobs, and the last that ended. */
export class Jobs {
  constructor(app) { this.app = app; }

  open(main) {
    this.parts = { Running: el("div"), Queue: el("div"), Ended: el("div") };
    for (const [name, part] of Object.entries(this.parts)) main.append(panel(name, part));
    this.reset();
  }

  reset() {
    const waits = (job) => job.state === "pending";
    const order = (a, b) => b.priority - a.priority || a.id - b.id;
    const jobs = this.app.jobs;
    redraw(this.parts.Running, jobTable(jobs.filter((job) => !job.over && !waits(job)), "No job runs."));
    const queue = jobs.filter(waits).sort(order);
    const hidden = this.app.strip.active - jobs.filter((job) => !job.over).length;
    const more = hidden > 0 ? el("p", { class: "quiet" }, `${hidden} more: see hearth jobs.`) : null;
    redraw(this.parts.Queue, jobTable(queue, "Nothing waits."), more);
    redraw(this.parts.Ended, jobTable(jobs.filter((job) => job.over).reverse(), "No job has ended yet."));
  }

  frame(changed) { if (changed.jobs) this.reset(); }
}

/** One job. */
export class JobView {
  constructor(app, name) { this.app = app; this.name = name; this.id = Number(name); this.chart = null; this.counting = el("div"); }

  open(main) {
    this.about = el("div");
    this.box = el("div");
    main.append(panel(`Job ${this.name}`, this.about, this.counting), panel("Its nodes over time", this.box));
    this.reset();
  }

  async reset() {
    if (!/^\d+$/.test(this.name)) { this.about.replaceChildren(`There is no job ${this.name}: jobs have numbers.`); return; }
    let job = this.app.jobs.find((job) => job.id === this.id);
    if (!job) {
      try { job = { ...(await get(`/v1/jobs/${this.id}`)) }; job.ranks = job.ranks_total; } catch (error) { this.about.replaceChildren(error.message); return; }
    }
    const nodes = el("span");
    for (const number of hostlist(job.nodes).slice(0, 256)) nodes.append(nodeLink(number), " ");
    const ms = (us) => when(us ? us / 1000 : 0);
    const program = el("a", { href: `#/program/${encodeURIComponent(job.program)}` }, job.name);
    redraw(this.about, facts([["Program", program], ["State", state(job.state)], ["Why", job.reason], ["User", job.user], ["Ranks", job.ranks], ["Nodes", nodes],
      ["Submitted", ms(job.submitted_unix_us)], ["Started", ms(job.started_unix_us)], ["Ended", ms(job.ended_unix_us)], ["Exit status", job.exit_status]]));
    this.job = job;
    this.count();
    if (!this.chart && job.nodes) {
      this.chart = new Chart(this.app, job.nodes);
      this.box.replaceChildren(...this.chart.element());
    } else if (!job.nodes) this.box.replaceChildren(el("p", { class: "quiet" }, "It has no nodes yet."));
    if (this.chart) this.chart.load();
  }

  /** What its program counts: least, sum and most of the ranks; of a job that is over what was last seen of it. */
  count() {
    const { job } = this;
    const over = job.over ?? job.ended_unix_us > 0;
    const counted = over ? job.counted || [] : this.counted();
    const rows = counted.map(({ counter, ranks, least, sum, most }) => el("tr", {}, el("td", {}, counterName(job, counter)),
      ...[ranks, least, sum, most].map((value) => el("td", { class: "number" }, String(value)))));
    const heads = ["Counter", "Ranks", "Least", "Sum", "Most"].map((text, index) => el("th", { scope: "col", class: index ? "number" : "" }, text));
    const table = rows.length ? el("table", { id: "counters" }, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows)) : null;
    const note = over ? el("p", { class: "quiet", id: "counted" }, rows.length ? "It is over: its counters as they were last seen." : "It is over: nothing is known of counters.") : null;
    redraw(this.counting, table, note);
  }

  /** From the nodes that have this job now. */
  counted() {
    const { nodes, counters, jobOf } = this.app;
    const own = nodes.filter((_, index) => jobOf[index] === this.id).map((node) => counters[node.n] || []);
    const counted = [];
    for (let counter = 0; counter < COUNTERS; counter += 1) {
      const values = own.map((values) => values[counter]).filter((value) => value !== null && value !== undefined);
      if (!values.length) continue;
      counted.push({ counter, ranks: values.length, least: Math.min(...values), sum: values.reduce((sum, value) => sum + value, 0), most: Math.max(...values) });
    }
    return counted;
  }

  frame(changed) {
    if (changed.jobs) { this.reset(); return; }
    if (this.job && this.app.live) this.count();
    if (this.chart) this.chart.frame();
  }

  close() { if (this.chart) this.chart.close(); }
}

/** Programs that were launched, and one of them. */
export class Programs {
  constructor(app, hash) { this.app = app; this.hash = hash; }

  open(main) {
    this.box = el("div");
    main.append(panel(this.hash ? "Program" : "Programs", this.box));
    this.reset();
  }

  async reset() {
    let list;
    try { list = await get("/v1/programs"); } catch (error) { this.box.replaceChildren(error.message); return; }
    if (this.hash) {
      const program = list.find((program) => program.program === this.hash);
      if (!program) { this.box.replaceChildren("There is no such program."); return; }
      const nodes = el("span");
      for (const number of hostlist(program.nodes).slice(0, 256)) nodes.append(nodeLink(number), " ");
      redraw(this.box, facts([["Name", program.name], ["Id", program.program], ["Bytes", program.bytes], ["Kept on", nodes], ["Pages", program.pages],
        ["Launches", program.launches], ["On nodes that kept it", program.hits]]), jobTable(this.app.jobs.filter((job) => job.program === this.hash).reverse(), "None of the last jobs ran it."));
      return;
    }
    const heads = ["Program", "Bytes", "Kept on", "Launches", "Warm"].map((text) => el("th", { scope: "col" }, text));
    const rows = list.slice(0, ROWS_MOST).map((program) => el("tr", {}, el("td", {}, el("a", { href: `#/program/${encodeURIComponent(program.program)}` }, program.name || program.program.slice(0, 12))),
      el("td", {}, String(program.bytes)), el("td", {}, program.nodes), el("td", {}, String(program.launches)), el("td", {}, String(program.hits))));
    redraw(this.box, rows.length ? el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows)) : el("p", { class: "quiet" }, "No program was launched yet."));
  }

  frame(changed) { if (changed.jobs) this.reset(); }
}

/** What happened. */
export class Events {
  constructor(app) { this.app = app; }

  open(main) {
    this.hide = el("input", { type: "checkbox", id: "hide", onchange: () => this.reset() });
    this.body = el("tbody");
    this.said = el("span", { role: "status", class: "quiet" });
    const all = el("button", { type: "button", id: "ack-all", onclick: () => this.acknowledge(this.list().map((event) => event.seq)) }, "Acknowledge all");
    const heads = ["Time", "Kind", "What", ""].map((text) => el("th", { scope: "col" }, text));
    main.append(panel("Events", el("div", { class: "row" }, el("label", {}, this.hide, " hide acknowledged"), all, this.said), el("table", {}, el("thead", {}, el("tr", {}, ...heads)), this.body)));
    this.reset();
  }

  list() {
    const events = this.app.events.toReversed();
    return this.hide.checked ? events.filter((event) => !this.app.seen.has(event.seq)) : events;
  }

  async acknowledge(numbers) {
    try {
      this.app.saw(await post("/v1/monitor/acknowledge", { events: numbers }));
      this.said.textContent = "";
    } catch (error) { this.said.textContent = error.message; }
    this.reset();
  }

  reset() {
    redraw(this.body, ...this.list().map((event) => {
      const seen = this.app.seen.has(event.seq);
      const act = seen ? "seen" : el("button", { type: "button", "aria-label": `Acknowledge event ${event.seq}`, onclick: () => this.acknowledge([event.seq]) }, "Acknowledge");
      return el("tr", { class: seen ? "seen" : "", "data-seq": event.seq }, el("td", {}, when(event.time_unix_us / 1000)), el("td", {}, state(event.severity), ` ${event.kind}`), el("td", {}, event.text), el("td", {}, act));
    }));
  }

  frame(changed) { if (changed.events || changed.seen) this.reset(); }
}
