//! `nicstripe man`: manual pages, generated from the `--help` texts.

use std::{fs, io, path::PathBuf};

use clap::{Args, Command, builder::Resettable};
use clap_mangen::Man as Page;

use crate::{
    failure::{Failure, usage},
    output::stdout,
};

/// Print the manual page of nicstripe or of one of its commands, or write all pages into a
/// directory
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  nicstripe man cp | man -l -\n  nicstripe man --dir /usr/local/share/man/man1"
)]
pub(crate) struct Man {
    /// Command, such as cp or trust add [default: nicstripe itself]
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,

    /// Write all pages into this directory, which is created if it is missing
    #[arg(long, conflicts_with = "command")]
    dir: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(self, program: Command) -> Result<(), Failure> {
        let pages = pages(program);
        if let Some(dir) = self.dir {
            fs::create_dir_all(&dir).map_err(Failure::writing(&dir))?;
            return pages.into_iter().try_for_each(|command| {
                let path = dir.join(format!("{}.1", command.get_name()));
                let written = rendered(command).and_then(|page| fs::write(&path, page));
                written.map_err(Failure::writing(&path))
            });
        }
        let name = ["nicstripe".to_owned()]
            .into_iter()
            .chain(self.command)
            .collect::<Vec<_>>()
            .join("-");
        match pages.into_iter().find(|command| command.get_name() == name) {
            Some(command) => stdout::bytes(&rendered(command).map_err(Failure::Output)?),
            None => {
                let name = name.replacen('-', " ", 1);
                let text =
                    format!("no command {name:?}: expected one listed by `nicstripe --help`");
                Err(usage(text).into())
            }
        }
    }
}

/// Returns one command per manual page, named after the page, such as `nicstripe-trust-add`.
fn pages(program: Command) -> Vec<Command> {
    let mut root = program.disable_help_subcommand(true);
    root.build();
    let mut pages = Vec::new();
    collect(root, &mut pages);
    pages
}

fn collect(command: Command, pages: &mut Vec<Command>) {
    for child in command.get_subcommands() {
        // clap keeps names as static strings; about a dozen are leaked, once.
        let name: &'static str = format!("{}-{}", command.get_name(), child.get_name()).leak();
        collect(child.clone().name(name).display_name(name), pages);
    }
    pages.push(command);
}

/// Renders a manual page in roff: clap's sections, the sections of the help text after the options,
/// and the sections that all pages share.
fn rendered(command: Command) -> io::Result<Vec<u8>> {
    let help = command
        .get_after_long_help()
        .or(command.get_after_help())
        .map(ToString::to_string)
        .unwrap_or_default();
    let mut sections = sections_of(&help);
    for (title, text) in [
        (EXAMPLES, examples_of(command.get_name())),
        (EXIT_STATUS, exit_codes_of(&command)),
    ] {
        if !sections.iter().any(|section| section.title == title) {
            sections.extend(sections_of(&format!("{title}:\n{text}")));
        }
    }
    let title = command.get_name().to_uppercase();
    let command = command
        .after_help(Resettable::Reset)
        .after_long_help(Resettable::Reset);
    let mut page = Vec::new();
    Page::new(command.clone()).title(title).render(&mut page)?;
    let mut page = with_values(&String::from_utf8_lossy(&page), &command).into_bytes();
    sections
        .iter()
        .for_each(|section| section.render(&mut page));
    Ok(page)
}

/// Adds the names of the options' values to the synopsis, from which `clap_mangen` leaves them out.
fn with_values(page: &str, command: &Command) -> String {
    let Some((before, rest)) = page.split_once(SYNOPSIS) else {
        return page.to_owned();
    };
    let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
    let mut line = line.to_owned();
    for option in command.get_arguments().filter(|one| !one.is_positional()) {
        let name = match (option.get_long(), option.get_short()) {
            (Some(long), _) => format!("\\-\\-{}", escaped(long)),
            (None, Some(short)) => format!("\\-{short}"),
            (None, None) => continue,
        };
        let values = match option.get_value_names() {
            Some(names) if option.get_action().takes_values() => {
                let names: Vec<_> = names.iter().map(|name| name.as_str()).collect();
                format!(" \\fI{}\\fR", escaped(&names.join(" ")))
            }
            _ => String::new(),
        };
        // An option without a long name has a blank there.
        let ends = [format!("\\fB{name}\\fR"), format!("\\fB{name} \\fR")];
        for end in &ends {
            line = line.replace(end, &format!("\\fB{name}\\fR{values}"));
        }
    }
    format!("{before}{SYNOPSIS}{line}\n{after}")
}

const SYNOPSIS: &str = ".SH SYNOPSIS\n";

