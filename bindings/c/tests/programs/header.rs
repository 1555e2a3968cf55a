//! Test that the committed header is made of the source.

use std::{env, fs, path::Path};

pub(crate) fn the_header_is_that_of_the_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let about = fs::read_to_string(root.join("header.txt")).unwrap();
    config.header = Some(format!("/*\n{} */", commented(&about)));
    let made = cbindgen::generate_with_config(root, config).unwrap();
    let mut text = Vec::new();
    made.write(&mut text);
    let (text, path) = (
        String::from_utf8(text).unwrap(),
        root.join("include/nicstripe.h"),
    );
    if env::var_os("NICSTRIPE_API").is_some_and(|value| value == "write") {
        fs::write(&path, &text).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "include/nicstripe.h is not that of the source: NICSTRIPE_API=write cargo test header"
    );
}

fn commented(text: &str) -> String {
    text.lines()
        .map(|line| format!(" * {line}").trim_end().to_owned() + "\n")
        .collect()
}
