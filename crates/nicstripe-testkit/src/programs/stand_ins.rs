//! Stand-ins for system programs, which record their arguments.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use tempfile::TempDir;

/// Shell in which only stand-ins can be started, to see what a printed line would do.
#[derive(Debug)]
pub struct StandIns(TempDir);

impl StandIns {
    /// Creates stand-ins for these programs.
    pub fn of(programs: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        for program in programs {
            let path = folder.path().join(program);
            fs::write(&path, RECORDER).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self(folder)
    }

    /// Runs a line in `sh`, and returns the words of each program that it started, sorted.
    ///
    /// Panics if the line creates a file other than those in `files`.
    pub fn run(&self, line: &str, files: &[&str]) -> Vec<Vec<String>> {
        let place = TempDir::new().unwrap();
        let record = self.0.path().join("record");
        fs::write(&record, "").unwrap();
        Command::new("/bin/sh")
            .args(["-c", line])
            .current_dir(place.path())
            .env_clear()
            .env("PATH", self.0.path())
            .env("RECORD", &record)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        for entry in fs::read_dir(place.path()).unwrap() {
            let name = entry.unwrap().file_name();
            assert!(
                files.iter().any(|file| name == **file),
                "{line:?} made {name:?}"
            );
        }
        let record = fs::read_to_string(record).unwrap();
        let words = |line: &str| line.split('\0').map(str::to_owned).collect();
        let mut started: Vec<Vec<String>> = record.split_terminator("\0\0\n").map(words).collect();
        started.sort();
        started
    }
}

/// Appends its name and arguments at once, so that programs of a pipe do not mix theirs.
const RECORDER: &str = r#"#!/bin/sh
name=${0##*/}
end='\0\0\n'
format=%s
for word; do format="$format\\0%s"; done
printf "$format$end" "$name" "$@" >> "$RECORD"
"#;
