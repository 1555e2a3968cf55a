//! Selection of the part of a tree to walk, from a list of paths.

use std::{collections::BTreeMap, sync::Arc};

use nicstripe_proto::Name;

/// Part of a directory that a walk covers.
#[derive(Debug, Clone)]
pub(in crate::tree) enum Selection {
    All,
    /// Listed paths beneath the directory, and their parent directories.
    Listed(Arc<Listed>),
}

/// Names in a directory that lead to listed paths.
#[derive(Debug, Clone, Default)]
pub(in crate::tree) struct Listed {
    /// True if the directory itself is listed.
    is_selected: bool,
    children: BTreeMap<Box<[u8]>, Arc<Listed>>,
}

impl Selection {
    /// Selects the listed `names` and their parent directories, or everything if `names` is `None`.
    pub(in crate::tree) fn of(names: Option<&[Name]>) -> Self {
        let Some(names) = names else { return Self::All };
        let mut root = Listed::default();
        for name in names {
            let node = name.components().fold(&mut root, |node, component| {
                Arc::make_mut(node.children.entry(component.into()).or_default())
            });
            node.is_selected = true;
        }
        Self::Listed(Arc::new(root))
    }

    /// Returns the selection inside a directory: everything if it is listed itself and `recursive`
    /// is set.
    pub(in crate::tree) fn within(self, recursive: bool) -> Self {
        match self {
            Self::Listed(listed) if listed.is_selected && recursive => Self::All,
            selection => selection,
        }
    }

    /// Returns true if the entry itself is selected, not only entries beneath it.
    pub(super) fn is_selected(&self) -> bool {
        match self {
            Self::All => true,
            Self::Listed(listed) => listed.is_selected,
        }
    }

    /// Returns true if the selected paths require the entry to be a directory.
    pub(super) fn needs_directory(&self) -> bool {
        match self {
            Self::All => false,
            Self::Listed(listed) => !listed.is_selected || !listed.children.is_empty(),
        }
    }
}

impl Listed {
    /// Returns the selection of one name in the directory; `None` if no listed path leads through
    /// it.
    pub(in crate::tree) fn child(&self, name: &[u8]) -> Option<Selection> {
        self.children.get(name).cloned().map(Selection::Listed)
    }

    /// Returns the sorted names in the directory that lead to listed paths, with their selections.
    pub(in crate::tree) fn children(&self) -> impl Iterator<Item = (Box<[u8]>, Selection)> {
        self.children
            .iter()
            .map(|(name, listed)| (name.clone(), Selection::Listed(listed.clone())))
    }
}
