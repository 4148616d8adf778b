//! The least HTTP server that iPXE can load from: one file, whatever is asked for.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A server on a free port of the loopback interface, which QEMU's user network shows to guests as
/// 10.0.2.2. It ends with the test process.
pub struct Server {
    port: u16,
    requests: Arc<AtomicUsize>,
}

impl Server {
    /// Serves `file`.
    pub fn start(file: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on the loopback interface");
        let server = Self {
            port: listener.local_addr().unwrap().port(),
            requests: Arc::default(),
        };
        let requests = Arc::clone(&server.requests);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                requests.fetch_add(1, Ordering::Relaxed);
                // A client that goes away shows in the test by its own time-out.
                let _ = answer(connection, &file);
            }
        });
        server
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many connections there were.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

fn answer(mut connection: TcpStream, file: &[u8]) -> std::io::Result<()> {
    let mut lines = BufReader::new(connection.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    write!(
        connection,
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nContent-Type: application/efi\r\nConnection: close\r\n\r\n",
        file.len()
    )?;
    if request.starts_with("GET") {
        connection.write_all(file)?;
    }
    Ok(())
}
