//! Tests of one session, whose peer the test writes by hand. Tests of two sessions as they run are
//! in the library, in `session/simulated`.

#![allow(clippy::unwrap_used)]

mod asks;
mod clock;
mod hostile;
mod hostile_live;
mod loads;
mod resume;
