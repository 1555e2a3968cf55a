use proptest::{option, prelude::*};

use super::*;

const THEORY: BitRate = BitRate(941_482_444);

/// Returns measurements of a gigabit link at this rate, without any limit.
fn link(mbit: u64) -> Evidence {
    Evidence {
        goodput: BitRate::from_mbit(mbit),
        theory: Some(THEORY),
        busy: Some(1.0),
        rwnd_limited: Some(0.0),
        sndbuf_limited: Some(0.0),
        loss: Some(0.0),
        round_trip: Some(Duration::from_micros(100)),
        ..Evidence::default()
    }
}

fn busy_core(worst_core: f64, process_cores: f64) -> Processor {
    Processor {
        worst_core: Some(worst_core),
        process_cores: Some(process_cores),
        ..Processor::default()
    }
}

const fn fixed(bytes: u64) -> Option<Buffer> {
    Some(Buffer {
        bytes,
        is_fixed: true,
    })
}

const fn grown(bytes: u64) -> Option<Buffer> {
    Some(Buffer {
        bytes,
        is_fixed: false,
    })
}

/// Asserts the limiter of `$base` with these fields changed.
macro_rules! limited {
    ($limiter:ident, $base:expr $(, $field:ident: $value:expr)*) => {
        let evidence = Evidence { $($field: $value,)* ..$base };
        assert_eq!(of_link(&evidence).limiter, Limiter::$limiter, "{evidence:?}");
    };
}

#[test]
fn a_full_cable_is_a_full_cable_whatever_else_is_busy() {
    limited!(Cable, link(940));
    limited!(Cable, link(914));
    limited!(Unknown, link(912));
    let full = Evidence {
        sender: busy_core(1.0, 1.0),
        rwnd_limited: Some(0.5),
        busy: Some(0.7),
        ..link(935)
    };
    limited!(Cable, full);
}

#[test]
fn a_sender_that_sleeps_is_starved() {
    // Measured: 2 % busy.
    limited!(Sender, link(20), busy: Some(0.02));
    limited!(Sender, link(700), busy: Some(0.79));
    limited!(Unknown, link(700), busy: Some(0.8));
}

#[test]
fn a_reader_that_is_slow_is_the_receiver() {
    // Measured: 54 % at 390 Mbit/s; the kernel had enlarged its buffer.
    let slow = Evidence {
        rwnd_limited: Some(0.54),
        ..link(390)
    };
    limited!(Receiver, slow);
    limited!(Receiver, slow, receive_buffer: grown(6 << 20));
    // Other processes do not count.
    limited!(Receiver, slow, receiver: busy_core(1.0, 0.2));
    let ours = of_link(&Evidence {
        receiver: busy_core(1.0, 0.95),
        ..slow
    });
    assert_eq!((ours.limiter, ours.at), (Limiter::Cpu, Some(End::Receiver)));
}

#[test]
fn small_buffers_are_named_whether_asked_for_or_limited() {
    for buffer in [fixed(32 << 10), fixed(128 << 10), grown(16 << 10)] {
        limited!(ReceiveBuffer, link(600), rwnd_limited: Some(1.0), receive_buffer: buffer);
    }
    limited!(SendBuffer, link(600), sndbuf_limited: Some(0.3));
}

#[test]
fn a_send_buffer_that_is_limited_is_named_though_the_kernel_counts_no_time() {
    let limited = grown(16 * 1024);
    limited!(SendBuffer, link(400), send_buffer: limited);
    // It waits for room.
    limited!(SendBuffer, link(400), send_buffer: limited, busy: Some(0.5));
    // And is enough here.
    limited!(Cable, link(930), send_buffer: limited);
    let far = Some(Duration::from_millis(10));
    limited!(Window, link(6), send_buffer: limited, round_trip: far);
    let quota = Processor {
        throttled: Some(0.3),
        ..Processor::default()
    };
    limited!(Cpu, link(400), send_buffer: limited, receiver: quota);
    // It never had to grow.
    limited!(Sender, link(20), send_buffer: grown(46_080), busy: Some(0.02));
}

