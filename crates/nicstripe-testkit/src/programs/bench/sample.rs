//! Source file of the measured copies.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use blake3::{Hash, Hasher};

use super::error::Result;

/// Source file of a copy, with its BLAKE3 digest.
#[derive(Debug)]
pub struct Sample {
    pub path: PathBuf,
    pub size: u64,
    pub digest: Hash,
}

impl Sample {
    /// Creates a file of `size` incompressible bytes, identical in each run.
    pub fn incompressible(path: PathBuf, size: u64) -> Result<Self> {
        let mut file = File::create_new(&path)?;
        let (mut stream, mut hasher) = (Hasher::new().finalize_xof(), Hasher::new());
        let mut block = vec![0; BLOCK];
        for len in blocks(size) {
            stream.fill(&mut block[..len]);
            hasher.update(&block[..len]);
            file.write_all(&block[..len])?;
        }
        Ok(Self {
            path,
            size,
            digest: hasher.finalize(),
        })
    }

    /// Describes an existing source file and computes its digest.
    pub fn of(path: PathBuf) -> Result<Self> {
        let (size, digest) = (fs::metadata(&path)?.len(), digest_of(&path)?);
        Ok(Self { path, size, digest })
    }

    /// Returns the file name, which the copies share.
    pub fn name(&self) -> Result<&str> {
        let name = self.path.file_name().and_then(|name| name.to_str());
        name.ok_or_else(|| format!("the file's name is not UTF-8: {:?}", self.path).into())
    }

    /// Moves the file to another folder on the same file system.
    pub fn move_to(&mut self, folder: &Path) -> Result<()> {
        let path = folder.join(self.name()?);
        if path != self.path {
            fs::rename(&self.path, &path)?;
            self.path = path;
        }
        Ok(())
    }

    pub fn remove(self) -> Result<()> {
        Ok(fs::remove_file(self.path)?)
    }

    /// Compares a copy with the source byte by byte, and compares its digest by `b3sum` if `b3sum`
    /// is installed.
    ///
    /// # Errors
    ///
    /// The copy is missing or differs.
    pub fn check(&self, copy: &Path) -> Result<()> {
        let shown = copy.file_name().unwrap_or_default().display();
        let (mut ours, mut theirs) = (
            File::open(&self.path)?,
            File::open(copy).map_err(|error| format!("no copy: {shown}: {error}"))?,
        );
        let found = theirs.metadata()?.len();
        if found != self.size {
            return Err(format!("copy {shown} has {found} bytes, expected {}", self.size).into());
        }
        let (mut our_block, mut their_block) = (vec![0; BLOCK], vec![0; BLOCK]);
        let mut offset = 0;
        for len in blocks(self.size) {
            ours.read_exact(&mut our_block[..len])?;
            theirs.read_exact(&mut their_block[..len])?;
            if our_block[..len] != their_block[..len] {
                return Err(format!(
                    "copy {shown} differs from the file in the block at byte {offset}"
                )
                .into());
            }
            offset += len as u64;
        }
        self.check_by_b3sum(copy)
    }

    fn check_by_b3sum(&self, copy: &Path) -> Result<()> {
        if !Self::b3sum_is_installed() {
            return Ok(());
        }
        let output = Command::new("b3sum").arg("--no-names").arg(copy).output()?;
        self.check_digest(String::from_utf8_lossy(&output.stdout).trim(), "b3sum")
    }

    /// Returns true if `b3sum` is installed.
    pub fn b3sum_is_installed() -> bool {
        Command::new("b3sum")
            .arg("--version")
            .stdin(Stdio::null())
            .output()
            .is_ok()
    }

    /// Compares the hexadecimal digest `found` with the source's digest. `who` is the program that
    /// computed `found`.
    pub fn check_digest(&self, found: &str, who: &str) -> Result<()> {
        match found == self.digest.to_hex().as_str() {
            true => Ok(()),
            false => Err(format!("{who} found digest {found:?}, expected {}", self.digest).into()),
        }
    }
}

/// Formats a number of bytes in GiB.
pub fn gib(bytes: u64) -> String {
    format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30))
}

fn digest_of(path: &Path) -> Result<Hash> {
    let mut hasher = Hasher::new();
    let mut file = io::BufReader::with_capacity(BLOCK, File::open(path)?);
    io::copy(&mut file, &mut hasher)?;
    Ok(hasher.finalize())
}

/// Returns the lengths of the blocks in which a file of `size` bytes is read or written.
fn blocks(size: u64) -> impl Iterator<Item = usize> {
    let last = usize::try_from(size % BLOCK as u64)
        .ok()
        .filter(|len| *len > 0);
    (0..size / BLOCK as u64).map(|_| BLOCK).chain(last)
}

const BLOCK: usize = 1 << 20;
