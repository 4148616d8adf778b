// Values, times and elements. Everything that came from outside goes through textContent.

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

const HEALTHS = { i: "idle", b: "busy", s: "slow", t: "stale", l: "lost", x: "left", w: "awaited", a: "absent" };

/** The word for the letter by which the stream says how a node does. */
export function health(letter) { return HEALTHS[letter] || "unknown"; }

const called = (element) => ["href", "aria-label", "id"].map((name) => element.getAttribute(name) || "").join(" ") + element.textContent;

/** Gives `box` other children. What had the focus in it keeps it, if it is still there; nothing is touched if all is as before. */
export function redraw(box, ...children) {
  const fresh = el("div", {}, ...children);
  const [old, now] = [[...box.childNodes], [...fresh.childNodes]];
  if (old.length === now.length && old.every((node, index) => node.isEqualNode(now[index]) && !node.querySelector?.("button"))) return;
  const focused = box.contains(document.activeElement) ? called(document.activeElement) : null;
  box.replaceChildren(...now);
  if (focused === null) return;
  const again = [...box.querySelectorAll("a, button, input")].find((element) => called(element) === focused);
  if (again) again.focus({ preventScroll: true });
}

const PREFIXES = ["", "k", "M", "G", "T", "P"];

function scaled(value, unit) {
  let index = 0;
  let rest = Math.abs(value);
  while (rest >= 1000 && index < PREFIXES.length - 1) { rest /= 1000; index += 1; }
  const digits = rest >= 100 || Number.isInteger(rest) ? 0 : rest >= 10 ? 1 : 2;
  return `${value < 0 ? "-" : ""}${rest.toFixed(digits)} ${PREFIXES[index]}${unit}`.trim();
}

/** A value in the words of its metric; "no data" for none. */
export function show(value, metric) {
  if (value === null || value === undefined) return "no data";
  const unit = metric ? metric.unit : "";
  const rate = metric && metric.counter;
  if (unit === "ratio") return `${(value * 100).toFixed(1)} %`;
  if (unit === "seconds" && rate) return `${(value * 100).toFixed(1)} %`;
  if (unit === "seconds") return value >= 120 ? span(value) : `${value.toFixed(value < 10 ? 2 : 0)} s`;
  const letter = unit === "bytes" ? "B" : unit;
  const plain = Math.abs(value) < 10 && !Number.isInteger(value) ? value.toFixed(2) : null;
  return `${plain && !letter ? plain : scaled(value, letter)}${rate ? "/s" : ""}`;
}

/** Seconds as 2-03:12:03. */
export function span(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  const two = (n) => String(n).padStart(2, "0");
  const clock = `${Math.floor((s % 86400) / 3600)}:${two(Math.floor((s % 3600) / 60))}:${two(s % 60)}`;
  return s >= 86400 ? `${Math.floor(s / 86400)}-${clock}` : clock;
}

/** Local date and time of milliseconds since 1970. */
export function when(ms) {
  if (!ms) return "";
  return new Date(ms).toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });
}

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
