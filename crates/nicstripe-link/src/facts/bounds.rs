//! Limits of the facts that machines send to each other.

use std::collections::BTreeMap;

use crate::facts::{
    Facts, LinkModes,
    disks::DiskFacts,
    host::HostFacts,
    interface::InterfaceFacts,
    limits::{
        MOST_ADDRESSES, MOST_COUNTS, MOST_DISKS, MOST_ENTRIES, MOST_HOPS, MOST_INTERFACES,
        MOST_INTERRUPTS, MOST_TEXTS,
    },
    processors::ProcessorFacts,
    text::plain,
};

impl Facts {
    /// Cuts all texts and lists to their limits, and removes control characters: texts have at most
    /// 128 bytes, and lists at most 256 interfaces and addresses, 128 modes, 256 interrupts with
    /// 1024 counts each, 64 disks and 16 buses.
    ///
    /// [`read`](Self::read) does this. Facts of another machine need it before they are printed.
    pub fn bounded(mut self) -> Self {
        bound_text(&mut self.version);
        bound_host(&mut self.host);
        bound_processors(&mut self.processors);
        bound_map(&mut self.settings);
        for value in self.settings.values_mut() {
            *value = plain(value).unwrap_or_default();
        }
        bound_map(&mut self.counters);
        self.interfaces.truncate(MOST_INTERFACES);
        self.interfaces.iter_mut().for_each(bound_interface);
        self.interfaces.retain(|found| !found.name.is_empty());
        self.disks.truncate(MOST_DISKS);
        for DiskFacts { name, .. } in &mut self.disks {
            *name = plain(name).unwrap_or_default();
        }
        self
    }
}

fn bound_host(host: &mut HostFacts) {
    let texts = [
        &mut host.name,
        &mut host.os,
        &mut host.kernel,
        &mut host.cpu,
        &mut host.congestion,
    ];
    texts.into_iter().for_each(bound_text);
}

fn bound_processors(processors: &mut ProcessorFacts) {
    bound_texts(&mut processors.governors);
    bound_text(&mut processors.frequency_driver);
    bound_text(&mut processors.hypervisor);
}

fn bound_interface(facts: &mut InterfaceFacts) {
    facts.name = plain(&facts.name).unwrap_or_default();
    let texts = [
        &mut facts.driver,
        &mut facts.firmware,
        &mut facts.duplex,
        &mut facts.kind,
        &mut facts.mac,
        &mut facts.master,
        &mut facts.lower,
    ];
    texts.into_iter().for_each(bound_text);
    facts.offloads.as_mut().map(bound_texts);
    facts.addresses.truncate(MOST_ADDRESSES);
    facts.duplicates.truncate(MOST_ADDRESSES);
    facts.modes.as_mut().map(bound_modes);
    bound_map(&mut facts.statistics);
    facts.bus.truncate(MOST_HOPS);
    for hop in &mut facts.bus {
        hop.kind = plain(&hop.kind).unwrap_or_default();
        hop.address = plain(&hop.address).unwrap_or_default();
    }
    facts.interrupts.truncate(MOST_INTERRUPTS);
    for interrupt in &mut facts.interrupts {
        interrupt.counts.truncate(MOST_COUNTS);
        bound_text(&mut interrupt.affinity);
    }
    if let Some(qdisc) = &mut facts.qdisc {
        qdisc.kind = plain(&qdisc.kind).unwrap_or_default();
    }
    if let Some(bond) = &mut facts.bond {
        bound_text(&mut bond.mode);
        bound_text(&mut bond.hash);
        bound_texts(&mut bond.members);
    }
}

fn bound_modes(modes: &mut LinkModes) {
    let lists = [
        &mut modes.supported,
        &mut modes.advertised,
        &mut modes.partner,
    ];
    lists.into_iter().flatten().for_each(bound_texts);
}

fn bound_text(text: &mut Option<String>) {
    *text = text.as_deref().and_then(plain);
}

fn bound_texts(texts: &mut Vec<String>) {
    texts.truncate(MOST_TEXTS);
    *texts = texts.iter().filter_map(|text| plain(text)).collect();
}

/// Removes entries of a map whose names are no valid text, and those above the limit.
fn bound_map<V>(map: &mut BTreeMap<String, V>) {
    map.retain(|name, _| plain(name).as_deref() == Some(name));
    while map.len() > MOST_ENTRIES {
        map.pop_last();
    }
}
