// The nodes as cells, laid out as the fat tree: a box for each leaf switch, boxes around those of one switch above.
import { el, health, show, step } from "./format.js";

const FLAT_ROW = 32;

export class Grid {
  /** `open(index)` is called when somebody chooses a cell. */
  constructor(open) {
    this.open = open;
    this.cells = [];
    this.classes = [];
    this.focused = 0;
    this.box = el("div", { class: "grid", role: "grid", "aria-label": "Nodes by switch" });
    this.readout = el("p", { id: "readout", "aria-live": "polite", class: "quiet" }, "Point at a node, or go through the grid with the arrow keys.");
    this.legend = el("div", { class: "legend" });
    this.box.addEventListener("click", (event) => this.chosen(event));
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("focusin", (event) => this.tell(event.target));
    this.box.addEventListener("mouseover", (event) => this.tell(event.target));
  }

  element() { return [this.box, this.readout, this.legend]; }

  /** New nodes. */
  build(nodes, tree) {
    this.nodes = nodes;
    this.width = tree.length ? tree[0] : FLAT_ROW;
    const above = tree.length > 2 ? this.width * tree[1] : Infinity;
    this.box.className = `grid ${nodes.length <= 64 ? "few" : nodes.length > 4096 ? "many" : ""}`;
    this.cells = [];
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
        leaf = el("div", { class: "leaf", role: "row", "aria-label": `switch ${inLeaf}` });
        if (pod === this.box) boxes.push(leaf); else pod.append(leaf);
      }
      const cell = el("div", { class: "cell nd", role: "gridcell", tabindex: index === 0 ? 0 : -1, "data-index": index, "aria-label": node.name });
      leaf.append(cell);
      this.cells.push(cell);
      this.classes.push("");
    });
    this.box.replaceChildren(...boxes);
    this.focused = 0;
  }

  /** New values; only cells that look different are touched. `drained` says why a node gets no jobs. */
  update(values, letters, metric, drained) {
    this.values = values;
    this.letters = letters;
    this.metric = metric;
    this.drained = drained;
    let most = metric.unit === "ratio" || (metric.unit === "seconds" && metric.counter) ? 1 : 0;
    if (!most) for (const value of values) if (value > most) most = value;
    for (let index = 0; index < this.cells.length; index += 1) {
      const value = values[index];
      const name = `cell ${value === null || value === undefined ? "nd" : `c${step(value, most)}`} h${letters[index]}${this.nodes[index].n in drained ? " dr" : ""}`;
      if (name !== this.classes[index]) { this.classes[index] = name; this.cells[index].className = name; }
    }
    const legend = `${metric.name}:${most}`;
    if (legend !== this.legendOf) { this.legendOf = legend; this.drawLegend(most); }
  }

  drawLegend(most) {
    const scale = el("span", { class: "scale", "aria-hidden": "true" });
    for (let index = 0; index <= 8; index += 1) scale.append(el("span", { class: `cell c${index}` }));
    const sample = (name) => el("span", { class: `cell ${name}`, "aria-hidden": "true" });
    this.legend.replaceChildren(
      el("span", {}, show(0, this.metric)), scale, el("span", {}, show(most, this.metric)),
      el("span", {}, sample("nd"), " no data"), el("span", {}, sample("nd ht"), " slow or stale"), el("span", {}, sample("nd hl"), " lost"), el("span", {}, sample("nd hw"), " awaited"), el("span", {}, sample("c0 dr"), " drained"));
  }

  label(index) {
    return `${this.nodes[index].name}: ${show(this.values[index], this.metric)}, ${health(this.letters[index])}${this.nodes[index].n in this.drained ? ", drained" : ""}`;
  }

  tell(target) {
    const index = Number(target.dataset.index);
    if (!Number.isInteger(index) || !this.values || target.dataset.index === undefined) return;
    const text = this.label(index);
    target.setAttribute("aria-label", text);
    if (this.readout.textContent !== text) this.readout.textContent = text;
  }

  chosen(event) {
    if (event.target.dataset.index !== undefined) this.open(Number(event.target.dataset.index));
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
