//! Tests of one session. The test writes the peer's messages by hand. Tests of two complete
//! sessions are in the library, in `session/simulated`.

#![allow(clippy::unwrap_used)]

mod asks;
mod clock;
mod hostile;
mod hostile_live;
mod loads;
mod peer;
mod resume;
