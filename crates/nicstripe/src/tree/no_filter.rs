//! Stand-in for `filter.rs` without the feature `trees`: no tree is copied.

use std::path::Path;

use crate::file::FileError;

#[derive(Debug, Clone)]
pub(crate) struct Filters;

impl Filters {
    pub(crate) fn new(patterns: &[String]) -> Result<Self, FileError> {
        Self::parse(patterns).map(|()| Self)
    }

    pub(crate) fn parse(_: &[String]) -> Result<(), FileError> {
        Err(FileError::refused("copy", "a tree", "no support for trees"))
    }

    pub(crate) fn excludes(&self, _: &Path, _: bool) -> bool {
        true
    }
}
