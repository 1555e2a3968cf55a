//! File names of a repository at the daemon, equal to those of restic's own `local` backend.

use nicstripe::{Name, NameError};
use rustic_core::{FileType, Id};

/// Mapping of repository files to names at the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    base: Option<Name>,
}

impl Layout {
    /// Creates the mapping for a repository in the directory `base`; `None` is the daemon's root.
    ///
    /// # Errors
    ///
    /// `base` is so long that names of files in it exceed the maximum length.
    pub(crate) fn new(base: Option<Name>) -> Result<Self, NameError> {
        let layout = Self { base };
        // The longest name.
        layout.file(FileType::Pack, &Id::default())?;
        Ok(layout)
    }

    /// Returns the directory of the repository as a path; empty for the daemon's root.
    pub(crate) fn base(&self) -> String {
        self.base.as_ref().map(Name::to_string).unwrap_or_default()
    }

    /// Returns the name of a repository file at the daemon.
    pub(crate) fn file(&self, tpe: FileType, id: &Id) -> Result<Name, NameError> {
        let hex = id.to_hex();
        match tpe {
            FileType::Config => self.name(&[tpe.dirname()]),
            FileType::Pack => self.name(&[tpe.dirname(), &hex[..2], &hex]),
            _ => self.name(&[tpe.dirname(), &hex]),
        }
    }

    /// Returns the directory for a type of file.
    pub(crate) fn directory(&self, tpe: FileType) -> Result<Name, NameError> {
        self.name(&[tpe.dirname()])
    }

    /// Returns the directory for packs whose IDs begin with `folder`, two hexadecimal digits.
    pub(crate) fn pack_folder(&self, folder: &str) -> Result<Name, NameError> {
        self.name(&[FileType::Pack.dirname(), folder])
    }

    /// Returns the directories that an empty repository has.
    pub(crate) fn directories(&self) -> Result<Vec<Name>, NameError> {
        let kinds = [
            FileType::Pack,
            FileType::Key,
            FileType::Snapshot,
            FileType::Index,
        ]
        .map(FileType::dirname);
        let kinds = kinds
            .into_iter()
            .chain([LOCKS])
            .map(|kind| self.name(&[kind]));
        kinds
            .chain((0..=u8::MAX).map(|byte| self.pack_folder(&format!("{byte:02x}"))))
            .collect()
    }

    fn name(&self, components: &[&str]) -> Result<Name, NameError> {
        let base = self.base.iter().flat_map(Name::components);
        Name::new(base.chain(components.iter().map(|component| component.as_bytes())))
    }
}

/// Parses a file name of 64 lower-case hexadecimal digits; `None` for any other name.
pub(crate) fn id(name: &[u8]) -> Option<Id> {
    let text = str::from_utf8(name).ok()?;
    (text.len() == 64 && text.bytes().all(is_digit)).then(|| text.parse().ok())?
}

/// Returns true if a directory of this name may contain packs.
pub(crate) fn is_pack_folder(name: &str) -> bool {
    name.len() == 2 && name.bytes().all(is_digit)
}

fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// Directory for the locks of restic; rustic creates none.
const LOCKS: &str = "locks";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn the_layout_is_restics_own() {
        let layout = Layout::new(Some(Name::parse(b"backup/laptop").unwrap())).unwrap();
        let id = ID.parse().unwrap();
        let file = |tpe| layout.file(tpe, &id).unwrap().to_string();
        assert_eq!(file(FileType::Config), "backup/laptop/config");
        assert_eq!(file(FileType::Key), format!("backup/laptop/keys/{ID}"));
        assert_eq!(
            file(FileType::Snapshot),
            format!("backup/laptop/snapshots/{ID}")
        );
        assert_eq!(file(FileType::Index), format!("backup/laptop/index/{ID}"));
        assert_eq!(file(FileType::Pack), format!("backup/laptop/data/01/{ID}"));
        assert_eq!(
            Layout::new(None)
                .unwrap()
                .file(FileType::Config, &id)
                .unwrap()
                .to_string(),
            "config"
        );
        let directories = layout.directories().unwrap();
        assert_eq!(directories.len(), 5 + 256);
        assert_eq!(
            directories.last().unwrap().to_string(),
            "backup/laptop/data/ff"
        );
    }

    #[test]
    fn what_is_no_name_of_a_file_is_none() {
        assert_eq!(id(ID.as_bytes()), Some(ID.parse().unwrap()));
        let long = format!("{ID}0");
        for name in [
            "",
            "config",
            &ID[..63],
            &long,
            &ID.to_uppercase(),
            &ID.replace('f', "g"),
            &ID.replace("ef", "é"),
        ] {
            assert_eq!(id(name.as_bytes()), None, "{name}");
        }
        assert_eq!(id(&[0xff; 64]), None);
        assert!(is_pack_folder("0f") && is_pack_folder("99"));
        assert!(
            !["0F", "0", "00f", "..", "zz", "é"]
                .into_iter()
                .any(is_pack_folder)
        );
    }

    #[test]
    fn a_directory_that_leaves_no_room_for_names_is_refused_at_once() {
        let deep = Name::new(vec![b"d".to_vec(); 255]).unwrap();
        assert!(Layout::new(Some(deep)).is_err());
    }
}
