//! The page in a browser while real nodes work: it follows them live, outlives its control node,
//! shows a job and ends it, can be read at any width, shows the monitoring tree and the loss in it,
//! and has values soon after they were read.
//!
//! Neighbours: `hearth_tests::browser` drives Chromium, [`crate::overlay`] knows when the tree
//! stands.
//!
//! Invariant: what the page shows is compared with what the command line says.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use hearth_tests::browser::Browser;
use serde_json::Value;

use crate::Scenario;
use crate::cluster::{Boot, Cluster, LIMIT};
use crate::overlay::{self, NODES};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "page-live",
        boot: Boot::Network,
        run: live,
    },
    Scenario {
        name: "page-job",
        boot: Boot::Network,
        run: job,
    },
    Scenario {
        name: "page-bundle",
        boot: Boot::Network,
        run: bundle,
    },
    Scenario {
        name: "page-tree",
        boot: Boot::Overlay,
        run: tree,
    },
    Scenario {
        name: "page-latency",
        boot: Boot::Overlay,
        run: latency,
    },
];

/// Ticks that [`latency`] looks at, unless `HEARTH_TICKS` says otherwise.
const TICKS: usize = 20;
/// Ticks before these: each node's kernel was just booted, and the machine translates what it does
/// for the first time. A tree that is made anew over nodes that are up has no such ticks.
const WARM_TICKS: u64 = 5;

/// Where the page of this cluster is.
fn address(cluster: &Cluster) -> Result<String> {
    let clusters = cluster.json(&["list"])?;
    let all = clusters.as_array().into_iter().flatten();
    let mut own = all.filter(|known| known["name"] == cluster.name());
    let address = own.next().and_then(|known| known["http"].as_str());
    Ok(address
        .context("the cluster has no HTTP address")?
        .to_string())
}

/// Does something in a browser that shows the page. What does not come true there is an error like
/// any other.
fn in_browser<T>(cluster: &Cluster, act: impl FnOnce(&mut Browser) -> Result<T>) -> Result<T> {
    let url = format!("http://{}/", address(cluster)?);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut browser = Browser::start();
        browser.look(1280, 1000, "light");
        browser.open(&url);
        browser.until("document.getElementById('link')?.innerText === 'live'");
        let done = act(&mut browser)?;
        let errors = browser.errors();
        ensure!(errors.is_empty(), "errors on the page: {errors:?}");
        let foreign = |asked: &&String| !asked.starts_with(&url) && !asked.starts_with("data:");
        let outside: Vec<&String> = browser.requests.iter().filter(foreign).collect();
        ensure!(outside.is_empty(), "the page asked others: {outside:?}");
        Ok(done)
    }));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(anyhow!(
            text.unwrap_or_else(|| "the browser failed".to_string())
        ))
    })
}

/// Four nodes: live update, a job, a node by a click, a drained node, and control killed and back.
fn live(cluster: &Cluster) -> Result<()> {
    in_browser(cluster, |browser| {
        browser.until("document.querySelectorAll('.cell[data-index]').length === 4");
        browser.until("document.querySelector('#strip .good dd')?.innerText === '4'");
        let title = browser.value("document.title");
        ensure!(
            title == format!("Overview - {} - Hearth", cluster.name()),
            "the title is {title}"
        );
        // Each cell says which node it is, and what of it.
        let cell = browser.text(".cell[data-index=\"3\"]");
        ensure!(cell.starts_with("n3\n"), "the cell of n3 says {cell:?}");
        ensure!(browser.text(".legend").contains("drained"), "no legend");
        same_values(cluster, browser)?;
        let frames = "Number(document.body.dataset.frames)";
        let before = browser.value(frames).as_f64().unwrap_or(0.0);
        browser.until(&format!("{frames} >= {}", before + 3.0));
        // A job shows while it runs, on the grid and among the jobs.
        let mut job = cluster
            .command(&["run", "--nodes", "n1", &cluster.program("spin"), "--", "6"])
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()?;
        browser.until("document.querySelector('.cell[data-index=\"1\"]').classList.contains('hb')");
        browser.click("nav a[href=\"#/jobs\"]");
        browser.until("document.querySelector('main').innerText.includes('spin')");
        browser.screenshot("live-jobs");
        ensure!(job.wait()?.success(), "the job failed");
        browser.until("document.querySelector('main').innerText.includes('completed')");
        // A drained node is marked.
        browser.click("nav a[href=\"#/overview\"]");
        cluster
            .hearth(&["drain", "n2", "--reason", "being looked at"])?
            .expect_code(0)?;
        browser
            .until("document.querySelector('.cell[data-index=\"2\"]')?.classList.contains('dr')");
        let top = cluster.hearth(&["top", "--once"])?.expect_code(0)?;
        ensure!(top.out().contains("idle, drained"), "{}", top.out());
        browser.screenshot("live-drained");
        browser.click(".cell[data-index=\"2\"]");
        browser.until("location.hash === '#/node/2'");
        browser.until("document.querySelector('main').innerText.includes('being looked at')");
        browser.until("document.querySelectorAll('main td.number').length > 20");
        cluster.hearth(&["resume", "n2"])?.expect_code(0)?;
        browser.until("!document.querySelector('main').innerText.includes('being looked at')");
        // Values of the overlay, some hundred milliseconds old.
        browser.until("Number(document.body.dataset.ageMs) < 5000");
        let pid = cluster.control_pid()?;
        overlay::signal(&pid, "-KILL")?;
        browser.until("document.getElementById('link').innerText === 'reconnecting'");
        browser.until("document.getElementById('link').innerText === 'live'");
        browser.until("document.querySelector('#strip .good dd')?.innerText === '4'");
        Ok(())
    })?;
    cluster.all_nodes_idle()
}

