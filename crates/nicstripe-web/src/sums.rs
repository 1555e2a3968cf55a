//! Digest of a file from a file of checksums, such as `SHA256SUMS` next to it.

use std::time::Duration;

use nicstripe::printable;
use tokio::time::timeout;
use tokio_util::bytes::Bytes;

use crate::{
    answer::Answer,
    ask::{Link, Wish, bounded},
    error::{LinkError, WebError},
    proof::Expected,
    url::WebUrl,
};

/// Fetches the file of checksums over the first link that brings it. Returns the digest of `name`.
///
/// # Errors
///
/// No link brings the file, or it has no digest of `name`.
pub(crate) async fn look_up(
    links: &[Link],
    url: &WebUrl,
    name: &[u8],
) -> Result<Expected, WebError> {
    let mut causes = Vec::new();
    for link in links {
        match timeout(TIME, fetch(link, url)).await {
            Ok(Ok(bytes)) => {
                let none = || WebError::NoSum {
                    url: url.to_string(),
                    name: printable(name),
                };
                return of(&bytes, name).ok_or_else(none);
            }
            Ok(Err(error)) => causes.push((link.shown(), error)),
            Err(_) => causes.push((link.shown(), LinkError::Silent(TIME.as_secs()))),
        }
    }
    Err(WebError::NoAnswer {
        url: url.to_string(),
        causes,
        resumable: false,
    })
}

async fn fetch(link: &Link, url: &WebUrl) -> Result<Bytes, LinkError> {
    let asked = link.asked.beside(url);
    let (response, _) = asked.follow(link, Wish::Whole).await?;
    match Answer::of(response.status(), response.headers())? {
        Answer::Whole(_) => bounded(response, MOST_BYTES).await,
        Answer::Part { .. } => Err(LinkError::Refused(response.status())),
    }
}

/// Finds the line of a file: `DIGEST  NAME`, `DIGEST *NAME` or `SHA256 (NAME) = DIGEST`, as
/// sha256sum prints them. A name may have `./` or a path before it.
fn of(text: &[u8], name: &[u8]) -> Option<Expected> {
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (of, digits) = match line.strip_prefix(b"SHA256 (") {
            Some(rest) => {
                let end = rest.windows(4).rposition(|four| four == b") = ")?;
                (&rest[..end], &rest[end + 4..])
            }
            None => {
                let end = line.iter().position(|byte| *byte == b' ')?;
                let rest = &line[end + 1..];
                (
                    rest.strip_prefix(b" ")
                        .or(rest.strip_prefix(b"*"))
                        .unwrap_or(rest),
                    &line[..end],
                )
            }
        };
        let last = of.rsplit(|byte| *byte == b'/').next()?;
        (last == name).then(|| Expected::of_sha256(std::str::from_utf8(digits).ok()?))?
    })
}

const TIME: Duration = Duration::from_secs(30);

/// Longest file of checksums: that of a whole distribution has 100 KiB.
const MOST_BYTES: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_file_is_found_in_every_layout() {
        let digits = |digit: &str| digit.repeat(64);
        let text = format!(
            "{}  other.iso\n{} *disk.img\r\nSHA256 (a (b) = c) = {}\n{}  ./sub/deep.img\nnonsense\n{}  short\n",
            digits("1"),
            digits("2"),
            digits("3"),
            digits("4"),
            &digits("5")[1..]
        );
        let found = |name: &str| of(text.as_bytes(), name.as_bytes()).map(|found| found.hex());
        assert_eq!(found("disk.img"), Some(digits("2")));
        assert_eq!(found("a (b) = c"), Some(digits("3")));
        assert_eq!(found("deep.img"), Some(digits("4")));
        for name in ["img", "iso", "other", "short", "", "sub"] {
            assert_eq!(found(name), None, "{name}");
        }
    }
}
