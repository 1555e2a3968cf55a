//! Checks the imports between the modules of each crate: no large import cycle, and layered folders
//! in the library.
//!
//! Reads `use` declarations, and paths that begin with `crate`, `self`, `super` or the name of a
//! submodule. Ignores comments, strings and test code. The table of layers is in
//! `docs/ARCHITECTURE.md`.
#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// Maximum number of files in an import cycle within a crate.
const LARGEST_CIRCLE: usize = 6;

/// Root files of the checked crates.
const CRATES: [&str; 12] = [
    "crates/nicstripe-proto/src/lib.rs",
    "crates/nicstripe-link/src/lib.rs",
    "crates/nicstripe-netlink/src/lib.rs",
    "crates/nicstripe-lab/src/lib.rs",
    "crates/nicstripe-bench/src/lib.rs",
    "crates/nicstripe-doctor/src/lib.rs",
    "crates/nicstripe-sim/src/lib.rs",
    "crates/nicstripe-testkit/src/lib.rs",
    "crates/nicstripe/src/lib.rs",
    "crates/nicstripe-s3/src/lib.rs",
    "crates/nicstripe-web/src/lib.rs",
    "crates/cli/lib.rs",
];

/// Maximum number of top-level modules in the library.
const MOST_AT_THE_TOP: usize = 14;

#[test]
fn no_crate_has_a_large_import_circle() {
    for root in CRATES {
        let modules = Modules::of(root);
        let circle = largest_circle(&modules.files);
        assert!(
            circle.len() <= LARGEST_CIRCLE,
            "{} files of {root} import each other in a circle, {LARGEST_CIRCLE} are allowed:\n{}",
            circle.len(),
            arrows_within(&circle, &modules.files)
        );
    }
}

#[test]
fn the_librarys_folders_are_layers() {
    let modules = Modules::of("crates/nicstripe/src/lib.rs");
    let layers = layers();
    let at_the_top: BTreeSet<_> = modules.top.iter().collect();
    assert!(at_the_top.len() <= MOST_AT_THE_TOP, "{at_the_top:?}");
    assert_eq!(
        at_the_top,
        layers.keys().collect(),
        "the library and the table of layers in docs/ARCHITECTURE.md differ"
    );

    let folders = modules.folders();
    let circle = largest_circle(&folders);
    assert!(
        circle.is_empty(),
        "these folders import each other in a circle: {circle:?}"
    );

    let upward: BTreeSet<_> = folders
        .iter()
        .flat_map(|(from, tos)| tos.iter().map(move |to| (from.as_str(), to.as_str())))
        .filter(|(from, to)| layers[*from] > layers[*to])
        .collect();
    assert!(
        upward.is_empty(),
        "arrows from a lower layer to a higher: {upward:?}"
    );
}

#[test]
fn imports_are_read_without_comments_strings_and_tests() {
    let source = r##"
        // use crate::comment;
        use crate::{a::{self, B}, c as d};
        pub(in crate::visible) fn first<'a>(text: &'a str) -> super::e::F {
            let quote = ('"', '\\'', b"crate::string", r#"crate::"raw"#);
            Self { field: self::g::h(text), other: j::k(quote), number: 1 }
        }
        #[cfg(test)]
        mod tests { use crate::tests; }
        #[error("{}", crate::i::J)]
        struct K;
    "##;
    let paths = paths(&without_tests(&tokens(source)));
    let paths: Vec<_> = paths.iter().map(|path| path.join("::")).collect();
    let expected = [
        "crate::a::self",
        "crate::a::B",
        "crate::c",
        "super::e::F",
        "self::g::h",
        "j::k",
        "crate::i::J",
    ];
    assert_eq!(paths, expected);
}

/// Returns the layer of each folder of the library: the folder's row in the table of
/// `docs/ARCHITECTURE.md`, counted from the top.
fn layers() -> BTreeMap<String, usize> {
    let text = read(&repository().join("docs/ARCHITECTURE.md"));
    let section = text
        .split("\n## ")
        .find(|section| section.starts_with("2. "))
        .unwrap();
    let rows = section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .enumerate();
    rows.flat_map(|(row, line)| {
        let cell = line.split('|').nth(1).unwrap();
        cell.split('`')
            .skip(1)
            .step_by(2)
            .map(move |name| (name.to_owned(), row))
    })
    .collect()
}

/// Import graph: maps each module to the modules that it imports.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Import graph of a crate's files, and the crate's top-level modules.
struct Modules {
    /// Imports between files. Keys are module paths such as `a::b`; the crate root is the empty
    /// string.
    files: Graph,
    /// Modules that the root file declares.
    top: Vec<String>,
}

