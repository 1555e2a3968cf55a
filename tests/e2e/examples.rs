//! Tests that every program in `examples/` does what it documents.

use std::path::{Path, PathBuf};

use nicstripe_testkit::{
    Outcome, Process, content, digest, example,
    pair::{LINKS, Pair},
};

/// Examples that have a test, in this file or in [`crate::example_backup`].
const TESTED: [&str; 8] = [
    "backup",
    "bench",
    "embedding_daemon",
    "objects",
    "progress",
    "put",
    "rate",
    "resume",
];

#[test]
fn every_example_has_a_test() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let paths = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let name = |path: PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
    let mut names: Vec<String> = paths.map(name).collect();
    names.sort();
    assert_eq!(names, TESTED);
}

#[test]
fn a_program_that_embeds_a_daemon_puts_and_gets_through_a_client() {
    let pair = Pair::new();
    let outcome = run(&pair, "embedding_daemon", &[]);
    for line in [
        "put 17000 bytes, 0 installed routes",
        "got \"42\"",
        "left: answer; greeting, taken in",
    ] {
        assert!(outcome.stdout.lines().any(|said| said == line), "{outcome}");
    }
    assert!(outcome.stdout.contains("refused: 127.0.0.1: "), "{outcome}");
}

#[test]
fn a_program_of_ones_own_puts_a_file() {
    let pair = Pair::new();
    let bytes = content(3_000_000);
    pair.client.write("file", &bytes);
    let outcome = run(&pair, "put", &["file", "127.0.0.1", PORT]);
    assert!(outcome.stdout.contains(&digest(&bytes)), "{outcome}");
    assert!(pair.server.read("file") == bytes);
}

#[test]
fn a_program_measures_files_and_objects() {
    let pair = Pair::new();
    for what in ["put", "get", "put-objects", "get-objects"] {
        let outcome = run(&pair, "rate", &["127.0.0.1", what, "4", PORT]);
        let rate: f64 = outcome.stdout.trim().parse().unwrap();
        assert!(rate > 0.0, "{outcome}");
    }
    assert_eq!(pair.server.read("rate").len(), 4 << 20);
    assert_eq!(pair.server.read("objects/1").len(), 2 << 20);
}

#[test]
fn a_program_of_ones_own_writes_lists_reads_and_removes_an_object() {
    let pair = Pair::new();
    let outcome = run(&pair, "objects", &["127.0.0.1", PORT]);
    let lines = [
        "10000000 bytes are durable",
        "    10000000 numbers",
        "line 123456: 123456",
        "removed",
    ];
    assert_eq!(
        outcome.stdout.lines().collect::<Vec<_>>(),
        lines,
        "{outcome}"
    );
    assert_eq!(pair.server.names(), ["example"]);
}

#[test]
fn a_program_of_ones_own_benches() {
    let pair = Pair::new();
    let outcome = run(&pair, "bench", &["127.0.0.1", PORT, "1"]);
    assert!(
        outcome
            .stdout
            .lines()
            .filter(|line| line.contains("bit/s"))
            .count()
            >= 3,
        "{outcome}"
    );
}

#[test]
fn progress_is_shown_for_the_file_and_for_each_link() {
    let pair = Pair::new();
    let bytes = content(8_000_000);
    pair.client.write("file", &bytes);
    let outcome = run(
        &pair,
        "progress",
        &["file", "127.0.0.1", PORT, LINKS[0], LINKS[1]],
    );
    // Without a terminal, the example prints only the final lines.
    assert!(
        outcome.stdout.starts_with("8000000 bytes at ") && outcome.stdout.lines().count() == 3,
        "{outcome}"
    );
    let carried = outcome.stdout.lines().skip(1).map(|line| {
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<usize>()
            .unwrap()
    });
    assert_eq!(
        carried.collect::<Vec<_>>().iter().sum::<usize>(),
        bytes.len(),
        "{outcome}"
    );
    assert_eq!(digest(&pair.server.read("file")), digest(&bytes));
}

#[test]
fn a_copy_that_is_interrupted_goes_on_where_it_was() {
    let pair = Pair::new();
    let bytes = content(40_000_000);
    pair.client.write("file", &bytes);
    let outcome = run(&pair, "resume", &["file", "127.0.0.1", PORT]);
    assert!(outcome.stdout.contains("interrupted: "), "{outcome}");
    let there = outcome.stdout.lines().find_map(|line| {
        line.strip_prefix("resumed at ")?
            .strip_suffix(" of 40000000 bytes")
    });
    let there: usize = there
        .unwrap_or_else(|| panic!("{outcome}"))
        .parse()
        .unwrap();
    // The example waits for a third of the file. Not all of that third may be durable, and more may
    // have arrived before the interruption.
    assert!((1_000_000..40_000_000).contains(&there), "{outcome}");
    assert_eq!(digest(&pair.server.read("file")), digest(&bytes));
    assert_eq!(pair.server.names(), ["file"]);
}

/// Stands for the daemon's port in the arguments of an example.
const PORT: &str = "PORT";

/// Runs an example with the keys of the client. Panics unless it succeeds.
#[track_caller]
fn run(pair: &Pair, name: &str, arguments: &[&str]) -> Outcome {
    let mut command = pair.client.command(example(name));
    let port = pair.daemon.port.to_string();
    command.args(arguments.iter().map(|word| word.replace(PORT, &port)));
    Process::spawn(command).finish().expect(0)
}
