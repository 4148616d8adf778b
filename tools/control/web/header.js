// What stands above every view: cluster, connection, counts, and of which time the parts of the
// page are.
import { count, show, el, when } from "./format.js";
import { damage } from "./parts.js";

const byId = (id) => document.getElementById(id);

function put(element, text) { if (element.textContent !== text) element.textContent = text; }

/** The state of the connection, in a word with a colour. */
export function link(word, text) {
  put(byId("link"), text);
  byId("link").className = `link ${word}`;
}

/** Name of the cluster and its size. */
export function cluster(app) {
  put(byId("cluster"), app.cluster);
  // The service's cluster has a directory of its own.
  const named = app.cluster && app.cluster !== "system";
  put(byId("token-path"), named ? `~/.local/state/hearth/${app.cluster}/token` : "token");
  put(byId("version"), `${app.version}, ${count(app.nodes.length, "node")}`);
}

/** The title of the window: the view, the cluster. */
export function windowTitle(app, view) {
  document.title = [view?.name(), app.cluster, "Hearth"].filter(Boolean).join(" - ");
}

/** Counts of the nodes and jobs, of now or of the time that is shown. */
export function strip(app) {
  const box = byId("strip");
  const entries = app.live || !app.then || app.then.own ? present(app) : past(app.then);
  if (!box.children.length) box.append(...entries.map(([name]) => el("div", {}, el("dt", {}, name), el("dd", {}))));
  entries.forEach(([name, value, tone], index) => {
    const entry = box.children[index];
    put(entry.lastChild, String(value));
    const kind = [tone, value === 0 ? "zero" : ""].filter(Boolean).join(" ");
    if (entry.className !== kind) entry.className = kind;
    // Only for seconds after control was started again.
    if (name === "Awaited") entry.hidden = !value || value === "-";
  });
  put(byId("clock"), when(app.instant()));
  const { trouble } = app.strip;
  byId("trouble").hidden = !trouble;
  if (trouble) put(byId("trouble"), `Values are not kept: ${trouble}`);
}

function present(app) {
  const { healths, loss, active } = app.strip;
  const up = (healths.idle || 0) + (healths.busy || 0);
  const drained = Object.keys(app.drained).length;
  const many = (word, tone) => [healths[word] || 0, healths[word] ? tone : ""];
  return [
    ["Up", up, up ? "good" : ""], ["Busy", healths.busy || 0, ""], ["Jobs", active, ""],
    ["Slow", ...many("slow", "warn")], ["Stale", ...many("stale", "warn")], ["Lost", ...many("lost", "bad")],
    ["Awaited", healths.awaited || 0, ""], ["Absent", (healths.absent || 0) + (healths.left || 0), ""],
    ["Drained", drained, drained ? "warn" : ""],
    ["Loss", show(loss, { unit: "ratio" }), loss > 0.01 ? "warn" : ""],
  ];
}

/** What is kept of the past says who was up, and with which job; nothing of the rest. */
function past(then) {
  const many = (letters) => [...then.letters].filter((letter) => letters.includes(letter)).length;
  const known = { Up: many("ib"), Busy: many("b"), Slow: many("s"), Jobs: new Set(then.jobs.filter(Boolean)).size };
  const names = ["Up", "Busy", "Jobs", "Slow", "Stale", "Lost", "Awaited", "Absent", "Drained", "Loss"];
  return names.map((name) => [name, name in known && !then.none && !then.why ? known[name] : "-", ""]);
}

/** How many events nobody has acknowledged. */
export function badge(app) {
  const unseen = app.events.filter((event) => event.severity !== "info" && !app.seen.has(event.seq)).length;
  byId("unseen").hidden = !unseen;
  put(byId("unseen"), String(unseen));
  byId("unseen").setAttribute("aria-label", `${unseen} not acknowledged`);
}

/** Says which time the parts of the page are of, while that is not now. */
export function said(app) {
  const box = byId("then");
  box.hidden = app.live;
  if (app.live) return;
  const { own, why, none, damaged } = app.then || { own: true };
  const paused = when(app.pausedAt);
  let text = own
    ? `Paused: nodes, jobs and events are those of ${paused}. Programs and tree are those of now.`
    : `Nodes are those of ${when(app.instant())}, the end of the range. Jobs and events are those of ${paused}, `
      + "programs and tree those of now.";
  if (why) text += ` Values of then could not be read: ${why}.`;
  else if (none) text += " No node's values were kept at that instant.";
  put(box, text + damage(damaged));
}
