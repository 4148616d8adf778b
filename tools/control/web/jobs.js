// Jobs: what runs, what waits, what has ended.
import { el, redraw, span } from "./format.js";
import { jobLink, panel, quiet, state, table } from "./parts.js";

const COLUMNS = [
  ["Job", "name fit"], ["Program", "name any"], ["State", "name fit"], ["Ranks", "number"], ["Nodes", "any"],
  ["Time", "number"], ["Exit", "number"], ["User", "any"], ["Why", "text"],
];

/** Columns where there is less room. */
const SHORT_COLUMNS = [
  ["Job", "name fit"], ["Program", "name any"], ["State", "name fit"], ["Nodes", "any"], ["Time", "number"], ["Why", "text"],
];

/**
 * How long a job has run, or ran; nothing before it begins. That of one that runs goes on with
 * `tick`.
 */
export function ran(job) {
  if (!job.started_unix_us) return "";
  if (job.ended_unix_us) return span((job.ended_unix_us - job.started_unix_us) / 1e6);
  return el("span", { "data-since": job.started_unix_us }, since(job.started_unix_us));
}

const since = (us) => span(Date.now() / 1000 - us / 1e6);

/** A second has passed for the jobs that run. */
export function tick(box) {
  for (const time of box.querySelectorAll("[data-since]")) time.textContent = since(Number(time.dataset.since));
}

/** A table of jobs as the stream has them, or `empty`. */
export function jobTable(jobs, empty) {
  if (!jobs.length) return quiet(empty);
  return table(COLUMNS, jobs.map((job) => [
    jobLink(job.id), job.name, state(job.state), job.ranks, job.nodes, ran(job), job.exit_status, job.user, job.reason,
  ]));
}

/** The same with what one looks for first. */
export function shortJobTable(jobs, empty) {
  if (!jobs.length) return quiet(empty);
  return table(SHORT_COLUMNS, jobs.map((job) => [
    jobLink(job.id), job.name, state(job.state), job.nodes, ran(job), job.reason,
  ]));
}

export class Jobs {
  static controls = ["live"];

  constructor(app) { this.app = app; }

  name() { return "Jobs"; }

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
    const more = hidden > 0 ? quiet(`${hidden} more: see hearth jobs.`) : null;
    redraw(this.parts.Queue, jobTable(queue, "Nothing waits."), more);
    redraw(this.parts.Ended, jobTable(jobs.filter((job) => job.over).reverse(), "No job has ended yet."));
  }

  frame(changed) {
    if (!this.app.live) return;
    if (changed.jobs) this.reset(); else tick(this.parts.Running);
  }
}
