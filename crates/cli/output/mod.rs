//! Standard output, standard error, JSON and the log.

pub(crate) mod json;
pub(crate) mod logging;
pub(crate) mod screen;
pub(crate) mod stdout;
pub(crate) mod terminal;
