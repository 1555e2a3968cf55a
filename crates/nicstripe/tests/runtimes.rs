//! Tests of clients that are used from other runtimes than their own, or from none.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::Thread,
};

use crate::harness::{PLAIN, REPLACE, Served, content, name, within};
use nicstripe::Error;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    runtime::Runtime,
};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future as an executor other than tokio does, which has no timer and no reactor.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn every_call_works_without_a_runtime_before_and_after_a_restart_of_the_daemon() {
    let runtime = Runtime::new().unwrap();
    let mut served = runtime.block_on(Served::start());
    let client = runtime.block_on(served.connect(1)).unwrap();
    for restarts in 0..2 {
        if restarts > 0 {
            runtime.block_on(served.crash());
            runtime.block_on(served.start_again());
        }
        let (file, moved) = (name("file"), name("moved"));
        assert_eq!(wait(client.list(None)).unwrap(), [], "{restarts}");
        wait(client.write(&file, "bytes", REPLACE)).unwrap();
        assert_eq!(wait(client.read(&file, None)).unwrap(), b"bytes");
        wait(client.rename(&file, &moved, nicstripe::RenameOptions::default())).unwrap();
        wait(async {
            let mut object = client.open(&moved).await.unwrap();
            let mut bytes = Vec::new();
            object.read_to_end(&mut bytes).await.unwrap();
            assert_eq!(bytes, b"bytes");
        });
        assert_eq!(wait(client.links()).unwrap().links.len(), 1);
        let dialled = wait(client.dial("localhost:22"));
        assert!(matches!(dialled, Err(Error::Target { .. })), "{dialled:?}");
        let listening = wait(client.listen("8080"));
        assert!(
            matches!(listening, Err(Error::Listen { .. })),
            "{listening:?}"
        );
        wait(client.remove(&moved)).unwrap();
    }
    wait(client.close());
}

#[test]
fn a_second_runtime_that_is_dropped_ends_no_work_of_the_first() {
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let mut served = first.block_on(Served::start());
    let client = first.block_on(served.connect(1)).unwrap();
    first.block_on(served.crash());
    first.block_on(served.start_again());
    // Makes the new session.
    second.block_on(within(client.list(None))).unwrap();
    let mut object = client.create(&name("file"), PLAIN);
    let bytes = content(300_000);
    first.block_on(object.write_all(&bytes)).unwrap();
    drop(second);
    let report = first.block_on(within(object.finish())).unwrap();
    assert_eq!(report.size, 300_000);
}

#[test]
fn a_client_whose_runtime_has_ended_says_so() {
    let daemon = Runtime::new().unwrap();
    let served = daemon.block_on(Served::start());
    let runtime = Runtime::new().unwrap();
    let client = runtime.block_on(served.connect(1)).unwrap();
    let running = client.create(&name("file"), PLAIN);
    drop(runtime);
    let ended = |error: Error| {
        assert!(matches!(error, Error::RuntimeEnded), "{error:?}");
        assert!(!error.is_retryable());
    };
    ended(wait(running.finish()).unwrap_err());
    ended(wait(client.list(None)).unwrap_err());
    ended(daemon.block_on(client.stat(&name("file"))).unwrap_err());
    let late = name("late");
    let written = wait(client.write(&late, "bytes", PLAIN));
    ended(written.unwrap_err());
    wait(client.close());
}

#[tokio::test(flavor = "multi_thread")]
async fn clones_of_a_closed_client_are_told_and_its_transfers_are_interrupted() {
    let served = Served::start().await;
    let client = served.client(1).await;
    let mut object = client.create(&name("file"), PLAIN);
    within(object.write_all(&content(300_000))).await.unwrap();
    within(client.clone().close()).await;
    let interrupted = within(object.finish()).await.unwrap_err();
    assert!(
        matches!(interrupted, Error::Cancelled { resumable: false }),
        "{interrupted:?}"
    );
    let late = name("late");
    for told in [
        within(client.write(&late, "bytes", PLAIN)).await.err(),
        within(client.list(None)).await.err(),
        within(client.peer()).await.err(),
        within(client.dial("localhost:22")).await.err(),
    ] {
        assert!(matches!(told, Some(Error::Closed)), "{told:?}");
    }
    within(client.close()).await;
}
