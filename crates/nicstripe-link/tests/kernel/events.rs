//! Tests of link and address change notifications.

use std::time::{Duration, Instant};

use nicstripe_link::{Change, Changes};
use rtnetlink::LinkVeth;

use crate::lab::{Lab, name};

crate::tests![
    a_cut_cable_is_told_within_100_ms,
    switching_an_interface_off_and_on_is_a_change_of_carrier,
    addresses_mtu_and_new_interfaces_are_told_once,
    leaving_a_bridge_is_not_being_gone,
    after_a_flood_the_last_state_is_told,
    a_cancelled_wait_loses_nothing,
];

fn a_cut_cable_is_told_within_100_ms() {
    let lab = Lab::one_cable();
    let index = lab.near.index("a0");
    let mut worst = Duration::ZERO;
    lab.near.block_on(|| async {
        let mut changes = Changes::open().unwrap();
        for up in [false, true, false, true] {
            if up {
                lab.far.up("b0");
            } else {
                lab.far.down("b0");
            }
            let start = Instant::now();
            while next(&mut changes).await != (Change::Carrier { index, up }) {}
            worst = worst.max(start.elapsed());
        }
    });
    eprintln!("Changes: carrier change reported after {worst:?} at worst");
    assert!(worst < Duration::from_millis(100), "{worst:?}");
}

fn switching_an_interface_off_and_on_is_a_change_of_carrier() {
    let lab = Lab::one_cable();
    let index = lab.near.index("a0");
    lab.near.block_on(|| async {
        let mut changes = Changes::open().unwrap();
        lab.near.down("a0");
        assert_eq!(
            next(&mut changes).await,
            Change::Carrier { index, up: false }
        );
        lab.near.up("a0");
        while next(&mut changes).await != (Change::Carrier { index, up: true }) {}
    });
}

fn addresses_mtu_and_new_interfaces_are_told_once() {
    let lab = Lab::one_cable();
    let index = lab.near.index("a0");
    lab.near.block_on(|| async {
        let mut changes = Changes::open().unwrap();
        let address = "10.1.0.7".parse().unwrap();
        lab.near.add_address("a0", "10.1.0.7/24");
        assert_eq!(
            next(&mut changes).await,
            Change::Address {
                index,
                address,
                usable: true
            }
        );
        lab.near.set("a0", |link| link.mtu(1400));
        assert_eq!(next(&mut changes).await, Change::Altered { index });

        lab.near.add_link(LinkVeth::new("a9", "b9").build());
        let (a9, b9) = (lab.near.index("a9"), lab.near.index("b9"));
        let appeared = [next(&mut changes).await, next(&mut changes).await];
        assert!(
            appeared.contains(&Change::Appeared {
                index: a9,
                name: name("a9")
            }),
            "{appeared:?}"
        );
        assert!(
            appeared.contains(&Change::Appeared {
                index: b9,
                name: name("b9")
            }),
            "{appeared:?}"
        );
        lab.near.remove_link("a9");
        let gone = [next(&mut changes).await, next(&mut changes).await];
        assert!(
            gone.contains(&Change::Gone { index: a9 })
                && gone.contains(&Change::Gone { index: b9 }),
            "{gone:?}"
        );
    });
}

fn leaving_a_bridge_is_not_being_gone() {
    let lab = Lab::one_cable();
    lab.near.add_link(rtnetlink::LinkBridge::new("br0").build());
    let (bridge, index) = (lab.near.index("br0"), lab.near.index("a0"));
    lab.near.set("a0", |link| link.controller(bridge.0));
    lab.near.block_on(|| async {
        let mut changes = Changes::open().unwrap();
        lab.near.set("a0", |link| link.nocontroller());
        lab.near.down("a0");
        let mut told = vec![next(&mut changes).await];
        while told.last() != Some(&Change::Carrier { index, up: false }) {
            told.push(next(&mut changes).await);
        }
        assert!(told.contains(&Change::Altered { index }), "{told:?}");
        assert!(!told.contains(&Change::Gone { index }), "{told:?}");
    });
}

fn after_a_flood_the_last_state_is_told() {
    let lab = Lab::one_cable();
    let index = lab.near.index("a0");
    // About 1500 bytes per message; several times the socket's buffer of 208 KiB in total.
    let flood = |handle: rtnetlink::Handle| async move {
        for round in 0..FLOOD {
            let link = rtnetlink::LinkUnspec::new_with_name("a0")
                .mtu(1400 + round % 2)
                .build();
            handle.link().set(link).execute().await.unwrap();
        }
    };
    lab.near.block_on(|| async {
        let mut changes = Changes::open().unwrap();
        // The message about the cut stays queued, and the kernel drops the message about the
        // repair.
        lab.far.down("b0");
        lab.near.netlink(flood);
        lab.far.up("b0");
        wait_for_carrier(&lab);
        let mut told = Vec::new();
        while let Ok(change) =
            tokio::time::timeout(Duration::from_millis(300), changes.next()).await
        {
            told.push(change.unwrap());
        }
        assert!(
            told.len() < FLOOD as usize,
            "the flood did not overflow the buffer"
        );
        let last = told
            .iter()
            .rfind(|change| matches!(change, Change::Carrier { .. }));
        assert!(
            last.is_none_or(|last| *last == Change::Carrier { index, up: true }),
            "{told:?}"
        );

        lab.near.down("a0");
        while next(&mut changes).await != (Change::Carrier { index, up: false }) {}
    });
}

fn wait_for_carrier(lab: &Lab) {
    let start = Instant::now();
    while !lab.near.interface("a0").carrier {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "no carrier after 10 s"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn a_cancelled_wait_loses_nothing() {
    let lab = Lab::one_cable();
    let index = lab.near.index("a0");
    lab.near.block_on(|| async {
        let mut changes = Changes::open().unwrap();
        assert!(
            tokio::time::timeout(Duration::from_millis(20), changes.next())
                .await
                .is_err()
        );
        lab.far.down("b0");
        assert_eq!(
            next(&mut changes).await,
            Change::Carrier { index, up: false }
        );
    });
}

async fn next(changes: &mut Changes) -> Change {
    tokio::time::timeout(Duration::from_secs(10), changes.next())
        .await
        .expect("no change in 10 s")
        .unwrap()
}

const FLOOD: u32 = 1000;
