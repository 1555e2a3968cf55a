//! Wire format of a connection: frames, and the control messages in the frames.

pub mod frame;
pub mod load;
pub mod message;
