//! The HTTP API against its own description, and against docs/api.md.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::Value;

use crate::lab::Lab;
use hearth_control::api::rules;

/// Methods that a path may have.
const METHODS: [&str; 5] = ["get", "put", "post", "delete", "patch"];

/// Methods by path, as described.
fn described(description: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let paths = description["paths"].as_object().unwrap();
    let methods = |item: &Value| {
        let has = METHODS.iter().filter(|method| item.get(**method).is_some());
        has.map(|method| method.to_uppercase()).collect()
    };
    paths
        .iter()
        .map(|(path, item)| (path.clone(), methods(item)))
        .collect()
}

/// A path with things in it that do not exist.
fn filled(path: &str) -> String {
    path.replace("{hash}", &"00".repeat(32))
        .replace("{id}", "999999")
        .replace("{node}", "999999")
}

/// The answer's status, its `Allow` header and its body.
fn ask(lab: &Lab, method: &str, path: &str) -> (u16, Option<String>, String) {
    let mut stream = UnixStream::connect(lab.socket()).unwrap();
    let head = "Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close";
    write!(stream, "{method} {path} HTTP/1.1\r\n{head}\r\n\r\n{{}}").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let allow = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("allow")
            .then(|| value.to_string())
    });
    (status, allow, body.to_string())
}

#[test]
fn each_route_is_described_and_each_described_route_exists() {
    let lab = Lab::control();
    let description = lab.get("/openapi.json");
    let described = described(&description);
    assert!(described.len() > 20, "{described:?}");
    let (status, _, body) = ask(&lab, "GET", "/v1/nothing");
    assert_eq!(status, 404);
    assert!(body.contains("no-such-path"), "{body}");
    // Nobody answers after this one.
    let is_last = |path: &&String| *path == "/v1/stop";
    let (last, others): (Vec<_>, Vec<_>) = described.keys().partition(is_last);
    assert_eq!(last.len(), 1);
    let paths = others.into_iter().chain(last);
    for (path, methods) in paths.map(|path| (path, &described[path])) {
        // A method that no path has: the router says which ones this path has.
        let (status, allow, _) = ask(&lab, "OPTIONS", &filled(path));
        let allow = allow.unwrap_or_default();
        let has: BTreeSet<String> = allow
            .split(',')
            .filter(|method| *method != "HEAD")
            .map(str::to_string)
            .collect();
        assert_eq!((status, &has), (405, methods), "{path}");
        for method in methods {
            let (status, _, body) = ask(&lab, method, &filled(path));
            assert!(
                status != 405 && !body.contains("no-such-path"),
                "{method} {path}: {status} {body}"
            );
        }
    }
}

#[test]
fn the_manual_lists_every_route() {
    let lab = Lab::control();
    let description = lab.get("/openapi.json");
    let mut routes: BTreeSet<String> = BTreeSet::new();
    for (path, methods) in described(&description) {
        routes.extend(methods.iter().map(|method| format!("{method} {path}")));
    }
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let rows = manual.lines().filter_map(|line| {
        let row = line.strip_prefix("| `")?;
        let (route, _) = row.split_once('`')?;
        route.contains(" /").then(|| route.to_string())
    });
    let listed: BTreeSet<String> = rows.collect();
    assert_eq!(listed, routes);
}

