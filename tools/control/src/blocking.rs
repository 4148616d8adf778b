//! Work that waits for the disk or for the system, on a thread that may wait.
//!
//! Neighbours: whoever answers a request with it.
//!
//! Invariant: nobody is told that a request failed because the control node ends: its connection
//! ends, as for every request that it does not get to.

/// Does this on a thread that may wait; panics as `work` does.
///
/// While the control node ends, nothing comes any more: the caller ends with it.
pub async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[test]
    fn whoever_waits_ends_with_the_runtime() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let (go_on, waits) = std::sync::mpsc::channel::<()>();
        runtime.spawn_blocking(move || waits.recv());
        let (asks, asked_for) = std::sync::mpsc::channel();
        let asked = runtime.spawn(async move {
            asks.send(()).unwrap();
            super::run(|| 7).await
        });
        asked_for.recv().unwrap();
        // Nobody does it: it is dropped with the runtime while it waits for the thread.
        runtime.shutdown_timeout(Duration::from_millis(10));
        drop(go_on);
        let other = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let ended = other.block_on(asked).unwrap_err();
        assert!(ended.is_cancelled(), "{ended}");
    }
}
