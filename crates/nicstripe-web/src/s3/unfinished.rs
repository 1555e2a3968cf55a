//! Upload that a later run continues: its id at the store, and the parts that are there.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use super::{place::S3Place, source::Source};

/// Record of an upload in a file, one line per part. Parts without a complete line are resent.
#[derive(Debug)]
pub(crate) struct Unfinished {
    path: PathBuf,
    file: File,
}

#[derive(Debug)]
pub(crate) struct Upload {
    /// Content of the file, as [`content`] returns it.
    pub(crate) content: String,
    pub(crate) id: String,
    pub(crate) parts: Vec<StoredPart>,
}

/// Part that the store has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredPart {
    /// Number, from 0.
    pub(crate) part: u64,
    pub(crate) etag: String,
    /// CRC-64/NVME of its bytes, as headers have it.
    pub(crate) crc64: String,
}

impl Unfinished {
    /// Returns the path of the record for this file and this place.
    pub(crate) fn path(state: &Path, endpoint: &str, place: &S3Place, source: &Source) -> PathBuf {
        let path = fs::canonicalize(source.path()).unwrap_or_else(|_| source.path().to_owned());
        let name = hash(&[
            endpoint.as_bytes(),
            place.to_string().as_bytes(),
            path.as_os_str().as_encoded_bytes(),
        ]);
        state.join("uploads").join(name)
    }

    /// Returns true if a run ended before it knew the id of its upload.
    pub(crate) fn is_without_id(path: &Path) -> bool {
        path.exists() && Self::read(path).is_none()
    }

    /// Begins a record of an upload of this content. The id is empty until the store has sent it.
    pub(crate) fn begin(path: &Path, content: &str, upload: &str) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(path)?;
        writeln!(file, "{HEAD}{content} {upload}")?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    /// Reads a record. Returns it with the upload; `None` if there is none, or it cannot be read.
    pub(crate) fn read(path: &Path) -> Option<(Self, Upload)> {
        let text = fs::read_to_string(path).ok()?;
        let mut lines = text
            .split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n'));
        let (content, id) = lines.next()?.strip_prefix(HEAD)?.split_once(' ')?;
        let parts = lines.map(|line| {
            let (part, rest) = line.split_once(' ')?;
            let (crc64, etag) = rest.split_once(' ')?;
            Some(StoredPart {
                part: part.parse().ok()?,
                etag: etag.to_owned(),
                crc64: crc64.to_owned(),
            })
        });
        let upload = Upload {
            content: content.to_owned(),
            id: id.to_owned(),
            parts: parts.collect::<Option<_>>()?,
        };
        let file = OpenOptions::new().append(true).open(path).ok()?;
        // A line that a kill has cut off must not become the beginning of the next.
        let whole: usize = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).ok()?;
        let record = Self {
            path: path.to_owned(),
            file,
        };
        (!upload.id.is_empty()).then_some((record, upload))
    }

    pub(crate) fn add(&mut self, part: &StoredPart) -> io::Result<()> {
        let StoredPart { part, crc64, etag } = part;
        self.file
            .write_all(format!("{part} {crc64} {etag}\n").as_bytes())
    }

    /// Deletes the record: the upload is complete, or was given up.
    pub(crate) fn end(self) {
        let _ = fs::remove_file(self.path);
    }
}

/// Returns a text that is another one for another content of a file, or another size of its parts.
pub(crate) fn content(source: &Source) -> String {
    hash(&[format!("{:?} {}", source.found(), source.pieces.each).as_bytes()])
}

fn hash(texts: &[&[u8]]) -> String {
    let mut hasher = blake3::Hasher::new();
    for text in texts {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

const HEAD: &str = "nicstripe upload 2 ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_a_kill_without_its_last_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("uploads/x");
        assert!(Unfinished::read(&path).is_none());
        let mut record = Unfinished::begin(&path, "c", "id/+=").unwrap();
        let part = |part, etag: &str| StoredPart {
            part,
            etag: etag.to_owned(),
            crc64: "AAAAAAAAAAA=".to_owned(),
        };
        record.add(&part(3, "\"a\"")).unwrap();
        record.add(&part(0, "\"b c\"")).unwrap();
        drop(record);
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("7 \"cut");
        fs::write(&path, &text).unwrap();
        let (mut record, upload) = Unfinished::read(&path).unwrap();
        assert_eq!((&*upload.content, &*upload.id), ("c", "id/+="));
        assert_eq!(upload.parts, [part(3, "\"a\""), part(0, "\"b c\"")]);
        record.add(&part(9, "\"d\"")).unwrap();
        let (record, upload) = Unfinished::read(&path).unwrap();
        assert_eq!(upload.parts.last(), Some(&part(9, "\"d\"")));
        record.end();
        assert!(!path.exists());
        for text in [
            "",
            "other\n",
            "nicstripe upload 2 \n",
            "nicstripe upload 2 x \n",
            "nicstripe upload 2 x x\nno part\n",
        ] {
            fs::write(&path, text).unwrap();
            assert!(Unfinished::read(&path).is_none(), "{text}");
        }
    }
}
