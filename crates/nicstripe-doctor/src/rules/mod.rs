//! The rules, a file for each subject.

mod addressing;
mod buffers;
mod bus;
mod cable;
mod link;
mod machine;
mod measured;
mod processor;
mod queues;
mod settings;

use crate::rule::Rule;

/// All rules, in order of their numbers.
pub static RULES: &[Rule] = &[
    addressing::ONE_SUBNET,
    addressing::ARP_FLUX,
    link::SLOW_LINK,
    bus::SHARED,
    bus::PCIE,
    machine::DISK,
    processor::FULL_CORE,
    bus::USB,
    link::MTU_DIFFERS,
    link::BLACK_HOLE,
    link::BOND,
    addressing::CROSSED,
    link::NO_CABLE,
    addressing::FIREWALL,
    cable::ERRORS,
    cable::LOSS,
    cable::FLAPS,
    cable::EEE,
    link::DUPLEX,
    buffers::CUT,
    buffers::CEILING,
    buffers::RECEIVER,
    buffers::SENDER,
    cable::PAUSE,
    queues::RING,
    queues::BACKLOG,
    processor::OFFLOADS,
    processor::INTERRUPTS,
    bus::NUMA,
    processor::SLOW_MODE,
    queues::SHAPER,
    queues::SEND_QUEUE,
    settings::CONGESTION,
    settings::TCP_FEATURES,
    buffers::SLOW_START,
    buffers::MEMORY,
    queues::OTHER_TRAFFIC,
    cable::ROUND_TRIPS,
    link::JUMBO,
    link::MTU_NAME,
    processor::QUOTA,
    settings::CONNECTION_TABLE,
    machine::DRIVER,
    machine::ENDS_DIFFER,
    link::UNPLUGGED,
    settings::CACHED_METRICS,
    addressing::DUPLICATE,
];

/// Returns the rule of this number.
pub fn rule(id: u8) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.id == id)
}

#[cfg(test)]
mod tests;
