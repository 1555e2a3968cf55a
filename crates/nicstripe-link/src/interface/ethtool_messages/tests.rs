use super::*;

/// Returns attributes in the kernel's layout.
fn attributes(list: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, value) in list {
        push_attribute(&mut bytes, *kind, value);
    }
    bytes
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Returns a compact bitset of 92 bits.
fn bitset(value: &[u32], mask: &[u32]) -> Vec<u8> {
    attributes(&[(2, &words(&[92])), (4, &words(value)), (5, &words(mask))])
}

/// Returns the answer of a card with 1000 Mbit/s that negotiated 100 Mbit/s.
fn link_answer() -> Vec<u8> {
    attributes(&[
        (1, &attributes(&[(1, &words(&[2])), (2, b"eth0\0")])),
        (2, &[1]),
        (3, &bitset(&[0x48, 0, 0], &[0x68, 1 << 15, 0])),
        (
            4,
            &attributes(&[(1, &[]), (2, &words(&[92])), (4, &words(&[0x4a, 0, 0]))]),
        ),
        (5, &words(&[100])),
        (6, &[0]),
        (99, &[1]),
    ])
}

/// Returns the statistics of a card: four bytes, eight bytes with padding, an unknown number, and
/// an unknown group.
pub(crate) fn statistics_answer() -> Vec<u8> {
    let count = |number, value: &[u8]| attributes(&[(1, &[]), (number, value)]);
    let group = |id: u32, counts: &[Vec<u8>]| {
        let mut group = attributes(&[(2, &words(&[id])), (3, &words(&[7]))]);
        counts
            .iter()
            .for_each(|count| push_attribute(&mut group, 4, count));
        group
    };
    attributes(&[
        (2, &attributes(&[(1, &words(&[2]))])),
        (4, &group(0, &[count(0, &words(&[3]))])),
        (
            4,
            &group(
                1,
                &[
                    count(4, &u64::MAX.to_ne_bytes()),
                    count(8, &7_u64.to_ne_bytes()),
                    count(500, &[0; 8]),
                ],
            ),
        ),
        (4, &group(2, &[count(1, &9_u64.to_ne_bytes())])),
        (4, &group(3, &[count(0, &1_u64.to_ne_bytes())])),
    ])
}

fn numbers(list: &[(u16, u32)]) -> Vec<u8> {
    let list: Vec<_> = list
        .iter()
        .map(|(kind, value)| (*kind, value.to_ne_bytes()))
        .collect();
    attributes(
        &list
            .iter()
            .map(|(kind, value)| (*kind, &value[..]))
            .collect::<Vec<_>>(),
    )
}

#[test]
fn the_negotiation_has_both_ends() {
    let answer = link_answer();
    let link = LinkSettings::parse(Attributes::new(&answer));
    assert_eq!(
        (link.megabits, link.duplex, link.modes.autoneg),
        (Some(100), Some("half"), Some(true))
    );
    assert_eq!(
        link.modes.supported.unwrap(),
        ["100baseT/Full", "1000baseT/Full", "2500baseT/Full"]
    );
    assert_eq!(link.modes.advertised.unwrap(), ["100baseT/Full"]);
    assert_eq!(
        link.modes.partner.unwrap(),
        ["10baseT/Full", "100baseT/Full"]
    );
    assert_eq!(link.modes.partner_autoneg, Some(true));
    let nothing = LinkSettings::parse(Attributes::new(&[]));
    assert_eq!(nothing, LinkSettings::default());
}

#[test]
fn statistics_have_the_names_of_the_standard() {
    let answer = statistics_answer();
    let expected = [
        ("phy.SymbolErrorDuringCarrier", 3),
        ("mac.FrameCheckSequenceErrors", u64::MAX),
        ("mac.LateCollisions", 7),
        ("ctrl.MACControlFramesReceived", 9),
    ];
    assert_eq!(
        statistics(Attributes::new(&answer)),
        expected.map(|(name, count)| (name.to_owned(), count))
    );
}