#[test]
fn a_buffer_that_is_full_all_the_time_is_named() {
    // 100 Mbit/s × 1 ms are 12,500 bytes.
    let loaded = Evidence {
        loaded_round_trip: Some(Duration::from_millis(1)),
        ..link(100)
    };
    limited!(SendBuffer, loaded, send_buffer: fixed(25_000));
    limited!(ReceiveBuffer, loaded, receive_buffer: grown(25_000));
    limited!(Unknown, loaded, send_buffer: grown(60_000), receive_buffer: grown(60_000));
}

#[test]
fn a_window_below_bandwidth_times_delay_is_named_where_there_is_delay() {
    // 1.18 MB are in flight at 10 ms; half of 512 KiB is window.
    let buffer = fixed(512 << 10);
    let far = Evidence {
        round_trip: Some(Duration::from_millis(10)),
        ..link(200)
    };
    limited!(Window, far, receive_buffer: buffer, rwnd_limited: Some(0.9));
    limited!(Window, far, send_buffer: buffer, sndbuf_limited: Some(0.9));
    limited!(Window, far, send_buffer: buffer);
    limited!(Unknown, far, send_buffer: fixed(4 << 20));
}

#[test]
fn a_core_without_time_and_a_quota_are_the_processor() {
    let found = of_link(&Evidence {
        sender: busy_core(0.91, 0.5),
        receiver: busy_core(0.99, 0.5),
        ..link(600)
    });
    assert_eq!(
        (found.limiter, found.at, found.by_quota),
        (Limiter::Cpu, Some(End::Receiver), false)
    );
    let throttled = Processor {
        throttled: Some(0.6),
        ..Processor::default()
    };
    let starving = Processor {
        process_cores: Some(0.195),
        quota_cores: Some(0.2),
        ..Processor::default()
    };
    for (sender, receiver, end) in [
        (throttled, Processor::default(), End::Sender),
        (Processor::default(), starving, End::Receiver),
    ] {
        // It looks like a slow program, at either end.
        let found = of_link(&Evidence {
            sender,
            receiver,
            busy: Some(0.3),
            rwnd_limited: Some(0.8),
            ..link(300)
        });
        assert_eq!(
            (found.limiter, found.at, found.by_quota),
            (Limiter::Cpu, Some(end), true)
        );
    }
}

#[test]
fn one_packet_in_a_thousand_is_told_also_at_full_rate() {
    // Measured: cubic carries 931.4 of 941.5 Mbit/s then, and 791.1 at 1 % loss.
    limited!(Loss, link(931), loss: Some(0.00095));
    limited!(Loss, link(791), loss: Some(0.01));
    limited!(Cable, link(925), loss: Some(0.0001));
}

#[test]
fn what_a_link_loses_only_beside_others_is_what_they_share() {
    let together = Evidence {
        alone: Some(BitRate::from_mbit(940)),
        ..link(657)
    };
    limited!(Shared, together);
    limited!(Shared, together, loss: Some(0.004), loss_alone: Some(0.0));
    limited!(Loss, together, loss: Some(0.004), loss_alone: Some(0.004));
}

#[test]
fn a_link_of_unknown_rate_is_measured_by_what_it_does_alone() {
    limited!(Unknown, link(930), theory: None);
    let alone = |mbit| Some(BitRate::from_mbit(mbit));
    limited!(Cable, link(930), theory: None, alone: alone(940));
    limited!(Shared, link(930), theory: None, alone: alone(1900));
}

#[test]
fn nothing_known_is_unknown() {
    limited!(Unknown, Evidence::default());
}

const NAMES: Names<'_> = Names {
    sender: "hostA",
    receiver: "hostB",
};

fn finding(name: &str, limiter: Limiter, mbit: u64) -> LinkFinding {
    LinkFinding {
        name: name.to_owned(),
        finding: Finding::of(limiter),
        goodput: BitRate::from_mbit(mbit),
        expected: Some(THEORY),
        loss: None,
    }
}

