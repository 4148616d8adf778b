//! The control node asked over the network: tokens, TLS, and what is wrong with either.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::lab::{Lab, finish, parts};

/// A control node that listens with TLS, and one node.
struct Network {
    lab: Lab,
    host: String,
    fingerprint: String,
}

impl Network {
    fn new() -> Network {
        let mut lab = Lab::configured("[api]\nlisten = \"127.0.0.1:0\"\n");
        lab.add_nodes(0..1);
        let status = lab.get("/v1/status");
        Network {
            host: status["listen"].as_str().unwrap().to_string(),
            fingerprint: status["fingerprint"].as_str().unwrap().to_string(),
            lab,
        }
    }

    /// A new token.
    fn token(&self, options: &[&str]) -> String {
        let mut args = vec!["token", "create"];
        args.extend(options);
        let made = self.lab.json(&args);
        made["token"].as_str().unwrap().to_string()
    }

    /// `hearth --host HOST ARGS` with what the environment says, to its end.
    fn hearth(&self, token: &str, fingerprint: &str, args: &[&str]) -> (i32, String, String) {
        self.hearth_at(&self.host, token, fingerprint, args)
    }

    fn hearth_at(
        &self,
        host: &str,
        token: &str,
        fingerprint: &str,
        args: &[&str],
    ) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hearth"));
        command.args(args).env("HEARTH_HOST", host);
        command.env("HEARTH_FINGERPRINT", fingerprint);
        command.env("HEARTH_TOKEN", token);
        command.env("XDG_CONFIG_HOME", self.lab.path("no-such-folder"));
        command.env_remove("HEARTH_CLUSTER").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        parts(&finish(command.spawn().unwrap()))
    }

    /// Why a command is refused.
    fn refused(&self, token: &str, args: &[&str]) -> String {
        let (code, out, err) = self.hearth(token, &self.fingerprint, args);
        assert_eq!((code, &out[..]), (125, ""), "{args:?}: {err}");
        err
    }
}

#[test]
fn jobs_run_over_the_network_with_a_token_and_as_its_user() {
    let mut network = Network::new();
    assert!(
        network.lab.log().contains(&network.fingerprint),
        "{}",
        network.lab.log()
    );
    let token = network.token(&["--role", "user", "--user", "ann"]);
    let program = network.lab.program("program", "out here\nexit 3\n");
    let run = ["run", "--no-precheck", &program];
    let (code, out, err) = network.hearth(&token, &network.fingerprint, &run);
    assert_eq!((code, &out[..]), (3, "here\n"), "{err}");
    assert_eq!(network.lab.get("/v1/jobs/1")["user"], "ann");
    for args in [
        &["nodes"][..],
        &["queue"],
        &["events"],
        &["job", "1"],
        &["version"],
    ] {
        let (code, _, err) = network.hearth(&token, &network.fingerprint, args);
        assert_eq!(code, 0, "{args:?}: {err}");
    }
    // Her own tokens, and no more than she is.
    let more = ["token", "create", "--role", "operator"];
    assert!(network.refused(&token, &more).contains("only operators"));
    let (code, out, err) = network.hearth(&token, &network.fingerprint, &["token", "list"]);
    assert_eq!((code, out.lines().count()), (0, 2), "{out}{err}");
    // What only works beside the control node says so.
    for args in [
        &["node", "key", "1", "52:54:00:07:00:01"][..],
        &["down"],
        &["up"],
        &["list"],
    ] {
        let error = network.refused(&token, args);
        assert!(
            error.contains("on the control node's own machine") && error.contains("HEARTH_HOST"),
            "{args:?}: {error}"
        );
    }
    // A role, and not whom it is of, is what is missing.
    let drain = network.refused(&token, &["drain", "--reason", "test", "n0"]);
    assert!(drain.contains("ann asks with the role user"), "{drain}");
    for (args, word) in [
        (
            &["queue", "--host", "no-such-host.invalid"][..],
            "not known by this name",
        ),
        (
            &["queue", "--token-file", "/no/such/file"],
            "hearth token create",
        ),
    ] {
        let error = network.refused(&token, args);
        assert!(error.contains(word), "{args:?}: {error}");
        assert_eq!(error.matches("/no/such/file").count() % 2, 0, "{error}");
    }
    // Another run of control has the same certificate, and knows the token.
    network.lab.stop_control(true);
    network.lab.start_control();
    let status = network.lab.get("/v1/status");
    assert_eq!(status["fingerprint"], network.fingerprint);
    network.host = status["listen"].as_str().unwrap().to_string();
    let (code, _, err) = network.hearth(&token, &network.fingerprint, &["queue"]);
    assert_eq!(code, 0, "{err}");
    // In the log and the store there is no text of it.
    let secret = token.rsplit('-').next().unwrap();
    for file in ["log", "hearth.db", "hearth.db-wal", "events.jsonl"] {
        let content = std::fs::read(network.lab.path(file)).unwrap_or_default();
        let found = content
            .windows(secret.len())
            .any(|part| part == secret.as_bytes());
        assert!(!found, "{file}");
    }
}

