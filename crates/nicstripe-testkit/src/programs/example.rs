//! Builds and locates the programs in `examples/`.

use std::{
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
    if written(&path) < std::env::current_exe().ok().as_deref().and_then(written) {
        BUILT.get_or_init(build);
    }
    path
}

fn build() {
    let mut command = Command::new(env!("CARGO"));
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