/// Every `$ref` below a value.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get("$ref") {
                found.insert(reference.clone());
            }
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn the_description_is_a_valid_one() {
    let lab = Lab::control();
    let text = lab.get("/openapi.json");
    // A parser that is not the one that wrote it.
    let parsed: oas3::OpenApiV3Spec = serde_json::from_value(text.clone()).unwrap();
    parsed.validate_version().unwrap();
    let mut found = BTreeSet::new();
    references(&text, &mut found);
    assert!(found.len() > 20, "{found:?}");
    for reference in &found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(
            text.pointer(pointer).is_some(),
            "{reference} points nowhere"
        );
    }
    let mut ids = BTreeSet::new();
    for (path, method, operation) in parsed.operations() {
        let route = format!("{method} {path}");
        let id = operation.operation_id.clone().unwrap_or_default();
        assert!(ids.insert(id.clone()), "{route}: operationId {id:?} twice");
        assert!(operation.summary.is_some(), "{route} says nothing");
        assert!(
            operation.responses(&parsed).len() > 1,
            "{route} cannot fail"
        );
        // Each {name} in the path is a parameter, and no other one is.
        let parameters = operation.parameters(&parsed).unwrap();
        let named: BTreeSet<String> = parameters
            .iter()
            .filter(|parameter| parameter.location == oas3::spec::ParameterIn::Path)
            .map(|parameter| parameter.name.clone())
            .collect();
        let in_path: BTreeSet<String> = path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
            .map(str::to_string)
            .collect();
        assert_eq!(named, in_path, "{route}");
        let need = rules::need(&method.as_str().parse().unwrap(), &path);
        let reads = need == Some(rules::Need::Look);
        let secured = !text["paths"][&path][method.as_str().to_lowercase()]["security"].is_null();
        assert_eq!(secured, !reads, "{route}");
    }
}

#[test]
fn what_cannot_be_read_is_an_error_like_others() {
    let lab = Lab::control();
    for (method, path, expected, word) in [
        ("GET", "/v1/jobs/abc", 400, "abc"),
        ("GET", "/v1/jobs?limit=abc", 400, "limit"),
        ("GET", "/v1/jobs?bogus=1", 400, "bogus"),
        ("GET", "/v1/jobs/1/output?last_bytes=0", 400, "at least 1"),
        ("GET", "/v1/jobs/1/output?last_bytes=9&skip=1", 400, "skip"),
        ("GET", "/v1/events?bogus=1", 400, "bogus"),
        ("GET", "/v1/monitor/series?bogus=1", 400, "bogus"),
        // A body without what a job needs.
        ("POST", "/v1/jobs", 400, "name"),
        ("GET", "/v1/monitor/reduced", 400, "`stream` is missing"),
        ("GET", "/v1/monitor/series", 400, "`metric` is missing"),
    ] {
        let (status, _, body) = ask(&lab, method, path);
        assert_eq!(status, expected, "{method} {path}: {body}");
        let error: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{path}: {body}"));
        assert_eq!(error["code"], "bad-request", "{body}");
        assert!(error["error"].as_str().unwrap().contains(word), "{body}");
    }
}

/// It would have no nodes, and nothing would ever end it.
#[test]
fn a_stream_of_a_job_that_is_over_is_refused() {
    let lab = Lab::with_nodes(1);
    lab.run(&[], "out x\n");
    let mut request = serde_json::json!({
        "metrics": ["hearth_node_uptime_seconds"], "filter": "min", "period_ms": 1_000, "job": 1,
    });
    let (status, answer) = lab.post("/v1/overlay/streams", &request);
    assert_eq!(
        (status, answer["code"].as_str()),
        (409, Some("job-over")),
        "{answer}"
    );
    assert_eq!(
        lab.get("/v1/overlay")["streams"].as_array().unwrap().len(),
        3
    );
    request["job"] = 99.into();
    assert_eq!(lab.post("/v1/overlay/streams", &request).0, 404);
    // A time that is too long for the type is no short one.
    request["job"] = Value::Null;
    request["hold_ms"] = 18_446_744_073_709_552u64.into();
    let (status, answer) = lab.post("/v1/overlay/streams", &request);
    assert_eq!(status, 400, "{answer}");
    assert!(
        answer["error"].as_str().unwrap().contains("the hold"),
        "{answer}"
    );
}

/// What an answer says in words.
fn said(answer: &Value) -> &str {
    answer["error"].as_str().unwrap_or_default()
}

