//! `nicstripe man`: manual pages, made from the same text as `--help`.

use std::{fs, io, path::PathBuf};

use clap::{Args, Command, CommandFactory as _};
use clap_mangen::Man as Page;

use crate::{args, failure::Failure, stdout};

/// Print the manual page of nicstripe or of one of its commands, or write all pages into a directory
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  nicstripe man cp | man -l -\n  nicstripe man --dir /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// The command, such as cp or trust add [default: nicstripe itself]
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,

    /// Write every page as a file into this directory instead
    #[arg(long, conflicts_with = "command")]
    dir: Option<PathBuf>,
}

impl Man {
    /// Prints or writes pages.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let pages = pages();
        if let Some(dir) = self.dir {
            return pages.into_iter().try_for_each(|command| {
                let path = dir.join(format!("{}.1", command.get_name()));
                let written = rendered(command).and_then(|page| fs::write(&path, page));
                written.map_err(|source| Failure::Write { path: path.clone(), source })
            });
        }
        let name = ["nicstripe".to_owned()].into_iter().chain(self.command).collect::<Vec<_>>().join("-");
        match pages.into_iter().find(|command| command.get_name() == name) {
            Some(command) => stdout::bytes(&rendered(command).map_err(Failure::Output)?),
            None => Err(Failure::NoPage { name: name.replacen('-', " ", 1) }),
        }
    }
}

/// Returns a command for each page, named as the page is: `nicstripe-trust-add`.
fn pages() -> Vec<Command> {
    let mut root = args::Args::command().disable_help_subcommand(true);
    root.build();
    let mut pages = Vec::new();
    collect(root, &mut pages);
    pages
}

fn collect(command: Command, pages: &mut Vec<Command>) {
    for child in command.get_subcommands() {
        // clap keeps names as static strings; there are a dozen, made once.
        let name: &'static str = format!("{}-{}", command.get_name(), child.get_name()).leak();
        collect(child.clone().name(name).display_name(name), pages);
    }
    pages.push(command);
}

fn rendered(command: Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Page::new(command).render(&mut page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_that_explains_its_options() {
        let pages = pages();
        let names: Vec<&str> = pages.iter().map(Command::get_name).collect();
        for name in ["nicstripe", "nicstripe-cp", "nicstripe-serve", "nicstripe-trust-add", "nicstripe-routes-clean"] {
            assert!(names.contains(&name), "{name} is not in {names:?}");
        }
        let cp = pages.into_iter().find(|command| command.get_name() == "nicstripe-cp").unwrap();
        let page = String::from_utf8(rendered(cp).unwrap()).unwrap();
        assert!(page.contains("bwlimit") && page.contains("Exit codes"), "{page}");
    }
}
