//! Python bindings of [`nicstripe`]: the module `nicstripe._nicstripe`, which the package `nicstripe`
//! re-exports. `python/nicstripe/_nicstripe.pyi` has its types.
//!
//! All waits go through the function `wait`, which releases the interpreter's lock and lets signals end them.

#![deny(unsafe_code)]

mod bench;
mod buffer;
mod client;
mod connect;
mod entries;
mod error;
mod file;
mod name;
mod options;
mod own;
mod report;
mod server;
mod stat;
mod survey;
mod transfer;
mod wait;

use pyo3::prelude::*;

#[pymodule]
mod _nicstripe {
    #[pymodule_export]
    use crate::{
        client::Client,
        entries::Entries,
        file::{ObjectReader, ObjectWriter},
        report::Report,
        server::{Server, serve},
        stat::Stat,
        transfer::Transfer,
    };
    use pyo3::{prelude::*, types::PyModule};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
