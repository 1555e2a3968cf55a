//! The small programs in `examples/` about copies: what is shown meanwhile, and what is left when they are interrupted.

use crate::{
    example_backup::example,
    harness::{Outcome, Process, content, digest},
    pair::{LINKS, Pair},
};

#[test]
fn progress_is_shown_for_the_file_and_for_each_link() {
    let pair = Pair::new();
    let bytes = content(8_000_000);
    pair.client.write("file", &bytes);
    let port = pair.daemon.port.to_string();
    let outcome = run(&pair, "progress", &["file", "127.0.0.1", &port, LINKS[0], LINKS[1]]);
    // Without a terminal there are no bars: what is left is the end.
    assert!(outcome.stdout.starts_with("8000000 bytes at ") && outcome.stdout.lines().count() == 3, "{outcome}");
    let carried = outcome.stdout.lines().skip(1).map(|line| line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap());
    assert_eq!(carried.collect::<Vec<_>>().iter().sum::<usize>(), bytes.len(), "{outcome}");
    assert_eq!(digest(&pair.server.read("file")), digest(&bytes));
}

#[test]
fn a_copy_that_is_interrupted_goes_on_where_it_was() {
    let pair = Pair::new();
    let bytes = content(40_000_000);
    pair.client.write("file", &bytes);
    let outcome = run(&pair, "resume", &["file", "127.0.0.1", &pair.daemon.port.to_string()]);
    assert!(outcome.stdout.contains("interrupted: "), "{outcome}");
    let there = outcome.stdout.lines().find_map(|line| line.strip_suffix(" of 40000000 bytes were there"));
    let there: usize = there.unwrap_or_else(|| panic!("{outcome}")).parse().unwrap();
    // A third was waited for, of which not all may be durable, and more has come until it was interrupted.
    assert!((1_000_000..40_000_000).contains(&there), "{outcome}");
    assert_eq!(digest(&pair.server.read("file")), digest(&bytes));
    assert_eq!(pair.server.names(), ["file"]);
}

/// Runs an example to its good end, with the client's folders.
#[track_caller]
fn run(pair: &Pair, name: &str, arguments: &[&str]) -> Outcome {
    let mut command = pair.client.command(example(name));
    command.args(arguments);
    Process::spawn(command).finish().expect(0)
}
