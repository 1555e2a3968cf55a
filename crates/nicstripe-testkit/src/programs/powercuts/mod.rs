//! Power cuts of a simulated disk during copies. `benches/powercuts` describes the method.

pub mod cuts;
pub mod disk;
pub mod history;
pub mod inspection;
pub mod namespaces;
pub mod room;
pub mod volume;
pub mod workload;
