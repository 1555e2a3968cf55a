//! `nicstripe completions`: for the shell.

use clap::{Args, CommandFactory as _};
use clap_complete::{Shell, generate};

use crate::{args, failure::Failure, stdout};

/// Print completions for a shell, to be sourced or put where it looks for them
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  nicstripe completions bash > ~/.local/share/bash-completion/completions/nicstripe")]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    /// Prints them.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut script = Vec::new();
        generate(self.shell, &mut args::Args::command(), "nicstripe", &mut script);
        stdout::bytes(&script)
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn every_shell_learns_the_subcommands() {
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            generate(*shell, &mut args::Args::command(), "nicstripe", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("serve") && script.contains("bwlimit"), "{shell}");
        }
    }
}
