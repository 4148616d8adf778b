// The first view: every node, all of them over time, what runs and what happened last.
import { el, redraw } from "./format.js";
import { Chart } from "./chart.js";
import { eventTable } from "./events.js";
import { Grid } from "./grid.js";
import { IoServices } from "./io.js";
import { shortJobTable, tick } from "./jobs.js";
import { panel, quiet } from "./parts.js";

const JOBS_MOST = 8;
const EVENTS_MOST = 8;
/** Most nodes whose grid has room beside the chart. */
const BESIDE_MOST = 64;

export class Overview {
  static controls = ["metric", "range", "live", "csv"];

  constructor(app) {
    this.app = app;
    this.grid = new Grid((index) => { location.hash = `#/node/${app.nodes[index].n}`; });
    this.chart = new Chart(app, null);
  }

  name() { return "Overview"; }

  open(main) {
    this.jobs = el("div");
    this.events = el("div");
    this.nodes = panel("Nodes", ...this.grid.element());
    this.io = new IoServices();
    this.left = el("div", { class: "side" }, this.nodes, panel("Latest jobs", this.jobs), this.io.panel);
    const right = [panel("All nodes over time", ...this.chart.element()), panel("Latest events", this.events)];
    main.append(this.left, el("div", { class: "side" }, ...right));
    this.reset();
  }

  reset() {
    // A large grid has the whole width, above both sides.
    const wide = this.app.nodes.length > BESIDE_MOST;
    this.nodes.classList.toggle("full", wide);
    if (wide) this.left.before(this.nodes); else this.left.prepend(this.nodes);
    this.grid.build(this.app.nodes, this.app.tree);
    this.update();
    this.drawJobs();
    this.drawEvents();
    this.io.load();
    this.chart.load();
  }

  update() {
    const { values, letters, drained } = this.app.shown();
    this.grid.update(values, letters, this.app.metric, drained);
  }

  /** Those that are not over, before those that have ended last. */
  drawJobs() {
    const newest = this.app.jobs.toReversed();
    const active = newest.filter((job) => !job.over);
    const list = [...active, ...newest.filter((job) => job.over)].slice(0, JOBS_MOST);
    redraw(this.jobs, shortJobTable(list, "No job was submitted yet: try hearth run PROGRAM."),
      el("p", {}, el("a", { href: "#/jobs" }, "All jobs")));
  }

  drawEvents() {
    const list = this.app.events.slice(-EVENTS_MOST).reverse();
    redraw(this.events, list.length ? eventTable(this.app, list, null) : quiet("Nothing has happened yet."),
      el("p", {}, el("a", { href: "#/events" }, "All events")));
  }

  frame(changed) {
    if (!this.app.live) return;
    this.update();
    this.chart.frame();
    if (changed.jobs) this.drawJobs(); else tick(this.jobs);
    if (changed.events || changed.seen) this.drawEvents();
    this.io.frame(changed);
  }

  close() { this.chart.close(); }
}
