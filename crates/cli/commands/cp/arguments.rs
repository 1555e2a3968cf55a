//! Arguments of `cp`.

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
    time::Duration,
};

use clap::{ArgAction, Args, Parser, ValueEnum};

use super::tree_arguments::TreeArguments;
#[cfg(feature = "web")]
use super::web::arguments::WebArgs;
use crate::{
    connect::{
        arguments::{LinkArgs, SessionArgs},
        by_code::Offering,
    },
    text::{first_true, quantity::parse_time},
};

/// Copy files and trees to or from a machine that runs `nicstripe serve`, over every cable at once
///
/// A file appears under its name only once it has arrived completely, was verified and is on disk.
/// An interrupted copy keeps what it received: run the same command again to resume. Exit code 0
/// means verified and durable.
#[derive(Debug, Clone, Args)]
#[command(override_usage = "nicstripe cp [OPTIONS] <SRC>... <DST>", after_help = LOCATIONS, after_long_help = LONG_AFTER)]
#[command(disable_help_flag = true, mut_arg("link", |link| link.help(LINK)))]
pub(crate) struct Cp {
    /// SRC…: files and directories to copy, local or as HOST:PATH; - is standard input. A trailing
    /// slash means the content of the directory. DST, the last: a file or directory, local or as
    /// HOST:PATH; HOST: and HOST:DIR/ keep names; - is standard output
    // Sources and target share one list, as clap does not allow options between the values of two.
    #[arg(value_name = "PATH", required_unless_present = "human_readable")]
    pub(crate) paths: Vec<OsString>,

    /// Send even what DST has already, overwrite a block device, and replace a symbolic link itself
    /// [default: replace regular files that differ]
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Keep existing files, and fail on those that differ; also --no-clobber, --ignore-existing
    #[arg(long, aliases = ["no-clobber", "ignore-existing"])]
    #[arg(conflicts_with_all = ["force", "delta", "inplace", "update"])]
    pub(crate) no_replace: bool,

    /// Start from zero even if an interrupted copy left data [default: resume]
    #[arg(long)]
    pub(crate) no_resume: bool,

    /// Create missing parent directories of DST; always done for trees and several sources
    #[arg(long)]
    pub(crate) mkpath: bool,

    /// Preserve mode and times of the source; trees always preserve times
    #[arg(short, long)]
    pub(crate) preserve: bool,

    /// Also read the target back from disk and compare it [default: verify received data]
    #[arg(long)]
    pub(crate) verify: bool,

    /// Send only the 256 KiB chunks in which an existing file differs
    #[arg(long)]
    pub(crate) delta: bool,

    /// Like --delta, but write into the existing file, which needs no space for a second one; if
    /// interrupted, the file is inconsistent until a rerun
    #[arg(long)]
    pub(crate) inplace: bool,

    /// Compress compressible data with zstd while that is faster than the cables; -C as in scp
    #[arg(short = 'z', visible_short_alias = 'C', long)]
    pub(crate) compress: bool,

    /// No effect; accepted for rsync compatibility: holes are never sent or written
    #[arg(short = 'S', long)]
    pub(crate) sparse: bool,

    /// Copy files that change while being read: the target is what was read [default: fail]
    #[arg(long)]
    pub(crate) allow_changing: bool,

    /// Send a file while it grows, until the programs that write to it close it. If interrupted, a rerun
    /// continues; a file that becomes shorter, or is rewritten before its end, is an error
    #[arg(long)]
    #[arg(conflicts_with_all = ["delta", "inplace", "verify", "allow_changing", "shard"])]
    pub(crate) follow: bool,

    /// With --follow: end when the file has not grown for TIME, instead of when it is closed
    #[arg(long, value_name = "TIME", requires = "follow", value_parser = parse_time)]
    pub(crate) idle: Option<Duration>,

    /// Write a receipt to FILE: what the receiver has read back from its disk, signed by its key, for
    /// `nicstripe verify FILE`; of one file
    #[arg(long, value_name = "FILE")]
    pub(crate) receipt: Option<PathBuf>,

    #[command(flatten)]
    pub(super) links: LinkArgs,

    /// Open N TCP connections per link; more than 1 helps on lossy paths over long distances
    /// [default: 1; over a bond, as many as its members need]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) streams: Option<u8>,

    #[command(flatten)]
    pub(super) session: SessionArgs,

    #[cfg(feature = "web")]
    #[command(flatten, next_help_heading = "Options for files at web servers")]
    pub(super) web: WebArgs,

    #[command(flatten)]
    pub(super) output: OutputArgs,

    /// No effect; accepted for rsync compatibility: sizes always have units. Without SRC and DST:
    /// print help
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,

    /// Print help, with examples and exit codes
    #[arg(long, action = ArgAction::HelpLong)]
    pub(crate) help: Option<bool>,

    #[command(flatten, next_help_heading = "Options for trees")]
    pub(crate) tree: TreeArguments,

    /// Code by which to find the target's machine, and what to offer it.
    #[arg(skip)]
    pub(super) offering: Option<Offering>,
}

