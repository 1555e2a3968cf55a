//! Tests of keys, of the peers file, and of the rights that the file grants.

use std::{
    fs,
    fs::OpenOptions,
    io::Write,
    os::unix::fs::{PermissionsExt as _, symlink},
    time::{Duration, Instant},
};

use nicstripe::trust::PeerOptions;
use nicstripe_testkit::{
    Daemon, Process, Side, content, is_same,
    pair::{LOOPBACK, MIB, Pair},
    text,
};

#[test]
fn a_name_that_nobody_can_type_is_not_given_to_a_peer() {
    let (side, peer) = (Side::here(), Side::here());
    for name in ["alice@nas", "a:b", "-x", "a/b"] {
        let name = format!("--name={name}");
        side.run(["trust", "add", &peer.key(), &name]).expect(2);
    }
    assert_eq!(side.run(["trust", "list"]).expect(0).stdout, "");
    let key = peer.key();
    let (key, _comment) = key.rsplit_once(' ').unwrap();
    side.run(["trust", "add", &format!("{key} me@nas")])
        .expect(0);
    let listed = side.run(["trust", "list", "--names"]).expect(0).stdout;
    assert_eq!(listed, "nas\n");
}

#[test]
fn a_changed_key_is_said_and_replaced_by_the_command_in_the_hint() {
    let mut pair = Pair::new();
    pair.client.write("f", "bytes");
    pair.client.run(["trust", "remove", "nas"]).expect(0);
    pair.client.trust(&pair.server, "127.0.0.1", "no-bench");
    pair.cp(&["f", "127.0.0.1:"]).expect(0);
    // The machine was installed again.
    let anew = Side::here();
    anew.trust(&pair.client, "laptop", "");
    pair.daemon = Daemon::start(&anew, &LOOPBACK);
    let outcome = pair.cp(&["f", "127.0.0.1:"]).expect(5);
    let hint = outcome.labelled("hint: ", &["the key of 127.0.0.1 has changed"]);
    let (_, command) = hint.split_once("if they match: ").unwrap();
    run_hinted(&pair.client, command);
    pair.cp(&["f", "127.0.0.1:"]).expect(0);
    let listed = pair.client.run(["trust", "list"]).expect(0).stdout;
    assert_eq!(listed.lines().count(), 1, "{listed}");
}

#[test]
fn the_list_tells_when_and_from_where_a_peer_was_last_seen() {
    let pair = Pair::new();
    let list = |side: &Side| side.run(["trust", "list"]).expect(0);
    for side in [&pair.client, &pair.server] {
        let listed = list(side).stdout;
        assert!(
            listed.contains("  never seen  nicstripe-ed25519 "),
            "{listed}"
        );
    }
    pair.client.write("f", content(MIB));
    // Slow enough for the client to write its file, which it does in the background.
    pair.cp(&["--bwlimit", "1M", "f", "nas:"]).expect(0);
    await_seen(&pair.client, "seen just now from 127.0.1.2 on lo");
    await_seen(&pair.server, "seen just now from 127.0.0.");
    let json = ["trust", "list", "--json"];
    let document = pair.server.run(json).expect(0).document_of("trust-list");
    let peer = &document["peers"][0];
    assert_eq!(
        (text(peer, "name"), text(peer, "access")),
        ("laptop", "full")
    );
    assert_eq!(text(&peer["seen"], "interface"), "lo");
    // What others may have written is not believed.
    let file = pair.server.home().join("sightings");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let listed = list(&pair.server);
    assert!(!listed.stdout.contains("seen"), "{listed}");
    listed.labelled("warning: ", &["sightings", "chmod"]);
    // No session fails because of it.
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    pair.client.write("g", "g");
    pair.cp(&["g", "nas:"]).expect(0);
    pair.server
        .write_guarded(pair.server.peers_file(), "garbage\n");
    let failed = pair.server.run(json);
    let code = failed.status.code().unwrap();
    assert_eq!(failed.document_of("trust-list")["exit_code"], code);
}

