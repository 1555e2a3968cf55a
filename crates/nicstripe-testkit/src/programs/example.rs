//! Builds and locates the programs in `examples/`.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use super::program::program;

/// Returns the path of an example program. Lets cargo build all examples first if the program is
/// missing or older than this test.
pub fn example(name: &str) -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    let path = Path::new(program()).with_file_name("examples").join(name);
    let written = |path: &Path| path.metadata().and_then(|found| found.modified()).ok();
    if written(&path) < env::current_exe().ok().as_deref().and_then(written) {
        BUILT.get_or_init(build);
    }
    path
}

/// Returns the command of cargo without what this run of cargo set for the test about its package: the build
/// scripts of some crates run again when that changes, and their crates are replaced under the tests that
/// another run has begun.
pub fn cargo() -> Command {
    let mut command = Command::new(env!("CARGO"));
    for (variable, _) in env::vars_os() {
        let name = variable.to_string_lossy();
        let is_of_package = ["CARGO_PKG_", "CARGO_MANIFEST_"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        if is_of_package || name == "OUT_DIR" {
            command.env_remove(&variable);
        }
    }
    command
}

fn build() {
    let mut command = cargo();
    command
        .args(["build", "--locked", "--examples", "--manifest-path"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml"));
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    assert!(
        command.status().unwrap().success(),
        "the examples cannot be built"
    );
}
