//! Errors with their sources, in one line.

/// Returns the messages of an error and its sources in one line, joined by `: `.
///
/// ```
/// let error = std::io::Error::other("no route to host");
/// assert_eq!(nicstripe::chain(&error), "no route to host");
/// ```
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
