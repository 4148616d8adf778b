//! The router behind a real server on loopback, asked in plain HTTP/1.1 as firmware does.

use super::*;
use crate::config::{Config, FixedLease, Leases, OtherSystem};
use crate::hooks::TimelineSink;
use crate::timeline::BootRecord;
use std::sync::Mutex;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const MAC: Mac = Mac([0x52, 0x54, 0, 7, 0, 1]);

#[derive(Default)]
struct Log {
    stages: Mutex<Vec<Stage>>,
    events: Mutex<Vec<Event>>,
}

impl TimelineSink for Log {
    fn stage(&self, stage: Stage, _: &BootRecord) {
        self.stages.lock().unwrap().push(stage);
    }

    fn event(&self, event: &Event) {
        self.events.lock().unwrap().push(event.clone());
    }
}

struct Bed {
    address: SocketAddr,
    shared: Arc<Shared>,
    log: Arc<Log>,
    directory: tempfile::TempDir,
}

struct Answer {
    status: u16,
    headers: String,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Bed {
    async fn new(change: impl FnOnce(&mut Config)) -> Bed {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("hearth.efi");
        std::fs::write(&image, content()).unwrap();
        let mut config = Config::new("br0", Ipv4Addr::new(10, 117, 0, 1), 16, image);
        config.command_line = "hearth.console=ttyS0".into();
        change(&mut config);
        assert_eq!(config.check(), Ok(()));
        let log = Arc::new(Log::default());
        let shared = Arc::new(Shared::new(config, log.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = router(shared.clone()).into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Bed {
            address,
            shared,
            log,
            directory,
        }
    }

    async fn ask(&self, method: &str, path: &str, headers: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        let read = stream.read_to_end(&mut bytes);
        tokio::time::timeout(Duration::from_secs(10), read)
            .await
            .unwrap()
            .unwrap();
        let end = bytes
            .windows(4)
            .position(|part| part == b"\r\n\r\n")
            .unwrap();
        let headers = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = headers.split_whitespace().nth(1).unwrap().parse().unwrap();
        Answer {
            status,
            headers,
            body: bytes[end + 4..].to_vec(),
        }
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "").await
    }

    fn stages(&self) -> Vec<Stage> {
        self.log.stages.lock().unwrap().clone()
    }
}

fn content() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..200_001u32).map(|i| (i / 11) as u8).collect();
    bytes[..2].copy_from_slice(b"MZ");
    bytes[0x202..0x206].copy_from_slice(b"HdrS");
    bytes
}

#[tokio::test]
async fn the_script_names_the_image_and_the_command_line() {
    let bed = Bed::new(|_| {}).await;
    let answer = bed.get("/boot/ipxe?mac=52:54:00:07:00:01").await;
    assert_eq!(answer.status, 200);
    let text = answer.text();
    assert!(text.starts_with("#!ipxe\n"), "{text}");
    let line = "kernel http://10.117.0.1:7180/boot/52-54-00-07-00-01/hearth.efi hearth.console=ttyS0 \
         BOOTIF=01-52-54-00-07-00-01";
    assert!(text.contains(line), "{text}");
    assert_eq!(bed.stages(), [Stage::Script]);
}

#[tokio::test]
async fn the_image_comes_whole_with_length_and_type() {
    let bed = Bed::new(|_| {}).await;
    let path = "/boot/52-54-00-07-00-01/hearth.efi";
    let head = bed.ask("HEAD", path, "").await;
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-length"), Some("200001"));
    assert_eq!(head.header("content-type"), Some("application/efi"));
    assert!(head.body.is_empty());
    assert_eq!(bed.stages(), [], "asking for the length is no download");
    let answer = bed.get(path).await;
    assert_eq!(answer.header("content-length"), Some("200001"));
    assert_eq!(answer.body, content());
    assert_eq!(bed.stages(), [Stage::Kernel]);
    let answer = bed.get("/boot/hearth.efi").await;
    assert_eq!(answer.body, content());
}

#[tokio::test]
async fn ranges_are_served_and_the_last_one_completes_the_download() {
    let bed = Bed::new(|_| {}).await;
    let path = "/boot/52-54-00-07-00-01/hearth.efi";
    let first = bed.ask("GET", path, "Range: bytes=0-99999\r\n").await;
    assert_eq!(first.status, 206);
    assert_eq!(first.header("content-range"), Some("bytes 0-99999/200001"));
    assert_eq!(first.body, content()[..100_000]);
    assert_eq!(bed.stages(), []);
    let rest = bed.ask("GET", path, "Range: bytes=100000-\r\n").await;
    assert_eq!(rest.body, content()[100_000..]);
    assert_eq!(bed.stages(), [Stage::Kernel]);
    let outside = bed.ask("GET", path, "Range: bytes=200001-\r\n").await;
    assert_eq!(outside.status, 416);
    assert_eq!(outside.header("content-range"), Some("bytes */200001"));
}

