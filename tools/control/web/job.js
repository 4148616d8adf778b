// One job: what it is, what it writes, how its ranks and nodes do; and a button that ends it.
import { bytes, el, redraw, show, span, when } from "./format.js";
import { Chart } from "./chart.js";
import { ran, tick } from "./jobs.js";
import { Output } from "./output.js";
import { facts, nodeLinks, panel, programLink, quiet, state, sure, table } from "./parts.js";
import { get, post } from "./stream.js";

const COUNTERS = 16;
const RANKS_MOST = 128;
const PAGE_BYTES = 4096;
/** Shown before and after the time of a job, so that its first and last values stand inside. */
const MARGIN_MS = 2_000;
/** Values of the last ticks of a job come so much after its end. */
const LATE_MS = 6_000;

const COUNTER_COLUMNS = [["Counter", "name"], ["Ranks", "number"], ["Least", "number"], ["Sum", "number"], ["Most", "number"]];
const RANK_COLUMNS = [
  ["Rank", "fit"], ["Node", "name fit"], ["End", "name any"], ["Wall", "number"], ["User", "number"], ["Memory", "number"],
  ["Output", "number"],
];

/** What a program calls its counter. */
export function counterName(job, counter) { return (job && job.counters && job.counters[counter]) || `Counter ${counter}`; }

/** How a rank ended, in words. */
function endOf(end) {
  if (!end) return "runs";
  if (typeof end === "string") {
    return { failed: "could not go on", "node-lost": "was lost with its node", "not-started": "did not start" }[end] || end;
  }
  const [[kind, number]] = Object.entries(end);
  return kind === "exited" ? `exited with status ${number}` : `was ended by signal ${number}`;
}

/** What was typed, if it is known. */
function code(text) { return text ? el("code", {}, text) : null; }

export class JobView {
  static controls = ["metric", "live", "csv"];

  constructor(app, name) {
    this.app = app;
    this.called = name;
    this.id = Number(name);
    this.chart = null;
    this.output = new Output(this.id);
  }

  name() { return `Job ${this.called}`; }

  open(main) {
    this.about = el("div");
    this.counting = el("div");
    this.said = el("span", { role: "status" });
    this.cancel = el("button", { type: "button", id: "cancel-job", hidden: true, onclick: () => this.end() }, "Cancel job");
    this.box = el("div");
    this.ranks = el("div");
    this.about.append(quiet("..."));
    const about = panel(`Job ${this.called}`, this.about, el("p", { class: "row" }, this.cancel, this.said), this.counting);
    main.append(
      el("div", { class: "side" }, about, panel("Its nodes while it ran", this.box)),
      el("div", { class: "side" }, panel("Output", this.output.element()), panel("Ranks", this.ranks)),
    );
    this.reset();
  }

  /** What the stream says of it; nothing of a job of long ago. */
  now() { return this.app.jobs.find((job) => job.id === this.id); }

  async reset() {
    if (!/^\d+$/.test(this.called)) {
      this.about.replaceChildren(`There is no job ${this.called}: jobs have numbers.`);
      return;
    }
    const turn = (this.turn = (this.turn || 0) + 1);
    const now = this.now();
    this.told = JSON.stringify(now);
    let whole = null;
    try {
      whole = await get(`/v1/jobs/${this.id}`);
    } catch (error) {
      if (!now) { this.about.replaceChildren(error.message); return; }
    }
    if (turn !== this.turn) return;
    const job = whole ? { ...now, ...whole } : { ...now, ranks_total: now.ranks, ranks: [] };
    job.over = now?.over ?? Boolean(job.ended_unix_us);
    this.job = job;
    this.drawFacts();
    this.cancel.hidden = job.over;
    this.count();
    this.drawRanks();
    this.output.update(job);
    this.drawChart();
  }

  drawFacts() {
    const { job } = this;
    // A job may have been given a name of its own.
    const file = job.program_file || job.name;
    const time = (us) => when(us ? us / 1000 : 0);
    const limit = job.time_limit_s ? ` of ${span(job.time_limit_s)}` : "";
    const took = job.started_unix_us ? el("span", {}, ran(job), limit) : "";
    const after = (job.after || []).map((wait) => `${wait.condition === "ok" ? "good " : ""}end of job ${wait.job}`);
    const kept = job.output && job.output.bytes ? bytes(job.output.bytes) : "";
    const lost = job.output && job.output.dropped_bytes ? `, ${bytes(job.output.dropped_bytes)} lost` : "";
    redraw(this.about, facts([
      ["State", state(job.state)], ["Why", job.reason], ["Name", file === job.name ? "" : job.name],
      ["Program", programLink(job.program, file)],
      ["Command", code(job.command)], ["Directory", code(job.directory)], ["User", job.user],
      ["Ranks", job.ranks_total], ["Nodes", job.nodes ? nodeLinks(job.nodes) : ""],
      ["Submitted", time(job.submitted_unix_us)], ["Starts at the latest", job.over ? "" : time(job.expected_start_unix_us)],
      ["Started", time(job.started_unix_us)], ["Ended", time(job.ended_unix_us)], ["Run time", took],
      ["Exit status", job.exit_status], ["Priority", job.priority || ""], ["Waits for", after.join(", ")],
      ["Files", (job.with || []).join(", ")], ["Queued again", job.restarts || ""], ["Output", kept + lost],
    ]));
  }

