//! Tests that need something that a machine may lack, such as a program or a privilege. Such a test
//! is listed as ignored, with the reason, and does not count as passed.

use std::{env, os::unix::fs::PermissionsExt as _, path::PathBuf, thread};

pub use libtest_mimic::{Arguments, Completion, Trial, run};

/// Path of a test and its function, which panics if the test fails.
pub type Test = (&'static str, fn() -> Completion);

/// Group of tests, and a function that returns the reason why the tests cannot run, or `None` if
/// they can.
pub type Group = (&'static [Test], fn() -> Option<String>);

/// Creates a `Group`'s list of tests from function names. A function returns nothing, or a
/// [`Completion`] if it may find that it cannot run.
#[macro_export]
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        &[$((
            concat!(module_path!(), "::", stringify!($name)),
            || $crate::trial::Ending::completion($name()),
        )),*]
    };
}

/// Return type of a test function that does not panic.
pub trait Ending {
    fn completion(self) -> Completion;
}

impl Ending for () {
    fn completion(self) -> Completion {
        Completion::Completed
    }
}

impl Ending for Completion {
    fn completion(self) -> Completion {
        self
    }
}

/// Returns the trials of all tests in these groups.
pub fn trials(groups: impl IntoIterator<Item = Group>) -> Vec<Trial> {
    let groups = groups.into_iter();
    groups
        .flat_map(|(tests, obstacle)| tests.iter().map(move |test| trial(test, obstacle)))
        .collect()
}

/// Returns the trial of a test, ignored if `obstacle` returns a reason.
pub fn trial(
    &(path, test): &Test,
    obstacle: impl FnOnce() -> Option<String> + Send + 'static,
) -> Trial {
    let (_, name) = path.split_once("::").unwrap();
    Trial::ignorable_test(name, move || {
        Ok(obstacle().map_or_else(test, Completion::ignored_with))
    })
}

/// Returns the completion of an ignored test if one of these programs is not in the search path;
/// `None` if all are.
pub fn lacks(programs: &[&str]) -> Option<Completion> {
    let missing = programs.iter().find(|program| !is_installed(program))?;
    Some(Completion::ignored_with(format!(
        "this machine has no {missing}"
    )))
}

/// Returns true if a program is in the search path.
pub fn is_installed(program: &str) -> bool {
    let is_program = |file: PathBuf| {
        file.metadata()
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| is_program(folder.join(program)))
}

/// Tests that run again, in another way.
pub struct Again {
    pub tests: &'static [Test],
    /// Names of the tests that cannot.
    pub without: &'static [&'static str],
    /// Added to the name of each.
    pub suffix: &'static str,
    /// Runs a test in that way.
    pub run: fn(fn() -> Completion) -> Completion,
}

/// Returns the trials of these groups, and those of `again`. Ignores all if this process may not create
/// a lab.
///
/// Must run before any thread starts, because a process with several threads cannot enter a user
/// namespace.
#[cfg(all(feature = "programs", target_os = "linux"))]
pub fn trials_in_a_lab(
    only_listed: bool,
    groups: impl IntoIterator<Item = Group>,
    again: impl IntoIterator<Item = Again>,
) -> Vec<Trial> {
    let no_lab = if only_listed {
        None
    } else {
        nicstripe_lab::gain_access()
            .err()
            .map(|error| nicstripe::chain(&error))
    };
    let again = again.into_iter().flat_map(|again| {
        let named = |(path, _): &Test| path.split_once("::").unwrap().1.to_owned() + again.suffix;
        let cannot = |(path, _): &&Test| again.without.iter().any(|name| path.ends_with(name));
        let tests = again.tests.iter().filter(move |test| !cannot(test));
        tests.map(move |test| (named(test), again.run, test.1))
    });
    let again: Vec<Trial> = again
        .map(|(name, run, test)| {
            let no_lab = no_lab.clone();
            Trial::ignorable_test(name, move || {
                Ok(no_lab.map_or_else(|| run(test), Completion::ignored_with))
            })
        })
        .collect();
    let groups = groups.into_iter();
    let once = groups
        .flat_map(|(tests, obstacle)| tests.iter().map(move |test| (test, obstacle)))
        .map(|(test, obstacle)| {
            let no_lab = no_lab.clone();
            trial(test, move || no_lab.or_else(obstacle))
        });
    // The groups end with tests that measure, which fewer others then disturb.
    again.into_iter().chain(once).collect()
}

/// Obstacle of tests that every machine can run: always `None`.
pub fn none() -> Option<String> {
    None
}

/// Obstacle of tests that take long: the reason to skip them; `None` if `NICSTRIPE_LONG` is set.
pub fn length() -> Option<String> {
    (!is_long()).then(|| format!("takes long: {LONG}=1 or .ci/run --long runs it"))
}

/// Returns the arguments of a test program whose tests mostly wait for cables, disks and timers.
/// Runs two tests per core and one more at a time, unless the command line sets a number.
pub fn waiting() -> Arguments {
    let mut arguments = Arguments::from_args();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    arguments.test_threads.get_or_insert(2 * cores + 1);
    arguments
}

/// Returns `long` if `NICSTRIPE_LONG` is set, otherwise `usual`.
pub fn amount<T>(usual: T, long: T) -> T {
    if is_long() { long } else { usual }
}

fn is_long() -> bool {
    env::var_os(LONG).is_some()
}

const LONG: &str = "NICSTRIPE_LONG";
