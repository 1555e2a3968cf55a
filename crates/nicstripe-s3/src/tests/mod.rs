//! Tests of the gateway against a daemon in the test process.

mod listings;
mod objects;
mod rig;
mod uploads;
