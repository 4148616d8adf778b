//! Machines behind boards that are not real: OpenIPMI's simulator for `ipmitool`, a server of a few
//! lines that speaks Redfish for `curl`, and a script in the place of a site's command.
//!
//! The first two need programs that are installed, so a plain `cargo test` leaves them out;
//! `cargo xtask test` runs them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hearth_power::watch::{Due, Outcome, Seen, Watch};
use hearth_power::{Action, Config, Machine, Method, Power, State, Template};

const MACHINE: Machine = Machine { node: 3, mac: None };

fn template(text: &str) -> Template {
    Template::try_from(text.to_owned()).unwrap()
}

/// A configuration with an account whose password is `secret`, kept in `dir`.
fn config(method: Method, bmc: &str, dir: &Path) -> Config {
    let password_file = dir.join("password");
    std::fs::write(&password_file, "secret\n").unwrap();
    std::fs::set_permissions(&password_file, std::fs::Permissions::from_mode(0o600)).unwrap();
    Config {
        method,
        bmc: template(bmc),
        user: "admin".to_owned(),
        password_file,
        ipmitool_options: Vec::new(),
        redfish_system: Template::default(),
        check_certificate: true,
        ca_file: PathBuf::new(),
        command: Vec::new(),
        time_limit_s: 20,
        reset_lost_after_s: 0,
    }
}

fn perform(power: &Power, action: Action) -> Result<State, String> {
    let mut results = power.perform(action, &[MACHINE]);
    assert_eq!(results.len(), 1);
    results.remove(0).map_err(|error| error.to_string())
}

/// What each way must do: a machine that is off is switched on, reset and switched off.
fn goes_through_all_states(power: &Power) {
    let state = || perform(power, Action::Status).unwrap();
    assert_eq!(perform(power, Action::Off), Ok(State::Off));
    assert_eq!(state(), State::Off);
    for action in [Action::On, Action::On, Action::Reset] {
        assert_eq!(perform(power, action), Ok(State::On));
        assert_eq!(state(), State::On);
    }
    for _ in 0..2 {
        assert_eq!(perform(power, Action::Off), Ok(State::Off));
        assert_eq!(state(), State::Off);
    }
    // Reset, too, switches on what is off.
    assert_eq!(perform(power, Action::Reset), Ok(State::On));
    assert_eq!(state(), State::On);
}

#[test]
fn a_site_switches_machines_by_its_own_command() {
    let dir = tempfile::tempdir().unwrap();
    let (script, state) = (dir.path().join("power"), dir.path().join("n3"));
    let text = format!(
        "#!/bin/sh\ncase $1 in\n\
         status) cat {0}/$2;;\nreset) echo on > {0}/$2;;\n*) echo $1 > {0}/$2;;\nesac\n",
        dir.path().display()
    );
    std::fs::write(&script, text).unwrap();
    let mut config = config(Method::Command, "", dir.path());
    let script = script.to_str().unwrap();
    config.command = ["sh", script, "{action}", "{name}"].map(template).to_vec();
    let power = Power::of(&config, None).unwrap();
    goes_through_all_states(&power);
    // Of many machines each has its own answer, in their order.
    let machines: Vec<Machine> = (0..40).map(|node| Machine { node, mac: None }).collect();
    let results = power.perform(Action::Status, &machines);
    for (machine, result) in machines.iter().zip(results) {
        match (machine.node, result) {
            (3, result) => assert_eq!(result.unwrap(), State::On),
            (node, result) => {
                let error = result.unwrap_err().to_string();
                assert!(error.contains(&format!("n{node}: No such file")), "{error}");
            }
        }
    }
    std::fs::write(state, "perhaps").unwrap();
    let error = perform(&power, Action::Status).unwrap_err();
    assert!(
        error.contains("perhaps") && error.contains("on or off"),
        "{error}"
    );
}

