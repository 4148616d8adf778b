// Parts that views are made of: panels, lists of facts, tables, links.
import { count, el, hostlist } from "./format.js";

/** Links to nodes that a list has at most. */
const LINKS_MOST = 64;

/** A box with a heading. */
export function panel(heading, ...children) {
  const id = `h${heading.replaceAll(/[^a-zA-Z]/g, "")}`;
  return el("section", { class: "panel", "aria-labelledby": id }, el("h2", { id }, heading), ...children);
}

/** Names and values; what has no value is left out. */
export function facts(pairs) {
  const list = el("dl", { class: "facts" });
  for (const [name, value] of pairs) {
    if (value === null || value === undefined || value === "") continue;
    list.append(el("dt", {}, name), el("dd", {}, value instanceof Node ? value : String(value)));
  }
  return list;
}

/** A line that says that there is nothing. */
export function quiet(text) { return el("p", { class: "quiet" }, text); }

/**
 * A table that becomes a block for each row where the window is narrow. A column is a name, or a
 * name and a class: `number` and `fit` do not wrap, `text` has room for a sentence, `name` is the
 * row's own.
 */
export function table(columns, rows, attributes = {}) {
  const known = columns.map((column) => (Array.isArray(column) ? column : [column, ""]));
  const heads = known.map(([name, kind]) => el("th", { scope: "col", class: kind }, name));
  const body = el("tbody", {}, ...rows.map((row) => tableRow(known, row)));
  return el("table", { class: "stack", ...attributes }, el("thead", {}, el("tr", {}, ...heads)), body);
}

/** A row of it: the cells, or the cells and attributes. */
function tableRow(columns, row) {
  const [cells, attributes] = Array.isArray(row) ? [row, {}] : [row.cells, row.attributes];
  const made = cells.map((cell, index) => {
    const [name, kind] = columns[index];
    const label = kind.includes("name") ? null : name;
    return el("td", { class: kind, "data-label": label }, cell instanceof Node ? cell : String(cell ?? ""));
  });
  return el("tr", attributes, ...made);
}

/** A word that says how something does, in its colour. */
export function state(word) {
  const first = word.split(",")[0];
  return el("span", { class: `state-${/^[a-z-]+$/.test(first) ? first : "other"}` }, word);
}

export function nodeLink(number) { return el("a", { href: `#/node/${number}` }, `n${number}`); }

export function jobLink(job) { return job ? el("a", { href: `#/job/${job}` }, String(job)) : ""; }

/** A program by its name. */
export function programLink(program, name) {
  return el("a", { href: `#/program/${encodeURIComponent(program)}` }, name || program.slice(0, 12));
}

/** The nodes of a hostlist, each a link. */
export function nodeLinks(list) {
  const numbers = hostlist(list);
  const links = el("span", {}, numbers.length > 1 ? `${list}: ` : "");
  for (const number of numbers.slice(0, LINKS_MOST)) links.append(nodeLink(number), " ");
  if (numbers.length > LINKS_MOST) links.append(`and ${count(numbers.length - LINKS_MOST, "node")} more`);
  return links;
}

/** What is to be said of damaged files in an answer, by their days. */
export function damage(days) {
  return days?.length ? ` The files of ${days.join(", ")} are damaged: what can be read of them is shown.` : "";
}

/** Asks whether something is to be done; true when it is. */
export function sure(heading, text, yes) {
  const dialog = document.getElementById("sure-dialog");
  document.getElementById("sure-title").textContent = heading;
  document.getElementById("sure-text").textContent = text;
  document.getElementById("sure-yes").textContent = yes;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((done) => {
    dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true });
  });
}
