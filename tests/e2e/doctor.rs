//! Tests of `nicstripe doctor`. Faults on real cables are in `tests/netns/doctor.rs`, the rules on
//! made-up machines in `crates/nicstripe-doctor/tests`.

use std::{fs, path::PathBuf};

use nicstripe_testkit::{Outcome, Side, StandIns, pair::Pair, text};
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
    let rule = doctor(&["--explain", "31"]).expect(0).stdout;
    assert!(
        rule.starts_with("rule 31: ") && rule.contains("speaks"),
        "{rule}"
    );
    let document = doctor(&["--from", &file, "--json"]).expect(42);
    let document = document.document_of("doctor");
    assert_eq!(rules(&document, "findings"), [31]);
    assert_eq!(document["ok"], false);
    assert_eq!(text(&document, "error"), "1 fault found");
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
        (&["--explain", "99"][..], 2, &["99", "expected 1 to 47"][..]),
        (&["--rule", "x"], 2, &["expected 1 to 47"]),
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
        // An error of the command line itself prints no document.
        if code == 2 && words[0] != "--from" {
            continue;
        }
        let outcome = side.run([&["doctor", "--json"], words].concat());
        let document = outcome.expect(code).document_of("doctor");
        assert_eq!(document["exit_code"], code);
        assert!(
            text(&document, "error").contains(parts[0]) && document.get("findings").is_none(),
            "{document:#}"
        );
    }
}

/// Names that a machine may claim, which a shell takes for more than a name, or a program for an
/// option.
const HOSTILE: [&str; 9] = [
    "e';id>P;'",
    "$(id>P)",
    "`id>P`",
    "a;id>P",
    "a\nid>P",
    "\\'; id>P #",
    "\u{1b}[2K|id>P",
    "-x",
    "a b",
];

/// Returns a made-up machine's file in which interfaces and machines claim this name.
fn claimed(file: &str, hostile: &str) -> String {
    let mut text = fs::read_to_string(machine(file)).unwrap();
    let plain: Value = serde_json::from_str(&text).unwrap();
    let json = |name: &str| Value::from(name).to_string();
    let machines = plain["machines"].as_array().unwrap();
    let interfaces = machines
        .iter()
        .flat_map(|machine| machine["interfaces"].as_array().unwrap());
    for (index, interface) in interfaces.enumerate() {
        let name = format!("{hostile}{index}");
        text = text.replace(&json(interface["name"].as_str().unwrap()), &json(&name));
    }
    let mut snapshot: Value = serde_json::from_str(&text).unwrap();
    for machine in snapshot["machines"].as_array_mut().unwrap() {
        machine["host"]["name"] = hostile.into();
    }
    snapshot.to_string()
}

/// Returns the commands that a screen shows, without the place where to type them.
fn commands(screen: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut is_command = false;
    for line in screen.lines() {
        let Some(text) = line.strip_prefix("         ") else {
            is_command = false;
            continue;
        };
        is_command = match text.get(..7).map(str::trim_end) {
            Some("run:" | "undo:") => true,
            Some("") => is_command,
            _ => false,
        };
        if is_command {
            let (command, _) = text[7..].split_once("   (").unwrap_or((&text[7..], ""));
            commands.push(command.to_owned());
        }
    }
    commands
}

/// That each rule quotes such names in its commands is tested in `crates/nicstripe-doctor`. Here a shell gets
/// what is printed.
#[test]
fn no_claimed_name_reaches_a_shell_by_a_remedy() {
    let stand_ins = StandIns::of(&["ip", "tc", "sysctl", "ethtool", "nft", "id"]);
    let side = Side::here();
    let shown = |snapshot: &str, rule: &str| {
        side.write("claims.json", snapshot);
        side.run(["doctor", "--from", "claims.json", "--rule", rule, "--all"])
            .stdout
    };
    for (file, rule) in [("tbf-left-at-100", "31"), ("duplex-mismatch", "19")] {
        let plain = shown(&fs::read_to_string(machine(file)).unwrap(), rule);
        assert!(!commands(&plain).is_empty(), "rule {rule}: {plain}");
        check(&stand_ins, &plain);
        for hostile in HOSTILE {
            let screen = shown(&claimed(file, hostile), rule);
            let spoke = screen.contains(&format!("[rule {rule}"));
            assert!(spoke, "{rule}: {screen}");
            check(&stand_ins, &screen);
            for command in commands(&screen) {
                assert!(!command.contains(hostile), "rule {rule}: {command}");
            }
            for line in screen.lines().filter(|line| line.contains("   (there")) {
                let named = line.ends_with("   (there)") || line.contains("   (there, \"");
                assert!(named, "rule {rule}: {line}");
            }
        }
    }
}

/// Runs each command of a screen, and compares the words that its program got.
fn check(stand_ins: &StandIns, screen: &str) {
    for command in commands(screen) {
        let started = stand_ins.run(&command, &[]);
        let words = command
            .split(" | ")
            .map(|one| shell_words::split(one).unwrap());
        let mut intended: Vec<Vec<String>> = words.collect();
        intended.sort();
        assert_eq!(started, intended, "{command}");
    }
}
