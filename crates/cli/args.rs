//! Top-level command line: the subcommands and their dispatch.

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::{
    commands::{
        bench, completions, cp, demo, dial, discover, doctor, exec, forward, key, links, ls, man,
        pair, receive, routes, send, serve, service, ssh_server, status, trust, verify,
    },
    failure::Failure,
    output::{stdout, terminal::Terminal},
};

/// Copy large files between two machines over every cable that joins them, and verify what arrives
#[derive(Debug, Parser)]
#[command(name = "nicstripe", version, max_term_width = 100, after_help = FIRST_STEPS, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Subcommands of `nicstripe`, in the order in which a newcomer needs them.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::Demo),
    Key(key::Key),
    Trust(trust::Trust),
    Pair(pair::Pair),
    Serve(serve::Serve),
    Service(service::Service),
    Cp(Box<cp::Cp>),
    Ls(ls::Ls),
    Verify(Box<verify::Verify>),
    Status(status::Status),
    Receive(receive::Receive),
    Send(send::Send),
    Exec(Box<exec::Exec>),
    Dial(dial::Dial),
    Forward(forward::Forward),
    Links(links::Links),
    Bench(Box<bench::Bench>),
    Doctor(Box<doctor::Doctor>),
    Discover(discover::Discover),
    Routes(routes::RoutesArgs),
    SshServer(ssh_server::SshServer),
    Completions(completions::Completions),
    Man(man::Man),
}

impl Command {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        match self {
            Self::Demo(demo) => demo.run(terminal),
            Self::Key(key) => key.run(terminal),
            Self::Trust(trust) => trust.run(terminal),
            Self::Pair(pair) => pair.run(terminal),
            Self::Serve(serve) => serve.run(terminal),
            Self::Service(service) => service.run(terminal),
            Self::Cp(cp) if cp.asks_for_help() => print_help("cp"),
            Self::Cp(cp) => cp.run(terminal),
            Self::Ls(ls) => ls.run(terminal),
            Self::Verify(verify) => verify.run(terminal),
            Self::Status(status) => status.run(terminal),
            Self::Receive(receive) => receive.run(terminal),
            Self::Send(send) => send.run(terminal),
            Self::Exec(exec) => exec.run(terminal),
            Self::Dial(dial) => dial.run(terminal),
            Self::Forward(forward) => forward.run(terminal),
            Self::Links(links) => links.run(terminal),
            Self::Bench(bench) => bench.run(terminal),
            Self::Doctor(doctor) => doctor.run(terminal),
            Self::Discover(discover) => discover.run(terminal),
            Self::Routes(routes) => routes.run(terminal),
            Self::SshServer(server) => server.run(terminal),
            Self::Completions(completions) => completions.run(&mut Args::command()),
            Self::Man(man) => man.run(Args::command()),
        }
    }
}

fn print_help(subcommand: &str) -> Result<(), Failure> {
    let mut root = Args::command();
    root.build();
    let command = root.find_subcommand_mut(subcommand);
    stdout::write(|| command.map_or(Ok(()), clap::Command::print_help)).map_err(Failure::Output)
}

const FIRST_STEPS: &str = "\
First steps:
  nicstripe demo                        try it on this machine, no setup
  nicstripe cp FILE USER@HOST:          copy a file, introduced by ssh, no setup
  nicstripe receive                     without ssh, one copy: shows a code,
  nicstripe send FILE CODE              for the other machine
  nicstripe pair                        without ssh, to stay: shows a code,
  nicstripe pair CODE                   for the other machine; then, on one of them:
  nicstripe serve --root DIR            start the daemon
  nicstripe cp FILE HOST:               on the other: copy a file
  nicstripe ls HOST:                    list the files there
  nicstripe links HOST                  show which cables a copy uses, and why
  nicstripe bench HOST                  measure the cables and find the bottleneck
  nicstripe doctor HOST                 find out why they carry less than they could

