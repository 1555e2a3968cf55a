//! Tests of help, completions, manual pages, usage errors, and commands that print and exit.

use std::collections::BTreeSet;

use nicstripe_testkit::{Outcome, Process, Side};

#[test]
fn completions_and_manual_pages_are_printed() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            run(&["completions", shell])
                .expect(0)
                .stdout
                .contains("nicstripe"),
            "{shell}"
        );
    }
    let page = run(&["man"]).expect(0).stdout;
    assert!(page.starts_with(".ie") || page.starts_with(".TH"), "{page}");
    let side = Side::here();
    // The first makes the directory.
    for _ in 0..2 {
        side.run(["man", "--dir", "share/man1"]).expect(0);
        assert!(side.has("share/man1/nicstripe.1") && side.has("share/man1/nicstripe-cp.1"));
    }
    side.run(["man", "no-such-command"])
        .expect(2)
        .error(&["no-such-command"]);
}

/// Requests completions from each installed shell.
#[test]
fn completions_offer_the_names_of_trusted_machines() {
    let (side, other, third) = (Side::here(), Side::here(), Side::here());
    side.trust(&other, "nas", "");
    // The shell must not execute a name from the peers file, where another program may have put it.
    side.trust(&third, "third", "");
    let peers = std::fs::read_to_string(side.peers_file()).unwrap();
    let wild = peers.replace(" third", " $(touch${IFS}owned)");
    side.write_guarded(side.peers_file(), &wild);
    side.write("notes.txt", b"");
    let path = format!(
        "{}:/usr/bin:/bin",
        std::path::Path::new(env!("CARGO_BIN_EXE_nicstripe"))
            .parent()
            .unwrap()
            .display()
    );
    let bash = |words: &str, cursor: usize| {
        let run = format!(
            "COMP_WORDS=({words}); COMP_CWORD={cursor}; _nicstripe_and_peers nicstripe \"${{COMP_WORDS[{cursor}]}}\""
        );
        format!("source script.bash; {run}; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
    };
    let fish = |line: &str| format!("source script.fish; complete -C '{line}'");
    let cases = [
        (
            "bash",
            bash("nicstripe cp n", 2),
            &["nas:", "notes.txt"][..],
        ),
        (
            "bash",
            bash("nicstripe cp file ''", 3),
            &["nas:", "notes.txt"],
        ),
        ("bash", bash("nicstripe links n", 2), &["nas"]),
        // What follows the colon is at the peer.
        ("bash", bash("nicstripe cp nas :", 3), &[]),
        ("bash", bash("nicstripe cp nas : n", 4), &[]),
        ("bash", bash("nicstripe cp 'nas\\:'", 2), &[]),
        ("bash", bash("nicstripe ls n", 2), &["nas:"]),
        ("bash", bash("nicstripe serve restic n", 3), &["nas:"]),
        ("bash", bash("nicstripe trust remove n", 3), &["nas"]),
        ("fish", fish("nicstripe cp n"), &["nas:", "notes.txt"]),
        ("bash", bash("nicstripe doctor n", 2), &["nas"]),
        ("bash", bash("nicstripe status n", 2), &["nas"]),
        ("fish", fish("nicstripe bench n"), &["nas"]),
        ("fish", fish("nicstripe status n"), &["nas"]),
        ("fish", fish("nicstripe cp nas:n"), &[]),
        ("fish", fish("nicstripe ls nas:n"), &[]),
        ("fish", fish("nicstripe ls -l nas:n"), &[]),
        ("fish", fish("nicstripe cp x nas:n"), &[]),
        ("fish", fish("nicstripe doctor nas:n"), &[]),
        ("fish", fish("nicstripe cp ./n"), &["./notes.txt"]),
        ("fish", fish("nicstripe serve restic n"), &["nas:"]),
    ];
    for shell in ["bash", "fish", "zsh"] {
        side.write(
            format!("script.{shell}"),
            side.run(["completions", shell]).expect(0).stdout,
        );
    }
    let has = |shell: &str| {
        ["/usr/bin", "/bin"]
            .iter()
            .any(|folder| std::path::Path::new(folder).join(shell).exists())
    };
    for (shell, script, expected) in cases.into_iter().filter(|(shell, ..)| has(shell)) {
        let mut command = side.command(shell);
        command.env("PATH", &path).args(["-c", &script]);
        let outcome = Process::spawn(command).finish().expect(0);
        let offered: BTreeSet<&str> = outcome
            .stdout
            .lines()
            .filter_map(|line| line.split('\t').next())
            .collect();
        let is_empty = offered.iter().all(|name| name.is_empty());
        assert!(
            expected.iter().all(|name| offered.contains(name)) && expected.is_empty() == is_empty,
            "{shell}: {offered:?}"
        );
        assert!(
            !side.has("owned") && !offered.iter().any(|name| name.contains("touch")),
            "{offered:?}"
        );
    }
    if has("zsh") {
        let mut command = side.command("zsh");
        command.env("PATH", &path).args(["-n", "script.zsh"]);
        Process::spawn(command).finish().expect(0);
    }
}

#[test]
fn a_port_in_use_is_named() {
    let side = Side::here();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let outcome = side.run(["serve", "--listen", &address]);
    assert!(!outcome.status.success(), "{outcome}");
    outcome.error(&[&address, "in use"]);
}

#[test]
fn routes_are_listed_and_cleaned_without_any_right() {
    let side = Side::here();
    let listed = side.run(["routes", "list"]).expect(0);
    assert_eq!(
        listed.stdout, "",
        "this machine has routes of nicstripe: {listed}"
    );
    side.run(["routes", "clean"]).expect(0);
}

#[test]
fn the_version_is_printed() {
    assert_eq!(
        run(&["--version"]).expect(0).stdout.trim(),
        format!("nicstripe {}", env!("CARGO_PKG_VERSION"))
    );
}

fn run(words: &[&str]) -> Outcome {
    Side::here().run(words)
}
