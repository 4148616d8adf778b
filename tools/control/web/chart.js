// A line over time: the mean of some nodes, with the smallest and largest around it.
import { count, el, hostlist, show, title, when } from "./format.js";
import { damage } from "./parts.js";
import { get } from "./stream.js";

const HEIGHT = 220;
/**
 * Seconds without a value before a line that goes on live is broken: the files are up to three
 * behind.
 */
const BROKEN_AFTER_S = 5;
/** Ticks before and after one that say how many nodes it should have. */
const AROUND = 3;
const DAY_S = 86400;
/** Seconds between marks of the time axis. */
const APART_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, DAY_S, 2 * DAY_S,
  7 * DAY_S, 14 * DAY_S, 30 * DAY_S, 90 * DAY_S];

/**
 * Leaves out ticks that lack nodes which those before and after them have: the mean of the others
 * misleads.
 */
function wholeTicks({ level, nodes }) {
  const most = (from, to) => Math.max(0, ...nodes.slice(Math.max(0, from), to));
  const lacks = (here, at) => here < Math.min(most(at - AROUND, at), most(at + 1, at + 1 + AROUND));
  const kept = nodes.map((here, at) => level !== "tick" || !lacks(here, at));
  return (list) => list.filter((_, at) => kept[at]);
}

/**
 * Marks of the time axis, in UTC: the time of day, with the date below the first and where the day
 * changes.
 */
function timeMarks(_, seconds, __, ___, apart) {
  let before = "";
  return seconds.map((second) => {
    const [date, time] = when(second * 1000).split("T");
    const day = date === before ? "" : `\n${date}`;
    before = date;
    if (apart >= DAY_S) return date;
    return `${time.slice(0, apart >= 60 ? 5 : 8)}${day}`;
  });
}

export class Chart {
  /**
   * Of all nodes (null), or those of a hostlist; `range` says of which time, else it is the page's.
   */
  constructor(app, nodes, range = null) {
    this.app = app;
    this.nodes = nodes;
    this.own = range;
    /** One node has neither smallest nor largest. */
    this.single = nodes !== null && hostlist(nodes).length === 1;
    this.box = el("div", { class: "chart" });
    this.note = el("p", { class: "quiet" });
    this.data = [[], [], [], []];
    this.loading = 0;
    this.failed = "";
    this.damaged = "";
  }

  element() { return [this.box, this.note]; }

  range() { return this.own ? this.own() : this.app.range(); }

  /** Gets what is stored. */
  async load() {
    const turn = (this.loading += 1);
    const began = performance.now();
    const { from, to } = this.range();
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
    Object.assign(this.box.dataset, { from, to });
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

  /** A second has passed, and the time shown goes on. */
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
    const from = this.range().from / 1000;
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
    const of = this.nodesNow === 1 ? "one node" : `mean, smallest and largest of ${count(this.nodesNow, "node")}`;
    this.note.textContent = this.data[0].length
      ? `${title(metric)}: ${of}, by ${this.level}.${this.damaged}`
      : this.failed || (this.level ? `No data in this range.${this.damaged}` : "");
    const width = Math.max(240, this.box.clientWidth || 600);
    const key = `${metric.name} ${document.documentElement.dataset.theme} ${width}`;
    const data = this.single ? this.data.slice(0, 2) : this.data;
    if (this.plot && this.key === key) { this.plot.setData(data); return; }
    if (this.plot) this.plot.destroy();
    this.key = key;
    this.plot = new uPlot(this.options(metric, width), data, this.box);
  }

  options(metric, width) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const value = (_, raw) => (raw === null || raw === undefined ? "-" : show(raw, metric));
    const line = { stroke: colour("--line"), width: 1 };
    const axis = { stroke: colour("--quiet"), font: "12px system-ui, sans-serif", grid: line, ticks: line };
    const quietLine = (label) => ({ label, stroke: colour("--quiet"), width: 1, value });
    const { own } = this;
    const scales = { y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.05 : 1] } };
    // What has a time of its own is drawn over all of it, also where nothing was measured.
    if (own) scales.x = { range: () => { const { from, to } = own(); return [from / 1000, to / 1000]; } };
    return {
      width, height: HEIGHT, scales, cursor: { drag: { x: true, y: false } },
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      axes: [
        { ...axis, space: 70, incrs: APART_S, values: timeMarks },
        { ...axis, size: 84, values: (_, ticks) => ticks.map((tick) => show(tick, metric)) },
      ],
      series: [
        { label: "time", value: (_, raw) => (raw === null || raw === undefined ? "-" : when(raw * 1000)) },
        { label: this.single ? title(metric) : "mean", stroke: colour("--accent"), width: 2, value },
        ...(this.single ? [] : [quietLine("smallest"), quietLine("largest")]),
      ],
      bands: this.single ? [] : [{ series: [3, 2], fill: `${colour("--c3")}44` }],
    };
  }

  close() { if (this.plot) this.plot.destroy(); }
}