/// Section of a help text: a heading and its lines.
#[derive(Debug, PartialEq, Eq)]
struct Section {
    title: String,
    lines: Vec<Line>,
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// Row of a table: a term and its meaning.
    Row(String, String),
    /// Line that is printed verbatim.
    Plain(String),
    /// Paragraph that may be wrapped.
    Text(String),
}

/// Splits a help text into sections. A line without indentation that ends in a colon is a heading;
/// the indented lines below are its content.
fn sections_of(help: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for line in help.lines().filter(|line| !line.trim().is_empty()) {
        if let Some(heading) = line.strip_suffix(':').filter(|_| !line.starts_with(' ')) {
            sections.push(Section {
                title: title_of(heading),
                lines: Vec::new(),
            });
            continue;
        }
        if sections.is_empty() {
            sections.push(Section {
                title: "NOTES".into(),
                lines: Vec::new(),
            });
        }
        let Some(Section { lines, .. }) = sections.last_mut() else {
            continue;
        };
        let text = line.trim_start();
        match (
            line.len() - text.len(),
            lines.last_mut(),
            text.split_once("  "),
        ) {
            (0, ..) => lines.push(Line::Text(text.to_owned())),
            // Continues the meaning of the row above.
            (4.., Some(Line::Row(_, meaning)), _) => *meaning = format!("{meaning} {text}"),
            (_, _, Some((term, meaning))) => {
                lines.push(Line::Row(term.to_owned(), meaning.trim_start().to_owned()));
            }
            _ => lines.push(Line::Plain(text.to_owned())),
        }
    }
    sections
}

/// Returns the section title that man-pages(7) prescribes for a heading of the help.
fn title_of(heading: &str) -> String {
    match heading {
        "Example" | "Examples" => EXAMPLES.into(),
        "Exit codes" => EXIT_STATUS.into(),
        _ => heading.to_uppercase(),
    }
}

impl Section {
    fn render(&self, page: &mut Vec<u8>) {
        let mut roff = format!(".SH \"{}\"\n", self.title);
        for line in &self.lines {
            roff += &match line {
                Line::Row(term, meaning) => {
                    format!(".TP\n\\fB{}\\fR\n{}\n", escaped(term), escaped(meaning))
                }
                Line::Plain(text) => format!(".PP\n.nf\n{}\n.fi\n", escaped(text)),
                Line::Text(text) => format!(".PP\n{}\n", escaped(text)),
            };
        }
        // Consecutive verbatim lines need no space between them.
        let first = format!(".SH \"{}\"\n", self.title);
        let roff =
            roff.replace(".fi\n.PP\n.nf\n", "")
                .replacen(&format!("{first}.PP\n"), &first, 1);
        page.extend_from_slice(roff.as_bytes());
    }
}

/// Escapes roff syntax: backslashes, control lines, and hyphens, which must stay ASCII for users
/// who copy commands.
fn escaped(text: &str) -> String {
    let text = text
        .replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('\'', "\\(aq")
        .replace('`', "\\(ga")
        .replace('…', "...");
    if text.starts_with(['.']) {
        format!("\\&{text}")
    } else {
        text
    }
}

/// Returns the examples of a manual page whose command has none in its help.
fn examples_of(page: &str) -> String {
    let examples = EXAMPLES_OF.lines().filter_map(|line| line.split_once("  "));
    let rows = examples
        .filter(|(of, _)| *of == page)
        .map(|(_, row)| format!("  {}", row.trim_start()));
    rows.collect::<Vec<_>>().join("\n")
}

/// Returns the exit codes for the manual page of a command whose help does not list them.
fn exit_codes_of(command: &Command) -> String {
    let is_over_links = command
        .get_arguments()
        .any(|argument| argument.get_long() == Some("port"));
    let codes = EXIT_CODES
        .iter()
        .filter(|(network, ..)| is_over_links || !network);
    codes
        .map(|(_, code, meaning)| format!("  {code}  {meaning}"))
        .collect::<Vec<_>>()
        .join("\n")
}

const EXAMPLES: &str = "EXAMPLES";
const EXIT_STATUS: &str = "EXIT STATUS";

/// Exit codes in manual pages: true if only commands that connect to a peer use the code, the code,
/// and its meaning.
const EXIT_CODES: [(bool, u8, &str); 10] = [
    (false, 0, "done"),
    (false, 1, "other failure"),
    (false, 2, "usage or configuration"),
    (true, 5, "refused: key, permission or policy"),
    (true, 10, "no link could connect"),
    (false, 11, "file: missing, unreadable, disk full"),
    (true, 12, "protocol or version"),
    (true, 30, "all links were down for too long"),
    (false, 130, "SIGINT"),
    (false, 143, "SIGTERM"),
];

