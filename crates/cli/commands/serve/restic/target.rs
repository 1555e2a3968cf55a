//! Paths of restic's REST API, and the file names they map to in the storage.

use std::fmt;

use nicstripe::{Name, NameError};

/// File or directory that a request addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Repository,
    /// Configuration file of the repository.
    Config,
    Files(Kind),
    File(Kind, Id),
}

/// Type of a file in a repository, which determines its directory. The configuration has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Keys,
    Locks,
    Snapshots,
    Index,
}

/// Name of a file in a repository: 64 lower-case hexadecimal digits, the SHA-256 of its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Id(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum TargetError {
    /// The path has no meaning in the API, or its type of file is unknown.
    #[error("no such path in a repository")]
    Path,
    /// The last component of the path is not a file name of 64 hexadecimal digits.
    #[error("expected a file name of 64 hexadecimal digits")]
    Id,
}

impl Target {
    /// Parses the path of a request URL. Double slashes are not merged and percent escapes are not
    /// decoded, since no path of a repository needs either.
    pub(super) fn parse(path: &str) -> Result<Self, TargetError> {
        let path = path.strip_prefix('/').unwrap_or(path);
        match path.split('/').collect::<Vec<_>>()[..] {
            [""] => Ok(Self::Repository),
            ["config"] => Ok(Self::Config),
            [kind] | [kind, ""] => Ok(Self::Files(Kind::parse(kind)?)),
            [kind, id] => Ok(Self::File(
                Kind::parse(kind)?,
                Id::parse(id.as_bytes()).ok_or(TargetError::Id)?,
            )),
            _ => Err(TargetError::Path),
        }
    }
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [
        Self::Data,
        Self::Keys,
        Self::Locks,
        Self::Snapshots,
        Self::Index,
    ];

    /// Returns the directory name of this type of file, in URLs and in the storage.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Keys => "keys",
            Self::Locks => "locks",
            Self::Snapshots => "snapshots",
            Self::Index => "index",
        }
    }

    fn parse(text: &str) -> Result<Self, TargetError> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or(TargetError::Path)
    }
}

impl Id {
    /// Parses a file name; `None` if it is not 64 lower-case hexadecimal digits.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let text = str::from_utf8(bytes).ok()?;
        (bytes.len() == 64 && bytes.iter().all(is_digit)).then(|| Self(text.to_owned()))
    }

    /// Returns true if the file name is the hexadecimal form of this SHA-256.
    pub(super) fn is_of(&self, digest: &[u8]) -> bool {
        let hex =
            |byte: &u8| [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16));
        digest.iter().flat_map(hex).eq(self.0.chars().map(Some))
    }

    fn folder(&self) -> &str {
        &self.0[..2]
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Mapping of repository files to names in the storage, equal to that of restic's `local` backend.
/// restic can therefore also open the directory directly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// Directory of the repository; `None` is the root of the storage.
    pub(super) base: Option<Name>,
}

impl Layout {
    pub(super) fn file(&self, kind: Kind, id: &Id) -> Result<Name, NameError> {
        match kind {
            Kind::Data => self.name(&[kind.name(), id.folder(), &id.0]),
            _ => self.name(&[kind.name(), &id.0]),
        }
    }

    pub(super) fn directories(&self) -> Result<Vec<Name>, NameError> {
        let folder = |byte: u8| self.name(&[Kind::Data.name(), &format!("{byte:02x}")]);
        let kinds = Kind::ALL.into_iter();
        kinds
            .map(|kind| self.name(&[kind.name()]))
            .chain((0..=u8::MAX).map(folder))
            .collect()
    }

    /// Returns the name of what has this path in the repository.
    pub(super) fn name(&self, components: &[&str]) -> Result<Name, NameError> {
        let base = self.base.iter().flat_map(Name::components);
        Name::new(base.chain(components.iter().map(|component| component.as_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn paths_of_a_repository_are_told_from_others() {
        let id = || Id::parse(ID.as_bytes()).unwrap();
        assert_eq!(Target::parse("/"), Ok(Target::Repository));
        assert_eq!(Target::parse(""), Ok(Target::Repository));
        assert_eq!(Target::parse("/config"), Ok(Target::Config));
        assert_eq!(Target::parse("/locks/"), Ok(Target::Files(Kind::Locks)));
        assert_eq!(Target::parse("/index"), Ok(Target::Files(Kind::Index)));
        assert_eq!(
            Target::parse(&format!("/data/{ID}")),
            Ok(Target::File(Kind::Data, id()))
        );
        for path in [
            "/file-1",
            "/config/",
            "/data/../config",
            "//config",
            "/data/a/b",
            "/..",
            "/DATA/",
            "/data//",
            "/%64ata/",
        ] {
            assert_eq!(Target::parse(path), Err(TargetError::Path), "{path}");
        }
    }

    #[test]
    fn a_file_has_a_name_of_64_digits() {
        let long = format!("{ID}0");
        for id in [
            "0",
            "..",
            &ID[..63],
            &long,
            &ID.to_uppercase(),
            &ID.replace('f', "g"),
            &ID.replace("ef", "é"),
        ] {
            assert_eq!(
                Target::parse(&format!("/keys/{id}")),
                Err(TargetError::Id),
                "{id}"
            );
        }
    }

    #[test]
    fn a_name_is_that_of_its_content() {
        let id = Id::parse(ID.as_bytes()).unwrap();
        let digest = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef].repeat(4);
        assert!(id.is_of(&digest));
        assert!(!id.is_of(&digest[..31]));
        assert!(!id.is_of(&[digest.as_slice(), &[0]].concat()));
        assert!(!id.is_of(&[0; 32]));
    }

    #[test]
    fn the_layout_is_restics_own() {
        let id = Id::parse(ID.as_bytes()).unwrap();
        let base = Some(Name::parse(b"backup/laptop").unwrap());
        let layout = Layout { base };
        assert_eq!(
            layout.file(Kind::Data, &id).unwrap().to_string(),
            format!("backup/laptop/data/01/{ID}")
        );
        assert_eq!(
            layout.file(Kind::Keys, &id).unwrap().to_string(),
            format!("backup/laptop/keys/{ID}")
        );
        let at_root = Layout { base: None }.name(&["config"]).unwrap();
        assert_eq!(at_root.to_string(), "config");
        let directories = layout.directories().unwrap();
        assert_eq!(directories.len(), 5 + 256);
        assert_eq!(
            directories.last().unwrap().to_string(),
            "backup/laptop/data/ff"
        );
    }
}
