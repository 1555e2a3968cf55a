//! Exit status and output of a finished process.

use std::process::ExitStatus;

use serde_json::Value;

use super::schema::Schema;

#[derive(Debug)]
pub struct Outcome {
    pub command: String,
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    /// Panics unless the process exited with this code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{self}");
        self
    }

    /// Panics unless standard error has exactly one `error:` line, and it contains all `parts`.
    #[track_caller]
    pub fn error(self, parts: &[&str]) -> Self {
        self.labelled("error: ", parts);
        self
    }

    /// Panics unless standard error has exactly one `hint:` line, and it contains all `parts`.
    #[track_caller]
    pub fn hint(self, parts: &[&str]) -> Self {
        self.labelled("hint: ", parts);
        self
    }

    /// Panics unless standard error contains all `parts`.
    #[track_caller]
    pub fn says(&self, parts: &[&str]) {
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?}: {self}");
        }
    }

    /// Returns the text after `label` in the only line of standard error that begins with it.
    /// Panics unless it contains all `parts`.
    #[track_caller]
    pub fn labelled(&self, label: &str, parts: &[&str]) -> &str {
        let lines: Vec<&str> = self
            .stderr
            .lines()
            .filter_map(|line| line.strip_prefix(label))
            .collect();
        let [line] = lines[..] else {
            panic!("{} lines with {label:?}\n{self}", lines.len())
        };
        for part in parts {
            assert!(line.contains(part), "{part:?} is not in {line:?}\n{self}");
        }
        line
    }

    /// Returns the JSON document of `cp --json` or `--json-stream`. Panics unless the document
    /// matches its schema and the exit code.
    #[track_caller]
    pub fn document(&self) -> Value {
        let last = self
            .stdout
            .lines()
            .last()
            .unwrap_or_else(|| panic!("nothing on standard output\n{self}"));
        let document: Value =
            serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}\n{self}"));
        Schema::load("cp-report").check(&document);
        assert_eq!(
            document["exit_code"].as_i64(),
            self.status.code().map(i64::from),
            "{self}"
        );
        assert_eq!(document["ok"], self.status.success(), "{self}");
        assert_eq!(
            document.get("error").is_some(),
            !self.status.success(),
            "{self}"
        );
        document
    }

    /// Returns the JSON document of a command other than `cp`. Panics unless the document matches
    /// its schema.
    #[track_caller]
    pub fn document_of(&self, schema: &str) -> Value {
        let document: Value =
            serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}\n{self}"));
        Schema::load(schema).check(&document);
        document
    }

    /// Returns the JSON events of `cp --json-stream`. Panics unless each event matches its schema.
    #[track_caller]
    pub fn events(&self) -> Vec<Value> {
        let mut lines: Vec<&str> = self.stdout.lines().collect();
        lines.pop();
        let schema = Schema::load("cp-event");
        let event = |line: &str| {
            let event = serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("{error}: {line}\n{self}"));
            schema.check(&event);
            event
        };
        lines.into_iter().map(event).collect()
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            command,
            status,
            stdout,
            stderr,
        } = self;
        write!(
            f,
            "{command}\n{status}\nstandard output:\n{stdout}\nstandard error:\n{stderr}"
        )
    }
}