  /** Ends the job, after a question. */
  async end() {
    const { id, name } = this.job;
    const text = `${name} gets SIGTERM on all its nodes, and SIGKILL if it does not end.`;
    if (!await sure(`Cancel job ${id}?`, text, "Cancel the job")) return;
    this.said.textContent = "";
    try {
      await post(`/v1/jobs/${id}/cancel`, { reason: "cancelled on the page" });
      this.said.textContent = "It was told to end.";
    } catch (error) { this.said.textContent = error.message; }
  }

  /** The time of the job itself. */
  range() {
    const { started_unix_us: started, ended_unix_us: ended } = this.job;
    return { from: Math.floor(started / 1000) - MARGIN_MS, to: Math.ceil((ended || Date.now() * 1000) / 1000) + MARGIN_MS };
  }

  /** What is saved as CSV. */
  csv() {
    if (!this.job?.started_unix_us) return null;
    return { ...this.range(), nodes: this.job.nodes, metrics: this.app.metric.name };
  }

  drawChart() {
    const { job } = this;
    const begun = job.nodes && job.started_unix_us;
    if (!begun || (this.chart && this.chart.nodes !== job.nodes)) { this.chart?.close(); this.chart = null; }
    if (!begun) { this.box.replaceChildren(quiet(job.over ? "It has not run." : "It does not run yet.")); return; }
    if (!this.chart) {
      this.chart = new Chart(this.app, job.nodes, () => this.range());
      this.box.replaceChildren(...this.chart.element());
    }
    this.chart.load();
  }

  drawRanks() {
    const { ranks } = this.job;
    const rows = ranks.slice(0, RANKS_MOST).map((rank) => [
      rank.rank, rank.node, endOf(rank.end), ...(rank.end ? [
        show(rank.wall_ms / 1000, { unit: "seconds" }), show(rank.user_ms / 1000, { unit: "seconds" }),
        bytes(rank.frames_peak * PAGE_BYTES), bytes(rank.output_bytes),
      ] : ["", "", "", ""]),
    ]);
    const more = ranks.length > rows.length ? quiet(`${ranks.length - rows.length} more: see hearth jobs ${this.id}.`) : null;
    const faults = ranks.filter((rank) => rank.fault).slice(0, 1)
      .map((rank) => el("pre", {}, `rank ${rank.rank} on ${rank.node}\n${rank.fault}`));
    redraw(this.ranks, rows.length ? table(RANK_COLUMNS, rows) : quiet("It has no ranks yet."), more, ...faults);
  }

  /**
   * What its program counts: least, sum and most of the ranks; of a job that is over what was last
   * seen of it.
   */
  count() {
    const { job } = this;
    const counted = job.over ? job.counted || [] : this.counted();
    const rows = counted.map(({ counter, ranks, least, sum, most }) => [counterName(job, counter), ranks, least, sum, most]);
    const made = rows.length ? table(COUNTER_COLUMNS, rows, { id: "counters" }) : null;
    const text = rows.length ? "It is over: its counters as they were last seen." : "It is over: nothing is known of counters.";
    const isToSay = job.over && (rows.length || job.counters?.length);
    redraw(this.counting, made, isToSay ? el("p", { class: "quiet", id: "counted" }, text) : null);
  }

  /** From the nodes that have this job now. */
  counted() {
    const { nodes, counters, jobOf } = this.app;
    const own = nodes.filter((_, index) => jobOf[index] === this.id).map((node) => counters[node.n] || []);
    const counted = [];
    for (let counter = 0; counter < COUNTERS; counter += 1) {
      const values = own.map((list) => list[counter]).filter((value) => value !== null && value !== undefined);
      if (!values.length) continue;
      const sum = values.reduce((total, value) => total + value, 0);
      counted.push({ counter, ranks: values.length, least: Math.min(...values), sum, most: Math.max(...values) });
    }
    return counted;
  }

  frame(changed) {
    if (changed.jobs && JSON.stringify(this.now()) !== this.told) { this.reset(); return; }
    if (!this.job || !this.app.live) return;
    if (!this.job.over) { this.count(); tick(this.about); this.chart?.frame(); return; }
    const ended = this.job.ended_unix_us / 1000;
    if (this.chart && this.chart.loaded < ended + LATE_MS && Date.now() > ended + LATE_MS) this.chart.load();
  }

  close() { this.output.close(); this.chart?.close(); }
}