#[test]
fn a_token_is_refused_for_what_is_wrong_with_it() {
    let network = Network::new();
    let read = network.token(&["--role", "read"]);
    let (code, _, err) = network.hearth(&read, &network.fingerprint, &["nodes"]);
    assert_eq!(code, 0, "{err}");
    let program = network.lab.program("program", "out here\n");
    let run = ["run", "--no-precheck", &program];
    let error = network.refused(&read, &run);
    assert!(error.contains("may only look"), "{error}");
    let user = network.token(&["--role", "user", "--user", "ann"]);
    let error = network.refused(&user, &["drain", "n0", "--reason", "x"]);
    assert!(
        error.contains("only operators") && error.contains("ann"),
        "{error}"
    );
    let short = network.token(&["--role", "operator", "--expires", "1s"]);
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let error = network.refused(&short, &["nodes"]);
    assert!(error.contains("has expired"), "{error}");
    for wrong in ["wrong", "hearth-1-00", &user[..user.len() - 1], "a b"] {
        let error = network.refused(wrong, &["nodes"]);
        let is_told =
            error.contains("not one of this control node's") || error.contains("is no token");
        assert!(
            is_told && error.contains("hearth token create"),
            "{wrong}: {error}"
        );
    }
    assert!(
        network
            .lab
            .hearth(&["token", "revoke", "2"])
            .status
            .success()
    );
    let error = network.refused(&user, &["nodes"]);
    assert!(error.contains("was revoked"), "{error}");
    let (code, _, error) = parts(&network.lab.hearth(&["token", "revoke", "2"]));
    assert_eq!(code, 125);
    assert!(error.contains("no token 2"), "{error}");
    let error = network.refused("", &["nodes"]);
    assert!(error.contains("set HEARTH_TOKEN"), "{error}");
    // A file with a token is its owner's alone.
    let file = network.lab.path("my-token");
    std::fs::write(&file, format!("{read}\n")).unwrap();
    let path = file.to_str().unwrap();
    let nodes = ["nodes", "--token-file", path];
    for (mode, expected) in [(0o644, 125), (0o600, 0)] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let (code, _, error) = network.hearth("", &network.fingerprint, &nodes);
        assert_eq!(code, expected, "{error}");
        assert_eq!(
            error.contains("can be read by others"),
            mode == 0o644,
            "{error}"
        );
    }
}

#[test]
fn no_token_is_sent_to_a_node_with_another_certificate_or_without_one() {
    let network = Network::new();
    let token = network.token(&["--role", "read"]);
    let nodes = ["nodes"];
    let other = "ab".repeat(32);
    let (code, _, error) = network.hearth(&token, &other, &nodes);
    assert_eq!(code, 125, "{error}");
    let names_both = error.contains(&other) && error.contains(&network.fingerprint);
    assert!(names_both && error.contains("--fingerprint"), "{error}");
    for wrong in ["", "abc"] {
        let (code, _, error) = network.hearth(&token, wrong, &nodes);
        assert_eq!(code, 125, "{error}");
        assert!(error.contains("`hearth serve` prints"), "{wrong}: {error}");
    }
    // The address without TLS.
    let plain = network.lab.http.clone().unwrap();
    let (code, _, error) = network.hearth_at(&plain, &token, &network.fingerprint, &nodes);
    assert_eq!(code, 125, "{error}");
    assert!(error.contains("hearth serve --listen"), "{error}");
    // Who speaks without TLS where it is spoken gets no answer.
    let mut stream = TcpStream::connect(&network.host).unwrap();
    let request = format!(
        "GET /v1/nodes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // The connection ends, in order or not.
    drop(stream.read_to_end(&mut answer));
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    // Nobody listens.
    let (code, _, error) = network.hearth_at("127.0.0.1:1", &token, &network.fingerprint, &nodes);
    assert_eq!(code, 125);
    assert!(error.contains("127.0.0.1:1 does not answer"), "{error}");
    let args = ["nodes", "--host", "x", "--cluster", "y"];
    assert_eq!(network.hearth(&token, &network.fingerprint, &args).0, 2);
}

#[test]
fn without_tls_the_api_listens_on_loopback_only() {
    let lab = Lab::control();
    let output = Command::new(env!("CARGO_BIN_EXE_hearth"))
        .args(["serve", "--no-boot", "--address", "127.0.0.1/8"])
        .args(["--control-port", "0", "--http", "0.0.0.0:0", "--state-dir"])
        .arg(lab.path("another"))
        .env_remove("HEARTH_CLUSTER")
        .output()
        .unwrap();
    let (code, _, error) = parts(&output);
    assert_eq!(code, 125, "{error}");
    assert!(
        error.contains("without TLS") && error.contains("--listen"),
        "{error}"
    );
}