#[test]
fn whoever_asks_sixteen_machines_are_asked_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let now = dir.path().join("now");
    std::fs::create_dir(&now).unwrap();
    // Each run is a file for as long as it lasts, and writes down how many there are.
    let script = format!(
        "touch {0}/$$; ls {0} | wc -l >> {1}/seen; sleep 0.3; rm {0}/$$; echo on",
        now.display(),
        dir.path().display()
    );
    let mut config = config(Method::Command, "", dir.path());
    config.command = ["sh", "-c", &script].map(template).to_vec();
    let power = Power::of(&config, None).unwrap();
    let machines: Vec<Machine> = (0..16).map(|node| Machine { node, mac: None }).collect();
    std::thread::scope(|scope| {
        for power in [power.clone(), power.clone(), power.clone()] {
            let machines = &machines;
            scope.spawn(move || {
                let results = power.perform(Action::Status, machines);
                assert!(results.iter().all(Result::is_ok), "{results:?}");
            });
        }
    });
    let seen = std::fs::read_to_string(dir.path().join("seen")).unwrap();
    let seen: Vec<u32> = seen
        .lines()
        .map(|line| line.trim().parse().unwrap())
        .collect();
    let most = seen.iter().max().unwrap();
    assert_eq!(seen.len(), 48);
    assert!((2..=16).contains(most), "{most} at a time");
}

#[test]
fn machines_that_are_not_wanted_when_their_turn_comes_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let asked = dir.path().join("asked");
    let script = format!("echo {{name}} >> {}", asked.display());
    let mut config = config(Method::Command, "", dir.path());
    config.command = ["sh", "-c", &script].map(template).to_vec();
    let power = Power::of(&config, None).unwrap();
    let machines: Vec<Machine> = (0..4).map(|node| Machine { node, mac: None }).collect();
    let results = power.perform_wanted(Action::Reset, &machines, &|machine| machine.node == 2);
    let done: Vec<bool> = results.iter().map(Option::is_some).collect();
    assert_eq!(done, [false, false, true, false]);
    assert_eq!(std::fs::read_to_string(asked).unwrap(), "n2\n");
}

#[test]
fn without_a_way_the_answer_is_what_to_configure() {
    let dir = tempfile::tempdir().unwrap();
    let power = Power::of(&config(Method::None, "", dir.path()), None).unwrap();
    assert!(!power.can_reset());
    let error = perform(&power, Action::On).unwrap_err();
    assert!(error.contains("[power] method"), "{error}");
    let error = Power::of(&config(Method::Command, "", dir.path()), None).unwrap_err();
    assert!(error.to_string().contains("power.command"), "{error}");
}

/// A process that ends with its test.
struct Simulator(Child);

