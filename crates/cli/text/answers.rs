//! Tables of answers to words that belong to other programs.

/// Returns the answer to a word. Each line of `table` has words, a colon and their answer.
pub(crate) fn answer_in(table: &'static str, word: &str) -> Option<&'static str> {
    let mut rows = table.lines().filter_map(|row| row.split_once(": "));
    let (_, answer) = rows.find(|(words, _)| words.split(' ').any(|other| other == word))?;
    Some(answer)
}
