//! Suggestions for misspelled words.

/// Returns the word of `known` that is closest to `typed`: within two typing errors, or within one
/// if the word has fewer than six letters.
///
/// An error is an added, missing, changed or transposed letter. Case and a domain after the typed
/// name are ignored.
pub(crate) fn nearest<'a>(
    typed: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let host = typed.split('.').next().unwrap_or(typed);
    let distance = |word: &str| slips(typed, word).min(slips(host, word));
    let near = |word: &&str| distance(word) <= if word.chars().count() < SHORT { 1 } else { 2 };
    known
        .into_iter()
        .filter(near)
        .min_by_key(|word| distance(word))
}

/// Minimum letters of a word that may have two typing errors instead of one. Two errors would turn
/// a shorter word into another one.
const SHORT: usize = 6;

/// Returns the number of typing errors between two words: the restricted Damerau-Levenshtein
/// distance (optimal string alignment).
fn slips(one: &str, other: &str) -> usize {
    let [one, other] = [one, other].map(|word| {
        word.to_lowercase()
            .chars()
            .take(LONGEST)
            .collect::<String>()
    });
    strsim::osa_distance(&one, &other)
}

/// Number of leading characters compared: the maximum length of a DNS label.
const LONGEST: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_found_and_another_word_is_not() {
        for (typed, found) in [
            ("nsa", Some("nas")),
            ("NAS", Some("nas")),
            ("nass", Some("nas")),
            ("na", Some("nas")),
            ("nsa.lan", Some("nas")),
            ("bakcup-sever", Some("backup-server")),
            ("mac", None),
            ("server", None),
            ("", None),
            ("10.0.0.1", None),
        ] {
            assert_eq!(nearest(typed, ["nas", "backup-server"]), found, "{typed}");
        }
        assert_eq!(
            nearest("nas2", ["nas1", "nas2"]),
            Some("nas2"),
            "the nearest"
        );
    }
}
