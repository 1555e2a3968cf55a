//! Interrupts of a card and the processors that handled them.

use std::collections::BTreeMap;

use crate::facts::{
    interface::InterruptFacts,
    limits::{MOST_COUNTS, MOST_INTERRUPTS},
    system::System,
    text::{is_numbered, number32, plain},
};

/// Lists the interrupts of an interface, at most 256. `device` is the card's path below
/// `/sys/devices`; without one, the interrupts are found by the interface's name.
pub(crate) fn interrupts(
    system: &dyn System,
    table: &Table<'_>,
    name: &str,
    device: Option<&str>,
) -> Vec<InterruptFacts> {
    let mut irqs = device
        .map(|device| message_signalled(system, device))
        .unwrap_or_default();
    if irqs.is_empty() {
        irqs = table.of_interface(name);
    }
    irqs.sort_unstable();
    irqs.truncate(MOST_INTERRUPTS);
    let read = |irq| {
        let counts = table.counts(irq).or_else(|| counts_in_sysfs(system, irq))?;
        let affinity = system.read(&format!("/proc/irq/{irq}/smp_affinity_list"));
        Some(InterruptFacts {
            irq,
            counts,
            affinity: affinity.and_then(|text| plain(&text)),
        })
    };
    irqs.into_iter().filter_map(read).collect()
}

/// Returns the numbers of a card's message signalled interrupts. Those of a virtio device belong to
/// the PCI function above it.
fn message_signalled(system: &dyn System, device: &str) -> Vec<u32> {
    let holder = match device.rsplit_once('/') {
        Some((parent, address)) if is_numbered(address, "virtio") => parent,
        _ => device,
    };
    let names = system.list(&format!("{holder}/msi_irqs"));
    names.iter().filter_map(|irq| number32(irq)).collect()
}

/// Reads the counts of an interrupt that is missing in the first part of a long `/proc/interrupts`.
fn counts_in_sysfs(system: &dyn System, irq: u32) -> Option<Vec<u64>> {
    let text = system.read(&format!("/sys/kernel/irq/{irq}/per_cpu_count"))?;
    let counts = text.trim().split(',').take(MOST_COUNTS);
    counts.map(|count| count.parse().ok()).collect()
}

/// Parsed `/proc/interrupts`.
pub(crate) struct Table<'t> {
    /// Processor of each column. Processors that are offline have no column.
    columns: Vec<usize>,
    /// Text after the number of each interrupt.
    lines: BTreeMap<u32, &'t str>,
}

impl<'t> Table<'t> {
    pub(crate) fn parse(text: &'t str) -> Self {
        let mut lines = text.lines();
        let columns = lines.next().unwrap_or_default().split_whitespace();
        let line = |line: &'t str| {
            let (irq, rest) = line.split_once(':')?;
            Some((number32(irq)?, rest))
        };
        Self {
            columns: columns
                .map_while(|column| column.strip_prefix("CPU")?.parse().ok())
                .collect(),
            lines: lines.filter_map(line).collect(),
        }
    }

    /// Returns the counts of an interrupt by the numbers of the processors; `None` if its line is
    /// missing or cut.
    fn counts(&self, irq: u32) -> Option<Vec<u64>> {
        let mut words = self.lines.get(&irq)?.split_whitespace();
        let mut counts = Vec::new();
        for cpu in &self.columns {
            let count = words.next()?.parse().ok()?;
            if *cpu < MOST_COUNTS {
                counts.resize(counts.len().max(cpu + 1), 0);
                counts[*cpu] = count;
            }
        }
        words.next()?;
        Some(counts)
    }

    /// Returns the interrupts whose description contains the name of an interface, such as
    /// `eth0-rx-1` for `eth0`.
    fn of_interface(&self, name: &str) -> Vec<u32> {
        let is_of = |word: &str| {
            let rest = word.strip_prefix(name);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
        };
        let mentions = |line: &&str| line.split_whitespace().skip(self.columns.len()).any(is_of);
        let lines = self.lines.iter().filter(|(_, line)| mentions(line));
        lines.map(|(irq, _)| *irq).collect()
    }
}

/// Runs the parser of this module on one text, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(crate) fn parse(text: &str) {
    let table = Table::parse(text);
    let irqs: Vec<_> = table.lines.keys().copied().collect();
    for irq in irqs {
        let counts = table.counts(irq);
        assert!(counts.is_none_or(|counts| counts.len() <= MOST_COUNTS));
    }
    let _ = table.of_interface("eth0");
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "           CPU0       CPU2       \n  16:          1          2  IO-APIC  16-fasteoi   i801_smbus, eth1\n  24:         10  18446744073709551615  PCI-MSI 524288-edge      eth0-rx-0\n 125:          0          5  PCI-MSI 524289-edge      eth10\n NMI:          3          4   Non-maskable interrupts\n 126:          7";

    #[test]
    fn counts_belong_to_the_processors_of_their_columns() {
        let table = Table::parse(TEXT);
        assert_eq!(table.counts(24), Some(vec![10, 0, u64::MAX]));
        assert_eq!(table.counts(126), None, "cut");
        assert_eq!(table.counts(99), None);
        assert_eq!(Table::parse("").counts(0), None);
    }

    #[test]
    fn interrupts_are_found_by_the_whole_name() {
        let table = Table::parse(TEXT);
        let of = |name| table.of_interface(name);
        assert_eq!(
            (of("eth0"), of("eth1"), of("eth10")),
            (vec![24], vec![16], vec![125])
        );
        assert_eq!(of("wlan0"), [0; 0]);
    }
}
