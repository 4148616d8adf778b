// Programs that were launched, and one of them.
import { bytes, el, redraw, span } from "./format.js";
import { jobTable } from "./jobs.js";
import { facts, nodeLinks, panel, programLink, quiet, table } from "./parts.js";
import { get } from "./stream.js";

const ROWS_MOST = 200;
const COLUMNS = [
  ["Name", "name any"], ["Program", "name fit quiet"], ["Size", "number"], ["Launches", "number"], ["Warm", "number"],
  ["Used", "number"], ["Kept on", "any"],
];

export class Programs {
  static controls = [];

  constructor(app, hash) { this.app = app; this.hash = hash; }

  name() { return this.hash ? `Program ${this.hash.slice(0, 12)}` : "Programs"; }

  open(main) {
    this.box = el("div");
    main.append(panel(this.hash ? "Program" : "Programs", this.box));
    this.reset();
  }

  async reset() {
    let list;
    try { list = await get("/v1/programs"); } catch (error) { this.box.replaceChildren(error.message); return; }
    if (this.hash) this.one(list.find((program) => program.program === this.hash)); else this.all(list);
  }

  one(program) {
    if (!program) { this.box.replaceChildren("There is no such program."); return; }
    const jobs = this.app.jobs.filter((job) => job.program === this.hash).reverse();
    redraw(this.box, facts([
      ["Name", program.name], ["Program", program.program], ["Size", `${bytes(program.bytes)} (${program.bytes} bytes)`],
      ["Kept on", program.nodes ? nodeLinks(program.nodes) : "no node"], ["Pages", program.pages],
      ["Launches", program.launches], ["Of these warm", program.hits],
    ]), jobTable(jobs, "None of the last jobs ran it."));
  }

  all(list) {
    const used = ({ last_used_unix_us: us }) => (us ? `${span(Date.now() / 1000 - us / 1e6)} ago` : "");
    const rows = list.slice(0, ROWS_MOST).map((program) => [
      programLink(program.program, program.name), program.program.slice(0, 12), bytes(program.bytes), program.launches,
      program.hits, used(program), program.nodes,
    ]);
    redraw(this.box, rows.length ? table(COLUMNS, rows) : quiet("No program was launched yet."));
  }

  frame(changed) { if (this.app.live && changed.jobs) this.reset(); }
}
