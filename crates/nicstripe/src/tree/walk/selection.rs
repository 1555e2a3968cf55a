//! Which things of a tree are walked, where only some were asked for.

use std::{collections::BTreeMap, sync::Arc};

use nicstripe_proto::Name;

/// What is walked of a directory.
#[derive(Debug, Clone)]
pub(in crate::tree) enum Selection {
    /// All that is in it.
    All,
    /// What is listed, and what leads there.
    Listed(Arc<Listed>),
}

/// What is listed in a directory, by name.
#[derive(Debug, Default)]
pub(in crate::tree) struct Listed {
    /// Whether the directory itself is listed.
    is_meant: bool,
    children: BTreeMap<Box<[u8]>, Arc<Listed>>,
}

impl Selection {
    /// Selects `names` with the directories that lead there.
    pub(in crate::tree) fn of(names: Option<&[Name]>) -> Self {
        let Some(names) = names else { return Self::All };
        let mut root = Building::default();
        for name in names {
            let node = name.components().fold(&mut root, |node, component| node.children.entry(component.into()).or_default());
            node.is_meant = true;
        }
        Self::Listed(Arc::new(root.built()))
    }

    /// What is walked of a directory that was chosen by this: all if it is listed itself, and directories are entered.
    pub(in crate::tree) fn within(self, recursive: bool) -> Self {
        match self {
            Self::Listed(listed) if listed.is_meant && recursive => Self::All,
            selection => selection,
        }
    }

    /// Whether the thing itself was asked for, not only something beneath it.
    pub(super) fn is_meant(&self) -> bool {
        match self {
            Self::All => true,
            Self::Listed(listed) => listed.is_meant,
        }
    }

    /// Returns true if only a directory can have all that was asked for.
    pub(super) fn needs_directory(&self) -> bool {
        match self {
            Self::All => false,
            Self::Listed(listed) => !listed.is_meant || !listed.children.is_empty(),
        }
    }
}

impl Listed {
    /// Selection of one name in the directory; `None` for a name that leads to nothing listed.
    pub(in crate::tree) fn child(&self, name: &[u8]) -> Option<Selection> {
        self.children.get(name).cloned().map(Selection::Listed)
    }

    /// Names in the directory, sorted, and what is selected of each.
    pub(in crate::tree) fn children(&self) -> impl Iterator<Item = (Box<[u8]>, Selection)> {
        self.children.iter().map(|(name, listed)| (name.clone(), Selection::Listed(listed.clone())))
    }
}

/// A [`Listed`] that names are still added to.
#[derive(Default)]
struct Building {
    is_meant: bool,
    children: BTreeMap<Box<[u8]>, Building>,
}

impl Building {
    fn built(self) -> Listed {
        let children = self.children.into_iter().map(|(name, child)| (name, Arc::new(child.built()))).collect();
        Listed { is_meant: self.is_meant, children }
    }
}
