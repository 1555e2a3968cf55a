//! Fuzzing entry points: kernel answers, files of `/proc`, `/sys` and resolvers, facts about a
//! machine, and messages between the program and the route helper.
//!
//! Called by `fuzz/fuzz_targets`, and by the tests below with every file of `fuzz/corpus`.

use std::path::Path;

use nicstripe_netlink::{Attributes, Message, Messages};

use crate::{
    facts::{self, Facts},
    helper::protocol::{ANSWER_LEN, REQUEST_LEN, Reply, Request},
    host::{cpu, file_system},
    interface::{
        InterfaceIndex, counters,
        egress_limit::{Class, Limiter},
        enumerate::{AddressMessage, LinkMessage},
        ethtool, ethtool_messages,
        name::InterfaceName,
        sysfs::device_type_of,
    },
    ledger::{Recorded, Stat, records_of},
    mtu::manager::MtuRecord,
    routes::{lookup, manager::RouteRecord, policy::resolvers, table::Entry},
    socket::tcp_info,
};

/// Parses fuzzer input as a kernel answer. The first byte selects the format: a netlink datagram,
/// `TCP_INFO`, or a text of `/proc`, `/sys` or a resolver's file.
pub fn netlink(data: &[u8]) {
    let Some((kind, answer)) = data.split_first() else {
        return;
    };
    match kind % 4 {
        0 | 1 => datagram(answer),
        2 => _ = tcp_info::parse(answer),
        _ => texts(&String::from_utf8_lossy(answer)),
    }
}

fn datagram(bytes: &[u8]) {
    let (mut limiters, mut classes, mut count) = (Vec::new(), Vec::new(), 0);
    for message in Messages::new(bytes) {
        count += 1;
        assert!(count <= bytes.len() / 16, "more messages than headers");
        parse(&message);
        limiters.extend(Limiter::parse(&message));
        classes.extend(Class::parse(&message));
    }
    for limiter in limiters {
        if let Limiter::Htb(htb) = limiter {
            let _ = htb.limit(&classes);
        }
    }
}

fn parse(message: &Message<'_>) {
    let link = LinkMessage::parse(message);
    assert!(
        link.is_none_or(|link| InterfaceName::new(link.link.name.as_bytes()) == Ok(link.link.name))
    );
    let _ = AddressMessage::parse(message);
    let _ = lookup::parse(message);
    let _ = counters::parse(message);
    let _ = Entry::parse(message).and_then(|entry| entry.as_ours());
    let Some((_, attributes)) = message.split(4) else {
        return;
    };
    let found: usize = attributes.map(|(_, value)| 4 + value.len()).sum();
    assert!(found <= message.body.len(), "attributes overlap");
    attributes.for_each(|(_, value)| Attributes::new(value).for_each(drop));
}

fn texts(text: &str) {
    let _ = Stat::parse(text);
    resolvers(text).for_each(drop);
    let _ = device_type_of(text, InterfaceIndex(3));
    cpu::parse(text);
    facts::parse(text);
    file_system::parse(text);
}

/// Decodes fuzzer input as a request to the route helper, its answer, or a record file; the first
/// byte selects which.
///
/// # Panics
///
/// Panics if a decoded value does not encode to the same bytes.
pub fn routes(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else {
        return;
    };
    match kind % 3 {
        0 => {
            let request = filled::<REQUEST_LEN>(bytes);
            let read = Request::decode(&request);
            assert!(read.is_none_or(|read| read.encode() == request));
        }
        1 => {
            let answer = filled::<ANSWER_LEN>(bytes);
            let read = Reply::decode(&answer);
            assert!(read.is_none_or(|read| read.encode() == answer));
        }
        _ => ledger(bytes),
    }
}

/// Parses fuzzer input as facts about a machine. The first byte selects the format: a text of
/// `/proc` or `/sys`, an answer of a driver, a netlink datagram, or JSON of another machine.
///
/// # Panics
///
/// Panics if facts from JSON change when they are cut to their limits again, or are not the same
/// after they were written and read.
pub fn facts(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else {
        return;
    };
    match kind % 4 {
        0 => facts::parse(&String::from_utf8_lossy(bytes)),
        1 => {
            ethtool_messages::parse(bytes);
            ethtool::parse(bytes);
        }
        2 => Messages::new(bytes).for_each(|message| facts::parse_message(&message)),
        _ => {
            let Ok(read) = serde_json::from_slice::<Facts>(bytes) else {
                return;
            };
            let bounded = read.bounded();
            assert_eq!(bounded.clone().bounded(), bounded);
            let written = serde_json::to_vec(&bounded).expect("facts are plain data");
            let again = serde_json::from_slice::<Facts>(&written).expect("written facts are read");
            assert_eq!(again, bounded);
        }
    }
}

/// Pads or cuts the input to a message of `N` bytes: the decoder takes no other length.
fn filled<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut filled = [0; N];
    let len = bytes.len().min(N);
    filled[..len].copy_from_slice(&bytes[..len]);
    filled
}

fn ledger(bytes: &[u8]) {
    read_back::<RouteRecord>(bytes);
    read_back::<MtuRecord>(bytes);
}

fn read_back<R: Recorded + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let records = records_of::<R>(bytes, Path::new(R::KIND));
    let lines = records
        .iter()
        .map(|record| serde_json::to_string(record).expect("a record is plain data"));
    let written: String = lines.map(|line| line + "\n").collect();
    assert_eq!(
        records_of::<R>(written.as_bytes(), Path::new(R::KIND)),
        records
    );
}

#[cfg(test)]
mod tests {
    use nicstripe_testkit::replay;

    use super::*;

    #[test]
    fn the_targets_accept_every_file_of_their_corpora() {
        replay(&[("netlink", netlink), ("facts", facts), ("routes", routes)]);
    }
}
