//! Limits of lists and texts in the facts that machines send to each other (picked by eye, except as
//! noted).

/// Maximum length of a text in bytes.
pub(crate) const MOST_TEXT: usize = 128;
/// Maximum number of texts in a list, such as the modes of a card; Linux 6.18 has 121.
pub(crate) const MOST_TEXTS: usize = 128;
/// Maximum number of entries in a map, such as the counters of an interface.
pub(crate) const MOST_ENTRIES: usize = 256;
/// Maximum number of interfaces.
pub(crate) const MOST_INTERFACES: usize = 256;
/// Maximum number of addresses of an interface.
pub(crate) const MOST_ADDRESSES: usize = 256;
/// Maximum number of interrupts of an interface.
pub(crate) const MOST_INTERRUPTS: usize = 256;
/// Maximum number of processors whose counts of an interrupt are kept.
pub(crate) const MOST_COUNTS: usize = 1024;
/// Maximum number of devices between a card and the processor.
pub(crate) const MOST_HOPS: usize = 16;
/// Maximum number of disks.
pub(crate) const MOST_DISKS: usize = 64;
