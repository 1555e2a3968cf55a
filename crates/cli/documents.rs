//! Checks that each `nicstripe` command in the documents is one that the command line accepts.
//!
//! Commands are in code blocks, also behind a prompt, a pipe, a quote or a hint's colon, and in code
//! spans. Words in capitals are placeholders.

use std::fs;

use clap::{
    Parser as _,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::args::{Args, tests::check};

#[test]
fn every_command_in_the_documents_can_be_typed() {
    let mut count = 0;
    for page in PAGES {
        let text = fs::read_to_string(format!("{}/{page}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        for command in commands(&text) {
            count += 1;
            let of = format!("{page}: {command}");
            if command.contains('[') {
                // A synopsis: only its options are checked.
                let text = command.replace(['[', ']', '…', '|'], " ");
                let words: Vec<_> = text.split_whitespace().skip(1).collect();
                assert!(check(&words, &of), "no such command: {of}");
            } else if let Err(error) = Args::try_parse_from(words(&command)) {
                assert!(is_harmless(&error, &command), "{of}: {error}");
            }
        }
    }
    assert!(count > 80, "{count} commands found: expected more");
}

#[test]
fn commands_are_told_from_prompts_comments_and_output() {
    let text = "`nicstripe key` prints\n```\nnas$ nicstripe links a   # why\nfor nicstripe run by me\n\
                tar c x | nicstripe cp - 'a b:' > log\nx='nicstripe dial a %h:%p' b\n```\n";
    let found: Vec<_> = commands(text)
        .iter()
        .map(|command| words(command))
        .collect();
    let expected = [
        &["nicstripe", "key"][..],
        &["nicstripe", "links", "a"],
        &["nicstripe", "cp", "-", "a b:"],
        &["nicstripe", "dial", "a", "%h:%p"],
    ];
    assert_eq!(found, expected);
}

/// Documents whose commands are checked.
const PAGES: [&str; 10] = [
    "README.md",
    "CONTRIBUTING.md",
    "docs/MANUAL.md",
    "docs/RECIPES.md",
    "docs/FIRST-CONTACT.md",
    "docs/FIVE-REPORTS.md",
    "docs/RULES.md",
    "docs/EMBEDDING.md",
    "docs/SECURITY.md",
    "docs/BENCHMARKS.md",
];

/// Returns true if the command asks for help, is only a name, or has a placeholder as a value.
fn is_harmless(error: &clap::Error, command: &str) -> bool {
    let is_placeholder = |value: &String| {
        // `%h` is ssh's.
        value.contains('%') || !value.contains(|c: char| c.is_lowercase() || c.is_numeric())
    };
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        | ErrorKind::MissingSubcommand => true,
        ErrorKind::MissingRequiredArgument => {
            command.chars().all(|c| c.is_ascii_lowercase() || c == ' ')
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => matches!(
            error.get(ContextKind::InvalidValue),
            Some(ContextValue::String(value)) if is_placeholder(value)
        ),
        _ => false,
    }
}

/// Returns the commands in a document, from the program name to the end of their line or span.
fn commands(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    for (number, part) in text.split("```").enumerate() {
        if number % 2 == 0 {
            let spans = part.split('`').skip(1).step_by(2);
            let spans = spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "));
            commands.extend(spans.filter(|span| span.starts_with(PROGRAM)));
        } else {
            commands.extend(part.lines().flat_map(commands_in_line));
        }
    }
    commands
}

/// Returns the commands in a line of a code block.
fn commands_in_line(line: &str) -> Vec<String> {
    let starts = line.match_indices(PROGRAM).filter_map(|(at, _)| {
        let before = line[..at].trim_start();
        let quote = before
            .chars()
            .last()
            .filter(|c| ['\'', '"', '`'].contains(c));
        let begins = ["$ ", "| ", ": "].iter().any(|end| before.ends_with(end));
        (before.is_empty() || begins || quote.is_some()).then_some((at, quote))
    });
    starts
        .map(|(at, quote)| {
            let rest = &line[at..];
            let ends = [quote.and_then(|quote| rest.find(quote)), rest.find("  ")];
            let end = ends.into_iter().flatten().min().unwrap_or(rest.len());
            // rustic adds the repository.
            let added = if line.contains("rclone-command") {
                " HOST:PATH"
            } else {
                ""
            };
            format!("{}{added}", &rest[..end])
        })
        .collect()
}

/// Splits a command into words as a shell does, up to a pipe, a redirection, a semicolon or a
/// comment.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in command.chars() {
        match (c, quote) {
            (_, Some(open)) if c == open => quote = None,
            ('\'' | '"', None) => quote = Some(c),
            ('|' | '<' | '>' | ';' | '#', None) => break,
            (' ', None) => words.push(String::new()),
            _ => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

const PROGRAM: &str = "nicstripe ";
