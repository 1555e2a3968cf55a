//! Replay of the corpora of fuzz targets in the tests of their crate.

use std::{fs, path::Path};

/// Number of damaged copies of each file that a target gets.
const DAMAGED: u64 = if cfg!(miri) { 1 } else { 100 };

/// Returns the files of `fuzz/corpus/TARGET` with their names, in order of the names.
pub fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            (name.to_owned(), fs::read(&path).unwrap())
        })
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{folder:?} is empty");
    files
}

/// Name of a fuzz target, and its function.
type Target<'a> = (&'a str, fn(&[u8]));

/// Calls each target on every file of its corpus, and on damaged copies of each.
pub fn replay(targets: &[Target<'_>]) {
    for (target, run) in targets {
        for (name, bytes) in corpus(target) {
            println!("fuzz/corpus/{target}/{name}");
            run(&bytes);
            for seed in 0..DAMAGED {
                println!("damaged with seed {seed}");
                run(&damaged(&bytes, seed));
            }
        }
    }
}

/// Returns the bytes with up to four of them changed, removed or repeated, and sometimes cut.
fn damaged(bytes: &[u8], seed: u64) -> Vec<u8> {
    let (mut bytes, mut noise) = (bytes.to_vec(), [0; 20]);
    let mut hasher = blake3::Hasher::new();
    hasher
        .update(&seed.to_le_bytes())
        .finalize_xof()
        .fill(&mut noise);
    for &[low, high, how, value] in &noise.as_chunks::<4>().0[..1 + seed as usize % 4] {
        let at = usize::from(u16::from_le_bytes([low, high])) % bytes.len().max(1);
        match how % 8 {
            _ if bytes.is_empty() => bytes.push(value),
            0 => _ = bytes.remove(at),
            1 => bytes.insert(at, bytes[at]),
            2 => bytes[at] = value,
            3 => bytes[at] = [0, 0x7f, 0x80, 0xff][usize::from(value % 4)],
            4 => bytes[at] = bytes[at].wrapping_add(1),
            _ => bytes[at] ^= 1 << (value % 8),
        }
    }
    if noise[16] < 64 {
        bytes.truncate(usize::from(u16::from_le_bytes([noise[17], noise[18]])) % (bytes.len() + 1));
    }
    bytes
}