fn told(links: &[LinkFinding]) -> (Limiter, String) {
    let whole = of_all(links).unwrap();
    (whole.finding.limiter, sentence(&whole, &[], NAMES))
}

#[test]
fn a_shared_bus_names_both_links() {
    let (limiter, text) = told(&[
        finding("eth0", Limiter::Shared, 657),
        finding("eth1", Limiter::Shared, 490),
    ]);
    assert_eq!(limiter, Limiter::Shared);
    assert_eq!(
        text,
        "limited by a resource shared by eth0 and eth1, such as a bus, card or switch: each alone is faster"
    );
    let four = ["a", "b", "c", "d"].map(|name| finding(name, Limiter::Shared, 500));
    let groups = [vec!["a", "b"], vec!["c", "d"]];
    let text = sentence(&of_all(&four).unwrap(), &groups, NAMES);
    assert!(
        text.starts_with(
            "limited by a resource shared by a and b and a resource shared by c and d, such as"
        ),
        "{text}"
    );
    let (_, text) = told(&[
        finding("eth0", Limiter::Cable, 940),
        finding("eth1", Limiter::Shared, 260),
    ]);
    assert!(text.contains("shared by eth0 and eth1"), "{text}");
}

#[test]
fn a_slow_line_in_the_set_is_full_and_named() {
    let slow = LinkFinding {
        expected: Some(BitRate(94_148_244)),
        ..finding("eth1", Limiter::Cable, 94)
    };
    let (limiter, text) = told(&[finding("eth0", Limiter::Cable, 938), slow.clone()]);
    assert_eq!(limiter, Limiter::Cable);
    assert_eq!(
        text,
        "limited by the cables, at their full rate; eth1 carries 94.1 Mbit/s at most"
    );
    assert_eq!(told(&[slow]).1, "limited by the cable, at its full rate");
}

#[test]
fn a_bad_link_is_not_hidden_behind_a_good_total() {
    let slow = LinkFinding {
        expected: Some(BitRate::from_mbit(9)),
        loss: Some(0.012),
        ..finding("eth1", Limiter::Loss, 8)
    };
    let (limiter, text) = told(&[finding("eth0", Limiter::Cable, 940), slow]);
    assert_eq!(limiter, Limiter::Loss);
    assert_eq!(
        text,
        "limited by lost packets on eth1 (1.20 % of the bytes were retransmitted): try another cable or port"
    );
}

#[test]
fn what_costs_most_is_told() {
    let links = [
        finding("a", Limiter::Loss, 900),
        finding("b", Limiter::Receiver, 300),
        finding("c", Limiter::Loss, 500),
    ];
    // Loss costs 41 + 441, the receiver 641.
    assert_eq!(told(&links).0, Limiter::Receiver);
    let links = [
        finding("a", Limiter::Cable, 941),
        finding("b", Limiter::Cable, 941),
        finding("c", Limiter::Unknown, 905),
    ];
    assert_eq!(
        told(&links).0,
        Limiter::Cable,
        "98.7 % of all, the rest is unknown"
    );
    assert_eq!(of_all(&[]), None);
}

#[test]
fn the_machine_that_holds_back_is_named() {
    let with = |finding: Finding| {
        [LinkFinding {
            finding,
            ..finding_of_any()
        }]
    };
    for (found, text) in [
        (
            Finding::cpu(End::Sender, false),
            "limited by the processor of hostA: one core is saturated",
        ),
        (
            Finding::cpu(End::Receiver, true),
            "limited by the CPU quota of a cgroup on hostB",
        ),
        (
            Finding::of(Limiter::Sender),
            "limited by the program on hostA: too little data for eth0",
        ),
        (
            Finding::of(Limiter::Receiver),
            "limited by the program on hostB: reads slower than eth0 can deliver",
        ),
        (
            Finding::of(Limiter::ReceiveBuffer),
            "limited by the receive buffer on hostB: too small for eth0",
        ),
        (
            Finding::of(Limiter::SendBuffer),
            "limited by the send buffer on hostA: too small for eth0",
        ),
    ] {
        assert_eq!(told(&with(found)).1, text);
    }
}

