use super::*;

/// Returns an htb class with a rate and a ceiling; `parent` 0 is the root.
fn class(handle: u32, parent: u32, rate: u64, ceil: u64) -> Class {
    let parent = if parent == 0 { TC_H_ROOT } else { parent };
    Class {
        handle,
        parent,
        rate: ByteRate(rate),
        ceil: ByteRate(ceil),
    }
}

/// Returns the rate limit of an htb whose default class is 10.
fn limit(classes: &[Class]) -> Option<u64> {
    Htb {
        interface: InterfaceIndex(2),
        handle: 0,
        default: 10,
    }
    .limit(classes)
    .map(|rate| rate.0)
}

#[test]
fn a_class_is_limited_as_the_kernel_limits_it() {
    // Each case was measured through a veth on Linux 6.18, in Mbit/s.
    assert_eq!(
        limit(&[class(10, 0, 20, 60)]),
        Some(20),
        "no ancestor lends"
    );
    assert_eq!(
        limit(&[class(1, 0, 20, 20), class(10, 1, 60, 60)]),
        Some(60),
        "its own rate is kept"
    );
    assert_eq!(
        limit(&[class(1, 0, 20, 40), class(10, 1, 5, 60)]),
        Some(20),
        "the top class has no more to lend"
    );
    assert_eq!(
        limit(&[class(1, 0, 80, 80), class(10, 1, 60, 30)]),
        Some(30),
        "the ceiling is above every rate"
    );
}

#[test]
fn an_htb_without_a_default_leaf_has_no_limit() {
    assert_eq!(limit(&[]), None);
    assert_eq!(limit(&[class(11, 0, 20, 20)]), None);
    assert_eq!(limit(&[class(10, 0, 20, 20), class(11, 10, 10, 10)]), None);
}

#[test]
fn an_htb_that_treats_packets_differently_has_no_known_limit() {
    let top = class(1, 0, 100, 100);
    assert_eq!(
        limit(&[top, class(10, 1, 10, 100), class(11, 1, 90, 100)]),
        Some(100)
    );
    assert_eq!(
        limit(&[top, class(10, 1, 10, 100), class(11, 1, 50, 50)]),
        None
    );
    assert_eq!(
        limit(&[class(10, 0, 50, 50), class(11, 0, 50, 50)]),
        None,
        "two tops"
    );
}

#[test]
fn broken_class_trees_end() {
    let top = class(1, 0, 100, 100);
    assert_eq!(limit(&[top, class(10, 9, 10, 10)]), None, "parent unknown");
    assert_eq!(
        limit(&[
            top,
            class(2, 3, 10, 10),
            class(3, 2, 10, 10),
            class(10, 3, 10, 10)
        ]),
        None,
        "a circle"
    );
    assert_eq!(limit(&[top, class(10, 10, 10, 10)]), None, "its own parent");
    let many: Vec<_> = [top]
        .into_iter()
        .chain((10..200).map(|handle| class(handle, 1, 10, 100)))
        .collect();
    assert_eq!(limit(&many), None, "too many to compare");
}

#[test]
fn a_rate_of_zero_or_beyond_64_bits_is_unknown() {
    assert_eq!(
        ByteRate(123_049_500).line_rate(),
        Some(LineRate(984_396_000))
    );
    assert_eq!(ByteRate(0).line_rate(), None);
    assert_eq!(ByteRate(u64::MAX).line_rate(), None);
}

#[test]
fn only_limiters_are_worth_asking_about() {
    for kind in [&b"tbf\0"[..], b"htb\0", b"htb"] {
        assert!(is_limiter(kind));
    }
    for kind in [&b""[..], b"mq\0", b"fq_codel\0", b"noqueue\0", b"tbf2\0"] {
        assert!(!is_limiter(kind));
    }
}

