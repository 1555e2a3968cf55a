//! Copies that only compare, for `nicstripe verify`.

use std::ffi::OsString;

use nicstripe::TreeReport;

use super::{
    arguments::{Cp, OutputArgs},
    filters::Filters,
};
use crate::{
    connect::arguments::{LinkArgs, SessionArgs},
    failure::{Fault, exit::Exit},
    text::quantity::Grouped,
};

#[derive(Debug)]
pub(crate) struct Compared {
    /// Sources and, as the last, the target.
    pub(crate) paths: Vec<OsString>,
    /// True to name what only the target has.
    pub(crate) extra: bool,
    pub(crate) filters: Filters,
}

impl Cp {
    /// Returns the dry run of `cp -rc` that names what it would copy.
    pub(crate) fn comparing(
        compared: Compared,
        links: LinkArgs,
        session: SessionArgs,
        output: OutputArgs,
    ) -> Self {
        let mut cp = Self::of_words(&["cp", "-rcn", "x", "host:"]);
        cp.tree.delete = compared.extra;
        cp.tree.filters = compared.filters;
        Self {
            paths: compared.paths,
            links,
            session,
            output: OutputArgs {
                compares: true,
                ..output
            },
            ..cp
        }
    }
}

fn missing(tree: &TreeReport) -> u64 {
    tree.files + tree.directories + tree.symlinks + tree.nodes + tree.hard_links
}

/// Returns the counts of a comparison in one line.
pub(super) fn counts(tree: &TreeReport) -> String {
    let mut parts = vec![format!("{} the same", Grouped(tree.unchanged))];
    for (count, what) in [
        (missing(tree), "missing or different"),
        (tree.deleted, "extra"),
        (tree.special, "special or partial files skipped"),
        (tree.failed, "could not be compared"),
    ] {
        parts.extend((count > 0).then(|| format!("{} {what}", Grouped(count))));
    }
    parts.join("; ")
}

pub(super) fn differs(tree: &TreeReport) -> Option<Fault> {
    let count = missing(tree) + tree.deleted;
    let what = match count {
        0 => return None,
        1 => "entry of DST differs",
        _ => "entries of DST differ",
    };
    let text = format!("{} {what} from SRC", Grouped(count));
    Some(Fault::new(Exit::Digest, text))
}
