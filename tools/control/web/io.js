// The I/O services, which carry out calls on files, and the nodes that each serves.
import { bytes, count, el, redraw } from "./format.js";
import { panel, state, table } from "./parts.js";
import { get } from "./stream.js";

const ROWS_MOST = 64;
/** Frames between two questions: one comes each second. */
const FRAMES = 10;
const COLUMNS = [
  ["Service", "name fit"], ["State", "fit"], ["Nodes", "name any"], ["Jobs", "number"], ["Calls", "number"],
  ["Read", "number"], ["Written", "number"],
];

/** A panel of the services. It is hidden while there are none: then jobs see no files. */
export class IoServices {
  constructor() {
    this.box = el("div");
    this.panel = panel("I/O services", this.box);
    this.panel.hidden = true;
    this.frames = 0;
  }

  async load() {
    let list;
    // What was known stays: the next frame but some asks again.
    try { list = await get("/v1/io"); } catch { return; }
    this.panel.hidden = !list.length;
    const rows = list.slice(0, ROWS_MOST).map((service) => [
      `${service.address} (${service.name})`, state(service.state),
      service.nodes ? `${service.nodes} (${count(service.node_count, "node")})` : "none", service.jobs, service.calls,
      bytes(service.sent_bytes), bytes(service.received_bytes),
    ]);
    redraw(this.box, table(COLUMNS, rows));
  }

  frame(changed) {
    this.frames += 1;
    if (changed.jobs || changed.events || this.frames % FRAMES === 0) this.load();
  }
}
