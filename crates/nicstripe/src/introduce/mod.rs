//! Introduction of two machines that do not know each other's keys: through ssh, or by a short code.

pub mod bootstrap;
pub mod invitation;
