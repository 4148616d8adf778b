// What is shown: the metric, the range, live or paused, and CSV. A view says which of these it
// uses.
import { el, title, when } from "./format.js";
import { link } from "./header.js";
import { save } from "./stream.js";

const FIRST_RANGE = "900";
const byId = (id) => document.getElementById(id);

/** Shows those of a view; a page that stands still can go on from everywhere. */
export function offer(app, names) {
  for (const element of document.querySelectorAll("[data-control]")) {
    const name = element.dataset.control;
    const wanted = names.includes(name) || (name === "live" && !app.live);
    element.hidden = !wanted || (element.id === "custom" && byId("range").value !== "custom");
  }
  byId("controls").hidden = !names.length && app.live;
}

/** The metrics to choose from, and the one that is. */
export function metrics(app) {
  const select = byId("metric");
  if (select.options.length !== app.metrics.length) {
    select.replaceChildren(...app.metrics.map((metric) => el("option", { value: metric.name }, title(metric))));
  }
  select.value = app.metric.name;
  byId("help").textContent = app.metric.help;
}

/** The button says what it does. */
export function running(app) {
  byId("live").textContent = app.live ? "Pause" : "Go live";
  if (!app.live || byId("range").value !== "custom") return;
  byId("range").value = FIRST_RANGE;
  byId("custom").hidden = true;
  app.seconds = Number(FIRST_RANGE);
}

/**
 * A time as the command line takes it, always in UTC: 2026-11-21, 2026-11-21T08:30,
 * 2026-11-21T08:30:00Z.
 */
const WRITTEN = /^(\d{4}-\d\d-\d\d)(T\d\d:\d\d(:\d\d)?)?Z?$/;

/** The time that was typed in, in milliseconds since 1970; NaN for none. */
function typed(id) {
  const parts = WRITTEN.exec(byId(id).value.trim());
  return parts ? new Date(`${parts[1]}${parts[2] || "T00:00"}Z`).getTime() : NaN;
}

/**
 * Acts on what people choose. `connect`: the stream is to bring another metric; `again`: the view
 * is to be drawn anew.
 */
export function start(app, { connect, again, setLive, view }) {
  byId("metric").addEventListener("change", (event) => {
    app.metric = app.metrics.find((metric) => metric.name === event.target.value);
    if (app.live) { connect(); return; }
    byId("help").textContent = app.metric.help;
    again();
  });
  byId("range").addEventListener("change", (event) => {
    const custom = event.target.value === "custom";
    byId("custom").hidden = !custom;
    if (custom) {
      const range = app.range();
      byId("from").value = when(range.from);
      byId("to").value = when(range.to);
      return;
    }
    app.custom = null;
    app.seconds = Number(event.target.value);
    again();
  });
  byId("apply").addEventListener("click", () => {
    const [from, to] = [typed("from"), typed("to")];
    const complete = Number.isFinite(from) && Number.isFinite(to);
    byId("wrong").textContent = !complete ? "Write both times as 2026-11-21T08:30:00Z (UTC)." : from < to ? "" : "From must be before To.";
    if (!(from < to)) return;
    setLive(false);
    app.custom = { from, to };
    again();
  });
  byId("live").addEventListener("click", () => setLive(!app.live));
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("csv").addEventListener("click", () => {
    const wanted = view().csv ? view().csv() : { ...app.range(), metrics: app.metric.name };
    if (!wanted) return;
    const query = new URLSearchParams({ ...wanted, points: 5000 });
    const name = `hearth-${when(wanted.to).replaceAll(":", "-")}.csv`;
    save(`/v1/monitor/csv?${query}`, name).catch((error) => link("bad", error.message));
  });
}
