// Values, times and elements. Everything that came from outside goes through textContent.
//
// Invariant: values and times have the form that `hearth top`, `hearth events` and `hearth job`
// print.

/** An element with attributes and children; strings become text, never markup. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const HEALTHS = {
  i: "idle", b: "busy", s: "slow", t: "stale", l: "lost", x: "left", w: "awaited", a: "absent",
};

/** The word for the letter by which the stream says how a node does. */
export function health(letter) { return HEALTHS[letter] || "unknown"; }

const called = (element) =>
  ["href", "aria-label", "id"].map((name) => element.getAttribute(name) || "").join(" ") + element.textContent;

/**
 * Gives `box` other children. What had the focus in it keeps it, if it is still there; nothing is
 * touched if all is as before.
 */
export function redraw(box, ...children) {
  const fresh = el("div", {}, ...children);
  const [old, now] = [[...box.childNodes], [...fresh.childNodes]];
  const same = (node, index) => node.isEqualNode(now[index]) && !node.querySelector?.("button");
  if (old.length === now.length && old.every(same)) return;
  const focused = box.contains(document.activeElement) ? called(document.activeElement) : null;
  box.replaceChildren(...now);
  if (focused === null) return;
  const again = [...box.querySelectorAll("a, button, input")].find((element) => called(element) === focused);
  if (again) again.focus({ preventScroll: true });
}

/** Memory is measured in MiB, a link in MB/s. */
const SIZES = { factor: 1024, prefixes: ["Ki", "Mi", "Gi", "Ti"] };
const OTHERS = { factor: 1000, prefixes: ["k", "M", "G", "T"] };
const UNITS = { bytes: "B", seconds: "s" };
/** Seconds from which a time is shown as minutes and seconds. */
const SPAN_FROM_S = 60;

/** Whether values of a metric are shares of the whole, up to 1: ratios, and seconds a second. */
export function isShare(metric) {
  return metric.unit === "ratio" || (metric.unit === "seconds" && metric.counter);
}

/** A value in the words of its metric, as `hearth top` has it; "no data" for none. */
export function show(value, metric) {
  if (value === null || value === undefined) return "no data";
  if (isShare(metric)) return `${(value * 100).toFixed(1)} %`;
  if (metric.unit === "seconds" && value >= SPAN_FROM_S) return span(value);
  const { factor, prefixes } = metric.unit === "bytes" && !metric.counter ? SIZES : OTHERS;
  let [rest, prefix] = [value, ""];
  for (const next of prefixes) {
    if (Math.abs(rest) < factor) break;
    [rest, prefix] = [rest / factor, next];
  }
  const digits = Number.isInteger(rest) ? 0 : 2;
  return `${rest.toFixed(digits)} ${prefix}${UNITS[metric.unit] ?? metric.unit}${metric.counter ? "/s" : ""}`.trimEnd();
}

/** So many bytes. */
export function bytes(count) { return show(count, { unit: "bytes", counter: false }); }

const two = (number) => String(number).padStart(2, "0");

/** Seconds as 0:07, 12:03, 3:12:03 or 2-03:12:03. */
export function span(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  const [days, hours] = [Math.floor(s / 86400), Math.floor((s % 86400) / 3600)];
  const [minutes, rest] = [Math.floor((s % 3600) / 60), two(s % 60)];
  if (days) return `${days}-${two(hours)}:${two(minutes)}:${rest}`;
  return hours ? `${hours}:${two(minutes)}:${rest}` : `${minutes}:${rest}`;
}

/** Milliseconds since 1970 as 2026-11-21T02:54:39Z; nothing for none. */
export function when(ms) {
  return ms ? new Date(ms).toISOString().replace(/\.\d+Z$/, "Z") : "";
}

/** So many of something, as "1 node" and "2 nodes". */
export function count(number, noun) { return `${number} ${noun}${number === 1 ? "" : "s"}`; }

/** The name of a metric as people say it: hearth_node_busy_ratio is "busy". */
export function title(metric) {
  let name = metric.name.replace(/^hearth_(node_)?/, "").replace(/_total$/, "");
  if (metric.unit && name.endsWith(`_${metric.unit}`)) name = name.slice(0, -metric.unit.length - 1);
  return name.replaceAll("_", " ");
}

/** Numbers of a hostlist such as n[0-3,7]; at most 4096 of them. */
export function hostlist(text) {
  const numbers = [];
  const inside = /\[([^\]]*)\]/.exec(text);
  for (const part of (inside ? inside[1] : text.replaceAll("n", "")).split(",")) {
    const [first, last] = part.split("-").map(Number);
    if (!Number.isInteger(first)) continue;
    for (let n = first; n <= (Number.isInteger(last) ? last : first) && numbers.length < 4096; n += 1) numbers.push(n);
  }
  return numbers;
}

/** Step of the colour scale, 0 to 8; zero alone is step 0. */
export function step(value, most) {
  if (!(value > 0) || !(most > 0)) return 0;
  return Math.min(8, Math.max(1, Math.ceil((value / most) * 8)));
}
