// One node: how it does, one metric over time, and all values.
import { el, redraw, show, title } from "./format.js";
import { Chart } from "./chart.js";
import { counterName } from "./job.js";
import { facts, jobLink, panel, state, table } from "./parts.js";

const COLUMNS = [["Metric", "name"], ["Value", "name number"], ["Meaning", "name text quiet"]];

export class NodeView {
  static controls = ["metric", "range", "live", "csv"];

  constructor(app, name) {
    this.app = app;
    this.called = name;
    this.number = /^\d+$/.test(name) ? Number(name) : null;
    this.chart = this.number === null ? null : new Chart(app, `n${this.number}`);
  }

  name() { return `Node ${this.number === null ? this.called : `n${this.number}`}`; }

  open(main) {
    this.about = el("div");
    if (!this.chart) {
      main.append(panel("Node", this.about));
      this.about.replaceChildren(`There is no node ${this.called}: nodes have numbers.`);
      return;
    }
    this.values = el("div");
    main.append(panel(`Node n${this.number}`, this.about), panel("Over time", ...this.chart.element()),
      panel("All values", this.values));
    this.reset();
  }

  reset() { if (this.chart) { this.draw(); this.chart.load(); } }

  /** What is saved as CSV: all values of this node. */
  csv() { return { ...this.app.range(), nodes: `n${this.number}` }; }

  draw() {
    const index = this.app.nodes.findIndex((node) => node.n === this.number);
    if (index < 0) { this.about.replaceChildren(`There is no node n${this.number}.`); return; }
    const node = this.app.nodes[index];
    const { healths, jobs, drained } = this.app.columns();
    const { all, own } = this.app.shown();
    const job = this.app.jobs.find((known) => known.id === jobs[index]);
    const running = jobs[index] ? el("span", {}, jobLink(jobs[index]), job ? ` ${job.name}` : "") : "none";
    const valueOf = (name) => all && all[this.app.metrics.findIndex((metric) => metric.name === name)];
    const pairs = [
      ["State", state(healths[index])], ["Drained", drained[this.number]], ["Job", running],
      ["Cores", valueOf("hearth_node_cores")], ["Threads", valueOf("hearth_node_threads")],
      ["Address", node.address], ["MAC", node.mac],
    ];
    // What programs count is known of now, and of the instant of a pause.
    const counters = this.app.live || own ? this.app.counters[this.number] || [] : [];
    counters.forEach((value, counter) => {
      if (value !== null) pairs.push([counterName(job, counter), value]);
    });
    redraw(this.about, facts(pairs));
    // Until they have come nothing is said of them; counters that no program on the node sets are
    // not said to lack data.
    const isSet = ([metric, value]) =>
      !metric.name.startsWith("hearth_program_counter_") || (value !== null && value !== undefined);
    const shown = this.app.metrics.map((metric, place) => [metric, all ? all[place] : null]).filter(isSet);
    redraw(this.values, table(COLUMNS,
      shown.map(([metric, value]) => [title(metric), all ? show(value, metric) : "", metric.help])));
  }

  frame() { if (this.app.live && this.chart) { this.draw(); this.chart.frame(); } }
  close() { if (this.chart) this.chart.close(); }
}
