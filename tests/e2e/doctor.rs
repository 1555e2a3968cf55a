//! Tests of `nicstripe doctor`. Faults on real cables are in `tests/netns/doctor.rs`, the rules on
//! made-up machines in `crates/nicstripe-doctor/tests`.

use std::{fs, path::PathBuf};

use nicstripe_testkit::{Outcome, Side, pair::Pair, text};
use serde_json::Value;

/// Returns a made-up machine's file.
fn machine(name: &str) -> String {
    let folder = "crates/nicstripe-doctor/tests/machines";
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(folder);
    path.join(format!("{name}.json")).to_str().unwrap().into()
}

fn doctor(arguments: &[&str]) -> Outcome {
    Side::here().run([&["doctor"], arguments].concat())
}

/// Returns the numbers of the rules that a document's list has.
fn rules(document: &Value, list: &str) -> Vec<u64> {
    let findings = document[list].as_array().unwrap();
    findings
        .iter()
        .map(|finding| finding["rule"].as_u64().unwrap())
        .collect()
}

#[test]
fn a_fault_is_named_with_proof_cure_and_undo_and_ends_with_42() {
    let file = machine("tbf-left-at-100");
    let screen = doctor(&["--from", &file]).expect(42);
    for line in [
        "BAD      enp2s0 is limited to 100.0 Mbit/s by a tbf shaper  [rule 31, costs up to 900.0 Mbit/s]",
        "proof: root qdisc of enp2s0 = tbf 100.0 Mbit/s (tc qdisc)",
        "run:   tc qdisc del dev enp2s0 root",
        "undo:  tc qdisc replace dev enp2s0 root tbf rate 100000000bit",
        "enp2s0  ── 1000 Mb/s full  igb pci",
    ] {
        assert!(screen.stdout.contains(line), "{line}\n{}", screen.stdout);
    }
    screen.error(&["1 fault found"]);
    let document = doctor(&["--from", &file, "--json"]).expect(42);
    let document = document.document_of("doctor");
    assert_eq!(rules(&document, "findings"), [31]);
    let clean = doctor(&["--from", &file, "--rule", "3", "--json"]).expect(0);
    assert_eq!(clean.document_of("doctor")["clean"], serde_json::json!([3]));
}

#[test]
fn what_another_finding_explains_is_kept_for_programs() {
    let both = doctor(&["--from", &machine("duplex-mismatch"), "--json"]).expect(42);
    let document = both.document_of("doctor");
    assert_eq!(rules(&document, "findings")[0], 19);
    assert!(rules(&document, "silenced").contains(&3), "{document:#}");
}

#[test]
fn healthy_machines_end_with_0() {
    for name in ["desktop-igb-two-subnets", "two-machines-two-cables"] {
        let outcome = doctor(&["--from", &machine(name)]).expect(0);
        assert!(outcome.stdout.contains("no fault found"), "{name}");
    }
}

#[test]
fn each_rule_is_explained() {
    for rule in 1..=46 {
        let text = doctor(&["--explain", &rule.to_string()]).expect(0).stdout;
        assert!(text.starts_with(&format!("rule {rule}: ")), "{text}");
        assert!(text.contains("source") && text.contains("speaks"), "{text}");
    }
}

#[test]
fn this_machine_is_examined_and_its_snapshot_is_judged_alike_without_its_names() {
    let side = Side::here();
    let live = side.run(["doctor", "--json", "--snapshot", "here.json"]);
    let live = live.document_of("doctor");
    let name = text_of(&live["machines"][0]);
    let snapshot = fs::read_to_string(side.path("here.json")).unwrap();
    assert!(!snapshot.contains(&format!("\"{name}\"")), "{snapshot}");
    let again = side.run(["doctor", "--json", "--from", "here.json"]);
    assert_eq!(
        rules(&again.document_of("doctor"), "findings"),
        rules(&live, "findings")
    );
    let shown = side.run(["doctor", "--show", "--from", "here.json"]);
    let shown = shown.expect(0).stdout;
    assert!(shown.contains("host.name = a\n"), "{shown}");
    assert!(shown.contains("interfaces.lo.mtu = "), "{shown}");
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[test]
fn both_ends_are_examined_unless_the_peer_tells_nothing() {
    let pair = Pair::new();
    let examined = |pair: &Pair| {
        let port = pair.daemon.port.to_string();
        let link = "127.0.0.2=127.0.1.2";
        pair.client
            .run(["doctor", "nas", "-P", &port, "--link", link, "--json"])
    };
    let document = examined(&pair).document_of("doctor");
    assert_eq!(document["machines"].as_array().unwrap().len(), 2);
    assert_eq!(text(&document["links"][0], "here"), "lo");
    let pair = Pair::serving(&[], "no-facts");
    let outcome = examined(&pair);
    assert!(
        outcome.stderr.contains("the peer sent no facts"),
        "{outcome:?}"
    );
    let document = outcome.document_of("doctor");
    assert_eq!(document["machines"].as_array().unwrap().len(), 1);
}

#[test]
fn a_copy_of_another_machines_files_is_examined() {
    let side = Side::here();
    let net = side.path("root/proc/sys/net/ipv4");
    fs::create_dir_all(&net).unwrap();
    fs::write(net.join("tcp_window_scaling"), "0\n").unwrap();
    let outcome = side.run(["doctor", "--root", "root", "--json"]).expect(42);
    assert_eq!(rules(&outcome.document_of("doctor"), "findings"), [34]);
}

#[test]
fn mistakes_are_named() {
    let side = Side::here();
    side.write("text", "no snapshot");
    side.write(
        "other",
        r#"{"schema":"nicstripe-snapshot/9","machines":[{}]}"#,
    );
    let two = machine("duplex-mismatch");
    for (words, code, parts) in [
        (&["--explain", "99"][..], 2, &["99", "expected 1 to 46"][..]),
        (&["--rule", "x"], 2, &["expected 1 to 46"]),
        (&["--bench"], 2, &["<HOST>"]),
        (&["--from", "none"], 11, &["none", "No such file"]),
        (&["--from", "text"], 11, &["text", "not a snapshot"]),
        (
            &["--from", "other"],
            11,
            &["nicstripe-snapshot/9", "nicstripe-snapshot/1"],
        ),
        (&["--from", &two, "--from", &two], 2, &["two machines"]),
        (&["--root", "none"], 11, &["none"]),
        (&["127.0.0.1", "-P", "1"], 10, &["cannot connect"]),
    ] {
        let outcome = side.run([&["doctor"], words].concat()).expect(code);
        for part in parts {
            assert!(
                outcome.stderr.contains(part),
                "{words:?}: {}",
                outcome.stderr
            );
        }
    }
}
