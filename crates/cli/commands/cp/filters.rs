//! Include and exclude patterns of a tree copy. The last matching pattern in typed order decides.

use std::{ffi::OsString, path::PathBuf};

use clap::{
    Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches,
    builder::{OsStringValueParser, TypedValueParser},
    value_parser,
};

use crate::text::shown;

/// Patterns and pattern files of `--include`, `--exclude` and `--exclude-from`, in typed order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filters(pub(crate) Vec<Filter>);

/// Value of `--include`, `--exclude` or `--exclude-from`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Filter {
    Exclude(String),
    /// Pattern whose entries are included although an earlier pattern excludes them.
    Include(String),
    /// File with one pattern per line.
    ExcludeFrom(PathBuf),
}

impl Filters {
    /// Returns the first pattern if it is an `--include`.
    ///
    /// In rsync, the first match decides, so that an include precedes the exclude that it limits.
    /// Here the last match decides, so that an include before any exclude has no effect.
    pub(crate) fn idle_include(&self) -> Option<&str> {
        match self.0.first() {
            Some(Filter::Include(pattern)) => Some(pattern),
            _ => None,
        }
    }

    /// Returns the first invalid pattern: an empty one, a lone `!`, or an `--include` that begins
    /// with `!`.
    pub(crate) fn first_invalid(&self) -> Option<&str> {
        self.0.iter().find_map(|filter| match filter {
            Filter::Exclude(pattern) if matches!(pattern.as_str(), "" | "!") => {
                Some(pattern.as_str())
            }
            Filter::Include(pattern) if pattern.is_empty() || pattern.starts_with('!') => {
                Some(pattern.as_str())
            }
            _ => None,
        })
    }
}

impl Filter {
    /// Returns the pattern as a line of gitignore(5); `None` for a pattern file, whose lines
    /// already have that syntax.
    pub(crate) fn line(&self) -> Option<String> {
        match self {
            Self::Exclude(pattern) => Some(literal(pattern)),
            Self::Include(pattern) => Some(format!("!{pattern}")),
            Self::ExcludeFrom(_) => None,
        }
    }
}

/// Escapes a leading `#`. In a pattern file it begins a comment, and in a typed pattern it does
/// not.
fn literal(pattern: &str) -> String {
    match pattern.starts_with('#') {
        true => format!("\\{pattern}"),
        false => pattern.to_owned(),
    }
}

// Implemented by hand: the derived parser loses the relative order of different options.
impl Args for Filters {
    fn augment_args(command: Command) -> Command {
        let pattern = |id: &'static str| {
            Arg::new(id)
                .long(id)
                .value_name("PATTERN")
                .action(ArgAction::Append)
                // The parser of texts would not name the pattern.
                .value_parser(OsStringValueParser::new().try_map(|pattern| {
                    let why = |pattern: OsString| format!("\"{}\" is not UTF-8", shown(pattern));
                    pattern.into_string().map_err(why)
                }))
        };
        command
            .arg(pattern(EXCLUDE).help(
                "Exclude what matches, in .gitignore syntax: a pattern with a slash before its end is relative to SRC. May be \
                 repeated; of --exclude and --include the last match counts",
            ))
            .arg(
                pattern(INCLUDE)
                    .help("Include what an earlier --exclude matches, unless a parent directory is excluded; same as --exclude '!PATTERN'"),
            )
            .arg(
                Arg::new(EXCLUDE_FROM)
                    .long(EXCLUDE_FROM)
                    .value_name("FILE")
                    .action(ArgAction::Append)
                    .value_parser(value_parser!(PathBuf))
                    .help("Read exclude patterns from FILE, one per line, in .gitignore syntax"),
            )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Filters {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut filters = of::<String>(matches, EXCLUDE, Filter::Exclude);
        filters.extend(of::<String>(matches, INCLUDE, Filter::Include));
        filters.extend(of::<PathBuf>(matches, EXCLUDE_FROM, Filter::ExcludeFrom));
        filters.sort_by_key(|(index, _)| *index);
        Ok(Self(
            filters.into_iter().map(|(_, filter)| filter).collect(),
        ))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns the values of an option, each with its position on the command line.
fn of<T: Clone + Send + Sync + 'static>(
    matches: &ArgMatches,
    id: &str,
    make: fn(T) -> Filter,
) -> Vec<(usize, Filter)> {
    let values = matches.get_many::<T>(id).into_iter().flatten().cloned();
    matches
        .indices_of(id)
        .into_iter()
        .flatten()
        .zip(values.map(make))
        .collect()
}

const EXCLUDE: &str = "exclude";
const INCLUDE: &str = "include";
const EXCLUDE_FROM: &str = "exclude-from";

/// Pattern of the records of shares, which may be within the target.
pub(super) const RECORDS: &str = ".*.nicstripe-shares/";

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        filters: Filters,
    }

    fn filters(words: &[&str]) -> Filters {
        Line::parse_from(["cp"].iter().chain(words)).filters
    }

    fn lines(filters: &Filters) -> Vec<String> {
        filters.0.iter().filter_map(Filter::line).collect()
    }

    #[test]
    fn patterns_keep_the_order_of_the_command_line() {
        let filters = filters(&[
            "--exclude",
            "*",
            "--include=*/",
            "--exclude-from",
            "list",
            "--include",
            "*.c",
            "--exclude",
            "#x",
        ]);
        assert_eq!(filters.0[2], Filter::ExcludeFrom("list".into()));
        assert_eq!(lines(&filters), ["*", "!*/", "!*.c", "\\#x"]);
        assert_eq!(
            (filters.idle_include(), filters.first_invalid()),
            (None, None)
        );
    }

    #[test]
    fn an_include_before_any_exclude_is_found() {
        assert_eq!(
            filters(&["--include", "*.c", "--exclude", "*"]).idle_include(),
            Some("*.c")
        );
        assert_eq!(filters(&[]).idle_include(), None);
        assert_eq!(
            filters(&["--exclude-from", "list", "--include", "*.c"]).idle_include(),
            None
        );
    }

    #[test]
    fn a_pattern_that_is_not_utf_8_is_named() {
        use std::os::unix::ffi::OsStringExt;
        for option in ["--exclude", "--include"] {
            let words = [
                "cp".into(),
                option.into(),
                OsString::from_vec(b"a\xff*".into()),
            ];
            let error = Line::try_parse_from(words).unwrap_err().to_string();
            let is_named = error.contains(option) && error.contains("\"a\\xff*\" is not UTF-8");
            assert!(is_named, "{error}");
        }
    }

    #[test]
    fn patterns_that_mean_nothing_are_found() {
        for words in [
            &["--exclude", ""][..],
            &["--exclude", "a", "--include", "!b"],
            &["--exclude", "!"],
            &["--exclude", "a", "--include", ""],
        ] {
            assert!(filters(words).first_invalid().is_some(), "{words:?}");
        }
        assert_eq!(
            filters(&["--exclude", "a", "--exclude", "!b"]).first_invalid(),
            None
        );
    }
}
