// The list of nodes: a table with filter, order and small lines.
import { count, el, show, title } from "./format.js";
import { jobLink, nodeLink, panel, state } from "./parts.js";
import { get } from "./stream.js";

const ROWS_MOST = 200;
const SPARK_TICKS = 60;
// A name, not an address: nothing is fetched.
const SVG = `${"http:"}//www.w3.org/2000/svg`;
/** Columns that the table can be ordered by, and the others. */
const ORDERS = [["name", "Node", "name fit"], ["health", "State", "fit"], ["job", "Job", "fit"], ["value", "Value", "fit"]];
const OTHERS = [["Last minute", ""], ["Address", "fit"], ["MAC", "fit"]];

export class Nodes {
  static controls = ["metric", "live"];

  constructor(app) {
    this.app = app;
    this.order = "name";
    this.down = false;
    this.made = new Map();
  }

  name() { return "Nodes"; }

  open(main) {
    const words = "n12, busy, 52:54:00 ...";
    this.filter = el("input", { type: "search", id: "filter", placeholder: words, oninput: () => this.draw() });
    this.count = el("span", { class: "quiet", role: "status" });
    const head = el("tr");
    this.heads = {};
    for (const [key, text, kind] of ORDERS) {
      this.heads[key] = el("th", { scope: "col", class: `${kind} order` },
        el("button", { type: "button", onclick: () => this.sort(key) }, text));
      head.append(this.heads[key]);
    }
    head.append(...OTHERS.map(([text, kind]) => el("th", { scope: "col", class: kind }, text)));
    this.body = el("tbody");
    main.append(panel("Nodes", el("div", { class: "row" }, el("label", {}, "Filter ", this.filter), this.count),
      el("table", { class: "stack" }, el("thead", {}, head), this.body)));
    this.reset();
  }

  sort(key) { this.down = this.order === key ? !this.down : false; this.order = key; this.draw(); }

  reset() {
    this.heads.value.firstChild.textContent = title(this.app.metric);
    for (const made of this.made.values()) made.cells[3].dataset.label = title(this.app.metric);
    this.lines = new Map();
    this.past();
    this.draw();
  }

  /** What the small lines begin with. */
  async past() {
    const shown = this.list().slice(0, ROWS_MOST).map((row) => row.node.n);
    if (!shown.length) return;
    const to = this.app.instant() + 1;
    const query = new URLSearchParams({
      metric: this.app.metric.name, nodes: `n[${shown.join(",")}]`, from: to - SPARK_TICKS * 1000, to, level: "tick",
    });
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
    const rows = nodes.map((node, index) => ({
      node, value: values[index], job: jobs[index],
      health: node.n in drained ? `${healths[index]}, drained` : healths[index],
    }));
    const has = (row, word) => row.node.name === word || row.health.includes(word) || (row.node.mac || "").includes(word)
      || (row.node.address || "").includes(word) || (word.length > 1 && row.node.name.startsWith(word))
      || `job${row.job}` === word;
    return words.length ? rows.filter((row) => words.some((word) => has(row, word))) : rows;
  }

  draw() {
    const keys = {
      name: (row) => row.node.n, health: (row) => row.health, job: (row) => row.job || Infinity,
      value: (row) => row.value ?? -Infinity,
    };
    const key = keys[this.order];
    const rows = this.list();
    rows.sort((a, b) => ((key(a) > key(b)) - (key(a) < key(b))) * (this.down ? -1 : 1) || a.node.n - b.node.n);
    for (const [name, head] of Object.entries(this.heads)) {
      head.setAttribute("aria-sort", name === this.order ? (this.down ? "descending" : "ascending") : "none");
    }
    this.count.textContent = rows.length > ROWS_MOST
      ? `${ROWS_MOST} of ${rows.length} nodes shown: filter for others` : count(rows.length, "node");
    this.place(rows.slice(0, ROWS_MOST).map((row) => this.row(row)));
  }

  /**
   * Puts the rows in their order. One that has the focus stays and the others go around it: what is
   * moved loses it.
   */
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
    if (!made) { made = this.make(node); this.made.set(node.n, made); }
    const put = (place, text, make) => {
      if (made.texts[place] === text) return;
      made.texts[place] = text;
      const held = made.cells[place].contains(document.activeElement);
      made.cells[place].replaceChildren(...[make ? make() : text].filter(Boolean));
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

  make(node) {
    const labels = [null, null, "job", title(this.app.metric), null, "address", "MAC"];
    const kinds = [...ORDERS.map(([, , kind]) => kind), ...OTHERS.map(([, kind]) => kind)];
    const cells = labels.map((label, place) => el("td", { class: kinds[place], "data-label": label }));
    const { svg, path } = this.spark();
    cells[0].append(nodeLink(node.n));
    cells[4].append(svg);
    return { row: el("tr", { "data-node": node.n }, ...cells), cells, path, texts: [] };
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
