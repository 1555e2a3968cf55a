//! Wire format of a connection: frames, and the control messages in them.

pub mod frame;
pub mod load;
pub mod message;
