//! Checks that the public items of the library, with all its features, and of `nicstripe-bench` are
//! exactly those listed in `docs/api`, one per line.
//!
//! Runs only with `NICSTRIPE_API=check cargo test --test api`, as in `.ci/run`, because rustdoc has
//! to build both crates. `NICSTRIPE_API=write` rewrites the lists instead. The toolchain determines
//! the version of rustdoc's JSON format. The test is listed as ignored, with the reason, if the
//! crate `public-api` expects another version.
#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// Version of rustdoc's JSON format that the crate `public-api` reads.
const FORMAT: u64 = 57;

fn main() {
    let arguments = Arguments::from_args();
    let trials = ["nicstripe", "nicstripe-bench"].map(|package| {
        Trial::ignorable_test(
            format!("the_public_items_of_{package}_are_those_of_the_list"),
            move || compare(package),
        )
    });
    libtest_mimic::run(&arguments, trials.into()).exit();
}

fn compare(package: &str) -> Result<Completion, Failed> {
    let Some(what) = std::env::var_os("NICSTRIPE_API") else {
        return Ok(Completion::ignored_with("set NICSTRIPE_API=check"));
    };
    let path = document(package)?;
    let text = fs::read_to_string(&path)?;
    let format = serde_json::from_str::<serde_json::Value>(&text)?["format_version"].as_u64();
    if format != Some(FORMAT) {
        return Ok(Completion::ignored_with(format!(
            "rustdoc writes format {format:?}, and {FORMAT} is what is read"
        )));
    }
    let api = public_api::Builder::from_rustdoc_json(path)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true);
    let found = api.build()?.to_string();
    let listed = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/api/{package}.txt"));
    if what == "write" {
        fs::write(&listed, found)?;
        return Ok(Completion::Completed);
    }
    let expected = fs::read_to_string(&listed)?;
    let only_in = |one: &str, other: &str, mark: &str| {
        let lines = one
            .lines()
            .filter(|line| !other.lines().any(|same| same == *line));
        lines
            .map(|line| format!("{mark} {line}\n"))
            .collect::<String>()
    };
    let differences = only_in(&expected, &found, "-") + &only_in(&found, &expected, "+");
    if differences.is_empty() {
        return Ok(Completion::Completed);
    }
    Err(format!(
        "the public items have changed; NICSTRIPE_API=write lists them anew:\n{differences}"
    )
    .into())
}

/// Runs rustdoc with JSON output. Returns the path of the JSON file.
///
/// The JSON output is unstable and needs `RUSTC_BOOTSTRAP`. Only rustdoc gets the variable, because
/// cargo would rebuild everything if the variable were set.
fn document(package: &str) -> Result<PathBuf, Failed> {
    let folder = tempfile::tempdir()?;
    let rustdoc = folder.path().join("rustdoc");
    fs::write(
        &rustdoc,
        "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec \"${NICSTRIPE_RUSTDOC:-rustdoc}\" \"$@\"\n",
    )?;
    fs::set_permissions(&rustdoc, Permissions::from_mode(0o755))?;
    let mut command = nicstripe_testkit::cargo();
    command.args([
        "rustdoc",
        "--locked",
        "--quiet",
        "-p",
        package,
        "--lib",
        "--all-features",
        "--manifest-path",
    ]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
    command.args([
        "--",
        "-Z",
        "unstable-options",
        "--output-format",
        "json",
        "--cap-lints",
        "allow",
    ]);
    if let Some(given) = std::env::var_os("RUSTDOC") {
        command.env("NICSTRIPE_RUSTDOC", given);
    }
    let output = command.env("RUSTDOC", &rustdoc).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    // The path of this test is TARGET/PROFILE/deps/api-HASH.
    let program = std::env::current_exe()?;
    let target = program
        .ancestors()
        .nth(3)
        .ok_or("the test is in no target directory")?;
    Ok(target.join(format!("doc/{}.json", package.replace('-', "_"))))
}
