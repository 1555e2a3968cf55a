//! Tree copies.

use std::path::PathBuf;

use nicstripe_proto::Name;

use super::{Client, Transfer};
use crate::tree::{TreeOptions, TreeSource};

impl Client {
    /// Sends files and trees, like [`crate::Client::put_tree`].
    pub fn put_tree(
        &self,
        sources: impl IntoIterator<Item: Into<PathBuf>>,
        name: Option<Name>,
        options: TreeOptions,
    ) -> Transfer {
        self.start(|client| client.put_tree(sources, name, options))
    }

    /// Fetches files and trees, like [`crate::Client::get_tree`].
    pub fn get_tree(
        &self,
        sources: impl IntoIterator<Item = TreeSource>,
        target: impl Into<PathBuf>,
        options: TreeOptions,
    ) -> Transfer {
        self.start(|client| client.get_tree(sources, target, options))
    }
}
