//! Expansion of shell patterns in remote sources.
//!
//! The client lists remote directories and selects the matching names; the daemon sees no pattern.
//! If a file is literally named like the pattern, only that file is selected.

use std::path::PathBuf;

use nicstripe::{Client, Error, FailCode, Kind, Name, TreeOptions};

use super::{
    copy_kind::{CopyKind, check_remote},
    error::PlanError,
    pattern::{Pattern, is_special, without_braces},
};
use crate::{connect::location::LocationError, failure::Failure};

/// Replaces each remote source that is a pattern with the names that match it.
pub(super) async fn expand(
    client: &Client,
    kind: CopyKind,
    tree: &TreeOptions,
) -> Result<CopyKind, Failure> {
    match kind {
        CopyKind::Get { name, target } => match &one_or_many(client, &name).await?[..] {
            [name] => Ok(CopyKind::Get {
                name: name.clone(),
                target,
            }),
            names => many(named(names, false).collect(), target, false, tree),
        },
        CopyKind::GetPipe { name, to } => match &one_or_many(client, &name).await?[..] {
            [name] => Ok(CopyKind::GetPipe {
                name: name.clone(),
                to,
            }),
            _ => Err(PlanError::PipeAmongOthers.into()),
        },
        CopyKind::GetTree {
            sources,
            target,
            as_name,
        } => {
            let mut expanded = Vec::new();
            for (name, content) in sources {
                match name {
                    Some(name) => {
                        expanded.extend(named(&one_or_many(client, &name).await?, content));
                    }
                    None => expanded.push((None, content)),
                }
            }
            many(expanded, target, as_name, tree)
        }
        kind => Ok(kind),
    }
}

fn named(names: &[Name], content: bool) -> impl Iterator<Item = (Option<Name>, bool)> {
    names.iter().map(move |name| (Some(name.clone()), content))
}

fn many(
    sources: Vec<(Option<Name>, bool)>,
    target: PathBuf,
    as_name: bool,
    tree: &TreeOptions,
) -> Result<CopyKind, Failure> {
    check_remote(&sources, tree.files_from.is_some(), tree.delete)?;
    let as_name = as_name && sources.len() == 1;
    Ok(CopyKind::GetTree {
        sources,
        target,
        as_name,
    })
}

/// Returns the names that match one source: the name itself if it is literal.
async fn one_or_many(client: &Client, name: &Name) -> Result<Vec<Name>, Failure> {
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
            return Err(PlanError::ManyMatches(name.to_string()).into());
        }
    }
    if found.is_empty() {
        return Err(PlanError::NoMatch(name.to_string()).into());
    }
    Ok(found)
}

/// Returns the remote names that match a pattern, given as one [`Pattern`] per path component.
/// Stops once more than [`MOST_MATCHES`] names match; the caller rejects that many.
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
        || is_guess && matches!(error.fail_code(), Some(FailCode::NotAFile | FailCode::Io))
}

fn join(dir: Option<&Name>, leaf: &[u8]) -> Result<Name, Failure> {
    let name = match dir {
        Some(dir) => dir.join(leaf),
        None => Name::new([leaf]),
    };
    Ok(name.map_err(LocationError::from)?)
}

/// Maximum number of remote names a pattern may match, the limit of one request to a daemon.
const MOST_MATCHES: usize = 1024;