/// Examples for manual pages whose help text has none. Each line has the name of the page, spaces,
/// and the row of its section.
const EXAMPLES_OF: &str = "\
nicstripe                nicstripe cp disk.img alice@nas:  introduced by ssh
nicstripe                nicstripe pair  on one machine, nicstripe pair CODE on the other
nicstripe                nicstripe serve --root /srv/files  on one machine
nicstripe                nicstripe cp disk.img nas:  on the other
nicstripe-demo           nicstripe demo  copy over 2 and then 4 virtual cables
nicstripe-key            nicstripe key  print the line of this machine
nicstripe-pair           nicstripe pair  show a code and wait
nicstripe-pair           nicstripe pair 7-crossover-violin  on the other machine
nicstripe-pair           nicstripe pair nas.example 7-crossover-violin  without a common cable
nicstripe-receive        nicstripe receive  show a code, and write what comes to this directory
nicstripe-receive        nicstripe receive --yes /srv/in  without asking
nicstripe-send           nicstripe send photos disk.img 7-crossover-violin
nicstripe-status         nicstripe status
nicstripe-trust          nicstripe trust list  print the trusted peers and their rights
nicstripe-trust-add      nicstripe trust add 'nicstripe-ed25519 AAAA... user@nas' --name nas
nicstripe-trust-add      nicstripe trust add 'nicstripe-ed25519 AAAA... user@pc' --name pc --read-only  grant read access only
nicstripe-trust-allow    nicstripe trust allow pc --exec 'borg serve *'  let it run a command here
nicstripe-trust-show     nicstripe trust show pc  print its rights, its key and the file
nicstripe-trust-list     nicstripe trust list
nicstripe-trust-remove   nicstripe trust remove nas
nicstripe-service        nicstripe service install --root /srv/files --user alice
nicstripe-service-install  nicstripe service install --root /srv/files
nicstripe-service-status  nicstripe service status
nicstripe-service-remove  nicstripe service remove
nicstripe-serve          nicstripe serve --root /srv/files  serve trusted peers on every interface
nicstripe-serve          nicstripe serve --root /srv/files --read-only --interface eth1 --interface eth2
nicstripe-serve-restic   restic -o rclone.program=nicstripe -r rclone:nas:backup/laptop init
nicstripe-serve-restic   nicstripe serve restic --addr localhost:8000 nas:backup/laptop  print the variable for restic
nicstripe-serve-s3       nicstripe serve s3 --addr localhost:9000 nas:lake  print the variables for AWS programs
nicstripe-serve-s3       nicstripe serve s3 --unix /run/user/1000/s3.sock nas:
nicstripe-ssh-server     nicstripe ssh-server --root /srv/backup --append-only  as command= in ~/.ssh/authorized_keys
nicstripe-ls             nicstripe ls -lh nas:photos  sizes and times of one directory
nicstripe-ls             nicstripe ls 'nas:photos/*.jpg'  expand a pattern there
nicstripe-ls             nicstripe ls me@nas:/srv  by ssh, as cp does
nicstripe-verify         nicstripe verify data nas:  what of data is missing or different there
nicstripe-verify         nicstripe verify --extra nas:data/ data  the other direction, and what only this machine has
nicstripe-exec           zfs send tank/a@now | nicstripe exec nas -- zfs recv -s tank/b  a snapshot over every cable
nicstripe-exec           nicstripe exec me@nas -- tar -C /srv -cf - photos | tar -xf -  by ssh, as cp does
nicstripe-exec           rsync -a -e 'nicstripe exec' photos/ nas:photos/
nicstripe-dial           ssh -o ProxyCommand='nicstripe dial nas %h:%p' localhost  a shell over every cable
nicstripe-forward        nicstripe forward -L 8080:localhost:80 nas  reach its web server at localhost:8080
nicstripe-forward        nicstripe forward -L 0:localhost:5432 nas  listen on any free port
nicstripe-forward        nicstripe forward -L ./docker.sock:unix:/var/run/docker.sock nas  its socket file here
nicstripe-forward        nicstripe forward -R 9000:localhost:80 nas  our web server at its port 9000
nicstripe-links          nicstripe links  list interfaces that can be links
nicstripe-links          nicstripe links nas  show which of them a copy would use, and why
nicstripe-doctor         nicstripe doctor  examine this machine
nicstripe-doctor         nicstripe doctor nas --bench  both ends and the cables, under load
nicstripe-doctor         nicstripe doctor --explain 8  what rule 8 means, and its source
nicstripe-doctor         nicstripe doctor --from nas.json  judge a snapshot of another machine
nicstripe-discover       nicstripe discover  list daemons on the cables
nicstripe-routes         nicstripe routes list  list installed host routes
nicstripe-routes-list    nicstripe routes list
nicstripe-routes-clean   nicstripe routes clean  remove stale ones
nicstripe-completions    nicstripe completions bash > ~/.local/share/bash-completion/completions/nicstripe
nicstripe-completions    nicstripe completions zsh > ~/.zfunc/_nicstripe
nicstripe-completions    nicstripe completions fish > ~/.config/fish/completions/nicstripe.fish
nicstripe-man            nicstripe man cp | man -l -
nicstripe-man            nicstripe man --dir /usr/local/share/man/man1
nicstripe-bench-list     nicstripe bench list  list the reports kept here
nicstripe-bench-compare  nicstripe bench compare base.json later.json";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn all() -> Vec<Command> {
        pages(crate::args::Args::command())
    }

    #[test]
    fn a_synopsis_names_the_values_of_options() {
        let page = |name: &str| {
            let mut pages = all().into_iter();
            let command = pages.find(|command| command.get_name() == name).unwrap();
            String::from_utf8(rendered(command).unwrap()).unwrap()
        };
        let synopsis = |name: &str| {
            let page = page(name);
            let (_, rest) = page.split_once(SYNOPSIS).unwrap();
            rest.lines()
                .next()
                .unwrap()
                .replace("\\fB", "")
                .replace("\\fI", "")
                .replace("\\fR", "")
        };
        let exec = synopsis("nicstripe-exec");
        for part in [
            r"[\-l USER]",
            r"[\-P|\-\-port PORT]",
            r"[\-\-link LOCAL[=REMOTE][@RATE]]",
            r"[\-x]...",
            r"[\-4|\-\-ipv4]",
        ] {
            assert!(exec.contains(part), "{part}: {exec}");
        }
        assert!(synopsis("nicstripe-man").contains(r"[\-\-dir DIR]"));
        for command in all() {
            let of = synopsis(command.get_name());
            assert!(!of.contains(" ]"), "{of}");
        }
    }

    #[test]
    fn every_command_has_a_page_that_explains_its_options() {
        let pages = all();
        let names: Vec<&str> = pages.iter().map(Command::get_name).collect();
        for name in [
            "nicstripe",
            "nicstripe-cp",
            "nicstripe-serve",
            "nicstripe-trust-add",
            "nicstripe-routes-clean",
        ] {
            assert!(names.contains(&name), "{name} is not in {names:?}");
        }
        let cp = pages
            .into_iter()
            .find(|command| command.get_name() == "nicstripe-cp")
            .unwrap();
        let page = String::from_utf8(rendered(cp).unwrap()).unwrap();
        assert!(page.contains("bwlimit"), "{page}");
    }

    #[test]
    fn every_page_has_examples_and_an_exit_status_and_tables_stay_tables() {
        for command in all() {
            let name = command.get_name().to_owned();
            let page = String::from_utf8(rendered(command).unwrap()).unwrap();
            for title in [EXAMPLES, EXIT_STATUS] {
                let (_, section) = page
                    .split_once(&format!(".SH \"{title}\"\n"))
                    .unwrap_or_else(|| panic!("{name} has no {title}"));
                assert!(
                    section.starts_with(".TP\n") || section.starts_with(".nf\n"),
                    "{name}: {section}"
                );
            }
            assert!(!page.contains("EXTRA"), "{name}");
            // An unknown control line would come from unescaped text.
            let controls = [
                ".TH", ".SH", ".TP", ".PP", ".nf", ".fi", ".br", ".ie", ".el", ".RS", ".RE", ".IP",
            ];
            let odd = page.lines().find(|line| {
                line.starts_with(['.', '\'']) && !controls.contains(&line.get(..3).unwrap_or(line))
            });
            assert_eq!(odd, None, "{name}");
        }
    }

    #[test]
    fn a_help_text_becomes_sections() {
        let found = sections_of(
            "Some notes.\n\nExit codes:\n  0    done\n       and more\n  1    not\n\nOther things:\n  -x .y",
        );
        let row = |term: &str, meaning: &str| Line::Row(term.into(), meaning.into());
        let section = |title: &str, lines| Section {
            title: title.into(),
            lines,
        };
        let expected = [
            section("NOTES", vec![Line::Text("Some notes.".into())]),
            section(
                "EXIT STATUS",
                vec![row("0", "done and more"), row("1", "not")],
            ),
            section("OTHER THINGS", vec![Line::Plain("-x .y".into())]),
        ];
        assert_eq!(found, expected);
        assert_eq!(escaped(".a\\b-'c'"), "\\&.a\\eb\\-\\(aqc\\(aq");
    }
}
