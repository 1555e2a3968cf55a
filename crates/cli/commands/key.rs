//! `nicstripe key`: prints the public line of this machine.

use std::env;

use clap::Args;
use nicstripe::trust::{Identity, PublicLine};

use crate::{
    failure::Failure,
    output::{stdout, terminal::Terminal},
    places,
};

/// Print this machine's public key as one line, for `nicstripe trust add` on the other machine
///
/// Creates the key at first use. The line is not secret, but send it over a channel that protects
/// it from changes. The private key stays in the configuration directory, readable by its owner
/// only.
#[derive(Debug, Args)]
pub(crate) struct Key {}

impl Key {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        let path = places::home()?.identity_file();
        let is_new = !path.exists();
        let key = Identity::load_or_create(&path)?.public_key();
        if is_new {
            terminal.say(format_args!(
                "created key {} in {}",
                key.fingerprint(),
                path.display()
            ));
        }
        let user = env::var("USER").or_else(|_| env::var("LOGNAME")).ok();
        stdout::line(PublicLine::with_host_name(key, user.as_deref()))
    }
}
