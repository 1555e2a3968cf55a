//! Tests of codes on cables: how the other machine is found, and who else may answer.

use nicstripe::{
    invitation::{Invitation, InvitationOptions},
    trust::Identity,
};
use nicstripe_lab::{Host, Lab, LinkSpec};
use nicstripe_testkit::{Process, Side, content, number, tests, trial::Test};

use crate::hosts::{MIB, Rights, side};

pub(crate) const TESTS: &[Test] = tests![
    two_commands_and_a_code_suffice_on_cables_without_addresses,
    with_a_second_machine_that_answers_on_one_of_two_cables_nobody_is_trusted,
    without_ipv6_the_hint_names_the_way_by_host_which_works,
    one_copy_by_code_takes_every_cable_and_outlives_that_of_the_code,
];

/// Starts a command that shows a code.
pub(crate) fn shown_by(side: &Side, words: &[&str]) -> (Process, String) {
    let process = side.start(words);
    process.await_stderr("on the other machine");
    let code = process.await_stdout("-").trim_end().to_owned();
    (process, code)
}

fn sides(lab: Lab) -> (Side, Side, std::sync::Arc<Lab>) {
    let lab = std::sync::Arc::new(lab);
    let [here, there] = [Host::A, Host::B].map(|host| side(&lab, host, Rights::All));
    (here, there, lab)
}

fn two_commands_and_a_code_suffice_on_cables_without_addresses() {
    let lab = Lab::builder()
        .links([LinkSpec::mbit(200).bare(); 2])
        .build()
        .unwrap();
    let (here, there, _lab) = sides(lab);
    let (waiting, code) = shown_by(&there, &["pair", "--name", "laptop"]);
    assert!(code.len() <= 25, "{code}");
    here.run(["pair", &code, "--name", "nas"]).expect(0);
    waiting.finish().expect(0);

    let daemon = there.start(["serve", "--root", "."]);
    daemon.await_stderr("listening on");
    let bytes = content(24 * MIB);
    here.write("source", &bytes);
    let report = here.run(["cp", "--json", "source", "nas:target"]);
    let report = report.expect(0).document();
    there.check("target", &bytes, &report);
    assert_eq!(number(&report, "size_bytes"), bytes.len() as u64);
    let links = report["links"].as_array().unwrap();
    assert_eq!(links.len(), 2, "{report:#}");
    daemon.kill();
}

fn without_ipv6_the_hint_names_the_way_by_host_which_works() {
    let lab = Lab::builder()
        .links([LinkSpec::mbit(200); 2])
        .without_ipv6();
    let (here, there, lab) = sides(lab.build().unwrap());
    let (waiting, code) = shown_by(&there, &["pair", "--name", "laptop"]);
    let refused = here.run(["pair", &code, "--name", "nas"]).expect(10);
    refused.hint(&["pair HOST CODE"]);
    let host = lab.address(Host::B, 0).to_string();
    here.run(["pair", &host, &code, "--name", "nas"]).expect(0);
    waiting.finish().expect(0);
}

fn with_a_second_machine_that_answers_on_one_of_two_cables_nobody_is_trusted() {
    let lab = Lab::builder()
        .links([LinkSpec::mbit(200); 2])
        .build()
        .unwrap();
    let (here, there, lab) = sides(lab);
    // The honest machine is on the first cable only, the other one on the second.
    let (waiting, code) = shown_by(&there, &["pair", "--interface", "eth1"]);
    let other = lab.on(Host::B, || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        let other = runtime.block_on(async { answering_for(&code) });
        (runtime, other)
    });
    here.run(["pair", &code]).expect(5).error(&[
        "two machines answer for invitation",
        "on eth1",
        "on eth2",
        "a new code",
    ]);
    assert!(!waiting.has_ended(), "no guess was spent");
    waiting.kill();
    drop(other);
    for side in [&here, &there] {
        assert!(!side.peers_file().exists());
    }
}

fn one_copy_by_code_takes_every_cable_and_outlives_that_of_the_code() {
    let lab = Lab::builder()
        .links([LinkSpec::mbit(200).bare(); 2])
        .build()
        .unwrap();
    let (here, there, lab) = sides(lab);
    let bytes = content(48 * MIB);
    here.write("source", &bytes);
    let (receiving, code) = shown_by(&there, &["receive", "--yes"]);
    let sending = here.start(["send", "source", "--json-stream", &code]);
    sending.await_bytes(12 << 20);
    // The first cable has the connection of the code.
    lab.set_plugged_at(Host::B, 0, false).unwrap();
    let report = sending.finish().expect(0).document();
    let received = receiving.finish().expect(0);
    assert!(
        received.stderr.contains("received 1 file (48.0 MiB)"),
        "{received}"
    );
    assert!(there.read("source") == bytes);
    let links = report["links"].as_array().unwrap();
    let moved = links.iter().filter(|link| number(link, "bytes") > 1 << 20);
    assert_eq!(moved.count(), 2, "{report:#}");
    for side in [&here, &there] {
        assert!(!side.peers_file().exists() && !side.home().join("identity").exists());
    }
}

/// Opens invitations on the second cable until one has the number of this code.
fn answering_for(code: &str) -> Invitation {
    let identity = Identity::generate().unwrap();
    let number = code.split('-').next().unwrap();
    let options = InvitationOptions {
        interfaces: vec!["eth2".into()],
        ..InvitationOptions::default()
    };
    loop {
        let other = Invitation::open(&identity, options.clone()).unwrap();
        if other.code().number().to_string() == number {
            return other;
        }
    }
}
