//! `nicstripe doctor`: names what slows the links, with evidence and the cure.
//!
//! - [`gather`]: facts about both machines, the links and a bench
//! - [`show`], [`picture`], [`document`]: the diagnosis on a screen and as JSON
//! - [`explain`]: one rule in full

mod document;
mod explain;
mod gather;
mod picture;
pub(crate) mod quote;
mod show;
mod snapshots;

use std::path::PathBuf;

use clap::Args;
use nicstripe_doctor::{Case, Diagnosis, Snapshot, examine, rule};

use crate::{
    commands::bench::arguments::parse_disk,
    connect::{arguments::LinkArgs, place::Place},
    failure::{Failure, Fault, exit::Exit},
    output::{json::print_document, logging, terminal::Terminal},
    text::counted,
};

/// Find out why the cables carry less than they could: the cause, the evidence, the cure
///
/// Without HOST it examines this machine; with HOST both ends and the links between them; with
/// --bench it also measures them. Changes nothing. Commands that it prints are for root.
#[derive(Debug, Args)]
#[command(
    mut_arg("link", |link| link.help("Examine only this link; may be repeated")),
    after_help = EXIT_CODES
)]
pub(crate) struct Doctor {
    /// Machine that runs `nicstripe serve`, by name or address; or USER@HOST for ssh
    #[arg(value_name = "HOST")]
    host: Option<Place>,

    /// Load the links for some seconds each, for what shows only under load
    #[arg(long, requires = "host")]
    bench: bool,

    /// With a copy of FILE to the peer's disk, which is then discarded; implies --bench
    #[arg(long, value_name = "FILE[=NAME]", value_parser = parse_disk, requires = "host")]
    disk: Option<nicstripe::bench::DiskPlan>,

    /// Examine only this rule; may be repeated
    #[arg(long, value_name = "N", value_parser = parse_rule)]
    rule: Vec<u8>,

    /// Explain a rule: what it means, why, and its source
    #[arg(long, value_name = "N", value_parser = parse_rule)]
    explain: Option<u8>,

    /// Show everything: all findings in full, also those that are only for information
    #[arg(short, long)]
    all: bool,

    /// Print one JSON document on standard output (docs/schema/doctor.schema.json)
    #[arg(long)]
    json: bool,

    /// Write all facts to FILE, with names and addresses replaced
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,

    /// List the facts instead of judging them, as a snapshot has them
    #[arg(long)]
    show: bool,

    /// Judge a snapshot; given twice, the second is of the peer
    #[arg(long, value_name = "FILE", conflicts_with_all = ["host", "root", "snapshot"])]
    from: Vec<PathBuf>,

    /// Read this machine's /sys and /proc below DIR, for a copy of another machine's
    #[arg(long, value_name = "DIR", conflicts_with = "host")]
    root: Option<PathBuf>,

    #[command(flatten)]
    links: LinkArgs,
}

impl Doctor {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        if let Some(id) = self.explain {
            return explain::print(id);
        }
        let (examined, result) = match self.examine(terminal) {
            Ok((case, diagnosis)) => {
                let result = outcome(&diagnosis);
                (Some((case, diagnosis)), result)
            }
            Err(failure) => (None, Err(failure)),
        };
        if self.json && !self.show {
            let examined = examined.as_ref();
            let document = document::of(
                examined.map(|(case, diagnosis)| (case, diagnosis)),
                result.as_ref().err(),
            );
            return print_document(&document).and(result);
        }
        let Some((case, diagnosis)) = examined else {
            return result;
        };
        if self.show {
            return snapshots::show(&Snapshot::of(&case));
        }
        show::print(&case, &diagnosis, self.all || !self.rule.is_empty())?;
        result
    }

    /// Gathers the facts, writes the snapshot if requested, and judges them.
    fn examine(&self, terminal: &Terminal) -> Result<(Case, Diagnosis), Failure> {
        logging::start(terminal)?;
        self.links.check()?;
        let case = match self.from.as_slice() {
            [] => gather::case(self, terminal)?,
            files => snapshots::read(files)?,
        };
        if let Some(path) = &self.snapshot {
            snapshots::write(path, &Snapshot::of(&case))?;
        }
        let diagnosis = examine(&case, &self.rule);
        Ok((case, diagnosis))
    }
}

/// Returns the end of a command that found this.
fn outcome(diagnosis: &Diagnosis) -> Result<(), Failure> {
    match diagnosis.findings.iter().filter(quote::is_fault).count() {
        0 => Ok(()),
        count => Err(Fault::new(Exit::Found, format!("{} found", counted(count, "fault"))).into()),
    }
}

fn parse_rule(text: &str) -> Result<u8, String> {
    let id = text.parse().ok().filter(|id| rule(*id).is_some());
    let last = nicstripe_doctor::RULES.len();
    id.ok_or_else(|| format!("not a rule: expected 1 to {last}"))
}

const EXIT_CODES: &str = "\
Exit codes:
  0   no fault found
  42  a fault was found: BAD or WARN
  others as for cp";