#[test]
fn a_stream_is_of_metrics_and_nodes_that_there_are() {
    let lab = Lab::with_nodes(2);
    let open = |change: Value| {
        let mut request = serde_json::json!({ "metrics": ["hearth_node_uptime_seconds"] });
        let fields = change.as_object().unwrap().clone();
        request.as_object_mut().unwrap().extend(fields);
        lab.post("/v1/overlay/streams", &request)
    };
    for (change, status, words) in [
        (
            serde_json::json!({ "nodes": "n[1,99]" }),
            404,
            "there is no node n99; there are n[0-1]",
        ),
        (
            serde_json::json!({ "metrics": ["hearth_node_uptime"] }),
            400,
            "hearth_node_uptime_seconds",
        ),
        (
            serde_json::json!({ "metrics": ["0"] }),
            400,
            "`hearth overlay metrics`",
        ),
        (
            serde_json::json!({ "metrics": ["hearth_node_uptime_seconds", "hearth_node_uptime_seconds"] }),
            400,
            "named twice",
        ),
        (
            serde_json::json!({ "period_ms": 9 }),
            400,
            "10 to 3600000 milliseconds",
        ),
        (
            serde_json::json!({ "filter": "histogram" }),
            400,
            "--bounds",
        ),
        (
            serde_json::json!({ "filter": "histogram", "bounds": [0.0000001] }),
            400,
            "steps of 0.000001",
        ),
        (
            serde_json::json!({ "filter": "avrg" }),
            400,
            "did you mean avg?",
        ),
        (serde_json::json!({ "period_ms": "x" }), 400, "period_ms"),
    ] {
        let (answered, answer) = open(change.clone());
        assert_eq!(answered, status, "{change}: {answer}");
        assert!(said(&answer).contains(words), "{change}: {answer}");
    }
    // Filter and period are those of the command line, and a request need not say them.
    let (status, opened) = open(serde_json::json!({ "nodes": "n1" }));
    assert_eq!(status, 200, "{opened}");
    let view = lab.get("/v1/overlay");
    let streams = view["streams"].as_array().unwrap();
    let own = streams
        .iter()
        .find(|known| known["stream"] == opened["stream"])
        .unwrap();
    assert_eq!(
        (&own["filter"], own["period_ms"].as_f64()),
        (&"sum".into(), Some(1_000.0))
    );
    assert_eq!(
        (&own["nodes"], &own["always"]),
        (&"n1".into(), &false.into())
    );
    // Four more find room beside it and the three of control, and no fifth.
    for _ in 0..4 {
        assert_eq!(open(serde_json::json!({})).0, 200);
    }
    let (status, answer) = open(serde_json::json!({}));
    assert_eq!(
        (status, &answer["code"]),
        (409, &"too-many-streams".into()),
        "{answer}"
    );
    assert!(
        said(&answer).contains("`hearth overlay close STREAM`"),
        "{answer}"
    );
    let closed = lab.hearth(&["overlay", "close", &own["stream"].to_string()]);
    let (code, out, _) = crate::lab::parts(&closed);
    assert_eq!((code, out.lines().count()), (0, 1), "{out}");
    assert!(out.contains("is closed"), "{out}");
}

#[test]
fn a_stream_that_is_opened_while_the_tree_is_down_says_so() {
    let lab = Lab::with_nodes(1);
    let (code, out, _) = crate::lab::parts(&lab.hearth(&["overlay", "down"]));
    assert!(code == 0 && out.contains("`hearth overlay up`"), "{out}");
    let open = ["overlay", "open", "--metrics", "hearth_node_uptime_seconds"];
    let (code, out, err) = crate::lab::parts(&lab.hearth(&open));
    assert_eq!(code, 0, "{err}");
    assert!(
        out.starts_with("stream ") && err.contains("the tree is down"),
        "{out}{err}"
    );
    let (_, listed, _) = crate::lab::parts(&lab.hearth(&["overlay"]));
    assert!(listed.contains("no tick yet"), "{listed}");
    // Where the configuration has no tree, nothing would ever come of it.
    let lab = Lab::configured("[overlay]\nenabled = false\n");
    let (code, _, err) = crate::lab::parts(&lab.hearth(&open));
    assert!(
        code == 125 && err.contains("`enabled = true` in [overlay]"),
        "{code} {err}"
    );
    let (code, _, err) = crate::lab::parts(&lab.hearth(&["overlay", "up"]));
    assert!(code == 125 && err.contains("[overlay]"), "{code} {err}");
}

