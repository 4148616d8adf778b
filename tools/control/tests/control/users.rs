//! Users of one control node: whose a job is, who may use the socket, who is served where control
//! does not run as root. As root alone, who can be others.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::lab::{LIMIT, Lab, finish, parts, text};

/// Users without names in `/etc/passwd`: their numbers are their names.
const ANN: u32 = 61_001;
const BOB: u32 = 61_002;

/// Groups that every Debian has: for users of the socket, and for operators.
const GROUP: (&str, u32) = ("daemon", 1);
const OPERATORS: (&str, u32) = ("bin", 2);

/// Whether these tests can be others than whom they run as.
fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        eprintln!("left out: it needs root, to be other users");
    }
    is_root
}

/// A command as user and groups.
fn of(command: &Command, user: u32, gid: u32, groups: &[u32]) -> Command {
    let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
    let mut as_user = Command::new("setpriv");
    as_user.args(["--reuid", &user.to_string(), "--regid", &gid.to_string()]);
    match groups.is_empty() {
        true => as_user.arg("--clear-groups"),
        false => as_user.args(["--groups", &groups.join(",")]),
    };
    as_user.arg(command.get_program()).args(command.get_args());
    as_user
        .env_remove("HEARTH_CLUSTER")
        .env("HOME", "/nonexistent");
    as_user.current_dir("/").stdin(Stdio::null());
    as_user.stdout(Stdio::piped()).stderr(Stdio::piped());
    as_user
}

/// `hearth ARGS` of a user who may use the socket, to its end.
fn hearth_of(lab: &Lab, user: u32, args: &[&str]) -> Output {
    let mut command = of(&lab.command(args), user, user, &[GROUP.1]);
    finish(command.spawn().unwrap())
}

fn json_of(lab: &Lab, user: u32, args: &[&str]) -> Value {
    // Behind a program it would be the program's.
    let all = [&["--json"], args].concat();
    let output = hearth_of(lab, user, &all);
    let answer = serde_json::from_slice(&output.stdout);
    answer.unwrap_or_else(|_| panic!("{args:?}: {}", text(&output.stderr)))
}

/// Why a command was refused.
fn refused(lab: &Lab, user: u32, args: &[&str]) -> String {
    let (code, out, err) = parts(&hearth_of(lab, user, args));
    assert!(
        [1, 125].contains(&code) && out.is_empty(),
        "{args:?}: {code} {out}{err}"
    );
    err
}

fn shared_lab() -> Lab {
    let config = format!(
        "[api]\ngroup = \"{}\"\noperators = \"{}\"\n",
        GROUP.0, OPERATORS.0
    );
    Lab::configured(&config)
}

