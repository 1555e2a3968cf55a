//! Tunnels at work: the connections of other programs over a session, as streams of bytes.
//!
//! `nicstripe_proto::tunnel` decides; [`trunk`] has its two tasks and whoever waits, [`stream`] is one connection as a program uses it, and
//! [`dialer`] what a daemon connects for its peer.

mod dialer;
mod stream;
mod trunk;

pub use self::stream::Tunnel;
pub(crate) use self::{dialer::Dialer, trunk::Trunk};