/// Options for the output of a copy.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputArgs {
    /// Print errors only; progress only with --progress=always
    #[arg(short, long, conflicts_with_all = ["verbose", "stats"])]
    pub(crate) quiet: bool,

    /// Print the action on each file of a tree, the traffic of each link, and a single file's
    /// BLAKE3; twice: also skipped files, and unused links with the reason
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Show progress on standard error: bars on a terminal (auto), elsewhere a line every 10 s
    /// (always), or nothing (never)
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) progress: Progress,

    /// Print totals at the end, as rsync does
    #[arg(long)]
    pub(crate) stats: bool,

    /// Print one JSON document on standard output at the end, also after a failure
    /// (docs/schema/cp-report.schema.json)
    #[arg(long)]
    pub(crate) json: bool,

    /// Print one JSON event per line while running (docs/schema/cp-event.schema.json), and the
    /// document of --json as the last line
    #[arg(long, conflicts_with = "json")]
    pub(crate) json_stream: bool,

    // An option of trees, set by `Cp::output`.
    #[arg(skip)]
    pub(crate) dry_run: bool,

    /// True for a dry run that compares, of `nicstripe verify`.
    #[arg(skip)]
    pub(crate) compares: bool,
}

impl Cp {
    /// Returns the copy of files and trees to a machine that shows a code, as `cp -rlp` makes it.
    pub(crate) fn sending(
        paths: Vec<OsString>,
        offering: Offering,
        compress: bool,
        session: SessionArgs,
        output: OutputArgs,
    ) -> Self {
        let cp = Self::of_words(&["cp", "-rlp", "--no-replace", "x", "receiver:"]);
        Self {
            paths,
            offering: Some(offering),
            compress,
            session,
            output,
            ..cp
        }
    }

    /// Returns the copy that this command line means.
    pub(super) fn of_words(words: &[&str]) -> Self {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            cp: Cp,
        }
        Line::parse_from(words).cp
    }

    /// Returns the options for the output. `--json-stream` implies `--json`.
    pub(super) fn output(&self) -> OutputArgs {
        OutputArgs {
            json: self.output.json || self.output.json_stream,
            dry_run: self.tree.dry_run,
            ..self.output
        }
    }

    /// Returns the sources: all paths but the last. Empty if at most one path was given.
    pub(crate) fn sources(&self) -> &[OsString] {
        self.paths.split_last().map_or(&[], |(_, sources)| sources)
    }

    /// Returns the first option that means nothing for a file that is fetched in parts from elsewhere.
    pub(super) fn first_option_without_parts(&self) -> Option<&'static str> {
        let options = [
            (self.preserve, "-p"),
            (self.verify, "--verify"),
            (self.delta, "--delta"),
            (self.inplace, "--inplace"),
            (self.compress, "-z"),
            (self.allow_changing, "--allow-changing"),
            (self.follow, "--follow"),
            (self.receipt.is_some(), "--receipt"),
            (self.session.bwlimit.is_some(), "--bwlimit"),
        ];
        first_true(options).or_else(|| self.tree.first_option_beside_a_list())
    }

    /// Returns true if `-h` asks for help, as in rsync: fewer than two paths were given with it.
    pub(crate) fn asks_for_help(&self) -> bool {
        self.human_readable && self.paths.len() < 2
    }

    /// Returns the target, the last path.
    pub(crate) fn target(&self) -> &OsStr {
        self.paths.last().map_or(OsStr::new(""), |target| target)
    }
}

/// Policy for progress output (`--progress`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Progress {
    /// Bars, on a terminal
    Auto,
    /// Bars on a terminal, elsewhere a line every 10 s
    Always,
    /// Nothing
    Never,
}

const LINK: &str = "\
Use only this link; may be repeated. LOCAL and REMOTE are interfaces or addresses, RATE as \
for --bwlimit [default: every cable that reaches the peer]";

/// Explanation of SRC and DST in the help. Each paragraph is one line, which clap wraps to the
/// width of the terminal.
const LOCATIONS: &str = "\
Either all SRC are remote or DST is: HOST:PATH, [ADDRESS]:PATH or nicstripe://HOST[:PORT]/PATH. \
A colon before the first slash makes it remote: write ./a:b for a local file, and ./- for a file named -. \
PATH is relative to the directory that the daemon serves, or absolute within it. \
--help has examples and explains trailing slashes.";

const LONG_AFTER: &str = "\
Either all SRC are remote or DST is: HOST:PATH, [ADDRESS]:PATH or nicstripe://HOST[:PORT]/PATH. \
A colon before the first slash makes it remote: write ./a:b for a local file, and ./- for a file named -. \
PATH is relative to the directory that the daemon serves, or absolute within it.

Slashes and names:
  SRC DST      copy to DST, or to DST/SRC if DST is a directory (as cp, scp)
  SRC DST/     copy to DST/SRC
  SRC… DST     copy each to DST/SRC
  SRC/ DST     copy the content of SRC to DST (as rsync); also for ., .. and DIR/.

Patterns:
  Syntax of .gitignore: *.o at any depth, /a only directly in SRC, dir/ directories only,
  a/**/b at any depth. The last match counts (rsync: the first).
  --exclude '*' --include '*/' --include '*.c'    all .c files, at any depth

