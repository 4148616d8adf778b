// The nodes as cells, laid out as the fat tree: a box for each leaf switch, boxes around those of one switch above.
import { el, health, isShare, show, step, title } from "./format.js";

const FLAT_ROW = 32;
/** Most nodes of which each cell has its name and value written in it. */
const NAMED_MOST = 64;
/** Nodes above which cells are as small as they get. */
const SMALL_ABOVE = 4096;
/** What is written in a cell instead of a value. */
const TOLD = { l: "lost", t: "stale", x: "left", a: "absent", w: "awaited" };

export class Grid {
  /** `open(index)` is called when somebody chooses a cell. */
  constructor(open) {
    this.open = open;
    this.cells = [];
    this.texts = [];
    this.classes = [];
    this.focused = 0;
    this.box = el("div", { class: "grid", role: "grid", "aria-label": "Nodes by switch" });
    this.readout = el("p", { id: "readout", "aria-live": "polite", class: "quiet" },
      "Point at a node, or go through the grid with the arrow keys.");
    this.legend = el("div", { class: "legend" });
    this.box.addEventListener("click", (event) => this.chosen(event));
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("focusin", (event) => this.tell(event.target));
    this.box.addEventListener("mouseover", (event) => this.tell(event.target));
  }

  element() { return [this.legend, this.box, this.readout]; }

  /** New nodes. */
  build(nodes, tree) {
    this.nodes = nodes;
    this.named = nodes.length <= NAMED_MOST;
    this.width = tree.length ? tree[0] : FLAT_ROW;
    const above = tree.length > 2 ? this.width * tree[1] : Infinity;
    this.box.className = `grid ${this.named ? "few" : nodes.length > SMALL_ABOVE ? "many" : ""}`;
    this.cells = [];
    this.texts = [];
    this.classes = [];
    const boxes = [];
    let leaf = null, pod = null, leafNumber = -1, podNumber = -1;
    nodes.forEach((node, index) => {
      const inLeaf = Math.floor(node.n / this.width);
      const inPod = Math.floor(node.n / above);
      if (inPod !== podNumber || !pod) {
        podNumber = inPod;
        pod = above === Infinity ? this.box : el("div", { class: "pod", role: "rowgroup" });
        if (pod !== this.box) boxes.push(pod);
      }
      if (inLeaf !== leafNumber) {
        leafNumber = inLeaf;
        const box = this.leaf(inLeaf, nodes, tree);
        leaf = box.lastChild;
        if (pod === this.box) boxes.push(box); else pod.append(box);
      }
      leaf.append(this.cell(node, index));
    });
    this.box.replaceChildren(...boxes);
    this.focused = 0;
    this.legendOf = "";
  }

  /** The box of a leaf switch, with its name where there are several. */
  leaf(number, nodes, tree) {
    const own = nodes.filter((node) => Math.floor(node.n / this.width) === number);
    const list = own.length > 1 ? `n[${own[0].n}-${own.at(-1).n}]` : own[0].name;
    const name = tree.length ? `switch ${number}: ${list}` : list;
    const box = el("div", { class: "leaf", role: "row", "aria-label": name });
    if (own.length < nodes.length) box.append(el("div", { class: "switch", "aria-hidden": "true" }, name));
    box.append(el("div", { class: "cells", role: "presentation" }));
    return box;
  }

  cell(node, index) {
    const attributes = { class: "cell nd", role: "gridcell", "data-index": index, "aria-label": node.name };
    const cell = el("div", { ...attributes, tabindex: index === 0 ? 0 : -1 });
    if (this.named) {
      const text = el("span");
      cell.append(el("b", {}, node.name), text);
      this.texts.push(text);
    }
    this.cells.push(cell);
    this.classes.push("");
    return cell;
  }

  /** New values; only cells that look different are touched. `drained` says why a node gets no jobs. */
  update(values, letters, metric, drained) {
    this.values = values;
    this.letters = letters;
    this.metric = metric;
    this.drained = drained;
    let most = isShare(metric) ? 1 : 0;
    if (!most) for (const value of values) if (value > most) most = value;
    for (let index = 0; index < this.cells.length; index += 1) {
      const value = values[index];
      const colour = value === null || value === undefined ? "nd" : `c${step(value, most)}`;
      const name = `cell ${colour} h${letters[index]}${this.isDrained(index) ? " dr" : ""}`;
      if (name !== this.classes[index]) { this.classes[index] = name; this.cells[index].className = name; }
      if (!this.named) continue;
      const text = TOLD[letters[index]] || show(value, metric);
      if (this.texts[index].textContent !== text) this.texts[index].textContent = text;
    }
    const legend = `${metric.name}:${most}`;
    if (legend !== this.legendOf) { this.legendOf = legend; this.drawLegend(most); }
  }

  isDrained(index) { return this.nodes[index].n in this.drained; }

  drawLegend(most) {
    const scale = el("span", { class: "scale", "aria-hidden": "true" });
    for (let index = 0; index <= 8; index += 1) scale.append(el("span", { class: `cell c${index}` }));
    const sample = (name, text) => el("span", {}, el("span", { class: `cell ${name}`, "aria-hidden": "true" }), text);
    this.legend.replaceChildren(
      el("span", {}, `${title(this.metric)}: ${show(0, this.metric)}`, scale, show(most, this.metric)),
      sample("nd", "no data"), sample("nd ht", "slow or stale"), sample("nd hl", "lost"),
      sample("nd hw", "awaited"), sample("c0 dr", "drained"),
    );
  }

  label(index) {
    const drained = this.isDrained(index) ? ", drained" : "";
    return `${this.nodes[index].name}: ${show(this.values[index], this.metric)}, ${health(this.letters[index])}${drained}`;
  }

  tell(target) {
    const cell = target.closest(".cell");
    if (!cell || !this.values) return;
    const text = this.label(Number(cell.dataset.index));
    cell.setAttribute("aria-label", text);
    if (this.readout.textContent !== text) this.readout.textContent = text;
  }

  chosen(event) {
    const cell = event.target.closest(".cell");
    if (cell) this.open(Number(cell.dataset.index));
  }

  key(event) {
    const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.width, ArrowUp: -this.width };
    let next = null;
    if (event.key in moves) next = this.focused + moves[event.key];
    if (event.key === "Home") next = 0;
    if (event.key === "End") next = this.cells.length - 1;
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this.open(this.focused); return; }
    if (next === null || next < 0 || next >= this.cells.length) return;
    event.preventDefault();
    this.cells[this.focused].tabIndex = -1;
    this.focused = next;
    this.cells[next].tabIndex = 0;
    this.cells[next].focus();
  }
}
