//! Standard output, standard error, JSON, the log, and files that are read and written whole.

pub(crate) mod files;
pub(crate) mod json;
pub(crate) mod logging;
pub(crate) mod screen;
pub(crate) mod stdout;
pub(crate) mod terminal;
