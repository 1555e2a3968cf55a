//! `nicstripe key`: prints the public line of this machine.

use std::env;

use clap::Args;
use nicstripe::trust::{Identity, PublicLine};

use crate::{failure::Failure, places, stdout, terminal::Terminal};

/// Print this machine's public key as one line, for `nicstripe trust add` on the other machine
///
/// Makes the key at first use. The line may be sent by any way that nobody can change it on; it is no secret. The private half stays in
/// the configuration folder, readable by its owner only.
#[derive(Debug, Args)]
pub(crate) struct Key {}

impl Key {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        let path = places::home()?.identity_file();
        let is_new = !path.exists();
        let key = Identity::load_or_create(&path)?.public_key();
        if is_new {
            terminal.say(format_args!("made a new key, {}, in {}", key.fingerprint(), path.display()));
        }
        let user = env::var("USER").or_else(|_| env::var("LOGNAME")).ok();
        stdout::line(PublicLine::with_host_name(key, user.as_deref()))
    }
}
