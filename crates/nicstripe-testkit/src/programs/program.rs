//! Paths of the `nicstripe` command and of cargo's folders.

use std::{
    env::current_exe,
    path::{Path, PathBuf},
    sync::LazyLock,
};

/// Returns the path of the `nicstripe` command. Cargo builds the command in the directory above the
/// tests and benches.
pub fn program() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| {
        let path = profile_folder().join("nicstripe");
        path.into_os_string().into_string().unwrap()
    });
    &PATH
}

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
