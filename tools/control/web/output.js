// What a job has written: the last of what the control node keeps of a batch job, followed while
// the job runs.
//
// Invariant: only the output of batch jobs is asked for. That of others belongs to who ran them,
// and asking would take it away from them.
import { bytes, el } from "./format.js";
import { quiet } from "./parts.js";
import { askToken, hasToken, lines } from "./stream.js";

const LAST_BYTES = 65_536;
/** Lines on the page; older ones go. */
const LINES_MOST = 2_000;
/** Characters of a line without an end that are kept back until it has one. */
const LINE_MOST = 8_192;
const RETRY_MS = 2_000;
const STANDARD_ERROR = 2;
/** Sequences by which programs steer a terminal (ECMA-48), and single characters that do. */
const STEERING = /\u001b\[[0-?]*[ -/]*[@-~]|\u001b[@-_]|[\u0000-\u0008\u000b-\u001f\u007f]/g;

export class Output {
  constructor(id) {
    this.id = id;
    this.box = el("div");
    this.text = el("pre", { id: "output", tabindex: 0, role: "log", "aria-label": `Output of job ${id}` });
    this.note = quiet("");
    this.abort = null;
  }

  element() { return this.box; }

  /** The job as `GET /v1/jobs/ID` has it. */
  update(job) {
    const why = this.whyNone(job);
    if (why) { this.stop(); this.box.replaceChildren(quiet(why)); return; }
    this.ranks = job.ranks_total;
    if (this.abort) return;
    if (hasToken()) { this.follow(); return; }
    if (this.box.querySelector("button")) return;
    const button = el("button", { type: "button", id: "show-output", onclick: async () => {
      if (hasToken() || await askToken()) this.follow();
    } }, "Show output");
    this.box.replaceChildren(el("p", {}, button, " It needs the token."));
  }

  /** Why there is nothing to show; empty when there may be. */
  whyNone(job) {
    if (job.batch === undefined) return "Nothing is known of its output.";
    if (!job.batch) return "Its output went to whoever ran it (hearth run): the control node does not keep it.";
    if (!job.started_unix_us && !job.ended_unix_us) return "It has not begun.";
    const { output } = job;
    if (job.ended_unix_us && output && !output.bytes && !output.dropped_bytes) return "It wrote nothing.";
    return "";
  }

  async follow() {
    const abort = new AbortController();
    this.abort = abort;
    this.box.replaceChildren(this.text, this.note);
    while (!abort.signal.aborted) {
      this.begin();
      let over = false;
      try {
        const path = `/v1/jobs/${this.id}/output?follow=true&last_bytes=${LAST_BYTES}`;
        await lines(path, abort.signal, (line) => { over = this.frame(JSON.parse(line)) || over; });
      } catch (error) {
        if (abort.signal.aborted) return;
        // A refusal stays one; a control node that is gone comes back.
        if (error.status) { this.refused(error); return; }
      }
      this.flush();
      if (over) return;
      this.note.textContent = "The control node does not answer: its output goes on when it is back.";
      await new Promise((done) => setTimeout(done, RETRY_MS));
    }
  }

  refused(error) {
    this.note.textContent = error.message;
    if (error.status !== 401) return;
    this.stop();
    this.box.replaceChildren();
  }

  begin() {
    this.text.replaceChildren();
    this.pending = new Map();
    this.written = 0;
    this.note.textContent = "";
  }

  /** Takes a line of the answer; true for the last. */
  frame(frame) {
    const down = this.text.scrollTop + this.text.clientHeight >= this.text.scrollHeight - 4;
    // A core file is for a debugger.
    if (frame.frame === "output" && frame.fd <= STANDARD_ERROR) this.wrote(frame.rank, frame.fd, frame.data);
    if (frame.frame === "notice") this.line(`hearth: ${frame.text}\n`, "told");
    if (frame.frame === "fault") this.line(`hearth: ${frame.text}\n`, "told");
    while (this.text.childNodes.length > LINES_MOST) this.text.firstChild.remove();
    // Who has scrolled up reads there.
    if (down) this.text.scrollTop = this.text.scrollHeight;
    if (frame.frame === "end") this.note.textContent = this.written ? "" : "It wrote nothing.";
    return frame.frame === "end";
  }

  /** Bytes of a rank: whole lines are shown, so that those of several ranks are not mixed up. */
  wrote(rank, fd, data) {
    const raw = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    this.written += raw.length;
    const key = `${rank} ${fd}`;
    if (!this.pending.has(key)) this.pending.set(key, { rank, fd, decoder: new TextDecoder(), rest: "" });
    const stream = this.pending.get(key);
    const parts = (stream.rest + stream.decoder.decode(raw, { stream: true })).split("\n");
    stream.rest = parts.pop();
    // A line that does not end is shown in pieces.
    if (stream.rest.length > LINE_MOST) { parts.push(stream.rest); stream.rest = ""; }
    for (const part of parts) this.put(stream, part);
    // Nobody knows yet when the line of a program that asks or counts ends.
    if (this.ranks === 1 && stream.rest) { this.put(stream, stream.rest, ""); stream.rest = ""; }
    this.note.textContent = `${bytes(this.written)} so far.`;
  }

  put({ rank, fd }, text, end = "\n") {
    const width = String(this.ranks - 1).length;
    const label = this.ranks > 1 ? `${String(rank).padStart(width)}: ` : "";
    this.line(`${label}${text.replaceAll("\r", "").replace(STEERING, "")}${end}`, fd === STANDARD_ERROR ? "error" : "");
  }

  line(text, kind) { this.text.append(el("span", { class: kind }, text)); }

  /** Lines without an end. */
  flush() {
    for (const stream of this.pending.values()) if (stream.rest) { this.put(stream, stream.rest); stream.rest = ""; }
  }

  stop() { if (this.abort) this.abort.abort(); this.abort = null; }

  close() { this.stop(); }
}
