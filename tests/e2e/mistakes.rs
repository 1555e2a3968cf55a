//! Tests of a new user's mistakes: the complete output and exit code of each command.
//!
//! Each `NAME.txt` in this folder is a transcript between two machines that trust each other,
//! `laptop` and `nas`. A daemon on `nas` serves the files of `nas` on the loopback interface. A
//! block is one command line, which `sh` runs in the folder of the block's machine:
//!
//! ```text
//! # a comment
//! laptop$ nicstripe cp -P [PORT] missing 127.0.0.1:
//! error: cannot open "missing": No such file or directory (os error 2)
//! > a line of standard output
//! [11]
//! ```
//!
//! Placeholders stand for text that differs between runs, in commands and output:
//!
//! - `[PORT]` is the daemon's port, `[FREE]` a port without a listener;
//! - `[LAPTOP]` and `[NAS]` are the folders of files, `[LAPTOP-HOME]` and `[NAS-HOME]` the folders
//!   of keys;
//! - `[LAPTOP-KEY]` and `[NAS-KEY]` are the public keys, `[LAPTOP-FINGERPRINT]` and
//!   `[NAS-FINGERPRINT]` their fingerprints;
//! - `--name [HOSTNAME]` is the option with this machine's name;
//! - `[..]` in an expected line matches any text within the line.
//!
//! All blocks of a transcript run, and the lines that differ are told.
//! `NICSTRIPE_MISTAKES=write cargo test --test e2e mistakes` writes the current output to the
//! transcripts, for review with `git diff`. A new block needs only its command line and `[]`.

mod block;
mod world;

use std::{
    env, fs,
    path::{Path, PathBuf},
    thread,
};

use self::{block::Block, world::World};

#[test]
fn each_mistake_is_told_as_its_transcript_says() {
    thread::scope(|scope| {
        for transcript in transcripts() {
            scope.spawn(move || check(&transcript));
        }
    });
}

#[test]
fn each_command_in_a_hint_is_one_that_works() {
    let mut wrong = Vec::new();
    for transcript in transcripts() {
        let world = world_of(&transcript);
        let text = fs::read_to_string(transcript).unwrap();
        for block in Block::all(&text) {
            let typed = world.filled(&block.typed);
            let outcome = world.shell(&block.machine, &typed);
            let hints = outcome
                .stderr
                .lines()
                .filter(|line| line.starts_with("hint: "));
            for command in hints.flat_map(commands) {
                let (machine, line) = command.to_run(&block.machine);
                let ran = world.shell(machine, &line);
                let is_unreached = ran.status.code() == Some(10) && !line.contains("-P ");
                if !ran.status.success() && !is_unreached {
                    wrong.push(format!("{typed}\n{}{line}\n{}", outcome.stderr, ran.stderr));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Command in a hint.
struct Hinted<'a> {
    line: &'a str,
    /// True if the hint is for the other machine.
    is_there: bool,
}

impl Hinted<'_> {
    /// Returns the machine and the command line that shows whether the command works. A daemon, a
    /// command with words to fill in and one that waits for a FIFO print their help, which needs valid
    /// options.
    fn to_run<'a>(&self, machine: &'a str) -> (&'a str, String) {
        let machine = match (self.is_there, machine) {
            (false, machine) => machine,
            (true, "nas") => "laptop",
            (true, _) => "nas",
        };
        let is_to_fill = |word: &str| {
            let letters: Vec<char> = word.chars().filter(|c| c.is_alphabetic()).collect();
            letters.len() > 2 && letters.iter().all(|c| c.is_uppercase())
        };
        let mut words = self.line.split([' ', ':']);
        let is_parsed = self.line.starts_with("nicstripe serve") || words.any(is_to_fill);
        let line = match (self.line.split_once(" < "), is_parsed) {
            (Some((line, _)), _) => format!("{line} --help"),
            (None, true) => format!("{} --help", self.line),
            (None, false) => self.line.to_owned(),
        };
        (machine, line)
    }
}

/// Returns the commands of this program in a hint: in each part, between backticks and after a colon.
fn commands(hint: &str) -> Vec<Hinted<'_>> {
    let mut is_there = false;
    let part = |part| commands_of_part(part, &mut is_there);
    hint.split("; ").flat_map(part).collect()
}

/// `is_all_there` is true if an earlier part of the hint was for the other machine as a whole.
fn commands_of_part<'a>(part: &'a str, is_all_there: &mut bool) -> Vec<Hinted<'a>> {
    let quoted = part.split('`').skip(1).step_by(2);
    let plain = part.rfind(": nicstripe ").map(|at| &part[at + 2..]);
    let places = [
        "on nas",
        "on 127.0.0.1",
        "that machine",
        "other machine",
        "there:",
    ];
    *is_all_there |= part.contains("on nas, start");
    let is_there = *is_all_there || places.iter().any(|words| part.contains(words));
    let ours = quoted
        .chain(plain)
        .filter(|line| line.starts_with("nicstripe"));
    ours.map(|line| Hinted { line, is_there }).collect()
}

/// Runs all commands of a transcript. Panics with the lines that differ. Writes the actual output
/// to the transcript instead if `NICSTRIPE_MISTAKES=write` is set.
#[track_caller]
fn check(path: &Path) {
    let world = world_of(path);
    let text = fs::read_to_string(path).unwrap();
    let blocks = Block::all(&text);
    assert!(!blocks.is_empty(), "{} has no command line", path.display());
    let ran: Vec<Block> = blocks.iter().map(|block| world.run(block)).collect();
    if env::var_os("NICSTRIPE_MISTAKES").is_some_and(|value| value == "write") {
        return fs::write(path, ran.iter().map(Block::to_string).collect::<String>()).unwrap();
    }
    let differing: Vec<String> = blocks
        .iter()
        .zip(&ran)
        .filter_map(|(expected, ran)| expected.difference(ran))
        .collect();
    assert!(
        differing.is_empty(),
        "{} differs (- expected, + printed):\n\n{}\nIf all of it is as it should be: NICSTRIPE_MISTAKES=write cargo test --test e2e mistakes",
        path.display(),
        differing.join("\n")
    );
}

fn transcripts() -> impl Iterator<Item = PathBuf> {
    let folder = fs::read_dir(folder()).unwrap();
    let paths = folder.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
}

/// Returns the machines of a transcript.
fn world_of(transcript: &Path) -> World {
    World::new(match transcript.file_stem() {
        Some(name) if name == "reach" => "append-only",
        _ => "",
    })
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/mistakes")
}