fn finding_of_any() -> LinkFinding {
    finding("eth0", Limiter::Unknown, 300)
}

#[test]
fn names_are_joined_as_people_join_them() {
    assert_eq!(listed(&["a", "b", "c"]), "a, b and c");
    assert_eq!(listed(&["a", "b"]), "a and b");
    assert_eq!(listed::<&str>(&[]), "");
}

fn part() -> impl Strategy<Value = Option<f64>> {
    option::of(prop_oneof![
        0.0..2.0f64,
        Just(f64::NAN),
        Just(f64::INFINITY)
    ])
}

fn any_processor() -> impl Strategy<Value = Processor> {
    (part(), part(), part(), part()).prop_map(
        |(worst_core, process_cores, throttled, quota_cores)| Processor {
            worst_core,
            process_cores,
            throttled,
            quota_cores,
        },
    )
}

fn any_evidence() -> impl Strategy<Value = Evidence> {
    let rates = (
        any::<u64>(),
        option::of(any::<u64>()),
        option::of(any::<u64>()),
    );
    let parts = (part(), part(), part(), part(), part());
    let buffer = || {
        option::of(
            (any::<u64>(), any::<bool>()).prop_map(|(bytes, is_fixed)| Buffer { bytes, is_fixed }),
        )
    };
    let round_trip = || option::of(any::<u64>().prop_map(Duration::from_micros));
    let round_trips = (round_trip(), round_trip());
    (
        rates,
        parts,
        any_processor(),
        any_processor(),
        buffer(),
        buffer(),
        round_trips,
    )
        .prop_map(
            |(
                (goodput, theory, alone),
                (busy, rwnd_limited, sndbuf_limited, loss, loss_alone),
                sender,
                receiver,
                send_buffer,
                receive_buffer,
                (round_trip, loaded_round_trip),
            )| Evidence {
                goodput: BitRate(goodput),
                theory: theory.map(BitRate),
                alone: alone.map(BitRate),
                busy,
                rwnd_limited,
                sndbuf_limited,
                loss,
                loss_alone,
                round_trip,
                loaded_round_trip,
                sender,
                receiver,
                send_buffer,
                receive_buffer,
            },
        )
}

proptest! {
    #[test]
    fn any_evidence_has_a_finding_and_a_full_cable_has_no_other(evidence in any_evidence()) {
        let found = of_link(&evidence);
        let is_full = evidence.theory.is_some_and(|theory| evidence.goodput >= theory);
        prop_assert!(!is_full || matches!(found.limiter, Limiter::Cable | Limiter::Loss));
        prop_assert_eq!(found.at.is_some(), found.limiter == Limiter::Cpu);
        let links = [LinkFinding { name: "eth0".into(), finding: found, goodput: evidence.goodput, expected: evidence.theory, loss: evidence.loss }];
        let whole = of_all(&links).unwrap();
        prop_assert!(sentence(&whole, &[], NAMES).starts_with("limited by "));
    }
}

#[test]
fn a_buffer_to_ask_for_is_four_times_bandwidth_times_delay_and_not_below_256_kib() {
    let gigabit = BitRate::from_gbit(1);
    for (line, micros, bytes) in [
        (gigabit, 100, 12_500),
        (gigabit, 1000, 125_000),
        (gigabit, 50_000, 6_250_000),
        (BitRate::from_gbit(10), 200, 250_000),
    ] {
        let round_trip = Duration::from_micros(micros);
        assert_eq!(line.bytes_in(round_trip), bytes);
        assert_eq!(
            buffer_to_ask_for(line, round_trip),
            (4 * bytes).max(262_144)
        );
    }
}
