//! Expansion of shell patterns in the remote sources of a copy.

use std::path::PathBuf;

use nicstripe::{Client, Name, TreeOptions};

use super::{
    copy_kind::{CopyKind, check_remote},
    error::pipe_among_others,
};
use crate::{connect::globs::names_of, failure::Failure};

/// Replaces each remote source that is a pattern with the names that match it.
pub(super) async fn expand(
    client: &Client,
    kind: CopyKind,
    tree: &TreeOptions,
) -> Result<CopyKind, Failure> {
    match kind {
        CopyKind::Get { name, target } => match &names_of(client, &name).await?[..] {
            [name] => Ok(CopyKind::Get {
                name: name.clone(),
                target,
            }),
            names => many(named(names, false).collect(), target, false, tree),
        },
        CopyKind::GetPipe { name, to } => match &names_of(client, &name).await?[..] {
            [name] => Ok(CopyKind::GetPipe {
                name: name.clone(),
                to,
            }),
            _ => Err(pipe_among_others().into()),
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
                        expanded.extend(named(&names_of(client, &name).await?, content));
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
