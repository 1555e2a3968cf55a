//! Tests of the configuration file of `serve`: settings, errors, and reload.

use std::{fs, os::unix::fs::PermissionsExt};

use nicstripe_testkit::{
    Daemon, Side, content,
    pair::{LINKS, LOOPBACK, MIB, Pair},
};
use rustix::process::Signal;

/// Starts a daemon with `config` as its configuration file and with the `serve` options `options`.
/// Returns the daemon with a trusted client.
fn pair_with(config: &str, options: &[&str]) -> Pair {
    Pair::with("", |server| {
        server.configure(config);
        Daemon::listening(server.start([&["serve"], options].concat()))
    })
}

const ON_LOOPBACK: &str = "port = 0\ninterface = [\"lo\"]\n";

#[test]
fn a_daemon_does_what_its_file_says() {
    let pair = pair_with(
        &format!("{ON_LOOPBACK}root = \"served\"\nread-only = true\n"),
        &["--root", "."],
    );
    pair.client.write("source", b"bytes");
    pair.server.write("there", b"bytes");
    pair.cp(&["source", "127.0.0.1:"])
        .expect(5)
        .error(&["may only read"]);
    // `served` does not exist. The copy succeeds only if the command line takes precedence.
    pair.cp(&["127.0.0.1:there", "."]).expect(0);
    assert!(pair.client.has("there"));
}

#[test]
fn a_file_can_be_named() {
    let side = Side::here();
    side.write_guarded(
        "other.toml",
        "port = 0\ninterface = [\"lo\"]\nroot = \"missing\"\n",
    );
    side.run(["serve", "--config", "other.toml"])
        .expect(11)
        .error(&["missing"]);
    side.run(["serve", "--config", "none.toml"])
        .expect(11)
        .error(&["none.toml"]);
}

#[test]
fn a_directory_with_the_settings_is_not_served() {
    let side = Side::here();
    side.write_guarded("c.toml", "port = 0\ninterface = [\"lo\"]\n");
    for option in ["--append-only", "--check-config"] {
        side.run(["serve", "--config", "c.toml", option])
            .expect(2)
            .error(&["cannot serve", "settings", "c.toml"]);
    }
    side.make_dir("served");
    side.run(["serve", "--check-config", "--config", "c.toml", "served"])
        .expect(0);
}

#[test]
fn what_is_wrong_in_a_file_is_named_with_its_line_and_one_that_others_may_change_is_refused() {
    let side = Side::here();
    side.configure("port = 0\nprot = 1\n");
    for options in [&["serve"][..], &["serve", "--check-config"]] {
        let parts = ["config.toml, line 2", "prot", "expected one of", "port"];
        side.run(options).expect(2).error(&parts);
    }
    side.configure(ON_LOOPBACK);
    let file = side.home().join("config.toml");
    fs::set_permissions(file, fs::Permissions::from_mode(0o666)).unwrap();
    side.run(["serve"])
        .expect(5)
        .error(&["config.toml", "0666", "chmod go-w"]);
}

#[test]
fn a_configuration_is_checked_without_making_anything() {
    let side = Side::here();
    side.run(["serve", "--check-config"]).expect(0);
    side.configure("[limits]\nsessions = 7\n");
    let outcome = side.run(["serve", "--check-config"]).expect(0);
    assert!(
        outcome.stdout.contains("config.toml: no errors"),
        "{outcome}"
    );
    side.run(["serve", "--check-config", "--root", "missing"])
        .expect(11)
        .error(&["missing"]);
    let names: Vec<_> = fs::read_dir(side.home())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["config.toml"], "a key was made");
}

#[test]
fn a_hangup_takes_over_new_limits_and_ends_nothing() {
    let pair = pair_with(ON_LOOPBACK, &[]);
    pair.client.write("slow", content(24 * MIB));
    pair.client.write("small", b"bytes");
    let slow = pair.start_cp(&["--bwlimit", "4M", "--json-stream", "slow", "127.0.0.1:"]);
    slow.await_bytes(1);
    pair.cp(&["small", "127.0.0.1:first"]).expect(0);

    pair.server.configure(&format!(
        "{ON_LOOPBACK}announce = true\n[limits]\nsessions = 1\n"
    ));
    pair.daemon.process.signal(Signal::HUP);
    pair.daemon
        .process
        .await_stderr("changed setting needs a restart key=announce");
    pair.daemon.process.await_stderr("configuration reloaded");
    // The slow copy holds the only session allowed.
    pair.cp(&["--timeout", "1s", "small", "127.0.0.1:second"])
        .expect(5)
        .error(&["has reached its session limit of 1"]);

    pair.server.configure("port = \"none\"\n");
    pair.daemon.process.signal(Signal::HUP);
    pair.daemon
        .process
        .await_stderr("configuration not reloaded");
    pair.cp(&["--timeout", "1s", "small", "127.0.0.1:third"])
        .expect(5);

    pair.server
        .configure(&format!("{ON_LOOPBACK}[log]\nfilter = \"warn\"\n"));
    pair.daemon.process.signal(Signal::HUP);
    slow.finish().expect(0);
    // The session of the slow copy ends a moment after the client's exit, because the client does
    // not wait for it.
    pair.cp(&["small", "127.0.0.1:fourth"]).expect(0);
}

#[test]
fn a_hangup_takes_over_what_peers_may_have_in_benches() {
    let pair = pair_with(&format!("{ON_LOOPBACK}[bench]\nenabled = false\n"), &[]);
    let port = pair.daemon.port.to_string();
    let bench = || {
        let bench = ["bench", "127.0.0.1", "-p", &port];
        let links = LINKS.iter().flat_map(|link| ["--link", link]);
        let load = ["-t", "1", "-O", "0.1", "-R", "--repeat", "1"];
        pair.client.run(bench.into_iter().chain(links).chain(load))
    };
    bench().expect(5).error(&["bench is disabled"]);
    pair.server.configure(ON_LOOPBACK);
    pair.daemon.process.signal(Signal::HUP);
    pair.daemon.process.await_stderr("configuration reloaded");
    bench().expect(0);
}

#[test]
fn a_status_signal_says_what_the_daemon_does() {
    let pair = Pair::new();
    pair.client.write("file", b"bytes");
    pair.cp(&["file", "127.0.0.1:"]).expect(0);
    pair.daemon.process.await_stderr("session ends");
    pair.daemon.process.signal(Signal::USR1);
    pair.daemon
        .process
        .await_stderr("0 sessions, 0 transfers running, 1 done, 0 failed");
}

#[test]
fn a_peer_without_a_rate_of_its_own_gets_that_of_the_file() {
    let config = format!("{ON_LOOPBACK}[limits]\nsession-rate = \"4M\"\n");
    let pair = pair_with(&config, &LOOPBACK);
    pair.server.write("file", content(12 * MIB));
    let begun = std::time::Instant::now();
    pair.cp(&["127.0.0.1:file", "."]).expect(0);
    // 3 s at 4 MiB/s, minus the initial burst of the token bucket.
    assert!(begun.elapsed().as_secs_f64() > 1.5, "{:?}", begun.elapsed());
}
