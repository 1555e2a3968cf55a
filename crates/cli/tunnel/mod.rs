//! `nicstripe dial` and `nicstripe forward`: TCP services of the peer over all cables.

mod dial;
mod forward;
mod standard;

pub(crate) use self::{dial::Dial, forward::Forward};