Examples:
  nicstripe cp disk.img nas:               keep the name
  nicstripe cp disk.img nas:backup/        into a directory of the daemon's root
  nicstripe cp nas:backup/disk.img .       from the daemon
  nicstripe cp https://host/disk.img .     from a web server, over every interface from which it answers
  nicstripe cp -r photos nas:              create or update nas:photos; send only changed files
  nicstripe cp -an --delete photos/ nas:photos    dry run of making nas:photos a mirror
  nicstripe cp a.iso b.iso nas:iso/        several files
  tar -c dir | nicstripe cp - nas:dir.tar  standard input, of any length
  nicstripe cp nas:dir.tar - | tar -x      standard output
  nicstripe cp --delta vm.img nas:vm.img   only the chunks that differ
  nicstripe cp --link eth1 --link eth2@500Mbit disk.img nas:

Signals:
  SIGINT, SIGTERM  first: stop and keep received data; second: exit at once
  SIGUSR1          print the progress

Exit codes:
  0    verified and durable
  1    other failure
  2    usage
  5    refused: key, permission, policy, or another copy writes to the target
  10   no link could connect
  11   file or disk, at either end
  12   protocol or version
  23   some files of a tree failed, all others were copied
  24   a source changed or vanished while being read; all others of a tree were copied
  30   all links were down for too long
  40   received data does not match the source
  130  SIGINT
  143  SIGTERM";

#[cfg(test)]
pub(super) mod tests {
    use clap::Parser;
    use nicstripe::{BitRate, LinkEnd};

    use super::*;
    use crate::connect::arguments::Routes;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        cp: Cp,
    }

    /// Returns the copy of a command line without quotes, for tests.
    pub(crate) fn parse(words: &str) -> Result<Cp, clap::Error> {
        let words = words.split(' ').filter(|word| !word.is_empty());
        Line::try_parse_from(["cp"].into_iter().chain(words)).map(|line| line.cp)
    }

    #[test]
    fn rsyncs_habit_with_p_fails_with_an_explanation() {
        let error = parse("-vP src/ nas:").unwrap_err().to_string();
        assert!(
            error.contains("'src/'") && error.contains("-P is the port"),
            "{error}"
        );
    }

    #[test]
    fn a_links_rate_is_read_as_bwlimit_is() {
        let cp = parse(
            "--link eth1=10.0.0.2@100Mbit --link fd00::1@10M --link eth3 --bwlimit 10M a nas:",
        )
        .unwrap();
        assert_eq!(cp.links.link[0].local, LinkEnd::Interface("eth1".into()));
        assert_eq!(
            cp.links.link[0].remote,
            Some(LinkEnd::Address("10.0.0.2".parse().unwrap()))
        );
        assert_eq!(cp.links.link[0].cap, Some(BitRate::from_mbit(100)));
        assert_eq!(cp.links.link[1].cap, cp.session.bwlimit);
        assert_eq!(cp.links.link[2].cap, None);
        for bad in ["", "eth1@", "eth1@fast", "=10.0.0.1", "eth1="] {
            assert!(parse(&format!("--link={bad} a nas:")).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_last_word_is_the_target_and_all_before_it_are_sources() {
        let cp = parse("a -r b - nas: -v").unwrap();
        assert_eq!(
            (cp.sources().len(), cp.target().to_str()),
            (3, Some("nas:"))
        );
        assert!(parse("").is_err());
    }

    #[test]
    fn letters_are_those_of_scp_and_rsync() {
        for words in ["-avhz a nas:", "-Crp a nas:", "-av -h a nas:", "-hr a nas:"] {
            assert!(!parse(words).unwrap().asks_for_help(), "{words:?}");
        }
        assert!(parse("-h").unwrap().asks_for_help() && parse("-rh").unwrap().asks_for_help());
        assert_eq!(
            parse("--help").unwrap_err().kind(),
            clap::error::ErrorKind::DisplayHelp
        );
        let cp = parse("-rpzuncxSXAHlf a nas:").unwrap();
        let tree = &cp.tree;
        assert!(
            tree.recursive
                && tree.update
                && tree.dry_run
                && tree.checksum
                && tree.one_file_system
                && tree.xattrs
                && tree.acls
        );
        assert!(
            tree.hard_links && tree.links && cp.preserve && cp.compress && cp.sparse && cp.force
        );
        // -o is an ssh option in scp and the owner in rsync; `cp` has neither.
        for words in ["-o a nas:", "-0 a nas:"] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn what_comes_later_is_not_offered() {
        for words in ["--remove-source-files a nas:", "--append a nas:"] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn the_defaults_are_the_documented_ones() {
        let cp = parse("a nas:").unwrap();
        assert_eq!(
            (
                cp.streams,
                cp.session.timeout,
                cp.session.routes,
                cp.output.progress
            ),
            (None, Duration::from_secs(600), Routes::Auto, Progress::Auto)
        );
        assert!(
            !cp.force
                && !cp.no_resume
                && !cp.preserve
                && !cp.verify
                && cp.links.port.is_none()
                && cp.session.bwlimit.is_none()
        );
    }
}
