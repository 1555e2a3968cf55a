//! `nicstripe verify`: compares files and trees with their copies.

mod receipt;

use std::{ffi::OsString, path::Path};

use clap::Args;
use nicstripe::trust::PublicKey;

use super::{
    cp::{Compared, Cp, Filters, OutputArgs},
    receipt::Document,
};
use crate::{
    connect::{
        arguments::{LinkArgs, SessionArgs},
        location::{is_elsewhere, shown_place},
    },
    failure::{Failure, usage},
    output::terminal::Terminal,
};

/// Compare files and trees with their copies, by BLAKE3, and say what is missing or different
///
/// Reads all files at both ends and moves no data. SRC and DST are those of `cp -r`. If SRC is a receipt
/// of `cp --receipt`, DST is compared with that. Exit code 0 means that all of SRC is at DST, 40 that
/// something is missing or different.
#[derive(Debug, Args)]
#[command(override_usage = "nicstripe verify [OPTIONS] <SRC>... <DST>")]
pub(crate) struct Verify {
    /// SRC…: files and directories, local or as HOST:PATH; a trailing slash means the content of the
    /// directory. DST, the last: where cp would copy them
    #[arg(value_name = "PATH", required = true, num_args = 2..)]
    paths: Vec<OsString>,

    /// Also name what DST has and SRC lacks, in directories of SRC; also an exit code of 40
    #[arg(long)]
    extra: bool,

    /// Public key that must have signed the receipt, as `nicstripe key` prints it [default: that of this
    /// machine or of a trusted peer]
    #[arg(long, value_name = "KEY")]
    signer: Option<PublicKey>,

    #[command(flatten)]
    filters: Filters,

    #[command(flatten)]
    links: LinkArgs,

    #[command(flatten)]
    session: SessionArgs,

    #[command(flatten)]
    output: OutputArgs,
}

impl Verify {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        if let [receipt, target] = &self.paths[..] {
            let path = Path::new(receipt);
            if let Some(document) = Document::read(path)? {
                return receipt::run(&self, (path, &document), target, terminal);
            }
        }
        if self.signer.is_some() {
            return Err(usage("--signer is for a receipt: expected RECEIPT FILE").into());
        }
        let Self {
            paths,
            extra,
            filters,
            links,
            session,
            output,
            signer: _,
        } = self;
        if let Some(path) = paths.iter().find(|path| is_elsewhere(path)) {
            let text = format!("cannot compare {}: {ELSEWHERE}", shown_place(path));
            return Err(usage(text).into());
        }
        let compared = Compared {
            paths,
            extra,
            filters,
        };
        Cp::comparing(compared, links, session, output).run(terminal)
    }
}

const ELSEWHERE: &str = "expected a path here, or HOST:PATH on a machine that runs nicstripe";
