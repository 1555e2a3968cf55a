//! Conversion of the kernel's texts.

use crate::facts::limits::MOST_TEXT;

/// Joins the words of a text into one line of at most 128 bytes without control characters; `None`
/// if the line is empty.
pub(crate) fn plain(text: &str) -> Option<String> {
    let words = text
        .split(|c: char| c.is_control() || c.is_whitespace())
        .filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    let end = (0..=MOST_TEXT.min(line.len()))
        .rev()
        .find(|end| line.is_char_boundary(*end))
        .unwrap_or(0);
    let line = line[..end].trim_end().to_owned();
    (!line.is_empty()).then_some(line)
}

/// Parses a decimal number with surrounding white space.
pub(crate) fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Parses a decimal number of 32 bits with surrounding white space.
pub(crate) fn number32(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

/// Returns the number of members of a list such as `0-3,8`, the kernel's format for processors and
/// memory nodes.
pub(crate) fn list_len(text: &str) -> Option<u32> {
    let mut total = 0_u32;
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (number32(first)?, number32(last)?);
        total = total.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(total)
}

/// Returns the last component of a path.
pub(crate) fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns true if a name is `prefix` and a number, such as `cpu12`.
pub(crate) fn is_numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix)
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_one_line_and_not_long() {
        assert_eq!(
            plain(" a\tb\n\x1b[31mc\u{7f} "),
            Some("a b [31mc".to_owned())
        );
        assert_eq!(plain("\n"), None);
        assert_eq!(plain(&"é".repeat(100)).unwrap().len(), MOST_TEXT);
    }

    #[test]
    fn lists_are_counted_and_names_are_split() {
        for (text, expected) in [
            ("0-3,8\n", Some(5)),
            ("0", Some(1)),
            ("", None),
            ("3-0", None),
            ("0-4294967295", None),
        ] {
            assert_eq!(list_len(text), expected, "{text:?}");
        }
        assert_eq!((last("/a/b"), last("b"), last("/")), ("b", "b", ""));
        assert!(is_numbered("cpu12", "cpu"));
        assert!(!is_numbered("cpu", "cpu") && !is_numbered("cpufreq", "cpu"));
    }
}
