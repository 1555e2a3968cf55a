//! What travels over a connection: frames, and the control messages in them.

pub mod frame;
pub mod load;
pub mod message;