/// Kernel messages recorded on Linux 6.18, in little-endian byte order.
#[cfg(target_endian = "little")]
mod recorded {
    use super::*;
    use nicstripe_netlink::Messages;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|position| u8::from_str_radix(&hex[position..position + 2], 16).unwrap())
            .collect()
    }

    fn limiter(bytes: &[u8]) -> Option<Limiter> {
        Messages::new(bytes).find_map(|message| Limiter::parse(&message))
    }

    fn class(bytes: &[u8]) -> Option<Class> {
        Messages::new(bytes).find_map(|message| Class::parse(&message))
    }

    #[test]
    fn a_tbf_limits_to_its_rate() {
        assert_eq!(
            limiter(&bytes(TBF_GIGABIT)),
            Some(Limiter::Tbf(InterfaceIndex(3), ByteRate(123_049_500)))
        );
    }

    #[test]
    fn a_rate_above_32_bits_is_read_from_its_own_attribute() {
        assert_eq!(
            limiter(&bytes(TBF_40_GIGABIT)),
            Some(Limiter::Tbf(InterfaceIndex(5), ByteRate(5_000_000_000)))
        );
    }

    #[test]
    fn a_peak_rate_below_the_rate_is_the_limit() {
        let mut recorded = bytes(TBF_40_GIGABIT);
        let peak = recorded
            .windows(8)
            .position(|window| window == 6_000_000_000_u64.to_le_bytes())
            .unwrap();
        recorded[peak..peak + 8].copy_from_slice(&4_999_999_999_u64.to_le_bytes());
        assert_eq!(
            limiter(&recorded),
            Some(Limiter::Tbf(InterfaceIndex(5), ByteRate(4_999_999_999)))
        );
    }

    #[test]
    fn an_htb_limits_its_default_class_to_what_it_may_borrow() {
        let htb = Htb {
            interface: InterfaceIndex(7),
            handle: 0x1_0000,
            default: 0x1_0010,
        };
        assert_eq!(limiter(&bytes(HTB_ROOT)), Some(Limiter::Htb(htb)));
        let classes = [
            class(&bytes(HTB_LEAF)).unwrap(),
            class(&bytes(HTB_TOP)).unwrap(),
        ];
        assert_eq!((classes[0].handle, classes[0].parent), (0x1_0010, 0x1_0001));
        assert_eq!(
            (classes[0].rate, classes[0].ceil),
            (ByteRate(1_250_000), ByteRate(12_500_000))
        );
        assert_eq!(
            (classes[1].handle, classes[1].parent),
            (0x1_0001, TC_H_ROOT)
        );
        assert!(classes.iter().all(|class| htb.owns(class)));
        assert_eq!(htb.limit(&classes), Some(ByteRate(12_500_000)));
    }

    #[test]
    fn other_queueing_disciplines_and_other_places_than_the_root_are_no_limiters() {
        assert_eq!(limiter(&bytes(NOQUEUE)), None);
        assert_eq!(limiter(&bytes(HTB_TOP)), None);
        let mut below = bytes(TBF_GIGABIT);
        below[28..32].copy_from_slice(&0x1_0001_u32.to_le_bytes());
        assert_eq!(limiter(&below), None);
    }

    #[test]
    fn frames_counted_in_atm_cells_or_by_a_size_table_are_no_known_limit() {
        let mut cells = bytes(TBF_GIGABIT);
        let rate = cells
            .windows(4)
            .position(|window| window == 123_049_500_u32.to_le_bytes())
            .unwrap();
        cells[rate - 7] = TC_LINKLAYER_ATM;
        assert_eq!(limiter(&cells), None);

        let mut table = bytes(TBF_GIGABIT);
        table.extend([4, 0, libc::TCA_STAB as u8, 0]);
        let len = table.len() as u32;
        table[..4].copy_from_slice(&len.to_le_bytes());
        assert_eq!(limiter(&table), None);
    }

    #[test]
    fn cut_and_mutated_input_never_panics() {
        for hex in [
            TBF_GIGABIT,
            TBF_40_GIGABIT,
            HTB_ROOT,
            HTB_LEAF,
            HTB_TOP,
            NOQUEUE,
        ] {
            let whole = bytes(hex);
            for cut in 0..whole.len() {
                let mut short = whole[..cut].to_vec();
                read(&short);
                // A matching length field lets the parser read further.
                if cut >= 4 {
                    short[..4].copy_from_slice(&(cut as u32).to_le_bytes());
                    read(&short);
                }
            }
            for position in 0..whole.len() {
                for value in [0, 1, 3, 4, 0x7f, 0xff] {
                    let mut mutated = whole.clone();
                    mutated[position] = value;
                    read(&mutated);
                }
            }
        }
    }

    fn read(bytes: &[u8]) {
        let rate = match limiter(bytes) {
            Some(Limiter::Tbf(_, rate)) => Some(rate),
            Some(Limiter::Htb(htb)) => htb.limit(&class(bytes).into_iter().collect::<Vec<_>>()),
            None => class(bytes).and_then(|class| class.limit(&[class], HTB_DEPTH)),
        };
        let _ = rate.and_then(ByteRate::line_rate);
    }

    /// Root queueing discipline `tbf rate 984396kbit burst 256k latency 20ms`, as hexadecimal text.
    const TBF_GIGABIT: &str = "\
        bc00000024000200010000000000000000000000030000000000cb80ffffffff0300000008000100746266002c000200280001000001000000000000\
        1c9655070000000000000000000000003e8d2900078200000000000005000c0000000000300007001400010000000000000000000000000000000000\
        1800030000000000000000000000000000000000000000002c0003000000000000000000000000000000000000000000000000000000000000000000\
        0000000000000000";

    /// Root queueing discipline `tbf rate 40gbit burst 1m latency 20ms peakrate 48gbit mtu 64k`, as
    /// hexadecimal text.
    const TBF_40_GIGABIT: &str = "\
        d400000024000200010000000000000000000000050000000000cc80ffffffff03000000080001007462660044000200280001000001000000000000\
        ffffffff0001000000000000ffffffff00e10506cc0c0000aa0000000c00040000f2052a010000000c00050000bca0650100000005000c0000000000\
        3000070014000100000000000000000000000000000000001800030000000000000000000000000000000000000000002c0003000000000000000000\
        0000000000000000000000000000000000000000000000000000000000000000";

    /// Root queueing discipline `handle 1: htb default 0x10`, as hexadecimal text.
    const HTB_ROOT: &str = "\
        b4000000240002000100000000000000000000000700000000000100ffffffff0300000008000100687462002400020018000200110003000a000000\
        10000000000000000000000008000500e803000005000c00000000003000070014000100560000000000000001000000000000001800030000000000\
        000000000000000000000000000000002c00030056000000000000000100000000000000000000000000000000000000000000000000000000000000";

    /// Leaf class `parent 1:1 classid 1:10 htb rate 10mbit ceil 100mbit`, as hexadecimal text.
    const HTB_LEAF: &str = "\
        ec0000002800020001000000000000000000000007000000100001000100010000002000080001006874620034000200300001000001000000000000\
        d0121300000100000000000020bcbe00204e0000d007000048e801000000000000000000480007001400010056000000000000000100000000000000\
        18000300000000000000000000000000000000000000000018000400010000000000000000000000ed490000640700002c0003005600000000000000\
        010000000000000000000000000000000000000000000000000000000000000018000400010000000000000000000000ed49000064070000";

    /// Top class `parent 1: classid 1:1 htb rate 100mbit`, as hexadecimal text.
    const HTB_TOP: &str = "\
        ec000000280002000100000000000000000000000700000001000100ffffffff00000000080001006874620034000200300001000001000000000000\
        20bcbe00000100000000000020bcbe00d0070000d0070000400d03000700000000000000480007001400010056000000000000000100000000000000\
        1800030000000000000000000000000000000000000000001800040000000000000000000000000064070000640700002c0003005600000000000000\
        0100000000000000000000000000000000000000000000000000000000000000180004000000000000000000000000006407000064070000";

    /// Root queueing discipline of a veth that has none configured (`noqueue`), as hexadecimal
    /// text.
    const NOQUEUE: &str = "\
        94000000240002000100000000000000000000000200000000000000ffffffff020000000c0001006e6f71756575650005000c000000000030000700\
        14000100000000000000000000000000000000001800030000000000000000000000000000000000000000002c000300000000000000000000000000\
        00000000000000000000000000000000000000000000000000000000";
}