#[tokio::test]
async fn denials_are_403_and_say_why() {
    let bed = Bed::new(|config| {
        let address = Ipv4Addr::new(10, 117, 1, 1);
        config.leases = Leases::Fixed(vec![FixedLease {
            mac: MAC,
            address,
            node: 1,
        }]);
    })
    .await;
    for (path, reason) in [
        ("/boot/ipxe?mac=52:54:00:07:00:02", "not in the list"),
        ("/boot/52-54-00-07-00-02/hearth.efi", "not in the list"),
        ("/boot/ipxe?mac=nonsense", "not a MAC address"),
        ("/boot/ipxe", "which machine"),
        ("/boot/vmlinuz", "not served"),
        ("/boot/52-54-00-07-00-01/vmlinuz", "not served"),
        ("/boot/a/b/c", "not served"),
        (
            "/boot/52-54-00-07-00-01/..%2f..%2fetc%2fpasswd",
            "not served",
        ),
        ("/boot/report?mac=52:54:00:07:00:01", "not booted"),
    ] {
        let answer = bed.get(path).await;
        assert_eq!(answer.status, 403, "{path}");
        assert!(answer.text().contains(reason), "{path}: {}", answer.text());
    }
    assert_eq!(
        bed.get("/boot/ipxe?mac=52:54:00:07:00:01").await.status,
        200
    );
    let events = bed.log.events.lock().unwrap();
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::UnknownMachine { .. }))
    );
}

#[tokio::test]
async fn a_missing_image_is_503_and_an_event() {
    let bed = Bed::new(|_| {}).await;
    std::fs::remove_file(bed.directory.path().join("hearth.efi")).unwrap();
    let answer = bed.get("/boot/52-54-00-07-00-01/hearth.efi").await;
    assert_eq!(answer.status, 503);
    assert!(
        answer.text().contains("cannot be read"),
        "{}",
        answer.text()
    );
    let events = bed.log.events.lock().unwrap();
    assert!(
        matches!(&events[..], [Event::TransferFailed { mac: Some(MAC), .. }]),
        "{events:?}"
    );
}

#[tokio::test]
async fn a_download_that_breaks_off_is_an_event() {
    let bed = Bed::new(|config| {
        let mut large = content();
        large.resize(32 << 20, 7);
        std::fs::write(&config.image, large).unwrap();
    })
    .await;
    let mut stream = TcpStream::connect(bed.address).await.unwrap();
    let request = "GET /boot/52-54-00-07-00-01/hearth.efi HTTP/1.1\r\nHost: x\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut some = [0; 1_000];
    stream.read_exact(&mut some).await.unwrap();
    drop(stream);
    let limit = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        if let [Event::TransferFailed { mac, reason, .. }] = &bed.log.events.lock().unwrap()[..] {
            assert_eq!(*mac, Some(MAC));
            assert!(reason.contains("of 33554432"), "{reason}");
            break;
        }
        assert!(tokio::time::Instant::now() < limit, "no event");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(bed.stages(), []);
}

#[tokio::test]
async fn another_system_is_booted_and_reports() {
    let bed = Bed::new(|config| {
        let kernel = config.image.with_file_name("vmlinuz");
        let initrd = config.image.with_file_name("initrd.img");
        std::fs::write(&kernel, b"kernel").unwrap();
        std::fs::write(&initrd, b"initrd").unwrap();
        let command_line = "console=ttyS0 quiet".into();
        config.other = Some(OtherSystem {
            kernel,
            initrd: Some(initrd),
            command_line,
        });
    })
    .await;
    let script = bed.get("/boot/ipxe?mac=52:54:00:07:00:01").await;
    let base = "http://10.117.0.1:7180/boot/52-54-00-07-00-01";
    let line = format!("kernel {base}/kernel initrd=initrd console=ttyS0 quiet && initrd");
    assert!(script.text().contains(&line), "{}", script.text());
    assert_eq!(
        bed.get("/boot/52-54-00-07-00-01/initrd").await.body,
        b"initrd"
    );
    assert_eq!(
        bed.get("/boot/52-54-00-07-00-01/kernel").await.body,
        b"kernel"
    );
    let report = "/boot/report?mac=52:54:00:07:00:01&uptime_ms=812&idle_ms=90";
    assert_eq!(
        bed.ask("POST", report, "Content-Length: 0\r\n")
            .await
            .status,
        200
    );
    assert_eq!(bed.get(report).await.status, 403, "reported already");
    assert_eq!(
        bed.stages(),
        [Stage::Script, Stage::Kernel, Stage::Reported]
    );
    let record = bed.shared.timeline().get(MAC).unwrap().clone();
    assert_eq!(
        record.report,
        Some(Report {
            uptime_ms: Some(812),
            idle_ms: Some(90)
        })
    );
}

#[test]
fn range_headers_are_read_as_the_standard_says() {
    for (value, expected) in [
        ("bytes=0-0", ByteRange::Part(0..1)),
        ("bytes=5-", ByteRange::Part(5..10)),
        ("bytes=5-500", ByteRange::Part(5..10)),
        ("bytes=-3", ByteRange::Part(7..10)),
        ("bytes=-30", ByteRange::Part(0..10)),
        ("bytes=10-", ByteRange::Outside),
        ("bytes=-0", ByteRange::Outside),
        ("bytes=7-3", ByteRange::Whole),
        ("bytes=-", ByteRange::Whole),
        ("bytes=0-1,4-5", ByteRange::Whole),
        ("items=0-1", ByteRange::Whole),
        ("bytes=0-99999999999999999999999", ByteRange::Whole),
        ("bytes=18446744073709551615-", ByteRange::Outside),
        ("bytes=0-18446744073709551615", ByteRange::Part(0..10)),
    ] {
        assert_eq!(byte_range(value, 10), expected, "{value}");
    }
    assert_eq!(byte_range("bytes=0-0", 0), ByteRange::Outside);
    assert_eq!(byte_range("bytes=-5", 0), ByteRange::Outside);
}
