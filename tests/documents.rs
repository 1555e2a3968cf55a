//! Checks that each test and bench that a document names exists: a filter without a match runs
//! nothing and passes.
//!
//! Reads `cargo test` and `cargo bench` in the documents' code, and their short forms `T NAME` and
//! `B NAME` (`docs/SECURITY.md`, section 4).
#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

use std::{fs, path::Path};

#[test]
fn each_named_test_and_bench_exists() {
    let sources = [files("crates", "rs"), files("tests", "rs")].concat();
    let tests: Vec<_> = sources.iter().flat_map(|file| tests_of(file)).collect();
    let pages = [
        files("docs", "md"),
        ["README.md", "CONTRIBUTING.md"].map(String::from).into(),
    ];
    let mut count = 0;
    for page in pages.concat() {
        for code in code(&read(&page)) {
            let Some(Command { programs, filters }) = Command::parse(&code) else {
                continue;
            };
            count += 1;
            for program in &programs {
                let is_there = |end| Path::new(ROOT).join(format!("{program}{end}")).exists();
                let ends = ["Cargo.toml", ".rs", "/main.rs", "/lib.rs"];
                let exists = ends.into_iter().any(is_there);
                assert!(exists, "{page}: `{code}`: no {program}");
            }
            for filter in &filters {
                let is_run = |(file, name): &(&String, String)| {
                    name.contains(filter)
                        && programs.iter().any(|program| file.starts_with(program))
                };
                assert!(
                    tests.iter().any(is_run),
                    "{page}: `{code}`: no test matches {filter}"
                );
            }
        }
    }
    assert!(count > 80, "{count} commands found: expected more");
}

/// Test or bench command of a document.
struct Command {
    /// Paths at which the sources of its programs begin; empty for all.
    programs: Vec<String>,
    /// Filters of test names.
    filters: Vec<String>,
}

impl Command {
    /// Parses the code of a document; `None` if it is no test or bench command.
    fn parse(code: &str) -> Option<Self> {
        let text = match code.split_once(' ') {
            Some(("T", name)) => format!("cargo test {name}"),
            Some(("B", name)) => format!("cargo bench --bench {name}"),
            _ => code.split(" # ").next()?.to_owned(),
        };
        let mut words = text[text.find("cargo ")?..].split_whitespace();
        let verb = words.find(|word| ["test", "bench"].contains(word))?;
        let (mut packages, mut program, mut filters) = (Vec::new(), None, Vec::new());
        while let Some(word) = words.next() {
            match word {
                "-p" => packages.push(format!("crates/{}/", words.next()?)),
                "--lib" => program = Some("src".to_owned()),
                "--test" => program = Some(format!("tests/{}", words.next()?)),
                "--bench" => program = Some(format!("benches/{}", words.next()?)),
                "--target" => _ = words.next(),
                // The arguments of a bench are its own.
                "--" if verb == "bench" => break,
                option if option.starts_with('-') => {}
                filter => filters.push(filter.to_owned()),
            }
        }
        if packages.is_empty() {
            packages.push(String::new());
        }
        let program = program.unwrap_or_default();
        let programs = packages.iter().map(|package| format!("{package}{program}"));
        // A command with the placeholder NAME names nothing.
        let is_meant = !text.contains("NAME");
        is_meant.then(|| Self {
            programs: programs.collect(),
            filters,
        })
    }
}

/// Returns the tests of a source file: the file, and the path of each within its program.
fn tests_of(file: &String) -> Vec<(&String, String)> {
    let path = file.trim_end_matches(".rs");
    let within = match path.split_once("/src/").or(path.split_once("cli/")) {
        Some((_, module)) => module,
        // The first folder below is the program.
        None => path.split_once("tests/").map_or("", |(_, module)| {
            module.split_once('/').map_or(module, |(_, module)| module)
        }),
    };
    let words = within
        .split('/')
        .filter(|word| !["", "main", "lib", "mod"].contains(word));
    let module: String = words.map(|word| format!("{word}::")).collect();
    let names = test_names(&read(file)).into_iter();
    names
        .map(|name| (file, format!("{module}{name}")))
        .collect()
}

/// Returns the names of a source's tests: functions behind `#[test]`, and lists in `tests!`.
fn test_names(source: &str) -> Vec<String> {
    let listed = source.split("tests![").skip(1);
    let listed = listed.flat_map(|rest| rest.split(']').next().unwrap().split(','));
    let mut names: Vec<_> = listed.map(|name| name.trim().to_owned()).collect();
    let (mut within, mut is_test) = ("", false);
    for line in source.lines().map(str::trim) {
        if line.ends_with("mod tests {") {
            within = "tests::";
        }
        is_test |= line.starts_with("#[test") || line.starts_with("#[tokio::test");
        if is_test && let Some((_, rest)) = line.split_once("fn ") {
            names.push(format!("{within}{}", rest.split('(').next().unwrap()));
            is_test = false;
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Returns the lines of a document's code blocks, and its code spans.
fn code(text: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let blocks = text.split("```").enumerate();
    blocks
        .flat_map(|(number, part)| match number % 2 {
            0 => part.split('`').skip(1).step_by(2).collect::<Vec<_>>(),
            _ => part.lines().collect(),
        })
        .map(|code| code.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

/// Returns the files with this extension below a folder, as paths within the repository.
fn files(folder: &str, extension: &str) -> Vec<String> {
    let (mut files, mut paths) = (Vec::new(), vec![Path::new(ROOT).join(folder)]);
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(
                fs::read_dir(path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(
                path.strip_prefix(ROOT)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned(),
            );
        }
    }
    files
}

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(file)).unwrap()
}

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