/// The memory of an idle node looks on the page as it does in the terminal.
fn same_values(cluster: &Cluster, browser: &mut Browser) -> Result<()> {
    const METRIC: &str = "hearth_node_memory_used_bytes";
    browser.value("location.hash = '#/nodes'");
    browser.choose("#metric", METRIC);
    let cell = "document.querySelector('tr[data-node=\"1\"] td:nth-child(4)')?.innerText";
    browser.until(&format!("/ MiB$/.test({cell})"));
    let end = Instant::now() + LIMIT;
    loop {
        let shown = browser.value(cell);
        let top = cluster.hearth(&["top", "--once", "--nodes", "n1", "--metric", METRIC])?;
        let top = top.expect_code(0)?.out();
        // It may have changed in between.
        if shown.as_str().is_some_and(|shown| top.contains(shown)) {
            break;
        }
        ensure!(
            Instant::now() < end,
            "the page says {shown}, the terminal {top}"
        );
    }
    browser.choose("#metric", "hearth_node_busy_ratio");
    browser.value("location.hash = '#/overview'");
    browser.until("document.querySelectorAll('.cell[data-index]').length === 4");
    Ok(())
}

/// The token of a cluster, as its user reads it.
fn token(cluster: &Cluster) -> Result<String> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || std::env::home_dir().map(|home| home.join(".local/state"));
    let state = state.or_else(home).context("no home directory")?;
    let path = state.join("hearth").join(cluster.name()).join("token");
    let text = std::fs::read_to_string(&path);
    let text = text.with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(text.trim().to_string())
}

/// Hands in a batch job; gives its number.
fn submit(cluster: &Cluster, args: &[&str]) -> Result<String> {
    let mut all = vec!["submit", "--parsable"];
    all.extend(args);
    let done = cluster.hearth(&all)?.expect_code(0)?;
    Ok(done.out().trim().to_string())
}

/// What stands behind a name in the list of facts that is shown.
fn fact(browser: &mut Browser, name: &str) -> String {
    let value = browser.value(&format!(
        "[...document.querySelectorAll('main dl.facts dt')].find((dt) => dt.innerText === {name:?})?.nextSibling.innerText ?? ''"
    ));
    value.as_str().unwrap_or_default().to_string()
}

