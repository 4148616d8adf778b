//! Control is killed two hundred times, at any moment, while jobs run: nothing that anybody was
//! told is forgotten, nothing is half written, and no boot is believed but the one that joined.
//!
//! Several labs at once, each with its control node, nodes and clients. The moments are while
//! control starts, at random, and above all right after a client has seen the end of a job or a
//! node the acknowledgement of its report: what was told before it was written would be lost then,
//! and a little later the next is being written.
//!
//! After each kill the files of the store are copied as they are and looked into; after each start
//! control itself is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hearth_store::{Limits, Query, Sqlite};
use serde_json::{Value, json};

use crate::fake_node::FakeNode;
use crate::lab::Lab;

const LABS: u64 = 4;
const KILLS_PER_LAB: u32 = 50;
const NODES: u32 = 4;
const CLIENTS: u64 = 6;
/// Longest life of a control node that is killed right after something was told.
const LIFE: Duration = Duration::from_secs(2);
/// Clients are waited for in the end, when they do not come back; nodes boot all the time.
const CONFIG: &str = "[jobs]\nreturn_limit_s = 10\n[queue]\ndrain_after_failures = 0\n";

#[test]
fn control_is_killed_two_hundred_times_and_forgets_nothing() {
    let labs: Vec<_> = (0..LABS)
        .map(|lab| std::thread::spawn(move || Trial::new(lab).run()))
        .collect();
    let mut sum = Told::default();
    for lab in labs {
        let told = lab.join().expect("see above");
        sum.ends += told.ends;
        sum.entries += told.entries;
        sum.reboots += told.reboots;
    }
    eprintln!("{sum:?}");
    // Otherwise there was little to forget: an end and an entry for each kill.
    let kills = LABS as usize * KILLS_PER_LAB as usize;
    assert!(
        sum.ends >= kills && sum.entries >= kills && sum.reboots >= 50,
        "{sum:?}"
    );
}

/// What was told in all, as far as it was looked at again.
#[derive(Debug, Default)]
struct Told {
    ends: usize,
    entries: usize,
    reboots: usize,
}

/// What clients have seen.
#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    ends: Mutex<Vec<Value>>,
    news: Condvar,
    accepted: Mutex<BTreeSet<u64>>,
}

/// One lab and what happens to it.
struct Trial {
    lab: Lab,
    random: fastrand::Rng,
    seen: Arc<Seen>,
    /// The boot each node is in.
    boots: Vec<u64>,
    told: Told,
    /// Ends that were looked for already.
    checked: usize,
}

impl Trial {
    fn new(number: u64) -> Self {
        let mut lab = Lab::configured(CONFIG);
        lab.add_nodes(0..NODES);
        let seed = u64::from(std::process::id()) << 8 | number;
        eprintln!("lab {number}: seed {seed}");
        Trial {
            lab,
            random: fastrand::Rng::with_seed(seed),
            seen: Arc::default(),
            boots: vec![1; NODES as usize],
            told: Told::default(),
            checked: 0,
        }
    }

