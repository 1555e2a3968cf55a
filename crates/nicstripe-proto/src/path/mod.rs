//! Path to the peer: state, flow control, rate, assigned chunks, and control messages that survive
//! the path's loss.

pub(crate) mod flap_damping;
pub(crate) mod flow;
pub(crate) mod machine;
pub(crate) mod pace;
pub(crate) mod reliable;
pub mod stripe;

pub use self::{
    machine::{Path, PathLoss, PathState, all_verified},
    reliable::ReliableError,
};
