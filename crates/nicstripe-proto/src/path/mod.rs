//! Path to the peer: state, flow control, rate, assigned chunks, and control messages that survive
//! the path's loss.

pub(crate) mod flap_damping;
pub(crate) mod flow;
pub(crate) mod machine;
pub(crate) mod pace;
pub(crate) mod plan;
pub(crate) mod reliable;
pub mod stripe;

pub use self::{
    machine::{Arrival, Cause, NotConnected, Path, PathLoss, PathState, PathStatus, all_verified},
    plan::{Capacities, Capacity, LinkRates, Origin, PathPlan, socket_address},
    reliable::ReliableError,
};
