//! Configuration file of `serve`.

use std::{ops::Range, path::Path};

use nicstripe::trust::read_guarded;

use super::arguments::Options;
use crate::{
    failure::{Failure, Fault, usage},
    text::shown,
};

/// Maximum size of a configuration file in bytes. A file with all keys is far smaller.
const MOST_BYTES: usize = 1 << 20;

pub(super) fn load(path: &Path) -> Result<Options, Failure> {
    let bytes = read_guarded(path, MOST_BYTES)?;
    Ok(parse(path, &String::from_utf8_lossy(&bytes))?)
}

fn parse(path: &Path, text: &str) -> Result<Options, Fault> {
    toml::from_str(text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        let line = text
            .get(..span.start)
            .map_or(1, |before| before.matches('\n').count() + 1);
        let what = what(text, span, error.message());
        let text = format!("{}, line {line}: {what}", shown(path));
        usage(text)
    })
}

/// Returns the error text for a position in the file, such as `limits.sessions = 0: expected 1 to
/// 4096`.
fn what(text: &str, span: Range<usize>, message: &str) -> String {
    let message = message.lines().collect::<Vec<_>>().join(", ");
    let before = text.get(..span.start).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let value = text
        .get(span)
        .unwrap_or_default()
        .lines()
        .next()
        .unwrap_or_default();
    // For an unknown key the span is the key itself, which the message contains.
    let Some((key, _)) = text[line_start..before.len()].split_once('=') else {
        return message;
    };
    let mut tables = before
        .lines()
        .filter_map(|line| line.trim().strip_prefix('[')?.split_once(']'));
    let table = tables
        .next_back()
        .map_or_else(String::new, |(table, _)| format!("{table}."));
    let value: String = shown(value).chars().take(MOST_SHOWN).collect();
    format!("{table}{} = {value}: {message}", key.trim())
}

/// Maximum number of characters to print of an invalid value.
const MOST_SHOWN: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named_with_its_line_and_what_is_allowed() {
        for (text, expected) in [
            (
                "port = 1\nprot = 7\n",
                "/c, line 2: unknown field `prot`, expected one of `root`, `listen`",
            ),
            (
                "[limits]\nsession = 7\n",
                "/c, line 2: unknown field `session`, expected one of ",
            ),
            (
                "[limits]\n\nsessions = 0\n",
                "/c, line 3: limits.sessions = 0: expected 1 to 4096",
            ),
            (
                "[limits]\nsessions = \"many\"\n",
                "/c, line 2: limits.sessions = \"many\": expected 1 to 4096",
            ),
            (
                "[limits]\ngreeting-time = \"1h\"\n",
                "/c, line 2: limits.greeting-time = \"1h\": expected 100ms to 1m",
            ),
            (
                "[limits]\nsession-rate = \"fast\"\n",
                "/c, line 2: limits.session-rate = \"fast\": not a rate: ",
            ),
            (
                "[bench]\ntime = \"1s\"\n",
                "/c, line 2: bench.time = \"1s\": expected 10s to 24h",
            ),
            ("port = 65536\n", "/c, line 1: port = 65536: "),
            ("port = \"x\"\n", "/c, line 1: port = \"x\": "),
            (
                "routes = \"some\"\n",
                "/c, line 1: routes = \"some\": expected \"auto\", \"always\" or \"never\"",
            ),
            (
                "log.format = \"xml\"\n",
                "/c, line 1: log.format = \"xml\": expected \"auto\", \"text\" or \"json\"",
            ),
            (
                "listen = [\n  \"10.0.0.1\",\n  \"eth1\"]\n",
                "not an address: expected ADDRESS",
            ),
            ("root = /srv\n", "/c, line 1: "),
            ("port = 1\nport = 2\n", "/c, line 2: "),
        ] {
            let error = parse(Path::new("/c"), text).unwrap_err().to_string();
            assert!(
                error.contains(expected) && !error.contains('\n'),
                "{text:?}: {error}"
            );
        }
    }
}