/// A request over TCP with a token; status and body.
fn ask(lab: &Lab, token: &str, head: &str, body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(lab.http.as_ref().unwrap()).unwrap();
    let length = body.len();
    let headers = "Host: localhost\r\nContent-Type: application/json\r\nConnection: close";
    write!(
        stream,
        "{head} HTTP/1.1\r\n{headers}\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

#[test]
fn neither_of_two_users_reads_ends_or_changes_jobs_of_the_other() {
    if !is_root() {
        return;
    }
    let mut lab = shared_lab();
    lab.add_nodes(0..2);
    let program = lab.program("ann-program", "out secret-of-ann\nwait\n");
    let submit = ["submit", "--no-precheck", &program];
    let submitted = json_of(&lab, ANN, &submit[..]);
    let id = submitted["id"].as_u64().unwrap().to_string();
    let waiting = ["submit", "--no-precheck", "--hold", "-n", "2", &program];
    let held = json_of(&lab, ANN, &waiting[..])["id"]
        .as_u64()
        .unwrap()
        .to_string();
    let is_running = |lab: &Lab| lab.get(&format!("/v1/jobs/{id}"))["state"] == "running";
    lab.eventually("the job runs", is_running);
    let job = lab.get(&format!("/v1/jobs/{id}"));
    assert_eq!(job["user"], ANN.to_string());

    let output = ["output", &id];
    lab.eventually("its owner reads its output", |lab| {
        text(&hearth_of(lab, ANN, &output).stdout).contains("secret-of-ann")
    });
    for args in [
        &output[..],
        &["output", "--follow", &id],
        &["cancel", &id],
        &["signal", &id, "USR1"],
        &["hold", &held],
        &["release", &held],
        &["priority", "5", &held],
        &["cancel", &held],
    ] {
        let error = refused(&lab, BOB, args);
        assert!(error.contains(&format!("is {ANN}'s")), "{args:?}: {error}");
        assert!(!error.contains("secret-of-ann"), "{args:?}: {error}");
    }
    // He sees that it is there.
    let queue = json_of(&lab, BOB, &["queue"]);
    assert_eq!(queue.as_array().unwrap().len(), 2);
    assert_eq!(lab.get(&format!("/v1/jobs/{id}"))["state"], "running");

    // Nor does he do what operators do.
    for args in [
        &["drain", "n0", "--reason", "mine"][..],
        &["drop", "--all"],
        &["node", "leave", "n0"],
        &["cast", &program],
        &["stop"],
    ] {
        let error = refused(&lab, BOB, args);
        assert!(error.contains("only operators"), "{args:?}: {error}");
    }

    // Those are root, and members of the group.
    let as_operator = |args: &[&str]| {
        let mut command = of(&lab.command(args), BOB, OPERATORS.1, &[GROUP.1]);
        finish(command.spawn().unwrap())
    };
    assert!(text(&as_operator(&output).stdout).contains("secret-of-ann"));
    assert!(as_operator(&["release", &held]).status.success());
    assert!(lab.hearth(&["cancel", &held]).status.success());
    assert!(hearth_of(&lab, ANN, &["cancel", &id]).status.success());
    lab.eventually("it has ended", |lab| {
        lab.get(&format!("/v1/jobs/{id}"))["state"] == "cancelled"
    });
    // Also when it is over.
    let error = refused(&lab, BOB, &output);
    assert!(error.contains(&format!("is {ANN}'s")), "{error}");
}

#[test]
fn registers_of_a_program_are_shown_to_its_user_and_operators_alone() {
    if !is_root() {
        return;
    }
    let mut lab = shared_lab();
    lab.add_nodes(0..1);
    let program = lab.program("ann-crash", "fault SIGSEGV, rip 0x401000|  rax 5ec3e7\n");
    let submitted = json_of(&lab, ANN, &["submit", "--no-precheck", &program]);
    let id = submitted["id"].as_u64().unwrap().to_string();
    lab.eventually("it has failed", |lab| {
        lab.get(&format!("/v1/jobs/{id}"))["state"] == "failed"
    });
    let shows = |user: u32, args: &[&str]| text(&hearth_of(&lab, user, args).stdout);
    for args in [&["jobs", &id][..], &["--json", "jobs", &id]] {
        let (ann, bob) = (shows(ANN, args), shows(BOB, args));
        assert!(ann.contains("rax 5ec3e7"), "{args:?}: {ann}");
        assert!(
            bob.contains("rip 0x401000") && !bob.contains("5ec3e7"),
            "{args:?}: {bob}"
        );
    }
    let events = shows(BOB, &["events"]);
    assert!(
        events.contains("rip 0x401000") && !events.contains("5ec3e7"),
        "{events}"
    );
    assert!(text(&lab.hearth(&["jobs", &id]).stdout).contains("rax 5ec3e7"));
}

#[test]
fn a_hash_is_not_enough_to_use_a_file_and_nobody_speaks_for_another() {
    if !is_root() {
        return;
    }
    let mut lab = shared_lab();
    lab.add_nodes(0..1);
    let program = lab.program("ann-program", "out secret-of-ann\n");
    let secret = lab.program("input", "bytes of ann");
    let run = ["run", "--no-precheck", "--with", &secret, &program];
    let output = hearth_of(&lab, ANN, &run);
    assert_eq!(
        text(&output.stdout),
        "secret-of-ann\n",
        "{}",
        text(&output.stderr)
    );
    let token = json_of(&lab, BOB, &["token", "create", "--role", "user"]);
    let token = token["token"].as_str().unwrap();
    let hash = |path: &str| {
        let content = std::fs::read(path).unwrap();
        blake3::hash(&content).to_hex().to_string()
    };
    let own = lab.program("bob-program", "with input\ncat\n");
    // Bob has sent this one, and so may use it.
    let sent = hearth_of(&lab, BOB, &["run", "--no-precheck", &own]);
    assert!(
        !text(&sent.stderr).contains("not here"),
        "{}",
        text(&sent.stderr)
    );
    let job = |program: &str, more: Value| {
        let mut job = json!({ "name": "b", "program": program, "args": ["Lg=="], "ranks": 1,
            "batch": true, "no_precheck": true });
        job.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        ask(&lab, token, "POST /v1/jobs", &job.to_string())
    };
    let known = hash(&own);
    assert_eq!(job(&known, json!({})).0, 200);
    let object = hash(&secret);
    for (program, more) in [
        (&hash(&program), json!({})),
        (&known, json!({ "input": object })),
        (
            &known,
            json!({ "with": [{ "name": "input", "object": object }] }),
        ),
    ] {
        let (status, answer) = job(program, more);
        assert_eq!(
            (status, &answer["code"]),
            (404, &json!("unknown-program")),
            "{answer}"
        );
    }
    let (status, answer) = job(&known, json!({ "with": [{ "name": "input" }] }));
    assert_eq!(
        (status, &answer["code"]),
        (403, &json!("not-yours")),
        "{answer}"
    );
    let head = format!("GET /v1/programs/{object}");
    assert_eq!(ask(&lab, token, &head, "").0, 404);

    let (status, answer) = job(&known, json!({ "user": ANN.to_string() }));
    assert_eq!(
        (status, &answer["code"]),
        (403, &json!("not-yourself")),
        "{answer}"
    );
    let error = answer["error"].as_str().unwrap();
    assert!(
        error.contains(&format!("says that \"{ANN}\" asks")),
        "{error}"
    );
    // Nor does an operator.
    let claim = json!({ "name": "b", "program": known, "args": ["Lg=="], "ranks": 1,
        "batch": true, "no_precheck": true, "user": "61002" });
    assert_eq!(lab.post("/v1/jobs", &claim).1["code"], "not-yourself");
}

#[test]
fn the_socket_is_the_groups_and_who_is_not_in_it_is_told_so() {
    if !is_root() {
        return;
    }
    let mut lab = shared_lab();
    // A folder of its own.
    lab.stop_control(false);
    let private = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(lab.path(""), private).unwrap();
    lab.start_control();
    let mode = |path: &str| {
        let path = lab.path(path);
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(
        (mode("run/control.sock"), mode("run"), mode("")),
        (0o660, 0o710, 0o710)
    );
    for private in ["secret", "token", "hearth.db", "events.jsonl"] {
        assert_eq!(mode(private), 0o600, "{private}");
    }
    let mut stranger = of(&lab.command(&["queue"]), BOB, BOB, &[]);
    let (code, _, error) = parts(&finish(stranger.spawn().unwrap()));
    assert_eq!(code, 125, "{error}");
    assert!(
        error.contains("is closed to 61002") && error.contains("usermod -aG"),
        "{error}"
    );
}

/// A control node that another user runs, with `before` in front of `hearth`.
struct Others {
    dir: tempfile::TempDir,
    control: Child,
}

impl Others {
    fn start(before: &[&str]) -> Others {
        let dir = tempfile::tempdir().unwrap();
        let ann = (
            nix::unistd::Uid::from_raw(ANN),
            nix::unistd::Gid::from_raw(ANN),
        );
        nix::unistd::chown(dir.path(), Some(ann.0), Some(ann.1)).unwrap();
        let mut words = before.to_vec();
        words.extend([
            env!("CARGO_BIN_EXE_hearth"),
            "serve",
            "--no-boot",
            "--address",
            "127.0.0.1/8",
            "--control-port",
            "0",
            "--http",
            "none",
            "--state-dir",
        ]);
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(dir.path());
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let mut command = of(&command, ANN, ANN, &[]);
        let control = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let others = Others { dir, control };
        let deadline = Instant::now() + LIMIT;
        while !others.path().join("run/control.sock").exists() {
            assert!(Instant::now() < deadline, "{}", others.log());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        others
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("log")).unwrap_or_default()
    }

    /// `hearth ARGS` of a user.
    fn hearth(&self, user: u32, args: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hearth"));
        command.arg("--state-dir").arg(self.path()).args(args);
        parts(&finish(of(&command, user, user, &[]).spawn().unwrap()))
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        drop(self.control.kill());
        drop(self.control.wait());
        if std::thread::panicking() {
            eprintln!("--- log of the control node\n{}", self.log());
        }
    }
}

#[test]
fn without_root_control_serves_its_own_user_and_operators_and_says_so() {
    if !is_root() {
        return;
    }
    let others = Others::start(&["env"]);
    assert!(
        others.log().contains(&format!("serves {ANN}, root only")),
        "{}",
        others.log()
    );
    let token = ["token", "create", "--role", "operator"];
    for user in [ANN, 0] {
        let (code, _, error) = others.hearth(user, &token);
        assert_eq!(code, 0, "{error}");
    }
    let (code, _, error) = others.hearth(BOB, &["queue"]);
    assert_eq!(code, 125, "{error}");
    assert!(error.contains("is closed to 61002"), "{error}");
    // Whoever comes through all the same.
    for (path, mode) in [("", 0o755), ("run", 0o755), ("run/control.sock", 0o666)] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(others.path().join(path), mode).unwrap();
    }
    let (code, _, error) = others.hearth(BOB, &["queue"]);
    assert_eq!(code, 125, "{error}");
    assert!(
        error.contains("runs as 61001, not as root") && error.contains("61002 is none"),
        "{error}"
    );
}

#[test]
fn in_a_user_namespace_its_user_has_their_own_name_and_nobody_else_is_served() {
    if !is_root() {
        return;
    }
    let unshare = ["unshare", "--user", "--map-root-user"];
    let may = of(&Command::new("unshare"), ANN, ANN, &[])
        .args(["--user", "true"])
        .status();
    if !may.is_ok_and(|status| status.success()) {
        eprintln!("left out: users may not make user namespaces here");
        return;
    }
    let others = Others::start(&unshare);
    assert!(
        others.log().contains(&format!("serves {ANN} only")),
        "{}",
        others.log()
    );
    // As number 0 inside, and under the name outside.
    let (code, out, error) = others.hearth(ANN, &["token", "create", "--role", "user", "--json"]);
    assert_eq!(code, 0, "{error}");
    let made: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(made["info"]["user"], ANN.to_string());
    // Root is as strange there as anybody.
    let (code, _, error) = others.hearth(0, &["queue"]);
    assert_eq!(code, 125, "{error}");
    assert!(error.contains("user namespace of 61001"), "{error}");
}