    fn run(mut self) -> Told {
        let programs = self.programs();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (socket, seen) = (self.lab.socket(), self.seen.clone());
                let programs = programs.clone();
                std::thread::spawn(move || run_jobs(&socket, &programs, client, &seen))
            })
            .collect();
        for _ in 0..KILLS_PER_LAB {
            self.live();
            self.lab.stop_control(true);
            self.look_into_the_store();
            self.reboot_some();
            self.lab.spawn_control();
        }
        self.seen.stop.store(true, Ordering::Relaxed);
        self.lab.stop_control(true);
        for client in clients {
            client.join().expect("clients only fail softly");
        }
        self.look_into_the_store();
        self.lab.start_control();
        self.ask_control();
        self.told.ends = self.checked;
        self.told
    }

    /// Sends the programs, and says which there are.
    fn programs(&self) -> Vec<String> {
        let of = |number: u32| {
            let text = format!("out program {number}\n");
            let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
            let path = format!("/v1/programs/{hash}");
            let (status, answer) = request(&self.lab.socket(), "PUT", &path, &text).unwrap();
            assert_eq!(status, 200, "{answer}");
            hash
        };
        (0..6).map(of).collect()
    }

    /// Lets the control node live until the moment has come.
    fn live(&mut self) {
        let deadline = Instant::now() + LIFE;
        match self.random.u64(..6) {
            0 => std::thread::sleep(Duration::from_micros(self.random.u64(..60_000))),
            1 => {
                let end = Instant::now() + Duration::from_micros(self.random.u64(..1_000_000));
                self.wait_until_it_answers();
                while Instant::now() < end {
                    self.ask_what_is_warm();
                }
            }
            2 => {
                self.wait_until_it_answers();
                let before = self.acknowledged();
                while self.acknowledged().is_subset(&before) && Instant::now() < deadline {
                    self.ask_what_is_warm();
                }
            }
            _ => {
                let more = 1 + self.random.u64(..6) as usize;
                let ends = self.seen.ends.lock().unwrap();
                let wanted = ends.len() + more;
                let too_few = |ends: &mut Vec<Value>| ends.len() < wanted;
                drop(
                    self.seen
                        .news
                        .wait_timeout_while(ends, LIFE, too_few)
                        .unwrap(),
                );
                if self.random.u64(..3) > 0 {
                    std::thread::sleep(Duration::from_micros(self.random.u64(..700)));
                }
            }
        }
    }

    fn wait_until_it_answers(&self) {
        let socket = self.lab.socket();
        self.lab.eventually("the control node answers", |_| {
            UnixStream::connect(&socket).is_ok()
        });
    }

    /// Programs that control has acknowledged to nodes: node, boot, program.
    fn acknowledged(&self) -> BTreeSet<(u32, u64, [u8; 32])> {
        let mut all = BTreeSet::new();
        for (node, running) in (0..).zip(&self.lab.nodes) {
            let epoch = self.lab.identity(node, self.boots[node as usize]).epoch;
            let programs = running.watch.acknowledged.lock().unwrap();
            all.extend(programs.iter().map(|program| (node, epoch, *program)));
        }
        all
    }

    /// The files of the store as the killed process left them must have what was told.
    fn look_into_the_store(&mut self) {
        // Taken before the copy: what is acknowledged was sent before the kill.
        let acknowledged = self.acknowledged();
        let ends = self.seen.ends.lock().unwrap()[self.checked..].to_vec();
        let copy = tempfile::tempdir().unwrap();
        for name in ["hearth.db", "hearth.db-wal"] {
            let from = self.lab.path(name);
            if from.exists() {
                std::fs::copy(&from, copy.path().join(name)).unwrap();
            }
        }
        let opened = Sqlite::open(&copy.path().join("hearth.db"), Limits::default()).unwrap();
        assert_eq!(opened.set_aside, None);
        for end in &ends {
            let id = end["id"].as_u64().unwrap();
            let row = opened.store.job(id).unwrap();
            let row = row.unwrap_or_else(|| panic!("job {id} is forgotten: {end}"));
            let record: Value = serde_json::from_str(&row.record).unwrap();
            assert_eq!(record, *end, "job {id}");
        }
        self.checked += ends.len();
        assert_nothing_is_half_written(&opened.store);
        let warm = opened.store.warm().unwrap();
        let stored = warm
            .iter()
            .map(|row| (row.node, row.boot_epoch, row.program));
        let stored: BTreeSet<_> = stored.collect();
        let forgotten: Vec<_> = acknowledged.difference(&stored).collect();
        assert!(
            forgotten.is_empty(),
            "forgotten: {forgotten:?}, stored: {stored:?}"
        );
        self.told.entries += acknowledged.len();
    }

    /// Boots about every third node anew: it holds nothing then.
    fn reboot_some(&mut self) {
        for node in 0..NODES {
            if self.random.u64(..3) > 0 {
                continue;
            }
            let boot = &mut self.boots[node as usize];
            *boot += 1;
            let identity = self.lab.identity(node, *boot);
            self.lab.nodes[node as usize].stop();
            self.lab.nodes[node as usize] = FakeNode::start(identity, self.lab.address);
            self.told.reboots += 1;
        }
    }

    /// Control believes of no node what it has not held in its present boot.
    fn ask_what_is_warm(&self) {
        let Ok((_, body)) = request(&self.lab.socket(), "GET", "/v1/nodes", "") else {
            return;
        };
        let nodes: Value = serde_json::from_str(&body).unwrap();
        for info in nodes.as_array().unwrap() {
            let node = usize::try_from(info["node"].as_u64().unwrap()).unwrap();
            let held = self.lab.nodes[node].watch.ever_held.lock().unwrap().clone();
            for warm in info["warm"].as_array().unwrap() {
                let hash = warm["program"].as_str().unwrap();
                let hash = hearth_control::secrets::decode_hex(hash).unwrap();
                assert!(held.contains(&hash), "n{node} has never held {warm}");
            }
        }
    }

    /// Control itself knows everything at the end, and has given no number twice.
    fn ask_control(&self) {
        let lab = &self.lab;
        let jobs = lab.get("/v1/jobs?all=true&limit=10000");
        let jobs = jobs.as_array().unwrap().iter();
        let jobs: BTreeMap<u64, &Value> =
            jobs.map(|job| (job["id"].as_u64().unwrap(), job)).collect();
        for end in self.seen.ends.lock().unwrap().iter() {
            let job = jobs[&end["id"].as_u64().unwrap()];
            for field in ["state", "nodes", "ended_unix_us", "exit_status"] {
                assert_eq!(job[field], end[field], "{end}");
            }
        }
        // Accepted and not ended: control says what became of them.
        for id in self.seen.accepted.lock().unwrap().iter() {
            let state = jobs[id]["state"].as_str().unwrap();
            // One that is not over waits for its client.
            let open = ["pending", "starting", "running", "ending"];
            let over = ["completed", "failed", "cancelled", "node-lost"];
            assert!(
                open.contains(&state) || over.contains(&state),
                "job {id} is {state}"
            );
        }
        let mut last = 0;
        loop {
            let page = lab.get(&format!("/v1/events?after={last}&limit=500"));
            let page = page.as_array().unwrap();
            for event in page {
                let seq = event["seq"].as_u64().unwrap();
                assert!(seq > last, "events are numbered upwards: {event}");
                last = seq;
            }
            if page.is_empty() {
                break;
            }
        }
        lab.eventually("the nodes are back", |lab| {
            lab.idle_nodes() == NODES as usize
        });
        self.ask_what_is_warm();
    }
}

