//! The I/O services on the page.
//!
//! Invariant: what the page shows is compared with what the command line says.

use hearth_tests::browser::Browser;

use crate::lab::Lab;

#[test]
#[ignore = "needs Chromium"]
fn the_page_shows_the_io_services_and_their_nodes() {
    let mut lab = Lab::configured("[files]\nexport = [\"/usr\"]\nservice = \"joined\"\n");
    lab.add_nodes(0..3);
    let http = lab.http.clone().unwrap();
    let mut browser = Browser::start();
    browser.look(1280, 900, "light");
    browser.open(&format!("http://{http}/"));
    browser.until("document.getElementById('link')?.innerText === 'live'");
    // Without a service there is nothing to be seen of them.
    browser.until("document.querySelector('#hIOservices')?.closest('section').hidden");
    let directory = tempfile::tempdir().unwrap();
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let listen = free.local_addr().unwrap().to_string();
    drop(free);
    let mut service = lab
        .command(&["io", "--listen", &listen, "--run-dir"])
        .arg(directory.path().join("run"))
        .spawn()
        .unwrap();
    let row = "document.querySelector('section[aria-labelledby=hIOservices] tbody tr')?.innerText";
    browser.until(&format!("/127.0.0.1:[0-9]+.*up.*n\\[0-2\\]/s.test({row})"));
    browser.screenshot("io-services");
    let listed = lab.json(&["nodes", "--io"]);
    assert_eq!(listed[0]["nodes"], "n[0-2]");
    // It ends, and the page says so.
    service.kill().unwrap();
    service.wait().unwrap();
    browser.until(&format!("/lost/.test({row})"));
    browser.screenshot("io-services-lost");
    assert_eq!(browser.errors(), [""; 0]);
}
