//! `nicstripe dial` and `nicstripe forward`: access to TCP services of the peer over all links.

mod dial;
mod forward;
mod standard;

pub(crate) use self::{dial::Dial, forward::Forward};