/// One job: its output, its own time, and a button that ends it. That it was ended is no warning;
/// its event can be read in a window of any width.
fn job(cluster: &Cluster) -> Result<()> {
    let wrote = submit(cluster, &["-n", "2", &cluster.program("hello-c")])?;
    let spins = submit(cluster, &["-n", "2", &cluster.program("spin"), "600"])?;
    let token = token(cluster)?;
    in_browser(cluster, |browser| {
        browser.value(&format!("location.hash = '#/job/{wrote}'"));
        browser.until("document.querySelector('main').innerText.includes('completed')");
        // A range of the page means nothing here: the time is the job's.
        let range = browser.value("document.querySelector('[data-control=range]').hidden");
        ensure!(range == true, "a range is offered");
        browser.until("document.querySelector('.chart')?.dataset.to");
        let shown =
            browser.value("Object.values(document.querySelector('.chart').dataset).map(Number)");
        let known = cluster.json(&["job", &wrote])?;
        let at = |name: &str| known[name].as_f64().unwrap_or(f64::NAN) / 1e3;
        let apart = [
            (shown[0].as_f64(), at("started_unix_us")),
            (shown[1].as_f64(), at("ended_unix_us")),
        ];
        for (shown, own) in apart {
            let off = shown.map_or(f64::NAN, |shown| (shown - own).abs());
            ensure!(off < 5_000.0, "shown {shown:?}, its own {own}");
        }
        let text = cluster.hearth(&["job", &wrote])?.expect_code(0)?.out();
        let ended = fact(browser, "Ended");
        ensure!(
            !ended.is_empty() && text.contains(&format!("EndTime={ended}")),
            "the page says it ended at {ended:?}, the command line {text}"
        );
        // Its output needs the token, which the page asks for.
        browser.click("#show-output");
        browser.until("document.getElementById('token-dialog').open");
        browser.click("#token");
        browser.write(&token);
        browser.click("#token-dialog button[value=use]");
        let written = cluster.hearth(&["output", &wrote])?.expect_code(0)?.out();
        for line in written.lines() {
            browser.until(&format!(
                "document.getElementById('output')?.innerText.includes({line:?})"
            ));
        }
        browser.screenshot("job-over");
        // The button ends a job, after a question.
        browser.value(&format!("location.hash = '#/job/{spins}'"));
        browser.until("document.getElementById('cancel-job')?.hidden === false");
        browser.until("document.querySelector('main').innerText.includes('running')");
        browser.click("#cancel-job");
        browser.click("#sure-yes");
        browser.until("document.querySelector('main').innerText.includes('cancelled on the page')");
        browser.until("document.getElementById('cancel-job').hidden");
        narrow(browser, &spins)
    })?;
    cluster.all_nodes_idle()
}

/// Every view at three widths: nothing is wider than the window, and the event of the job that was
/// cancelled can be read.
fn narrow(browser: &mut Browser, cancelled: &str) -> Result<()> {
    for width in [390, 800, 1400] {
        browser.look(width, 900, "light");
        for view in ["overview", "nodes", "jobs", "programs", "tree", "events"] {
            browser.value(&format!("location.hash = '#/{view}'"));
            browser.until(&format!(
                "document.querySelector('main').className === {view:?}"
            ));
            browser.until("document.querySelector('main .panel')");
            let wide = browser.value("document.documentElement.scrollWidth");
            ensure!(
                wide.as_u64() <= Some(width.into()),
                "{view}: {wide} of {width}"
            );
            browser.screenshot(&format!("{view}-{width}"));
        }
        let row = format!(
            "[...document.querySelectorAll('tr[data-seq]')].find((row) => row.innerText.includes('job-ended') \
             && row.innerText.includes('job {cancelled} '))"
        );
        browser.until(&row);
        let message = browser.value(&format!("{row}.querySelector('.message').offsetWidth"));
        ensure!(
            message.as_u64() >= Some(150),
            "{message} px for what happened"
        );
        let severity = browser.value(&format!("{row}.querySelector('[class^=state-]').innerText"));
        ensure!(severity == "info", "a job that was cancelled is {severity}");
    }
    Ok(())
}

/// Bytes of a file of the page as it is sent to a browser.
fn packed_bytes(address: &str, path: &str) -> Result<usize> {
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept-Encoding: gzip\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n");
    let head = head.with_context(|| format!("no answer for {path}"))?;
    let text = String::from_utf8_lossy(&answer[..head]).to_lowercase();
    ensure!(
        text.starts_with("http/1.0 200") && text.contains("content-encoding: gzip"),
        "{path}: {text}"
    );
    Ok(answer.len() - head - 4)
}

/// The body of a path of the cluster's HTTP address.
pub fn fetch(cluster: &Cluster, path: &str) -> Result<String> {
    let address = address(cluster)?;
    let mut stream = TcpStream::connect(&address)?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    ensure!(head.contains(" 200 "), "{path}: {answer}");
    Ok(body.to_string())
}