Environment:
  NICSTRIPE_HOME  directory of the key, the trusted peers and all state [default: nicstripe
                  in $XDG_CONFIG_HOME and $XDG_STATE_HOME; for root /etc/nicstripe and
                  /var/lib/nicstripe if the first exists]
  NICSTRIPE_LOG   log filter for standard error, such as debug or nicstripe=debug
                  [default: info for serve, otherwise warn]
  NO_COLOR        disable colours if set to any value";

#[cfg(test)]
pub(crate) mod tests {
    use std::{fs, path::PathBuf};

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_option_and_command_is_explained() {
        fn check(command: &clap::Command) {
            assert!(
                command.get_about().is_some(),
                "{} has no description",
                command.get_name()
            );
            for argument in command.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{} {} has no help",
                    command.get_name(),
                    argument.get_id()
                );
            }
            command.get_subcommands().for_each(check);
        }
        check(&Args::command());
    }

    /// Returns the nicstripe commands quoted in a source line, each split into the words after the
    /// program name.
    fn commands_in(line: &str) -> impl Iterator<Item = Vec<&str>> {
        let starts = ["nicstripe ", "{program} "]
            .into_iter()
            .flat_map(|name| line.match_indices(name).map(move |(at, _)| at + name.len()));
        starts.map(|start| {
            let rest = &line[start..];
            let end = rest
                .find(['"', '`', ';', ')', '(', ',', '|'])
                .into_iter()
                .chain(rest.find("  "))
                .min();
            rest[..end.unwrap_or(rest.len())]
                .split_whitespace()
                .collect()
        })
    }

    /// Checks that the subcommand at the start of `words` has all options in them, and panics if it
    /// lacks one. Returns false if the first word is not a subcommand.
    pub(crate) fn check(words: &[&str], of: &str) -> bool {
        let mut root = Args::command();
        root.build();
        let (mut command, mut words) = (&root, words);
        while let Some(sub) = words.first().and_then(|word| command.find_subcommand(word)) {
            (command, words) = (sub, &words[1..]);
        }
        if command.get_name() == root.get_name() {
            return false;
        }
        let knows_long = |name: &str| {
            command
                .get_arguments()
                .any(|argument| argument.get_long() == Some(name))
        };
        let knows_short = |letter: char| {
            command
                .get_arguments()
                .any(|argument| argument.get_short() == Some(letter))
        };
        // Behind `--` are words of another command.
        for word in words.iter().take_while(|word| **word != "--") {
            let known = match (word.strip_prefix("--"), word.strip_prefix('-')) {
                (Some(long), _) => {
                    long.starts_with('{') || knows_long(long.split('=').next().unwrap())
                }
                (None, Some(short)) => short.chars().next().is_none_or(&knows_short),
                _ => true,
            };
            assert!(known, "{} has no {word}: {of}", command.get_name());
        }
        true
    }

    /// Returns the path and the text of each source file below these folders.
    pub(crate) fn sources(folders: &[&str]) -> Vec<(PathBuf, String)> {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let mut paths: Vec<_> = folders.iter().map(|folder| root.join(folder)).collect();
        let mut sources = Vec::new();
        while let Some(path) = paths.pop() {
            if path.is_dir() {
                let entries = fs::read_dir(path).unwrap();
                paths.extend(entries.map(|entry| entry.unwrap().path()));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                sources.push((path, text));
            }
        }
        sources
    }

    #[test]
    fn every_command_that_a_message_names_can_be_typed() {
        let mut found = 0;
        for (path, text) in sources(&["crates/cli"]) {
            // Plain comments are not help text and are skipped.
            let lines = text.lines().filter(|line| {
                !line.trim_start().starts_with("//") || line.trim_start().starts_with("///")
            });
            for line in lines {
                let of = format!("{}: {line}", path.display());
                found += commands_in(line).filter(|words| check(words, &of)).count();
            }
        }
        assert!(found > 50, "{found} commands found: expected more");
    }
}
