//! Tests of thread limits: a command that cannot start its threads reports an error and never
//! hangs.

use std::{
    fs,
    os::unix::{fs::chown, process::CommandExt},
    path::Path,
};

use libtest_mimic::Completion;
use nicstripe_testkit::{Process, pair::Pair, tests, trial::Test};

pub(crate) const TESTS: &[Test] = tests![a_copy_that_gets_too_few_threads_ends_with_an_error,];

/// User ID that no other process uses, so that the process limit counts only the command under
/// test.
pub(crate) const USER: u32 = 64_917;

fn a_copy_that_gets_too_few_threads_ends_with_an_error() -> Completion {
    if !Path::new("/usr/bin/prlimit").exists() {
        return Completion::ignored_with("this machine has no /usr/bin/prlimit");
    }
    let pair = Pair::new();
    pair.client.write("f", [7; 300_000]);
    pair.client.make_dir("t");
    pair.client.write("t/g", "small");
    let is_root = rustix::process::geteuid().is_root();
    let program = pair.client.path("nicstripe");
    fs::copy(env!("CARGO_BIN_EXE_nicstripe"), &program).unwrap();
    if is_root {
        give(pair.client.files().parent().unwrap());
    }
    // The limit includes the other processes of an ordinary user, so that only 1 is certainly too
    // low.
    let limits = if is_root { 1..=12 } else { 1..=1 };
    let mut copied = 0;
    for limit in limits {
        for words in [["f", "127.0.1.2:f"], ["-r", "t"]] {
            let target = format!("127.0.1.2:t{limit}");
            let words = if words[0] == "-r" {
                [words[0], words[1], &target]
            } else {
                ["-f", words[0], words[1]]
            };
            let mut command = pair.client.command("/usr/bin/prlimit");
            command
                .arg(format!("--nproc={limit}"))
                .arg(&program)
                .args(pair.cp_arguments(&words));
            if is_root {
                command.uid(USER).gid(USER);
            }
            // A command that hangs fails here at the deadline.
            let outcome = Process::spawn(command).finish();
            if outcome.status.success() {
                copied += 1;
                continue;
            }
            let outcome = outcome.expect(1);
            assert!(
                outcome.stderr.contains("cannot start threads")
                    && outcome.stderr.contains("hint: "),
                "{limit}: {outcome}"
            );
        }
    }
    assert_eq!(copied > 0, is_root, "with enough of them it copies");
    Completion::Completed
}

/// Changes the owner and group of a file or directory tree to [`USER`].
pub(crate) fn give(path: &Path) {
    chown(path, Some(USER), Some(USER)).unwrap();
    if path.is_dir() {
        fs::read_dir(path)
            .unwrap()
            .for_each(|entry| give(&entry.unwrap().path()));
    }
}