/// Everything that a browser loads for the page, as it is sent.
fn bundle(cluster: &Cluster) -> Result<()> {
    let address = address(cluster)?;
    let bytes = in_browser(cluster, |browser| {
        browser.until("document.querySelectorAll('.cell[data-index]').length === 4");
        let mut files: Vec<String> = Vec::new();
        for asked in &browser.requests {
            let path = asked.strip_prefix(&format!("http://{address}"));
            let path = path.filter(|path| *path == "/" || path.starts_with("/web/"));
            files.extend(path.map(str::to_string));
        }
        files.sort();
        files.dedup();
        ensure!(files.len() > 5, "the page is made of {files:?}");
        let sizes = files.iter().map(|path| packed_bytes(&address, path));
        sizes.sum::<Result<usize>>()
    })?;
    crate::figure("page/bundle", "bytes", bytes as f64, "bytes");
    ensure!(bytes <= 150_000, "the page takes {bytes} bytes");
    Ok(())
}

/// Opens the view of the tree and waits until it shows every process.
fn open_tree(browser: &mut Browser, processes: u64) {
    browser.value("location.hash = '#/tree'");
    browser.until(&format!(
        "document.querySelectorAll('tr[data-process]').length === {processes}"
    ));
}

/// Sixteen nodes: depth, fan-out and lag as the command line has them, then the loss of a process,
/// as a gap.
fn tree(cluster: &Cluster) -> Result<()> {
    let before = overlay::whole(cluster)?;
    let (name, node) = overlay::a_cp(&before)?;
    in_browser(cluster, |browser| {
        open_tree(browser, NODES + 4);
        let facts = browser.text("main dl.facts");
        ensure!(facts.contains("16 of 16"), "{facts}");
        ensure!(fact(browser, "Depth") == "2", "{facts}");
        ensure!(fact(browser, "Processes between") == "4", "{facts}");
        ensure!(
            fact(browser, "Fan-out").ends_with("4 as planned"),
            "{facts}"
        );
        // Children stand below their process, further in.
        let row = format!("document.querySelector('tr[data-process=\"{name}\"]')");
        let inset = browser.value(&format!(
            "[{row}, {row}.nextSibling].map((row) => parseFloat(getComputedStyle(row.firstChild).paddingLeft))"
        ));
        ensure!(inset[1].as_f64() > inset[0].as_f64(), "insets {inset}");
        // The lag of a process between nodes and control is a time that is not zero, once figures
        // have come.
        browser.until(&format!(
            "/^[1-9]/.test({row}.lastChild.innerText) && {row}.lastChild.innerText.endsWith(' ms')"
        ));
        browser.screenshot("tree-light");
        browser.look(1280, 1000, "dark");
        browser.until("document.documentElement.dataset.theme === 'dark'");
        browser.screenshot("tree-dark");
        browser.look(1280, 1000, "light");
        let machine = cluster.machine_pid(&node)?;
        overlay::signal(&machine, "-KILL")?;
        // It is lost, and the ticks without its nodes stay in sight.
        browser.until(&format!("{row}?.lastChild.innerText === 'lost'"));
        browser.until("document.querySelectorAll('.ticks .part').length > 0");
        browser.screenshot("tree-lost");
        let shown = browser.text("main");
        ensure!(shown.contains(&name), "{shown}");
        cluster.hearth(&["node", "reset", &node])?.expect_code(0)?;
        overlay::whole(cluster)?;
        browser.until(&format!("{row}?.lastChild.innerText !== 'lost'"));
        browser.screenshot("tree-whole");
        Ok(())
    })
}