/// Waits until the list has this text, at most 10 s.
fn await_seen(side: &Side, part: &str) {
    let begun = Instant::now();
    loop {
        let listed = side.run(["trust", "list"]).expect(0).stdout;
        if listed.contains(part) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{listed}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_cloned_machine_is_told_how_to_get_a_key_of_its_own() {
    let pair = Pair::new();
    pair.client.write("f", "bytes");
    // Nobody trusts the own key.
    pair.client.run(["trust", "remove", "nas"]).expect(0);
    let identity = pair.server.home().join("identity");
    fs::copy(identity, pair.client.home().join("identity")).unwrap();
    pair.cp(&["f", "127.0.0.1:"]).expect(5).hint(&[
        "this machine's own key",
        "rm ",
        "nicstripe key",
    ]);
}

#[test]
fn a_pasted_line_gives_no_rights_and_the_hint_gives_them() {
    let (side, peer) = (Side::here(), Side::here());
    side.make_dir("a b");
    let key = peer.key().split(' ').take(2).collect::<Vec<_>>().join(" ");
    let root = format!("root=\"{}\"", side.path("a b").display());
    for options in [
        "exec=*",
        r#"append-only,exec="sh -c 'id; echo $HOME \\\\'",dial=localhost:22"#,
        "read-only",
        "special-modes,listen=unix:/tmp/it's,rate=5M,no-bench,no-facts",
        &root,
    ] {
        let line = format!("{options} {key} nas");
        let first = options.split(['=', ',']).next().unwrap();
        let outcome = side.run(["trust", "add", &line]).expect(2);
        let outcome = outcome.error(&["the line has the options", first]);
        assert!(!side.peers_file().exists(), "{outcome}");
        // As several arguments, which a shell makes of a line without quotes.
        side.run([&["trust", "add"][..], &line.split(' ').collect::<Vec<_>>()].concat())
            .expect(2);
        assert!(!side.peers_file().exists());

        let hint = outcome.labelled("hint: ", &["only if you want"]);
        run_hinted(&side, hint.split_once("rights here: ").unwrap().1);
        let stored = fs::read_to_string(side.peers_file()).unwrap();
        let granted: PeerOptions = options.parse().unwrap();
        assert_eq!(stored, format!("{granted} {key} nas\n"));
        side.run(["trust", "remove", "nas"]).expect(0);
        fs::remove_file(side.peers_file()).unwrap();
    }
    // A line of the list would end at a newline in it.
    let injected = format!("exec=\"a '\n{key}'\" {}", peer.key());
    side.run(["trust", "add", &injected]).expect(2);
    let exec = format!("a '\n{key}'");
    side.run(["trust", "add", &peer.key(), "--exec", &exec])
        .expect(2);
    assert!(!side.peers_file().exists());
}

/// Runs a command of a hint in a shell.
pub(crate) fn run_hinted(side: &Side, command: &str) {
    let command = command.replacen("nicstripe", "$NICSTRIPE", 1);
    let mut shell = side.command("/bin/sh");
    shell.args(["-c", &command]);
    shell.env("NICSTRIPE", env!("CARGO_BIN_EXE_nicstripe"));
    Process::spawn(shell).finish().expect(0);
}

#[test]
fn a_known_key_keeps_its_restrictions_unless_it_is_replaced() {
    let (side, peer) = (Side::here(), Side::here());
    let root = side.files().display().to_string();
    let had = format!("root={root},append-only,exec=\"borg serve *\"");
    side.trust(&peer, "laptop", &had);
    let before = fs::read_to_string(side.peers_file()).unwrap();
    let peers = || fs::read_to_string(side.peers_file()).unwrap();
    let key = peer.key();

    let outcome = side
        .run(["trust", "add", &key, "--name", "laptop"])
        .expect(0);
    assert!(outcome.stderr.contains("already trusted"), "{outcome}");
    assert!(!outcome.stderr.contains("was: "), "{outcome}");
    assert_eq!(peers(), before);

    let refused = side.run(["trust", "add", &key, "--exec", "id"]).expect(2);
    let refused = refused.error(&["laptop", "root, append-only, exec", "--replace"]);
    assert_eq!(peers(), before);
    let hint = refused.labelled("hint: ", &["trust allow laptop --exec id", "--replace"]);
    let adding = hint.split("to add to its rights: ").nth(1).unwrap();
    run_hinted(&side, adding.split_once(';').unwrap().0);
    assert!(
        peers().starts_with(&format!("{had},exec=id ")),
        "{}",
        peers()
    );

    let outcome = side
        .run(["trust", "add", &key, "--exec", "id", "--replace"])
        .expect(0);
    for part in [
        "was: may read and add new files in ",
        "may run \"borg serve *\", may run \"id\"\n",
        "now: may read, write and replace, may run \"id\"\n",
    ] {
        assert!(outcome.stderr.contains(part), "{part}: {outcome}");
    }
    assert!(peers().starts_with("exec=id "), "{}", peers());
    // Only fewer rights.
    side.run(["trust", "add", &key, "--read-only"]).expect(0);
    assert!(peers().starts_with("read-only nicstripe"), "{}", peers());
}

#[test]
fn rights_of_a_peer_are_changed_and_shown_by_its_name() {
    let (side, peer) = (Side::here(), Side::here());
    side.trust(&peer, "laptop", "read-only");
    let path = side.peers_file().display().to_string();
    let peers = || fs::read_to_string(side.peers_file()).unwrap();
    let rights = ["--exec", "borg serve *", "--rate", "5M"];
    let words = [&["trust", "allow", "laptop"][..], &rights].concat();
    let outcome = side.run(&words).expect(0);
    for part in [
        "was: may read\n",
        "now: may read at up to 5.0 Mbit/s, may run \"borg serve *\"\n",
        &path,
    ] {
        assert!(outcome.stderr.contains(part), "{part}: {outcome}");
    }
    let line = "read-only,rate=5000000,exec=\"borg serve *\" nicstripe-ed25519 ";
    assert!(peers().starts_with(line), "{}", peers());
    let again = side.run(&words).expect(0);
    assert!(!again.stderr.contains("was: "), "{again}");

    let shown = side.run(["trust", "show", "laptop"]).expect(0).stdout;
    let key = peer.key().split(' ').take(2).collect::<Vec<_>>().join(" ");
    for part in [
        "laptop",
        &key,
        "read-only,rate=5000000,exec=",
        "may read at",
        &path,
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }

    for options in [&["--append-only"][..], &["--rate", "6M"]] {
        let words = [&["trust", "allow", "laptop"][..], options].concat();
        side.run(&words).expect(2).error(&["--replace"]);
    }
    side.run(["trust", "allow", "laptop"])
        .expect(2)
        .error(&["--exec"]);
    // As for hosts, the case of a name does not count.
    let told = side.run(["trust", "show", "LAPTOP"]).expect(0).stdout;
    assert_eq!(told, shown);
    for wrong in ["lap", "laptop2"] {
        for words in [
            &["trust", "show", wrong][..],
            &["trust", "allow", wrong, "--read-only"],
        ] {
            side.run(words).expect(1).error(&[wrong, "expected laptop"]);
        }
    }
    assert!(peers().starts_with(line), "{}", peers());
    side.run(["trust", "allow", "laptop", "--append-only", "--replace"])
        .expect(0);
    assert!(peers().starts_with("append-only nicstripe"), "{}", peers());
}

#[test]
fn a_new_key_of_a_known_name_has_the_rights_of_the_old_one() {
    let (side, old, new) = (Side::here(), Side::here(), Side::here());
    side.trust(&old, "nas", "append-only,no-facts");
    let add = ["trust", "add", &new.key(), "--name", "nas"];
    side.run(add).expect(1).error(&["belongs to another key"]);
    side.run([&add[..], &["--replace"]].concat()).expect(0);
    let peers = fs::read_to_string(side.peers_file()).unwrap();
    assert!(
        peers.starts_with("append-only,no-facts nicstripe"),
        "{peers}"
    );
    assert_eq!(peers.lines().count(), 1, "{peers}");
}

#[test]
fn a_list_behind_a_symbolic_link_is_changed_there() {
    let (side, nas, pi) = (Side::here(), Side::here(), Side::here());
    side.trust(&nas, "nas", "");
    let managed = side.home().join("managed");
    fs::create_dir(&managed).unwrap();
    fs::set_permissions(&managed, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(side.peers_file(), managed.join("list")).unwrap();
    symlink("managed/list", side.home().join("middle")).unwrap();
    symlink("middle", side.peers_file()).unwrap();
    let list = || fs::read_to_string(managed.join("list")).unwrap();
    side.trust(&pi, "pi", "");
    assert!(
        list().contains(" nas") && list().contains(" pi"),
        "{}",
        list()
    );
    side.run(["trust", "remove", "nas"]).expect(0);
    assert!(!list().contains(" nas"), "{}", list());
    assert!(side.peers_file().is_symlink() && side.home().join("middle").is_symlink());

    // Others could replace the target.
    fs::set_permissions(&managed, fs::Permissions::from_mode(0o777)).unwrap();
    let line = nas.key();
    let add = ["trust", "add", &line, "--name", "nas"];
    side.run(add).expect(5).error(&["managed", "0777"]);
    // No list elsewhere is to become one.
    fs::remove_dir_all(&managed).unwrap();
    side.run(add)
        .expect(11)
        .error(&["peers", "target of the link"]);
    assert!(side.peers_file().is_symlink() && !managed.exists());
}

#[test]
fn who_is_trusted_while_the_daemon_runs_is_let_in_and_who_is_removed_is_not() {
    let (client, server) = (Side::here(), Side::here());
    client.trust(&server, "nas", "");
    let daemon = Daemon::start(&server, &LOOPBACK);
    daemon.process.await_stderr("warning: no trusted peers yet");
    daemon.process.await_stderr("hint: ");
    client.write("source", b"bytes");
    let port = daemon.port.to_string();
    let copy =
        |target: &str| client.run(["cp", "-P", &port, "source", &format!("127.0.0.1:{target}")]);
    copy("a").expect(5);
    let key = client.key();
    let (key, _comment) = key.rsplit_once(' ').unwrap();
    let told = format!("nicstripe trust add '{key}' --name 127.0.0.1");
    daemon.process.await_stderr(&told);
    server.trust(&client, "laptop", "");
    copy("b").expect(0);
    server.run(["trust", "remove", "laptop"]).expect(0);
    copy("c").expect(5);
    assert_eq!(server.names(), ["b"]);
}

#[test]
fn a_broken_line_refuses_everybody_and_is_named_by_its_number() {
    let pair = Pair::new();
    pair.client.write("source", b"bytes");
    break_line(&pair.server);
    // Not "does not trust our key": the key is in the list.
    pair.cp(&["source", "127.0.0.1:"])
        .expect(5)
        .error(&["refused the session", "cannot read its list of peers"]);
    pair.daemon.process.await_stderr("line 2");
    pair.server
        .run(["serve", "--port", "0", "--interface", "lo"])
        .expect(5)
        .error(&["peers", "line 2"]);

    break_line(&pair.client);
    pair.cp(&["source", "127.0.0.1:"])
        .expect(5)
        .error(&["peers", "line 2"]);
    assert!(pair.server.names().is_empty());
}

#[test]
fn a_read_only_daemon_or_peer_gives_and_does_not_take() {
    gives_and_does_not_take(&Pair::serving(&["--read-only"], ""));
    gives_and_does_not_take(&Pair::serving(&[], "read-only"));
}

#[test]
fn an_append_only_daemon_or_peer_takes_new_files_and_replaces_none() {
    takes_new_files_and_replaces_none(&Pair::serving(&["--append-only"], ""));
    takes_new_files_and_replaces_none(&Pair::serving(&[], "append-only"));
}

#[test]
fn a_peer_with_a_root_of_its_own_sees_that() {
    let pair = Pair::new();
    pair.server.make_dir("theirs");
    pair.server.write("secret", b"secret");
    let root = format!("root={}", pair.server.path("theirs").display());
    pair.server.trust(&pair.client, "laptop", &root);
    pair.client.write("source", b"bytes");
    pair.cp(&["source", "127.0.0.1:/"]).expect(0);
    assert_eq!(pair.server.read("theirs/source"), b"bytes");
    pair.cp(&["127.0.0.1:secret", "copy"]).expect(11);
    assert!(!pair.client.has("copy"));
}

#[test]
fn a_peers_rate_is_kept() {
    let pair = Pair::serving(&[], "rate=64M");
    let bytes = content(12 * MIB);
    pair.server.write("source", &bytes);
    let report = pair
        .cp(&["--json", "127.0.0.1:source", "."])
        .expect(0)
        .document();
    // 64 Mbit/s takes 1.57 s for 12 MiB.
    let rate = report["goodput_bps"].as_f64().unwrap();
    assert!((57.6e6..=70.4e6).contains(&rate), "{report:#}");
    assert!(is_same(&pair.client.read("source"), &bytes));
}

fn gives_and_does_not_take(pair: &Pair) {
    pair.client.write("mine", b"mine");
    pair.server.write("theirs", b"theirs");
    pair.cp(&["127.0.0.1:theirs", "."]).expect(0);
    assert_eq!(pair.client.read("theirs"), b"theirs");
    let refused = pair
        .cp(&["--json", "-f", "mine", "127.0.0.1:theirs"])
        .expect(5);
    refused.document();
    refused
        .error(&["theirs", "only read"])
        .hint(&["peers file"]);
    for options in [&["-n"][..], &[]] {
        pair.cp(&[options, &["mine", "127.0.0.1:"]].concat())
            .expect(5)
            .error(&["may only read"]);
    }
    assert_eq!(pair.server.read("theirs"), b"theirs");
    assert_eq!(pair.server.names(), ["theirs"]);
}

fn takes_new_files_and_replaces_none(pair: &Pair) {
    pair.client.write("source", b"new");
    pair.server.write("old", b"older");
    pair.cp(&["source", "127.0.0.1:new"]).expect(0);
    pair.cp(&["-f", "source", "127.0.0.1:newer"]).expect(0);
    pair.cp(&["source", "127.0.0.1:new"]).expect(0);
    for option in ["-p", "-f"] {
        let outcome = pair.cp(&[option, "source", "127.0.0.1:old"]);
        outcome.error(&["\"old\""]).hint(&["peers file"]);
    }
    assert_eq!(
        ["old", "new", "newer"].map(|name| pair.server.read(name)),
        [&b"older"[..], b"new", b"new"]
    );
}

fn break_line(side: &Side) {
    let mut file = OpenOptions::new()
        .append(true)
        .open(side.peers_file())
        .unwrap();
    file.write_all(b"read-olny nicstripe-ed25519 AAAA\n")
        .unwrap();
}

#[test]
fn a_daemon_says_what_it_shares_and_takes_the_directory_as_a_word() {
    let side = Side::here();
    side.make_dir("shared");
    let here = Daemon::start(&side, &LOOPBACK);
    here.process.await_stderr(&format!(
        "serving {}, the current directory, as ",
        side.files().display()
    ));
    let there = Daemon::start(&side, &[&LOOPBACK[..], &["shared"]].concat());
    there
        .process
        .await_stderr(&format!("serving {} as ", side.path("shared").display()));
}

#[test]
fn a_peer_whose_root_would_contain_the_key_gets_nothing() {
    let (client, server) = (Side::here(), Side::here());
    client.trust(&server, "nas", "");
    let root = server.home().parent().unwrap().display().to_string();
    server.trust(&client, "laptop", &format!("read-only,root={root}"));
    let daemon = Daemon::start(&server, &LOOPBACK);
    let port = daemon.port.to_string();
    let words = ["cp", "-P", &port, "127.0.0.1:home/identity", "stolen"];
    client.run(words).expect(5);
    daemon.process.await_stderr("it contains ");
    assert!(!client.has("stolen"));
}
