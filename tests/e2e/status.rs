//! Tests of `nicstripe status`: what runs, as its processes say.

use std::{
    fs,
    time::{Duration, Instant},
};

use nicstripe_testkit::{Side, content, pair::Pair, text};
use serde_json::Value;

/// Returns the processes of a side once there is one of this role with what is asked for.
fn await_process(side: &Side, role: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let document = side
            .run(["status", "--json"])
            .expect(0)
            .document_of("status");
        let processes = document["processes"].as_array().unwrap();
        let mut found = processes.iter();
        if let Some(process) = found.find(|one| text(one, "role") == role && is_it(one)) {
            return process.clone();
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{document:#}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn daemon_and_copy_tell_what_they_do_with_each_link() {
    let pair = Pair::new();
    pair.client.write("a", content(24 << 20));
    // A copy announces itself where this user has a state directory.
    let copy = pair.start_cp(&["--bwlimit=6M", "--json-stream", "a", "127.0.0.1:b"]);
    copy.await_bytes(2 << 20);
    let daemon = await_process(&pair.server, "daemon", |daemon| {
        daemon["sessions"][0]["transfers"][0]["bytes"].as_u64() > Some(0)
    });
    let session = &daemon["sessions"][0];
    assert_eq!(text(&session["transfers"][0], "name"), "b");
    assert_eq!(session["transfers"][0]["size_bytes"], 24 << 20);
    let links = session["links"].as_array().unwrap();
    assert!(
        links.iter().any(|link| text(link, "state") == "up"),
        "{session:#}"
    );
    let received = links
        .iter()
        .map(|link| link["received_bps"].as_u64().unwrap());
    assert!(received.sum::<u64>() > 1_000_000, "{session:#}");
    let own = await_process(&pair.client, "copy", |copy| copy["progress"].is_object());
    assert!(text(&own, "command").contains("127.0.0.1:b"), "{own:#}");
    let shown = pair.server.run(["status"]).expect(0).stdout;
    assert!(
        shown.contains("receives b  ") && shown.contains(" in\n"),
        "{shown}"
    );

    // A socket of a process that was killed is removed.
    copy.kill();
    let left = pair.client.run(["status"]).expect(0);
    assert!(left.stderr.contains("no daemon and no copy"), "{left}");
    let run = pair.client.home().join("run");
    assert_eq!(fs::read_dir(run).unwrap().count(), 0);
}
