//! Tests with sparse files: the sender announces holes instead of sending zeros, and the receiver
//! makes them durable as holes.

use nicstripe_sim::End;

use crate::harness::{Lab, Seed, ms, secs};

const CHUNK: u64 = 4096;

#[test]
fn holes_are_told_although_a_link_is_cut_under_them() {
    let mut lab = Lab::small(Seed(3), 400 * CHUNK).link(1000).link(1000);
    lab.add_hole(5, 300);
    lab.cut_after = Some((End::A, |message| {
        matches!(message, nicstripe_proto::Message::Holes(_))
    }));
    lab.start();
    let took = lab.run(secs(60));
    lab.assert_delivered();
    assert!(took < ms(2000), "{took:?}");
}
