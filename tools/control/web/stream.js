// Talks to the control node: questions, changes, and the stream with its reconnects.

const KEY = "hearth-token";

function headers() {
  const token = sessionStorage.getItem(KEY);
  return token ? { authorization: `Bearer ${token}` } : {};
}

/** Whether somebody has given a token in this tab. */
export function hasToken() { return sessionStorage.getItem(KEY) !== null; }

let asking = null;

/** Asks for the token; true when there is one to try. One that was refused is forgotten. */
export function askToken() {
  if (asking) return asking;
  const dialog = document.getElementById("token-dialog");
  document.getElementById("token-refused").hidden = !hasToken();
  sessionStorage.removeItem(KEY);
  dialog.returnValue = "";
  asking = new Promise((done) => {
    dialog.addEventListener("close", () => {
      asking = null;
      const token = document.getElementById("token").value.trim();
      document.getElementById("token").value = "";
      if (dialog.returnValue === "use" && token) { sessionStorage.setItem(KEY, token); done(true); } else done(false);
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

async function request(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: { ...headers(), ...(options.headers || {}) } });
  if (answer.status === 401 && await askToken()) return request(path, options);
  if (!answer.ok) throw Object.assign(new Error(await reason(answer)), { status: answer.status });
  return answer;
}

/** Calls `take` with each line of an answer, as they come. */
export async function lines(path, signal, take) {
  const answer = await request(path, { signal, cache: "no-store" });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (text + value).split("\n");
    text = parts.pop();
    for (const part of parts) if (part) take(part);
  }
}

/** Why the control node refuses. */
async function reason(answer) {
  const body = await answer.json().catch(() => ({}));
  return body.error || `the control node answered ${answer.status}`;
}

/** The answer of a question as an object. */
export async function get(path) { return (await request(path)).json(); }

/** Sends a change. */
export async function post(path, body) {
  return (await request(path, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } })).json();
}

/** Saves the answer of a question as a file. */
export async function save(path, name) {
  const answer = await request(path);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const RETRY_FIRST_MS = 500;
const RETRY_MOST_MS = 5_000;
const SILENT_MS = 6_000;

/** A stream that comes back by itself. `frame(kind, body)` for each event, `state(word, text)` for the connection. */
export class Stream {
  constructor(frame, state) {
    this.frame = frame;
    this.state = state;
    this.abort = null;
  }

  /** Begins, or begins anew with another path. */
  open(path) {
    this.close();
    const abort = new AbortController();
    this.abort = abort;
    this.run(path, abort);
  }

  close() { if (this.abort) this.abort.abort(); }

  async run(path, abort) {
    let wait = RETRY_FIRST_MS;
    while (!abort.signal.aborted) {
      let watch = 0;
      let refused = "";
      const inner = new AbortController();
      const stop = () => inner.abort();
      abort.signal.addEventListener("abort", stop);
      const alive = () => { clearTimeout(watch); watch = setTimeout(stop, SILENT_MS); };
      try {
        alive();
        const answer = await fetch(path, { headers: headers(), signal: inner.signal, cache: "no-store" });
        if (answer.status === 401) {
          clearTimeout(watch);
          this.state("bad", "token needed");
          if (!await askToken()) { await pause(RETRY_MOST_MS); }
          continue;
        }
        if (!answer.ok || !answer.body) { refused = await reason(answer); throw new Error(refused); }
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        let text = "";
        for (;;) {
          const { done, value } = await reader.read();
          if (done || abort.signal.aborted) break;
          alive();
          text += value;
          let end;
          while ((end = text.indexOf("\n\n")) >= 0) {
            this.event(text.slice(0, end));
            text = text.slice(end + 2);
          }
          wait = RETRY_FIRST_MS;
        }
      } catch (error) {
        if (abort.signal.aborted) return;
      } finally {
        clearTimeout(watch);
        abort.signal.removeEventListener("abort", stop);
      }
      if (abort.signal.aborted) return;
      this.state("bad", refused || "reconnecting");
      await pause(wait);
      wait = Math.min(RETRY_MOST_MS, wait * 2);
    }
  }

  event(text) {
    let kind = "message";
    let data = "";
    for (const line of text.split("\n")) {
      if (line.startsWith("event: ")) kind = line.slice(7);
      if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (data) this.frame(kind, JSON.parse(data));
  }
}

function pause(ms) { return new Promise((done) => setTimeout(done, ms)); }