/// A percentile of values, in no order.
fn percentile(values: &[f64], share: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len() * share / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// From the begin of the tick in which values were read until the page had drawn them, the oldest
/// of sixteen nodes in every picture; and what each process took beyond its slowest child, or
/// beyond the wait for it.
fn latency(cluster: &Cluster) -> Result<()> {
    let wanted = std::env::var("HEARTH_TICKS").ok();
    let wanted = wanted.map_or(Ok(TICKS), |text| text.parse())?;
    overlay::whole(cluster)?;
    let metrics = "--metrics=hearth_overlay_level_seconds";
    let opened = cluster.json(&["overlay", "open", metrics, "--filter", "concat"])?;
    let stream = opened["stream"].as_u64().context("no stream was opened")?;
    let (ages, levels) = in_browser(cluster, |browser| {
        browser.until("document.querySelectorAll('.cell[data-index]').length === 16");
        browser.until("document.body.dataset.read");
        warm_up(cluster, stream)?;
        collect(cluster, browser, stream, wanted)
    })?;
    cluster
        .hearth(&["overlay", "close", &stream.to_string()])?
        .expect_code(0)?;
    let case = "qemu-16/1hz";
    for (metric, share) in [("p50", 50), ("p99", 99)] {
        let age = percentile(&ages, share);
        crate::figure(case, &format!("sample_to_browser_{metric}_ms"), age, "ms");
    }
    crate::figure(case, "level_p50_ms", percentile(&levels, 50), "ms");
    crate::figure(case, "level_p99_ms", percentile(&levels, 99), "ms");
    crate::figure(case, "level_most_ms", percentile(&levels, 100), "ms");
    crate::figure(case, "pictures", ages.len() as f64, "pictures");
    crate::figure(case, "levels", levels.len() as f64, "ticks of a process");
    ensure!(
        percentile(&ages, 50) < 2_000.0,
        "half of the pictures are older than {} ms",
        percentile(&ages, 50)
    );
    Ok(())
}

/// Waits until the stream has handed over [`WARM_TICKS`].
fn warm_up(cluster: &Cluster, stream: u64) -> Result<()> {
    let ticks = |view: &Value| {
        let mut streams = view["streams"].as_array().into_iter().flatten();
        let known = streams.find(|known| known["stream"] == stream)?;
        known["ticks"].as_u64()
    };
    overlay::until(cluster, "the first ticks", LIMIT, |view| {
        ticks(view).filter(|ticks| *ticks >= WARM_TICKS)
    })?;
    Ok(())
}

/// Ages of the values on the page, picture by picture, and of every tick what each process took.
fn collect(
    cluster: &Cluster,
    browser: &mut Browser,
    stream: u64,
    wanted: usize,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let mut ages: BTreeMap<u64, f64> = BTreeMap::new();
    let mut levels: BTreeMap<(u64, u64), f64> = BTreeMap::new();
    let mut opened_with = None;
    let end = Instant::now() + LIMIT + 2 * Duration::from_secs(wanted as u64);
    while ages.len() < wanted {
        ensure!(Instant::now() < end, "{} of {wanted} pictures", ages.len());
        let seen = browser
            .value("[document.body.dataset.frames, document.body.dataset.ageMs].map(Number)");
        let frame = seen[0].as_u64().context("no frames")?;
        // A page that is opened begins with the last picture, as old as that happens to be.
        if *opened_with.get_or_insert(frame) != frame {
            ages.insert(frame, seen[1].as_f64().context("values without a time")?);
        }
        let view = overlay::view(cluster)?;
        note_levels(&view, stream, &mut levels);
        std::thread::sleep(Duration::from_millis(350));
    }
    let levels = levels.into_values().collect();
    Ok((ages.into_values().collect(), levels))
}

/// By process and tick: milliseconds. The front end's are there for the last ticks, others' for the
/// last one.
fn note_levels(view: &Value, stream: u64, levels: &mut BTreeMap<(u64, u64), f64>) {
    for delay in view["delays"]
        .as_array()
        .into_iter()
        .flatten()
        .rev()
        .take(3)
    {
        if let (Some(tick), Some(us)) = (delay["tick"].as_u64(), delay["level_us"].as_f64()) {
            levels.insert((u64::MAX, tick), us / 1e3);
        }
    }
    let processes = view["processes"].as_array().into_iter().flatten();
    let between = processes.filter(|process| process["slot"].as_u64() > Some(0));
    let hosts: Vec<u64> = between
        .filter_map(|process| process["node"].as_u64())
        .collect();
    let streams = view["streams"].as_array().into_iter().flatten();
    for known in streams.filter(|known| known["stream"] == stream) {
        for row in known["rows"].as_array().into_iter().flatten() {
            let (node, tick) = (row["node"].as_u64(), known["tick"].as_u64());
            if let (Some(node), Some(tick), Some(s)) = (node, tick, row["values"][0].as_f64())
                && hosts.contains(&node)
            {
                levels.insert((node, tick), s * 1e3);
            }
        }
    }
}
