// What happened, and what of it somebody has seen.
import { el, redraw, when } from "./format.js";
import { panel, state, table } from "./parts.js";
import { post } from "./stream.js";

const COLUMNS = [["Time", "name fit"], ["Severity", "name fit"], ["Kind", "name fit"], ["What", "name text message"]];

/**
 * A table of events; `act(event)` makes what stands behind one that is not seen, null: no such
 * column.
 */
export function eventTable(app, events, act) {
  const columns = act ? [...COLUMNS, ["", "name fit"]] : COLUMNS;
  const row = (event) => {
    const seen = app.seen.has(event.seq);
    // Without what is to be done the lines after the first have no room either.
    const text = act ? event.text : event.text.split("\n")[0];
    const cells = [when(event.time_unix_us / 1000), state(event.severity), event.kind, text];
    if (act) cells.push(seen ? "seen" : act(event));
    return { cells, attributes: { class: seen ? "seen" : "", "data-seq": event.seq } };
  };
  return table(columns, events.map(row), { class: "stack events" });
}

export class Events {
  static controls = ["live"];

  constructor(app) { this.app = app; }

  name() { return "Events"; }

  open(main) {
    this.hide = el("input", { type: "checkbox", id: "hide", onchange: () => this.reset() });
    this.box = el("div");
    this.said = el("span", { role: "status", class: "quiet" });
    const all = () => this.acknowledge(this.list().map((event) => event.seq));
    main.append(panel("Events", el("div", { class: "row" }, el("label", {}, this.hide, " hide acknowledged"),
      el("button", { type: "button", id: "ack-all", onclick: all }, "Acknowledge all"), this.said), this.box));
    this.reset();
  }

  list() {
    const events = this.app.events.toReversed();
    return this.hide.checked ? events.filter((event) => !this.app.seen.has(event.seq)) : events;
  }

  async acknowledge(numbers) {
    try {
      this.app.saw(await post("/v1/monitor/acknowledge", { events: numbers }));
      this.said.textContent = "";
    } catch (error) { this.said.textContent = error.message; }
    this.reset();
  }

  reset() {
    // What was expected needs nobody's attention.
    const act = (event) => (event.severity === "info" ? "" : el("button", {
      type: "button", "aria-label": `Acknowledge event ${event.seq}`, onclick: () => this.acknowledge([event.seq]),
    }, "Acknowledge"));
    redraw(this.box, eventTable(this.app, this.list(), act));
  }

  frame(changed) { if (this.app.live && (changed.events || changed.seen)) this.reset(); }
}
