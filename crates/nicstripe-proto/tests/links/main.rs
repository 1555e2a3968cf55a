//! The whole life of a client's paths in virtual time, on the session that is shipped: two machines
//! with several interfaces, begun in every way, while cables are cut, healed and moved and
//! interfaces renamed and renumbered. Each seed is one life.
#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod life;
mod planned;
mod world;
