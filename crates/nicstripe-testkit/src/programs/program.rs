//! Paths of the `nicstripe` command and of cargo's folders.

use std::{
    env::{self, current_exe},
    path::{Path, PathBuf},
    sync::LazyLock,
};

/// Returns the path of the `nicstripe` command: that of `NICSTRIPE_TEST_PROGRAM`, for tests of an
/// installed package, otherwise the one that cargo builds in the directory above the tests and
/// benches.
pub fn program() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| {
        let given = env::var_os(PROGRAM).map(PathBuf::from);
        let path = given.unwrap_or_else(|| profile_folder().join("nicstripe"));
        path.into_os_string().into_string().unwrap()
    });
    &PATH
}

/// Returns the path of the build that benches compare with [`program`]: that of
/// `NICSTRIPE_OTHER_PROGRAM`, otherwise [`program`] itself, which shows the noise.
pub fn other_program() -> &'static str {
    static PATH: LazyLock<String> =
        LazyLock::new(|| env::var(OTHER).unwrap_or_else(|_| program().to_owned()));
    &PATH
}

/// Variable with the path of the program to test.
const PROGRAM: &str = "NICSTRIPE_TEST_PROGRAM";

/// Variable with the path of the build to compare with.
const OTHER: &str = "NICSTRIPE_OTHER_PROGRAM";

/// Returns cargo's folder for large temporary files: `target/tmp`.
pub(crate) fn temporary_folder() -> PathBuf {
    profile_folder().with_file_name("tmp")
}

/// Returns `target/debug` or `target/release`: the parent of `deps`, which contains the running
/// test or bench.
fn profile_folder() -> PathBuf {
    let own = current_exe().unwrap();
    own.ancestors().nth(2).map(Path::to_owned).unwrap()
}
