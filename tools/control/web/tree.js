// The view of the monitoring tree: who is below whom, how late each passes its values on, what was lost.
import { el, redraw } from "./format.js";
import { get } from "./stream.js";
import { facts, nodeLink, panel, quiet } from "./parts.js";

const PERIOD_MS = 2000;
/** Columns of numbers. */
const NUMBERS = new Set(["Level", "Children", "Lag"]);
const ROWS_MOST = 2000;
/** Ticks that are shown: with one a second, two minutes. */
const TICKS = 120;

const ms = (value) => (value === null || value === undefined ? "" : `${value.toFixed(1)} ms`);

/** Processes in the order of the tree, each with its depth; a ring, which cannot be, would be left out. */
function ordered(processes) {
  const below = new Map();
  for (const process of processes) {
    const parent = process.gone ? "lost" : process.parent;
    if (!below.has(parent)) below.set(parent, []);
    below.get(parent).push(process);
  }
  const out = [];
  const walk = (name, depth) => {
    for (const process of (below.get(name) || []).sort((a, b) => b.height - a.height || a.node - b.node)) {
      out.push([process, depth]);
      walk(process.name, depth + 1);
    }
    below.delete(name);
  };
  walk("fe", 1);
  walk("lost", 1);
  return out;
}

export class Tree {
  static controls = [];

  constructor(app) { this.app = app; this.asked = 0; }

  name() { return "Tree"; }

  open(main) {
    this.about = el("div");
    this.ticks = el("div");
    this.table = el("div");
    this.lost = el("div");
    main.append(panel("Monitoring tree", this.about), panel("Last ticks", this.ticks), panel("Processes", this.table), panel("Lost processes", this.lost));
    this.reset();
  }

  async reset() {
    this.asked = Date.now();
    let view;
    try { view = await get("/v1/overlay"); } catch (error) { this.about.replaceChildren(error.message); return; }
    // A tree that is down has no figures; those of the last one say nothing of now.
    const stands = view.processes.some((process) => !process.gone);
    const books = view.books;
    const lost = books.lost_link + books.lost_dropped + books.missing;
    const last = view.delays.at(-1);
    const fans = view.processes.filter((process) => process.height > 0 && !process.gone).map((process) => process.children);
    const direct = view.processes.filter((process) => !process.gone && process.parent === "fe").length;
    const samples = ["Samples", `${books.sent} sent = ${books.stored} stored + ${books.filtered} reduced + ${lost} lost or on their way${books.unheard ? ` - ${books.unheard} that are there before their nodes have said so` : ""}`];
    this.about.replaceChildren(facts(!stands ? [["State", view.state], samples] : [
      ["State", view.state], ["Nodes attached", `${view.attached} of ${view.planned}`], ["Depth", view.height], ["Fan-out", `${Math.max(direct, 0, ...fans)} at most, ${view.fan_out} as planned`],
      ["Processes between", view.cps], ["Nodes below their own process", view.local], ["Built in", ms(view.built_ms)],
      ["Last tick here after", last ? `${ms(last.handed_us / 1000)}, ${last.covers} of ${last.attached} nodes` : ""],
      samples,
    ]));
    if (stands) this.covered(view);
    else this.ticks.replaceChildren(quiet("No tree stands."));
    this.processes(view);
    const losses = view.losses.slice(-20).reverse().map((loss) => el("tr", {}, el("td", {}, loss.process), el("td", {}, `${(loss.ago_ms / 1000).toFixed(0)} s ago`),
      el("td", {}, String(loss.children)), el("td", {}, ms(loss.mended_ms))));
    this.lost.replaceChildren(losses.length ? this.make(["Process", "When", "Below it then", "All moved after"], losses) : quiet("None since this tree stands."));
  }

  /** A bar for each of the last ticks, as high as the share of nodes in it: a lost process is a gap. */
  covered(view) {
    if (!view.delays.length) { this.ticks.replaceChildren(quiet("No tick has come yet.")); return; }
    // What came late of a tick has a line of its own.
    const by = new Map();
    for (const delay of view.delays) by.set(delay.tick, (by.get(delay.tick) || 0) + delay.covers);
    const newest = Math.max(...by.keys());
    const first = Math.max(Math.min(...by.keys()), newest - TICKS + 1);
    const bars = [];
    let whole = 0;
    let least = view.planned;
    for (let tick = first; tick <= newest; tick += 1) {
      const covers = Math.min(by.get(tick) || 0, view.planned);
      if (covers >= view.planned) whole += 1;
      least = Math.min(least, covers);
      const bar = el("span", { class: covers >= view.planned ? "whole" : covers ? "part" : "none", title: `tick ${tick}: ${covers} of ${view.planned} nodes` });
      bar.style.height = `${Math.max(8, (covers / Math.max(1, view.planned)) * 100)}%`;
      bars.push(bar);
    }
    const text = `${whole} of the last ${bars.length} ticks have all ${view.planned} nodes${whole < bars.length ? `, the poorest has ${least}` : ""}.`;
    this.ticks.replaceChildren(el("div", { class: "ticks", role: "img", "aria-label": text }, ...bars), quiet(text));
  }

  processes(view) {
    const rows = ordered(view.processes).slice(0, ROWS_MOST).map(([process, depth]) => {
      const name = process.slot ? process.name : nodeLink(process.node);
      return el("tr", { class: process.gone ? "seen" : "", "data-process": process.name }, el("td", { class: `depth${Math.min(depth, 8)}` }, name), el("td", {}, process.parent),
        el("td", { class: "number" }, String(process.height)), el("td", { class: "number" }, process.height ? String(process.children) : ""),
        el("td", { class: "number" }, process.gone ? "lost" : ms(process.lag_us / 1000)));
    });
    const hidden = view.processes.length - rows.length;
    const more = hidden > 0 ? quiet(`${hidden} more: see hearth overlay.`) : null;
    redraw(this.table, rows.length ? this.make(["Process", "Parent", "Level", "Children", "Lag"], rows) : quiet("No tree stands: values come with heartbeats."), more);
  }

  make(heads, rows) {
    return el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((text) => el("th", { scope: "col", class: NUMBERS.has(text) ? "number" : "" }, text)))), el("tbody", {}, ...rows));
  }

  frame() { if (this.app.live && Date.now() - this.asked >= PERIOD_MS) this.reset(); }
}