#[test]
fn settings_of_a_card_are_read_by_their_numbers() {
    let frames = attributes(&[(2, &5_u64.to_ne_bytes()), (3, &6_u64.to_ne_bytes())]);
    let pause = attributes(&[(2, &[1]), (3, &[0]), (4, &[1]), (5, &frames)]);
    let expected = Pause {
        facts: PauseFacts {
            autoneg: Some(true),
            rx: Some(false),
            tx: Some(true),
        },
        sent_frames: Some(5),
        received_frames: Some(6),
    };
    assert_eq!(Pause::parse(Attributes::new(&pause)), expected);
    let eee = attributes(&[(4, &[0]), (5, &[1])]);
    let expected = EeeFacts {
        enabled: Some(true),
        active: Some(false),
    };
    assert_eq!(EeeFacts::parse(Attributes::new(&eee)), expected);
    let rings = numbers(&[(2, 4096), (5, 2048), (6, 512), (9, 256)]);
    let expected = RingFacts {
        rx: Some(512),
        rx_max: Some(4096),
        tx: Some(256),
        tx_max: Some(2048),
    };
    assert_eq!(RingFacts::parse(Attributes::new(&rings)), expected);
    let channels = numbers(&[(5, 8), (9, 4)]);
    let expected = ChannelFacts {
        combined: Some(4),
        combined_max: Some(8),
        ..ChannelFacts::default()
    };
    assert_eq!(ChannelFacts::parse(Attributes::new(&channels)), expected);
    let mut coalesce = numbers(&[(2, 50), (3, 64)]);
    push_attribute(&mut coalesce, 11, &[1]);
    let expected = CoalesceFacts {
        rx_usecs: Some(50),
        rx_frames: Some(64),
        adaptive_rx: Some(true),
    };
    assert_eq!(CoalesceFacts::parse(Attributes::new(&coalesce)), expected);
}

#[test]
fn cut_and_mutated_answers_never_panic() {
    for answer in [
        link_answer(),
        statistics_answer(),
        numbers(&[(2, 1), (5, 2), (9, 3)]),
    ] {
        for position in 0..answer.len() {
            parse(&answer[..position]);
            for value in [0, 1, 3, 5, 0x7f, 0xff] {
                let mut mutated = answer.clone();
                mutated[position] = value;
                parse(&mutated);
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel")]
fn loopback_answers_nothing_and_no_query_fails() {
    // A kernel without ethtool's netlink family has nothing to test.
    let Ok(mut ethtool) = Ethtool::open() else {
        return;
    };
    for interface in [InterfaceIndex(1), InterfaceIndex(u32::MAX)] {
        assert_eq!(ethtool.pause(interface), None);
        assert_eq!(ethtool.rings(interface), None);
        assert_eq!(ethtool.eee(interface), None);
        assert_eq!(ethtool.statistics(interface), []);
    }
}

#[test]
fn offloads_that_can_be_switched_are_read_by_name() {
    let bit = |name: &[u8], set: bool| {
        let mut bit = attributes(&[(1, &words(&[7])), (2, name)]);
        if set {
            push_attribute(&mut bit, 3, &[]);
        }
        bit
    };
    let bits = attributes(&[
        (1, &bit(b"tx-tcp-segmentation\0", true)),
        (1, &bit(b"rx-gro\0", false)),
        (1, &bit(b"tx-checksum-ipv4\0", true)),
        (1, &bit(b"tx-checksum-ip-generic\0", true)),
        (1, &bit(b"rx-vlan-hw-parse\0", true)),
    ]);
    let answer = attributes(&[(2, &attributes(&[(2, &words(&[64])), (3, &bits)]))]);
    let found = possible_offloads(Attributes::new(&answer));
    assert_eq!(found, Some(vec!["tso", "tx-checksum"]));
    let whole = attributes(&[(2, &attributes(&[(1, &[]), (3, &bits)]))]);
    let found = possible_offloads(Attributes::new(&whole));
    assert_eq!(found, Some(vec!["tso", "gro", "tx-checksum"]));
    assert_eq!(possible_offloads(Attributes::new(&answer[..8])), None);
}
