#[allow(clippy::duplicate_mod)] // The rules' tests have the same case.
#[path = "../rules/tests/fixture.rs"]
mod fixture;

use nicstripe_link::facts::{BondFacts, InterfaceFacts};

use self::fixture::healthy;
use super::*;
use crate::{Finding, LinkState, Severity, examine};

#[test]
fn names_and_addresses_do_not_appear() {
    let text = text(&Snapshot::of(&secret_case()));
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

#[test]
fn names_and_addresses_do_not_appear_if_only_one_machine_was_read_again() {
    let mut case = secret_case();
    let there = case.there.as_mut().unwrap();
    (there.idle, there.loaded) = (None, None);
    let text = text(&Snapshot::of(&case));
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

#[test]
fn addresses_of_a_report_do_not_appear_wherever_they_are() {
    let mut case = secret_case();
    let report = case.bench.as_mut().unwrap();
    for link in &mut report.links {
        let card = &case.here.facts.interfaces[0];
        link.ends.client.mac.clone_from(&card.mac);
        link.ends.client.addresses.clone_from(&card.addresses);
        link.ends.client.master.clone_from(&card.master);
    }
    let text = text(&Snapshot::of(&case));
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

#[test]
fn the_diagnosis_is_the_same_under_other_names() {
    let mut case = secret_case();
    let loaded = case.here.loaded.as_mut().unwrap();
    let statistics = &mut loaded.interfaces[0].statistics;
    *statistics.get_mut("rx_crc_errors").unwrap() += 40;
    let plain = Snapshot::parse(&text(&Snapshot::of(&case))).unwrap();
    let (own, other) = (examine(&case, &[]), examine(&plain.into_case(None), &[]));
    assert_eq!(
        told(&own.findings),
        [
            (15, Severity::Bad),
            (47, Severity::Warning),
            (47, Severity::Warning),
            (11, Severity::Note)
        ]
    );
    assert_eq!(told(&own.findings), told(&other.findings));
    assert_eq!(own.clean, other.clean);
}

#[test]
fn the_sentences_about_a_snapshot_have_no_secret() {
    let mut case = secret_case();
    case.links[1].state = LinkState::Misdirected;
    case.links[1].arrived = Some("secretport0".into());
    let plain = Snapshot::parse(&text(&Snapshot::of(&case))).unwrap();
    let diagnosis = serde_json::to_string(&examine(&plain.into_case(None), &[])).unwrap();
    assert!(diagnosis.contains("\"rule\":12"), "{diagnosis}");
    for secret in SECRETS {
        assert!(!diagnosis.contains(secret), "{secret} in {diagnosis}");
    }
}

/// Returns the healthy case under names and addresses that are easy to find, with a bond.
fn secret_case() -> Case {
    let mut case = healthy();
    for machine in [&mut case.here, case.there.as_mut().unwrap()] {
        let later = machine.idle.as_mut().map(|(facts, _)| facts);
        let readings = [Some(&mut machine.facts), later, machine.loaded.as_mut()];
        for facts in readings.into_iter().flatten() {
            facts.interfaces[0].master = Some("secretbond".into());
            facts.interfaces.push(InterfaceFacts {
                name: "secretbond".into(),
                lower: Some("secretlower".into()),
                bond: Some(BondFacts {
                    mode: Some("active-backup".into()),
                    hash: None,
                    members: vec!["eth0".into(), "secretmember".into()],
                }),
                addresses: vec![AddressFacts {
                    ip: "2001:db8:5ec::7".parse().unwrap(),
                    prefix_len: 64,
                }],
                duplicates: vec!["2001:db8:5ec::8".parse().unwrap()],
                ..InterfaceFacts::default()
            });
        }
    }
    case.there.as_mut().unwrap().facts.interfaces[2].bond = None;
    case.links[0].routed_by = Some("secretroute".into());
    let mut json = text(&raw(case));
    for (own, secret) in [
        ("alpha", "secretmachine0"),
        ("beta", "secretmachine1"),
        ("eth0", "secretcable0"),
        ("eth1", "enxdeadbeef0001"),
        ("enp1s0", "secretport0"),
        ("enp2s0", "wlxdeadbeef0002"),
        ("10.0.1.", "203.0.113."),
        ("10.0.2.", "198.51.100."),
    ] {
        json = json.replace(own, secret);
    }
    Snapshot::parse(&json).unwrap().into_case(None)
}

const SECRETS: [&str; 6] = [
    "secret",
    "de:ad:be",
    "deadbeef",
    "203.0.113",
    "198.51.100",
    "2001:db8",
];

/// Returns the snapshot of a case without any replacement.
fn raw(case: Case) -> Snapshot {
    let machines: Vec<Machine> = std::iter::once(case.here).chain(case.there).collect();
    Snapshot {
        schema: SNAPSHOT_SCHEMA.into(),
        idle: machines
            .iter()
            .map(|machine| machine.idle.clone())
            .collect(),
        loaded: machines
            .iter()
            .map(|machine| machine.loaded.clone())
            .collect(),
        machines: machines.into_iter().map(|machine| machine.facts).collect(),
        links: case.links,
        bench: case.bench,
    }
}

#[test]
fn two_addresses_share_a_subnet_if_they_did() {
    let addresses = [
        ("10.0.1.1", 24),
        ("10.0.1.9", 24),
        ("10.0.2.1", 24),
        ("11.1.0.1", 8),
        ("11.200.0.1", 8),
        ("12.1.0.1", 8),
        ("172.16.1.1", 16),
        ("172.16.2.1", 16),
        ("172.17.1.1", 16),
        ("192.0.2.1", 32),
        ("2001:db8:1::1", 64),
        ("2001:db8:1::2", 64),
        ("2001:db8:1:1::1", 64),
        ("fe80::1", 64),
    ]
    .map(|(ip, prefix_len)| AddressFacts {
        ip: ip.parse().unwrap(),
        prefix_len,
    });
    let mut case = Case::default();
    case.here.facts.interfaces = addresses
        .iter()
        .enumerate()
        .map(|(index, address)| InterfaceFacts {
            name: format!("eth{index}"),
            addresses: vec![*address],
            ..InterfaceFacts::default()
        })
        .collect();
    let snapshot = Snapshot::of(&case);
    let interfaces = &snapshot.machines[0].interfaces;
    let replaced: Vec<AddressFacts> = interfaces.iter().map(|one| one.addresses[0]).collect();
    for (one, its) in addresses.iter().zip(&replaced) {
        assert_ne!(one.ip, its.ip);
        assert_eq!(one.prefix_len, its.prefix_len);
        for (other, others) in addresses.iter().zip(&replaced) {
            let (before, after) = (
                one.subnet() == other.subnet(),
                its.subnet() == others.subnet(),
            );
            assert_eq!(before, after, "{one:?} and {other:?}");
            assert_eq!(
                one.covers(other.ip),
                its.covers(others.ip),
                "{one:?} and {other:?}"
            );
        }
    }
}

#[test]
fn an_address_is_the_same_wherever_it_occurs() {
    let snapshot = Snapshot::of(&healthy());
    let own = |machine: usize| snapshot.machines[machine].interfaces[1].addresses[0].ip;
    let [here, there]: [IpAddr; 2] = [own(0), own(1)];
    assert_ne!(here, there);
    assert_eq!(snapshot.links[1].local, Some(here));
    assert_eq!(snapshot.links[1].remote, Some(there));
    let addresses = &snapshot.bench.as_ref().unwrap().links[1].addresses;
    assert_eq!(
        [&addresses.client, &addresses.daemon],
        [&here.to_string(), &there.to_string()]
    );
}

#[test]
fn other_schemas_and_other_numbers_of_machines_are_errors() {
    let with = |schema: &str, machines: usize| {
        let snapshot = Snapshot {
            schema: schema.into(),
            machines: vec![Facts::default(); machines],
            ..Snapshot::default()
        };
        Snapshot::parse(&text(&snapshot))
    };
    assert!(with(SNAPSHOT_SCHEMA, 1).is_ok());
    assert!(with(SNAPSHOT_SCHEMA, 2).is_ok());
    for machines in [0, 3] {
        let found = with(SNAPSHOT_SCHEMA, machines);
        assert!(
            matches!(found, Err(SnapshotError::Machines { found }) if found == machines),
            "{machines}"
        );
    }
    let newer = with("nicstripe-snapshot/2", 1);
    assert!(
        matches!(newer, Err(SnapshotError::Schema { found }) if found == "nicstripe-snapshot/2")
    );
    for broken in ["", "[]", "{}", r#"{"schema": "nicstripe-snapshot/1"}"#] {
        let found = Snapshot::parse(broken);
        assert!(matches!(found, Err(SnapshotError::Invalid(_))), "{broken}");
    }
}

#[test]
fn unknown_fields_are_ignored() {
    let snapshot = Snapshot::of(&healthy());
    let newer = text(&snapshot)
        .replace(r#""schema":"#, r#""weather":{"rain":[1]},"schema":"#)
        .replace(r#""name":"eth0""#, r#""colour":"blue","name":"eth0""#)
        .replace(r#""here":"eth0""#, r#""length_m":3.5,"here":"eth0""#)
        .replace(r#""phase":"#, r#""tide":null,"phase":"#);
    for word in ["weather", "colour", "length_m", "tide"] {
        assert!(newer.contains(word), "{word}");
    }
    assert_eq!(Snapshot::parse(&newer).unwrap(), snapshot);
}

#[test]
fn two_snapshots_make_one_case() {
    let (here, there) = (half(healthy().here), half(healthy().there.unwrap()));
    let case = here.clone().into_case(Some(there.clone()));
    assert_eq!(case.here.facts, here.machines[0]);
    let mut expected = there.machines[0].clone();
    // Both files call their machine `a`.
    expected.host.name = Some("b".into());
    assert_eq!(case.there.map(|machine| machine.facts), Some(expected));
}

#[test]
fn two_snapshots_keep_what_was_read_later_at_both_ends() {
    let (here, there) = (half(healthy().here), half(healthy().there.unwrap()));
    let case = here.clone().into_case(Some(there.clone()));
    let ends = [(&case.here, &here), (case.there.as_ref().unwrap(), &there)];
    for (machine, snapshot) in ends {
        assert_eq!(Some(&machine.idle), snapshot.idle.first());
        assert_eq!(Some(&machine.loaded), snapshot.loaded.first());
    }
}

/// Returns the snapshot of one machine.
fn half(here: Machine) -> Snapshot {
    Snapshot::of(&Case {
        here,
        ..Case::default()
    })
}

fn text(snapshot: &Snapshot) -> String {
    serde_json::to_string(snapshot).unwrap()
}

fn told(findings: &[Finding]) -> Vec<(u8, Severity)> {
    let told = findings.iter();
    told.map(|finding| (finding.rule, finding.severity))
        .collect()
}
