//! Values and text: quantities, tables, names of links, command lines. Uses no other module of this
//! crate.

pub(crate) mod invocation;
pub(crate) mod link_text;
pub(crate) mod quantity;
pub(crate) mod spelling;
pub(crate) mod table;
