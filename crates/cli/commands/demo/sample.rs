//! File that the demo copies, built from programs and libraries of this machine.

use std::{
    env,
    fs::{self, File, FileType},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use nicstripe::Digest;

use super::failed;
use crate::{
    failure::{Fault, exit::Exit},
    text::shown,
};

#[derive(Debug)]
pub(super) struct Sample {
    pub(super) path: PathBuf,
    pub(super) size: u64,
    /// BLAKE3 digest of the content.
    pub(super) digest: Digest,
    /// Origin of the content as text, such as a path.
    pub(super) origin: String,
}

impl Sample {
    /// Describes an existing file, which the user named.
    pub(super) fn of(path: PathBuf) -> Result<Self, Fault> {
        let metadata = fs::metadata(&path).map_err(failed(&format!("cannot read {path:?}")))?;
        let (size, digest) = (metadata.len(), digest_of(&path)?);
        let origin = shown(&path);
        Ok(Self {
            path,
            size,
            digest,
            origin,
        })
    }

    /// Builds a file of `size` bytes by concatenating this program, the Rust toolchain and the
    /// system's programs and libraries.
    pub(super) fn make(path: PathBuf, size: u64) -> Result<Self, Fault> {
        let failed = failed("cannot create the file to copy");
        let mut writer = SampleWriter::create(&path, size).map_err(failed)?;
        while writer.missing > 0 {
            let before = writer.missing;
            sources()
                .iter()
                .try_for_each(|source| writer.take(source))
                .map_err(failed)?;
            if writer.missing == before {
                let text = "no readable file to build the sample from: expected --file";
                return Err(Fault::new(Exit::Failed, text));
            }
        }
        let digest = Digest(*writer.hasher.finalize().as_bytes());
        Ok(Self {
            path,
            size,
            digest,
            origin: "programs and libraries of this machine".to_owned(),
        })
    }

    /// Returns the last component of the path, or the whole path if it has none.
    pub(super) fn file_name(&self) -> PathBuf {
        let name = self.path.file_name();
        name.map_or_else(|| self.path.clone(), PathBuf::from)
    }
}

/// Writer that appends files until the sample has the requested size.
struct SampleWriter {
    file: File,
    hasher: blake3::Hasher,
    missing: u64,
    buffer: Vec<u8>,
}

impl SampleWriter {
    fn create(path: &Path, size: u64) -> io::Result<Self> {
        Ok(Self {
            file: File::create_new(path)?,
            hasher: blake3::Hasher::new(),
            missing: size,
            buffer: vec![0; BUFFER],
        })
    }

    /// Appends a file, or all files below a directory in the order of their names. Skips unreadable
    /// files.
    fn take(&mut self, path: &Path) -> io::Result<()> {
        if self.missing == 0 {
            return Ok(());
        }
        let kind = fs::symlink_metadata(path).map(|metadata| metadata.file_type());
        if kind.as_ref().is_ok_and(FileType::is_file) {
            return self.take_file(path);
        }
        let entries = kind
            .ok()
            .filter(FileType::is_dir)
            .and(fs::read_dir(path).ok());
        let entries = entries.into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort_unstable();
        paths.iter().try_for_each(|path| self.take(path))
    }

    fn take_file(&mut self, path: &Path) -> io::Result<()> {
        let Ok(mut source) = File::open(path) else {
            return Ok(());
        };
        while self.missing > 0 {
            let most = usize::try_from(self.missing).unwrap_or(BUFFER).min(BUFFER);
            let Ok(count @ 1..) = source.read(&mut self.buffer[..most]) else {
                return Ok(());
            };
            self.file.write_all(&self.buffer[..count])?;
            self.hasher.update(&self.buffer[..count]);
            self.missing -= count as u64;
        }
        Ok(())
    }
}

/// Returns the files and directories to build the sample from, in this order.
fn sources() -> Vec<PathBuf> {
    let rustup = env::var_os("RUSTUP_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".rustup")));
    let toolchains = rustup.map(|path| path.join("toolchains"));
    let system = ["/usr/local", "/usr/lib", "/usr/bin", "/usr/share"].map(PathBuf::from);
    env::current_exe()
        .into_iter()
        .chain(toolchains)
        .chain(system)
        .collect()
}

pub(super) fn digest_of(path: &Path) -> Result<Digest, Fault> {
    let mut hasher = blake3::Hasher::new();
    File::open(path)
        .and_then(|file| hasher.update_reader(file).map(drop))
        .map_err(failed(&format!("cannot read {path:?}")))?;
    Ok(Digest(*hasher.finalize().as_bytes()))
}

const BUFFER: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_has_the_size_and_digest_that_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let sample = Sample::make(folder.path().join("sample"), 3_000_001).unwrap();
        assert_eq!(fs::metadata(&sample.path).unwrap().len(), 3_000_001);
        assert_eq!(digest_of(&sample.path).unwrap(), sample.digest);
        assert_eq!(Sample::of(sample.path).unwrap().digest, sample.digest);
    }
}