/// What belongs together is written together: the end of a job, the event about it, and the use of
/// its program.
fn assert_nothing_is_half_written(store: &Sqlite) {
    let events = store.events(0, u32::MAX).unwrap();
    let ended = events.iter().filter(|event| event.kind == "job-ended");
    let told: BTreeSet<Option<u64>> = ended.map(|event| event.job).collect();
    let (mut launches, mut warm_launches) = (0, 0);
    for job in store.ended_jobs(None, u32::MAX).unwrap() {
        // Those that control closes when it starts have an event later, and used nothing.
        if job.reason.contains("control node ended") {
            continue;
        }
        assert!(told.contains(&Some(job.id)), "no event about {job:?}");
        let record: Value = serde_json::from_str(&job.record).unwrap();
        for rank in record["ranks"].as_array().unwrap() {
            let end = &rank["end"];
            let ran = end["exited"].is_i64() || end["signal"].is_i64();
            launches += u64::from(ran);
            warm_launches += u64::from(ran && rank["warm"] == true);
        }
    }
    let programs = store.programs(u32::MAX).unwrap();
    let counted = programs
        .iter()
        .fold((0, 0), |(launches, warm_launches), row| {
            (launches + row.launches, warm_launches + row.warm_launches)
        });
    assert_eq!(
        counted,
        (launches, warm_launches),
        "launches and warm launches"
    );
}

/// Runs one job after the other, whatever becomes of the control node.
fn run_jobs(socket: &Path, programs: &[String], client: u64, seen: &Seen) {
    let mut turn = client;
    while !seen.stop.load(Ordering::Relaxed) {
        turn += 1;
        let program = &programs[turn as usize % programs.len()];
        let ranks = 1 + turn % 2;
        if run_job(socket, program, ranks, seen).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Runs a job to its end, also over the death of the control node.
fn run_job(socket: &Path, program: &str, ranks: u64, seen: &Seen) -> std::io::Result<()> {
    let job = json!({
        "name": "program",
        "program": program,
        "args": [STANDARD.encode("program")],
        "ranks": ranks,
        "no_precheck": true,
        "wait": true,
    });
    let (status, answer) = request(socket, "POST", "/v1/jobs", &job.to_string())?;
    if status != 200 {
        return Err(std::io::Error::other(answer));
    }
    let answer: Value = serde_json::from_str(&answer)?;
    let id = answer["id"].as_u64().unwrap();
    let new = seen.accepted.lock().unwrap().insert(id);
    assert!(new, "the number {id} was given twice");
    while !seen.stop.load(Ordering::Relaxed) {
        match follow(socket, id, seen) {
            Ok(true) => return Ok(()),
            Ok(false) | Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    Ok(())
}

/// Reads what a job writes; whether it is over.
fn follow(socket: &Path, id: u64, seen: &Seen) -> std::io::Result<bool> {
    let mut stream = UnixStream::connect(socket)?;
    write!(stream, "GET /v1/jobs/{id}/output HTTP/1.0\r\n\r\n")?;
    for line in BufReader::new(stream).lines() {
        let line = line?;
        if !line.starts_with('{') {
            continue;
        }
        // A line that is cut off is not an end that anybody saw.
        let frame: Value = serde_json::from_str(&line)?;
        if frame["frame"] == "end" {
            seen.ends.lock().unwrap().push(frame["job"].clone());
            seen.news.notify_all();
            return Ok(true);
        }
        // It ended while nobody read; or it is about to, for want of a reader.
        if let Some(code) = frame["code"].as_str() {
            return Ok(code != "stream-taken");
        }
    }
    Ok(false)
}

/// One request over the unix socket: status and body.
fn request(socket: &Path, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
    let mut stream = UnixStream::connect(socket)?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let cut_off = || std::io::Error::other("the answer is cut off");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(cut_off)?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok((status.ok_or_else(cut_off)?, body.to_string()))
}
