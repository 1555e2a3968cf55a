//! Errors of the arguments of `ls`.

use std::ffi::OsString;

use crate::{
    failure::{CommandError, Failure, exit::Exit},
    text::invocation::Invocation,
};

/// An argument of `ls` cannot be listed.
#[derive(Debug, thiserror::Error)]
pub(super) enum LsError {
    /// The argument is a path of this machine.
    #[error("\"{0}\" is on this machine: expected HOST: or HOST:PATH")]
    Local(String),
    #[error("there is no \"{target}\"")]
    Missing {
        target: String,
        /// Argument as typed.
        typed: OsString,
        /// Argument with a similar name that exists.
        near: Option<OsString>,
        /// Argument that lists the directory in which the name was expected.
        parent: OsString,
    },
    /// Several arguments cannot be listed.
    #[error("{}", .0.text)]
    Several(Several),
}

/// Arguments that cannot be listed.
#[derive(Debug)]
pub(super) struct Several {
    text: String,
    lines: Vec<String>,
    exit: Exit,
}

impl Several {
    /// Combines the failures of some of `of` arguments. The exit code is that of the first.
    pub(super) fn of(failed: &[(String, Failure)], of: usize) -> Self {
        let lines = failed
            .iter()
            .map(|(argument, failure)| format!("{argument}: {}", failure.one_line()));
        Self {
            // A pattern may match directories of which several cannot be read.
            text: format!(
                "{} of {} could not be listed",
                failed.len(),
                of.max(failed.len())
            ),
            lines: lines.collect(),
            exit: failed
                .first()
                .map_or(Exit::Files, |(_, failure)| failure.exit()),
        }
    }
}

impl CommandError for LsError {
    fn exit(&self) -> Exit {
        match self {
            Self::Local(_) => Exit::Usage,
            Self::Missing { .. } => Exit::Files,
            Self::Several(several) => several.exit,
        }
    }

    fn hint(&self, invocation: &Invocation) -> Option<String> {
        let program = invocation.program();
        match self {
            Self::Local(_) => Some(format!("name the machine: {program} ls HOST:")),
            Self::Missing {
                typed,
                near: Some(near),
                ..
            } => Some(format!("did you mean: {}", invocation.with(typed, near))),
            Self::Missing { typed, parent, .. } => Some(format!(
                "list what is there: {}",
                invocation.with(typed, parent)
            )),
            Self::Several(_) => None,
        }
    }

    fn details(&self) -> &[String] {
        match self {
            Self::Several(several) => &several.lines,
            _ => &[],
        }
    }
}
