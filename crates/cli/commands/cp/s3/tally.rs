//! Result of a copy of several files.

use std::path::Path;

use nicstripe::{Error, FailCode, FailedEntry, Report, TreeReport};
use nicstripe_web::WebError;

use crate::{failure::Failure, text::shown};

/// Sum of files that were copied, were there already, or failed.
#[derive(Debug, Default)]
pub(super) struct Tally {
    report: Report,
    pub(super) tree: TreeReport,
    proofs: Vec<String>,
}

impl Tally {
    pub(super) fn copied(&mut self, report: Report, proof: String) {
        self.tree.files += 1;
        self.tree.bytes += report.size;
        let (elapsed, moving) = (self.report.elapsed, self.report.moving);
        self.report.add(report);
        // Files overlap: the caller knows the time of all.
        (self.report.elapsed, self.report.moving) = (elapsed, moving);
        if !self.proofs.contains(&proof) {
            self.proofs.push(proof);
        }
    }

    /// Notes a file that failed. Returns the error if it ends the whole copy.
    pub(super) fn failed(&mut self, name: &str, error: WebError) -> Result<(), Failure> {
        let code = match &error {
            WebError::Cancelled { .. } => {
                return Err(Error::Cancelled { resumable: true }.into());
            }
            WebError::NoLink { .. } | WebError::TimedOut { .. } => return Err(error.into()),
            WebError::NoAnswer { .. } if !error.is_refused() && !error.is_missing() => {
                return Err(error.into());
            }
            WebError::Exists { .. } => FailCode::Exists,
            WebError::SourceChanged { .. } | WebError::Changed { .. } => FailCode::SourceChanged,
            WebError::Digest { .. } => FailCode::Digest,
            WebError::File(error) => error.code,
            error if error.is_missing() => FailCode::NotFound,
            _ => FailCode::Io,
        };
        self.refused(name, code, nicstripe::chain(&error));
        Ok(())
    }

    /// Notes a file that is not copied.
    pub(super) fn refused(&mut self, name: &str, code: FailCode, why: String) {
        self.tree.failed += 1;
        self.tree.changed += u64::from(code == FailCode::SourceChanged);
        if self.tree.failures.len() < MOST_SAID {
            self.tree
                .failures
                .push(FailedEntry::new(shown(name), code, shown(why)));
        }
    }

    /// Notes a file or directory of this machine that cannot be used.
    pub(super) fn failed_here(&mut self, path: &Path, why: &impl ToString) {
        self.refused(&path.display().to_string(), FailCode::Io, why.to_string());
    }

    pub(super) fn is_clean(&self) -> bool {
        self.tree.failed == 0
    }

    /// Returns the report, and what the files were compared with.
    pub(super) fn end(mut self, elapsed: std::time::Duration) -> (Report, String) {
        self.report.elapsed = elapsed;
        self.report.moving = elapsed;
        for link in &mut self.report.links {
            link.goodput = nicstripe::BitRate::from_bytes_over(link.bytes, elapsed);
        }
        self.report.tree = Some(self.tree);
        let proof = match self.proofs.is_empty() {
            true => "checked by size and time".to_owned(),
            false => self.proofs.join(", "),
        };
        (self.report, proof)
    }
}

/// Failures that are kept as text.
const MOST_SAID: usize = 1000;
