//! Expansion of shell patterns in remote names.
//!
//! The client lists remote directories and selects the matching names; the daemon sees no pattern.
//! If a file is literally named like the pattern, only that file is selected.

use nicstripe::{Client, Error, FailCode, Kind, Name, NameError};

use super::pattern::{Pattern, is_special, without_braces};
use crate::{
    failure::{Failure, Fault, exit::Exit, usage},
    text::invocation::Invocation,
};

/// Returns the remote names that a typed one means: those that match if it is a pattern, otherwise
/// the name itself, which may not exist.
pub(crate) async fn names_of(client: &Client, name: &Name) -> Result<Vec<Name>, Failure> {
    if !name.components().any(is_special) {
        return Ok(vec![name.clone()]);
    }
    match client.stat(name).await {
        Ok(_) => return Ok(vec![name.clone()]),
        Err(error) if !error.is_not_found() => return Err(error.into()),
        Err(_) => {}
    }
    let mut found: Vec<Name> = Vec::new();
    for text in without_braces(&name.components().collect::<Vec<_>>().join(&b'/')) {
        let components: Vec<Pattern> = text
            .split(|byte| *byte == b'/')
            .filter(|component| !component.is_empty())
            .map(Pattern::of)
            .collect();
        for name in matching(client, &components).await? {
            if !found.contains(&name) {
                found.push(name);
            }
        }
        if found.len() > MOST_MATCHES {
            let is_copy = Invocation::of_this_process().is_of("cp");
            let text = format!("more than 1,024 names match \"{name}\"");
            let hint = is_copy.then(|| WITH_FILTERS.to_owned());
            return Err(usage(text).hinted(hint).into());
        }
    }
    if found.is_empty() {
        let text = format!("no file on the daemon matches \"{name}\"");
        return Err(Fault::new(Exit::Files, text).into());
    }
    Ok(found)
}

/// Returns the remote names that match a pattern, given as one [`Pattern`] per path component.
/// Stops when more than [`MOST_MATCHES`] names match; the caller rejects that many.
async fn matching(client: &Client, components: &[Pattern]) -> Result<Vec<Name>, Failure> {
    let mut found: Vec<Option<Name>> = vec![None];
    // A directory that only a pattern matched may be unreadable.
    let mut is_guess = false;
    for (index, pattern) in components.iter().enumerate() {
        let is_last = index + 1 == components.len();
        let mut next = Vec::new();
        for dir in &found {
            match pattern.plain() {
                Some(leaf) => {
                    let name = join(dir.as_ref(), &leaf)?;
                    match client.stat(&name).await {
                        Ok(_) => next.push(Some(name)),
                        Err(error) if is_nothing(&error, is_guess) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                None => match listed(client, dir.as_ref(), pattern, is_last).await {
                    Ok(names) => next.extend(names.into_iter().map(Some)),
                    Err(Failure::Library(error)) if is_nothing(&error, is_guess) => {}
                    Err(failure) => return Err(failure),
                },
            }
            if next.len() > MOST_MATCHES {
                break;
            }
        }
        found = next;
        is_guess |= !pattern.is_plain();
    }
    Ok(found.into_iter().flatten().collect())
}

/// Returns the names in a remote directory that match one component of a pattern. Skips files
/// unless the component is the last.
async fn listed(
    client: &Client,
    dir: Option<&Name>,
    pattern: &Pattern,
    is_last: bool,
) -> Result<Vec<Name>, Failure> {
    let mut entries = client.entries(dir.cloned());
    let mut found = Vec::new();
    while let Some(entry) = entries.next().await?
        && found.len() <= MOST_MATCHES
    {
        let leaf = entry.name.file_name();
        if pattern.matches(leaf) && (is_last || entry.stat.kind != Kind::File) {
            found.push(join(dir, leaf)?);
        }
    }
    Ok(found)
}

/// Returns true if the error means that a name does not exist. For a directory found by a pattern,
/// it may also mean that the name is not a directory or is unreadable.
fn is_nothing(error: &Error, is_guess: bool) -> bool {
    error.is_not_found()
        || is_guess
            && matches!(
                error.fail_code(),
                Some(FailCode::NotADirectory | FailCode::Io)
            )
}

/// Returns the name of an entry of a directory; `None` is the one at which names begin.
pub(crate) fn join(dir: Option<&Name>, leaf: &[u8]) -> Result<Name, NameError> {
    Name::new(dir.into_iter().flat_map(Name::components).chain([leaf]))
}

/// Maximum number of remote names a pattern may match, the limit of one request to a daemon.
const MOST_MATCHES: usize = 1024;

const WITH_FILTERS: &str =
    "copy the directory with -r and filters: --exclude '*' --include 'PATTERN'";
