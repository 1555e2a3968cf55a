//! Replay of a fuzz target's corpus in the tests of its crate.

use std::{fs, path::Path};

/// Calls `run` on every file of `fuzz/corpus/TARGET`, in order of their names. Panics if a seed's
/// file is missing or differs from the seed.
///
/// Writes the seeds first if `NICSTRIPE_WRITE_SEEDS` is set.
pub fn replay(target: &str, run: fn(&[u8]), seeds: Vec<(&str, Vec<u8>)>) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    for (name, bytes) in seeds {
        let path = corpus.join(name);
        if std::env::var_os("NICSTRIPE_WRITE_SEEDS").is_some() {
            fs::create_dir_all(&corpus).unwrap();
            fs::write(&path, &bytes).unwrap();
        }
        assert!(
            fs::read(&path).ok() == Some(bytes),
            "{path:?} is not what is made today: write it again with NICSTRIPE_WRITE_SEEDS=1"
        );
    }
    let mut files: Vec<_> = fs::read_dir(&corpus)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{corpus:?} is empty");
    for path in files {
        println!("{path:?}");
        run(&fs::read(&path).unwrap());
    }
}