impl Drop for Simulator {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Starts OpenIPMI's simulator with a machine that is off, and gives its UDP port. Whether it is on
/// is in the file `power`, and each reset that it had is a line of `resets`.
fn ipmi_simulator(dir: &Path) -> (Simulator, u16) {
    let free = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let power = dir.join("power");
    let resets = dir.join("resets");
    let script = dir.join("chassis");
    // PROGRAM ADDRESS get|set power [VALUE]
    let text = format!(
        "#!/bin/sh\nshift\ncase \"$1 $2\" in\n\
         'get power') echo power:$(cat {0});;\n'set power') echo $3 > {0};;\n\
         'set reset') [ $(cat {0}) = 1 ] && echo reset >> {1};;\nesac\n",
        power.display(),
        resets.display()
    );
    std::fs::write(&power, "0").unwrap();
    std::fs::write(&resets, "").unwrap();
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
    let lan = dir.join("lan.conf");
    let text = format!(
        "name \"board\"\nset_working_mc 0x20\nstartlan 1\n addr 127.0.0.1 {port}\n\
         priv_limit admin\n allowed_auths_admin md5\n guid a123456789abcdefa123456789abcdef\n\
         endlan\nchassis_control \"{} 0x20\"\nserial 15 127.0.0.1 0 codec VM\nstartnow false\n\
         user 1 true \"\" \"\" user 10 md5\n\
         user 2 true \"admin\" \"secret\" admin 10 md5\n",
        script.display()
    );
    std::fs::write(&lan, text).unwrap();
    let emu = dir.join("board.emu");
    std::fs::write(
        &emu,
        "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n\
         mc_enable 0x20\n",
    )
    .unwrap();
    let child = Command::new("ipmi_sim")
        .args(["--nopersist", "-n", "-c"])
        .args([&lan, Path::new("-f"), &emu])
        .args([Path::new("-s"), dir])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("ipmi_sim of the package openipmi");
    (Simulator(child), port)
}

/// The way to a simulated board, which answers; its password is in the file of the configuration.
fn by_ipmi(port: u16, dir: &Path) -> (Power, Config) {
    let mut config = config(Method::Ipmi, "127.0.0.1", dir);
    // The simulator does not say which cipher suites it has, and has the third.
    config.ipmitool_options = ["-C", "3", "-p", &port.to_string()]
        .map(str::to_owned)
        .to_vec();
    let power = Power::of(&config, None).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(error) = perform(&power, Action::Status) {
        assert!(Instant::now() < deadline, "{error}");
    }
    (power, config)
}

#[test]
#[ignore = "needs ipmitool and ipmi_sim"]
fn a_node_that_stays_lost_is_reset_by_ipmi_and_switched_on_where_it_is_off() {
    let dir = tempfile::tempdir().unwrap();
    let (_simulator, port) = ipmi_simulator(dir.path());
    let (power, _) = by_ipmi(port, dir.path());
    assert_eq!(perform(&power, Action::On), Ok(State::On));
    let board = |file: &str| std::fs::read_to_string(dir.path().join(file)).unwrap();
    let mut watch = Watch::new(Duration::from_secs(300));
    let mut resets = Vec::new();
    for second in 0..9_000 {
        let now = Duration::from_secs(second);
        for due in watch.step(now, &[(MACHINE.node, Seen::Lost)]) {
            match due {
                Due::Reset { node, attempt } => {
                    assert_eq!(node, MACHINE.node);
                    assert_eq!(perform(&power, Action::Reset), Ok(State::On));
                    watch.report(now, node, Outcome::Done);
                    resets.push((second, attempt, board("resets").lines().count()));
                    // Somebody pulls the plug after the first one.
                    if attempt == 1 {
                        assert_eq!(perform(&power, Action::Off), Ok(State::Off));
                        assert_eq!(board("power").trim(), "0");
                    }
                }
                Due::GiveUp { node, .. } => resets.push((second, node, 0)),
                Due::TooMany(_) => panic!("one is lost"),
            }
        }
    }
    // The second one finds it off, and switches it on.
    let wanted = [
        (300, 1, 1),
        (900, 2, 1),
        (2_100, 3, 2),
        (4_500, MACHINE.node, 0),
    ];
    assert_eq!(resets, wanted);
    assert_eq!(board("power").trim(), "1");
}

#[test]
#[ignore = "needs ipmitool and ipmi_sim"]
fn machines_are_switched_by_ipmi() {
    let dir = tempfile::tempdir().unwrap();
    let (_simulator, port) = ipmi_simulator(dir.path());
    let (power, config) = by_ipmi(port, dir.path());
    goes_through_all_states(&power);
    // With another password the board refuses.
    std::fs::write(&config.password_file, "wrong\n").unwrap();
    let error = perform(&power, Action::Status).unwrap_err();
    assert!(error.contains("ipmitool"), "{error}");
}

#[test]
#[ignore = "needs ipmitool"]
fn a_board_that_does_not_answer_costs_the_time_limit_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    // Somebody has the port and says nothing.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let mut config = config(Method::Ipmi, "127.0.0.1", dir.path());
    config.ipmitool_options = vec!["-p".to_owned(), port.to_string()];
    config.time_limit_s = 1;
    let power = Power::of(&config, None).unwrap();
    let begun = Instant::now();
    let error = perform(&power, Action::On).unwrap_err();
    assert!(error.contains("within 1 s"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

/// A board that speaks Redfish, on plain HTTP. Gives its address and the requests that it had.
fn redfish_board() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = requests.clone();
    std::thread::spawn(move || {
        let mut is_on = false;
        for stream in listener.incoming() {
            let line = answer(stream.unwrap(), &mut is_on);
            seen.lock().unwrap().push(line);
        }
    });
    (address, requests)
}

/// Answers one request; gives its first line and its body.
fn answer(stream: TcpStream, is_on: &mut bool) -> String {
    const SYSTEM: &str = "/redfish/v1/Systems/437XR1138R2";
    let mut reader = BufReader::new(stream);
    let (mut first, mut line) = (String::new(), String::new());
    reader.read_line(&mut first).unwrap();
    let (mut length, mut is_admin) = (0, false);
    while reader.read_line(&mut line).unwrap() > 2 {
        let lower = line.to_ascii_lowercase();
        if let Some(text) = lower.strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
        // admin:secret
        is_admin |= line.trim() == "Authorization: Basic YWRtaW46c2VjcmV0";
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body = String::from_utf8(body).unwrap();
    let path = first.split(' ').nth(1).unwrap();
    let reset = format!("{SYSTEM}/Actions/ComputerSystem.Reset");
    let (status, text) = if !is_admin {
        (401, r#"{"error":{}}"#.to_owned())
    } else if path == "/redfish/v1/Systems" {
        (
            200,
            format!(r#"{{"Members":[{{"@odata.id":"{SYSTEM}"}}]}}"#),
        )
    } else if path == SYSTEM {
        let state = if *is_on { "On" } else { "Off" };
        let action = format!(r##"{{"#ComputerSystem.Reset":{{"target":"{reset}"}}}}"##);
        (
            200,
            format!(r#"{{"PowerState":"{state}","Actions":{action}}}"#),
        )
    } else if path == reset {
        // As real ones do, it refuses what makes no sense.
        match (body.as_str(), *is_on) {
            (r#"{"ResetType":"On"}"#, false) => *is_on = true,
            (r#"{"ResetType":"ForceOff"}"#, true) => *is_on = false,
            (r#"{"ResetType":"ForceRestart"}"#, true) => {}
            _ => panic!("{body} while on: {is_on}"),
        }
        (204, String::new())
    } else {
        (404, "{}".to_owned())
    };
    let head = format!(
        "HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n",
        text.len()
    );
    let mut stream = reader.into_inner();
    stream.write_all((head + &text).as_bytes()).unwrap();
    format!("{} {body}", first.trim())
}

#[test]
#[ignore = "needs curl"]
fn machines_are_switched_by_redfish() {
    let dir = tempfile::tempdir().unwrap();
    let (address, requests) = redfish_board();
    let mut config = config(Method::Redfish, &address, dir.path());
    goes_through_all_states(&Power::of(&config, None).unwrap());
    let seen = requests.lock().unwrap().join("\n");
    for words in ["ForceOff", "ForceRestart", "GET /redfish/v1/Systems HTTP"] {
        assert!(seen.contains(words), "{seen}");
    }
    // A path that is named is not looked for.
    requests.lock().unwrap().clear();
    config.redfish_system = template("/redfish/v1/Systems/{name}");
    let power = Power::of(&config, None).unwrap();
    let error = perform(&power, Action::Status).unwrap_err();
    assert!(error.contains("power.redfish_system"), "{error}");
    assert_eq!(requests.lock().unwrap().len(), 1);
    config.redfish_system = template("/redfish/v1/Systems/437XR1138R2");
    let power = Power::of(&config, None).unwrap();
    assert_eq!(perform(&power, Action::Status), Ok(State::On));
    std::fs::write(&config.password_file, "wrong\n").unwrap();
    let error = perform(&power, Action::Status).unwrap_err();
    assert!(
        error.contains("401") && error.contains("power.user"),
        "{error}"
    );
}