/// Returns the message about a tbf of 984,396 kbit/s with a burst of 256 KiB, as Linux 6.18 sends
/// it.
fn tbf(parent: u32) -> Vec<u8> {
    use nicstripe_netlink::push_attribute;
    let mut parameters = vec![0; 36];
    parameters[8..12].copy_from_slice(&123_049_500_u32.to_ne_bytes());
    parameters[24..28].copy_from_slice(&2_723_134_u32.to_ne_bytes());
    parameters[28..32].copy_from_slice(&33_288_u32.to_ne_bytes());
    let (mut options, mut statistics) = (Vec::new(), Vec::new());
    push_attribute(&mut options, TCA_TBF_PARMS, &parameters);
    let queue = [0, 0, 17, 0, 5_u32].map(u32::to_ne_bytes).concat();
    push_attribute(&mut statistics, TCA_STATS_QUEUE, &queue);
    let header = [0, 3, 0x1_0000, parent, 0].map(u32::to_ne_bytes).concat();
    Request::new(libc::RTM_NEWQDISC, &header)
        .attribute(libc::TCA_KIND, b"tbf\0")
        .attribute(libc::TCA_OPTIONS, &options)
        .attribute(TCA_STATS2, &statistics)
        .encode(0, 1)
}

fn root_of(bytes: &[u8]) -> Option<RootDiscipline> {
    RootDiscipline::parse(&nicstripe_netlink::Messages::new(bytes).next()?)
}

#[test]
fn a_token_bucket_has_a_burst_a_queue_and_drops() {
    let root = root_of(&tbf(TC_H_ROOT)).unwrap();
    assert_eq!(
        (root.interface, root.dropped),
        (InterfaceIndex(3), Some(17))
    );
    let bucket = root.bucket.unwrap();
    assert_eq!(bucket.queue_bytes, 2_723_134);
    // 33,288 ticks of 64 ns at 123,049,500 byte/s; 256 KiB were asked for.
    assert_eq!(bucket.burst_bytes(64), Some(262_148));
    assert_eq!(root_of(&tbf(1)), None, "not the root");
    let whole = tbf(TC_H_ROOT);
    for len in 0..whole.len() {
        let _ = root_of(&whole[..len]);
    }
}

#[test]
fn the_tick_is_the_second_number() {
    assert_eq!(
        tick_nanoseconds("000003e8 00000040 000f4240 3b9aca00\n"),
        Some(64)
    );
    for broken in ["", "000003e8", "000003e8 0", "1 x"] {
        assert_eq!(tick_nanoseconds(broken), None, "{broken:?}");
    }
}
