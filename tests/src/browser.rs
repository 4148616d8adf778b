//! A headless Chromium, driven by its DevTools protocol over a web socket.
//!
//! Invariants: what a page throws or writes to the console as an error is kept and asked for by
//! [`Browser::errors`]; the browser ends with its handle.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

/// Longest wait for anything on a page.
const LIMIT: Duration = Duration::from_secs(60);

/// A process and all that it started; they end together.
struct Group(Child);

/// One page in one browser.
pub struct Browser {
    _group: Group,
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    /// The page among the browser's targets; `None`: the browser itself.
    session: Option<String>,
    next: u64,
    errors: Vec<String>,
    /// What the page asked the network for.
    pub requests: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts one with an empty page.
    pub fn start() -> Self {
        let profile = tempfile::tempdir().unwrap();
        // Ends with this thread whatever becomes of it, and with the handle as a group.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "chromium"]);
        let mut child = command
            .process_group(0)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
            ])
            .args([
                "--no-first-run",
                "--disable-extensions",
                "--disable-background-networking",
            ])
            .args(["--remote-debugging-port=0", "--window-size=1280,900"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("chromium starts; `cargo xtask setup` installs it");
        let stderr = child.stderr.take().unwrap();
        let group = Group(child);
        let mut lines = BufReader::new(stderr).lines();
        let listens = lines.find_map(|line| {
            let line = line.ok()?;
            line.strip_prefix("DevTools listening on ws://")
                .map(str::to_string)
        });
        let listens = listens.expect("chromium says where it listens");
        // Its further messages are nobody's, but a full pipe would stop it.
        std::thread::spawn(move || lines.for_each(drop));
        let (socket, _) = tungstenite::connect(format!("ws://{listens}")).unwrap();
        let mut browser = Browser {
            _group: group,
            socket,
            session: None,
            next: 0,
            errors: Vec::new(),
            requests: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().map(str::to_string);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Calls a method of the protocol.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let text = message.to_string();
        self.socket.send(Message::text(text)).unwrap();
        let end = Instant::now() + LIMIT;
        while Instant::now() < end {
            let Message::Text(text) = self.socket.read().unwrap() else {
                continue;
            };
            let message: Value = serde_json::from_str(&text).unwrap();
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.note(&message);
        }
        panic!("{method} was not answered");
    }

    fn note(&mut self, message: &Value) {
        let parameters = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => {
                self.errors.push(parameters["exceptionDetails"].to_string());
            }
            Some("Runtime.consoleAPICalled") if parameters["type"] == "error" => {
                self.errors.push(parameters["args"].to_string());
            }
            // A control node that is down is in the console by itself; the page has to live with
            // it.
            Some("Log.entryAdded")
                if parameters["entry"]["level"] == "error"
                    && parameters["entry"]["source"] != "network" =>
            {
                self.errors.push(parameters["entry"]["text"].to_string());
            }
            Some("Network.requestWillBeSent") => {
                let url = parameters["request"]["url"].as_str().unwrap_or_default();
                self.requests.push(url.to_string());
            }
            _ => {}
        }
    }

    /// Opens an address.
    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
    }

    /// What an expression gives.
    pub fn value(&mut self, expression: &str) -> Value {
        let parameters =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", parameters);
        let thrown = &answer["exceptionDetails"];
        assert!(thrown.is_null(), "{expression}: {thrown}");
        answer["result"]["value"].clone()
    }

    /// The text of an element.
    pub fn text(&mut self, selector: &str) -> String {
        let text = self.value(&format!(
            "document.querySelector({selector:?})?.innerText ?? ''"
        ));
        text.as_str().unwrap_or_default().to_string()
    }

    /// Waits until an expression is true.
    pub fn until(&mut self, expression: &str) {
        let end = Instant::now() + LIMIT;
        while self.value(&format!("Boolean({expression})")) != true {
            if Instant::now() > end {
                let body = self.text("body");
                panic!(
                    "{expression} does not come true on:\n{body}\nerrors: {:?}",
                    self.errors
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Presses the mouse on the middle of an element, as a person does.
    pub fn click(&mut self, selector: &str) {
        self.until(&format!("document.querySelector({selector:?})"));
        let place = self.value(&format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{block: 'center'}}); \
             const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()"
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            let parameters = json!({
                "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1,
            });
            self.call("Input.dispatchMouseEvent", parameters);
        }
    }

    /// Presses a key.
    pub fn key(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            self.call(
                "Input.dispatchKeyEvent",
                json!({ "type": kind, "key": key, "code": key }),
            );
        }
    }

    /// Types into what has the focus.
    pub fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Chooses in a list, as the keyboard does.
    pub fn choose(&mut self, selector: &str, value: &str) {
        self.value(&format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.value = {value:?}; \
             e.dispatchEvent(new Event('change', {{bubbles: true}})); return e.value; }})()"
        ));
    }

    /// Size of the window, and light or dark.
    pub fn look(&mut self, width: u32, height: u32, scheme: &str) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", features);
    }

    /// Keeps a picture of the page in the folder that `HEARTH_SCREENSHOTS` names, if it does.
    pub fn screenshot(&mut self, name: &str) {
        let Some(dir) = std::env::var_os("HEARTH_SCREENSHOTS") else {
            return;
        };
        use base64::Engine;
        let answer = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(answer["data"].as_str().unwrap())
            .unwrap();
        std::fs::write(Path::new(&dir).join(format!("{name}.png")), bytes).unwrap();
    }

    /// Errors so far; what a page does after the last call is waited for.
    pub fn errors(&mut self) -> Vec<String> {
        self.value("new Promise((done) => setTimeout(() => done(1), 200))");
        std::mem::take(&mut self.errors)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let group = i32::try_from(self.0.id()).expect("a process id");
        // It may have ended already.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        drop(self.0.wait());
    }
}