impl Modules {
    /// Reads all files of a crate, starting at the root file `root`.
    fn of(root: &str) -> Self {
        let mut sources = BTreeMap::new();
        let root = repository().join(root);
        let top = read_module(&root, root.parent().unwrap(), &[], &mut sources);
        let mut files = Graph::new();
        for (module, tokens) in &sources {
            let imports = paths(tokens)
                .iter()
                .filter_map(|path| absolute(path, module, &sources))
                .map(|path| path.join("::"))
                .collect();
            files.insert(module.join("::"), imports);
        }
        for (file, imports) in &mut files {
            imports.remove(file);
        }
        Self { files, top }
    }

    /// Returns the imports between top-level modules.
    fn folders(&self) -> Graph {
        let top = |module: &str| module.split("::").next().unwrap().to_owned();
        let mut folders = Graph::new();
        for (file, imports) in self.files.iter().filter(|(file, _)| !file.is_empty()) {
            let imports = imports.iter().map(|import| top(import));
            folders.entry(top(file)).or_default().extend(imports);
        }
        for (folder, imports) in &mut folders {
            imports.remove(folder);
            imports.remove("");
        }
        folders
    }
}

/// Tokens of each file, by module path.
type Sources = BTreeMap<Vec<String>, Vec<String>>;

/// Reads a module and its descendants into `sources`. Returns the names of its direct children.
fn read_module(file: &Path, folder: &Path, path: &[String], sources: &mut Sources) -> Vec<String> {
    let tokens = without_tests(&tokens(&read(file)));
    let declared: Vec<_> = tokens
        .windows(3)
        .filter(|window| window[0] == "mod" && window[2] == ";")
        .map(|window| window[1].clone())
        .collect();
    for name in &declared {
        let below = folder.join(name);
        let flat = below.with_extension("rs");
        let file = if flat.exists() {
            flat
        } else {
            below.join("mod.rs")
        };
        read_module(
            &file,
            &below,
            &[path, std::slice::from_ref(name)].concat(),
            sources,
        );
    }
    sources.insert(path.to_vec(), tokens);
    declared
}

/// Splits source text into words and single punctuation characters. Drops line comments and
/// literals.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(length) = literal(rest) {
            length
        } else if is_word(first) {
            let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            tokens.push(rest[..length].to_owned());
            length
        } else {
            tokens.push(first.to_string());
            first.len_utf8()
        };
        rest = rest[length..].trim_start();
    }
    tokens
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the length in bytes of the string or character literal at the start of `text`; `None` if
/// `text` does not start with a literal.
fn literal(text: &str) -> Option<usize> {
    let body = text.trim_start_matches(['b', 'c', 'r']);
    let raw = text[..text.len() - body.len()].ends_with('r');
    let prefix = text.len() - body.len();
    if raw {
        let hashes = body.len() - body.trim_start_matches('#').len();
        let inner = body[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        return Some(prefix + hashes + 1 + inner.find(&end)? + end.len());
    }
    if body.starts_with('"') {
        return Some(prefix + quoted(body, '"')?);
    }
    // A lifetime has no closing quote after its first character.
    let mut inner = body.strip_prefix('\'')?.chars();
    let (first, second) = (inner.next()?, inner.next()?);
    (first == '\\' || second == '\'').then(|| Some(prefix + quoted(body, '\'')?))?
}

/// Returns the length in bytes of the literal at the start of `text`, including its quotes; `None`
/// if the literal is not closed.
fn quoted(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if !escaped && c == quote {
            return Some(at + 1);
        }
        escaped = !escaped && c == '\\';
    }
    None
}