#[test]
fn questions_about_what_there_is_not_are_refused() {
    let mut lab = Lab::with_nodes(2);
    let metric = "hearth_node_memory_used_bytes";
    lab.eventually("a picture with both nodes", |lab| {
        lab.get("/v1/monitor/now")["nodes"]
            .as_array()
            .unwrap()
            .len()
            == 2
    });
    for (path, status, words) in [
        (
            format!("series?metric={metric}&nodes=n99"),
            404,
            "there is no node n99; there are n[0-1]",
        ),
        (format!("nodes?metric={metric}&nodes=n[0,99]"), 404, "n99"),
        (format!("csv?metrics={metric}&nodes=n99"), 404, "n99"),
        (
            format!("at?metric={metric}&time=1700000000000&node=99"),
            404,
            "n99",
        ),
        (format!("csv?metrics={metric},{metric}"), 400, "twice"),
        (format!("csv?metric={metric}"), 400, "with `metrics`"),
        (format!("series?metrics={metric}"), 400, "with `metric`"),
        (format!("series?metric={metric}&points=0"), 400, "1 to 5000"),
        (
            format!("series?metric={metric}&points=999999"),
            400,
            "1 to 5000",
        ),
        (
            format!("nodes?metric={metric}&points=999999"),
            400,
            "1 to 5000",
        ),
        (
            "series?metric=hearth_node_memory_used".into(),
            404,
            "did you mean hearth_node_memory_used_bytes",
        ),
        ("reduced?stream=".into(), 400, "`stream` is missing"),
    ] {
        let (answered, _, body) = ask(&lab, "GET", &format!("/v1/monitor/{path}"));
        assert_eq!(answered, status, "{path}: {body}");
        assert!(body.contains(words), "{path}: {body}");
    }
    let path = format!("/v1/monitor/nodes?metric={metric}&points=5000&nodes=n[0-1]");
    assert_eq!(ask(&lab, "GET", &path).0, 200);
    lab.eventually("a tick of n1 is kept", |lab| {
        let series = lab.get(&format!(
            "/v1/monitor/series?metric={metric}&level=tick&nodes=n1"
        ));
        !series["at_ms"].as_array().unwrap().is_empty()
    });
    let acknowledge = |events: Value| {
        lab.post(
            "/v1/monitor/acknowledge",
            &serde_json::json!({ "events": events }),
        )
    };
    let (status, answer) = acknowledge(serde_json::json!([1, 99_999_999]));
    assert_eq!(
        (status, &answer["code"]),
        (404, &"no-such-event".into()),
        "{answer}"
    );
    assert!(said(&answer).contains("no event 99999999"), "{answer}");
    assert_eq!(acknowledge(serde_json::json!([0])).0, 404);
    let (status, seen) = acknowledge(serde_json::json!([1]));
    assert_eq!((status, &seen), (200, &serde_json::json!([1])));
    // The store was begun anew, n1 did not come again: there is none, and what was kept of it can
    // be asked for.
    lab.nodes.truncate(1);
    lab.stop_control(false);
    for name in ["hearth.db", "hearth.db-wal", "hearth.db-shm"] {
        drop(std::fs::remove_file(lab.path(name)));
    }
    lab.start_control();
    lab.eventually("a picture with n0 alone", |lab| {
        let now = lab.get("/v1/monitor/now");
        now["nodes"].as_array().unwrap().len() == 1
    });
    let path = format!("/v1/monitor/series?metric={metric}&level=tick&nodes=n1");
    let (status, _, body) = ask(&lab, "GET", &path);
    assert!(status == 200 && !body.contains(r#""at_ms":[]"#), "{body}");
    let path = format!("/v1/monitor/csv?metrics={metric}&level=tick&nodes=n1");
    let (status, _, body) = ask(&lab, "GET", &path);
    assert!(status == 200 && body.lines().count() > 1, "{body}");
    let path = format!("/v1/monitor/csv?metrics={metric}&level=tick&nodes=n[1-2]");
    let (status, _, body) = ask(&lab, "GET", &path);
    assert!(status == 404 && body.contains("no node n2"), "{body}");
}