/// Removes items whose `cfg` attribute contains `test` or `fuzzing` and no `not`.
fn without_tests(tokens: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let length = attribute_length(&tokens[at..]);
        let attribute = &tokens[at..at + length];
        let is_for_tests = attribute.get(2).is_some_and(|word| word == "cfg")
            && attribute
                .iter()
                .any(|word| word == "test" || word == "fuzzing")
            && attribute.iter().all(|word| word != "not");
        at += length;
        if is_for_tests {
            at += item_length(&tokens[at..]);
        } else if length > 0 {
            kept.extend_from_slice(attribute);
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// Returns the number of tokens in the attribute at the start of `tokens`; 0 if there is no
/// attribute.
fn attribute_length(tokens: &[String]) -> usize {
    if tokens.len() < 2 || tokens[0] != "#" || tokens[1] != "[" {
        return 0;
    }
    1 + group_length(&tokens[1..])
}

/// Returns the number of tokens in the item, enum variant or match arm at the start of `tokens`,
/// including its attributes.
fn item_length(tokens: &[String]) -> usize {
    let mut at = 0;
    let mut is_item = false;
    while at < tokens.len() {
        match tokens[at].as_str() {
            ";" => return at + 1,
            "," if !is_item => return at + 1,
            "{" => {
                at += group_length(&tokens[at..]);
                if tokens.get(at).is_none_or(|next| next != ";" && next != ",") {
                    return at;
                }
                continue;
            }
            "(" | "[" => {
                at += group_length(&tokens[at..]);
                continue;
            }
            "fn" | "impl" | "struct" | "enum" => is_item = true,
            _ => {}
        }
        at += 1;
    }
    at
}

/// Returns the number of tokens in the bracketed group at the start of `tokens`.
fn group_length(tokens: &[String]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// Returns the paths in a module's tokens: those of its `use` declarations, and all others of two
/// words or more.
fn paths(tokens: &[String]) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            "use" => at += 1 + use_tree(&tokens[at + 1..], &[], &mut paths),
            // Skips the path of `pub(in crate::a)`.
            "in" if tokens[at + 1] == "crate" => at += 2,
            word if word.starts_with(is_word) => at += plain_path(&tokens[at..], &mut paths),
            _ => at += 1,
        }
    }
    paths
}

/// Adds the path at the start of `tokens` to `paths`, unless the path is a single word. Returns the
/// number of tokens in the path.
fn plain_path(tokens: &[String], paths: &mut Vec<Vec<String>>) -> usize {
    let mut path = vec![tokens[0].clone()];
    let mut at = 1;
    while tokens.len() > at + 2 && tokens[at] == ":" && tokens[at + 1] == ":" {
        if !tokens[at + 2].starts_with(is_word) {
            break;
        }
        path.push(tokens[at + 2].clone());
        at += 3;
    }
    if path.len() > 1 {
        paths.push(path);
    }
    at
}

/// Adds every path of the use tree at the start of `tokens` to `paths`, prefixed with `above`.
/// Returns the number of tokens in the use tree.
fn use_tree(tokens: &[String], above: &[String], paths: &mut Vec<Vec<String>>) -> usize {
    let mut path = above.to_vec();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            ";" | "," | "}" => break,
            "{" => {
                let end = at + group_length(&tokens[at..]);
                at += 1;
                while at < end {
                    at += 1 + use_tree(&tokens[at..end], &path, paths);
                }
                return end;
            }
            "as" => at += 1,
            ":" | "*" => {}
            word => path.push(word.to_owned()),
        }
        at += 1;
    }
    if path.len() > above.len() {
        paths.push(path);
    }
    at
}

/// Returns the module file to which `path`, written in `module`, refers; `None` if it is outside
/// the crate.
fn absolute(path: &[String], module: &[String], sources: &Sources) -> Option<Vec<String>> {
    let supers = path.iter().take_while(|word| *word == "super").count();
    let mut target = match path[0].as_str() {
        "crate" => path[1..].to_vec(),
        "self" => [module, &path[1..]].concat(),
        "super" => [
            &module[..module.len().saturating_sub(supers)],
            &path[supers..],
        ]
        .concat(),
        _ => {
            let below = [module, path].concat();
            let child = &below[..=module.len()];
            return sources.contains_key(child).then(|| child.to_vec());
        }
    };
    while !sources.contains_key(&target) {
        target.pop();
    }
    Some(target)
}

/// Returns the nodes of the largest strongly connected component. Empty if the graph has no cycle.
fn largest_circle(graph: &Graph) -> BTreeSet<String> {
    let reached: BTreeMap<_, _> = graph
        .keys()
        .map(|node| (node, reach(node, graph)))
        .collect();
    let circle = |node: &String| -> BTreeSet<String> {
        let there = reached[node].iter();
        there
            .filter(|other| reached[other].contains(node))
            .cloned()
            .collect()
    };
    graph
        .keys()
        .map(circle)
        .max_by_key(BTreeSet::len)
        .unwrap_or_default()
}

/// Returns all nodes that `node` reaches by at least one import.
fn reach(node: &str, graph: &Graph) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut next = vec![node];
    while let Some(node) = next.pop() {
        for to in &graph[node] {
            if reached.insert(to.clone()) {
                next.push(to);
            }
        }
    }
    reached
}

fn arrows_within(circle: &BTreeSet<String>, graph: &Graph) -> String {
    let mut text = String::new();
    for from in circle {
        for to in graph[from].intersection(circle) {
            writeln!(text, "  {from} -> {to}").unwrap();
        }
    }
    text
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{file:?}: {error}"))
}
