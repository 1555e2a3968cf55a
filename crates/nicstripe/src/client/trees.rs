//! Tree transfers of a client: turns the user's request into a sender at one end and a receiver at
//! the other.

use std::{
    ffi::OsString,
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use nicstripe_proto::{
    FailCode, Name,
    message::{GetTree, MOST_SOURCES, PutTree, TreeSource, WalkRules},
    name::escaped,
};

use super::jobs::Attempt;
use crate::{
    file::{FileError, Root},
    report::error::Error,
    session::{Command, GetInto, PutFrom},
    tree::{
        TreeOptions,
        allowance::{Receiving, Sending},
        filter::Filters,
        receiver::{Promised, ReceiverRequest},
        sender::SenderRequest,
        walk::SendSource,
    },
};

pub(super) fn put(
    asked: Attempt,
    sources: &[PathBuf],
    target: Option<Name>,
    as_name: bool,
    options: &TreeOptions,
) -> Command {
    let request = SenderRequest {
        sources: sources.iter().cloned().map(SendSource::Path).collect(),
        rules: options.rules(),
        recursive: options.recursive,
        hard_links: options.hard_links,
        one_file_system: options.one_file_system,
        files_from: options.files_from.clone(),
        allow_changing: options.files.allow_changing,
        compress: options.files.compress,
        list: options.list,
        allowance: Sending::OWN,
    };
    let Attempt {
        transfer,
        standalone,
        waiter,
        ..
    } = asked;
    let put = Box::new(PutTree {
        transfer,
        target,
        as_name,
        rules: options.rules(),
        heeds_memory: true,
    });
    Command::Put {
        transfer,
        from: PutFrom::Tree {
            run: request.into_run(()),
            put,
            standalone,
        },
        waiter,
    }
}

pub(super) fn get(
    asked: Attempt,
    sources: &[(Option<Name>, bool)],
    target: &Path,
    as_name: bool,
    options: &TreeOptions,
) -> Result<Command, Error> {
    if sources.is_empty() || sources.len() > MOST_SOURCES {
        let cause = io::Error::other(format!(
            "{} sources, expected 1 to {MOST_SOURCES}",
            sources.len()
        ));
        return Err(FileError::new("ask for", "these", cause)
            .with_code(FailCode::Refused)
            .into());
    }
    let sources = sources.iter().map(|(name, content)| TreeSource {
        name: name.clone(),
        content: *content || name.is_none(),
    });
    let sources: Vec<TreeSource> = sources.collect();
    let filters = Filters::new(&options.filters)?;
    let (root, name) = local_target(target)?;
    let Attempt {
        transfer,
        peer_key,
        limit_bps,
        standalone,
        waiter,
    } = asked;
    let walk = WalkRules {
        recursive: options.recursive,
        hard_links: options.hard_links,
        one_file_system: options.one_file_system,
        only: options.files_from.clone(),
        allow_changing: options.files.allow_changing,
        compress: options.files.compress,
    };
    let request = ReceiverRequest {
        root: Arc::new(root),
        target: name,
        as_name,
        rules: options.rules(),
        peer_key,
        append_only: false,
        // Requested by the local user, limited by `rules`.
        privileged: true,
        list: options.list,
        promised: Some(Promised::new(&sources, &walk)),
        excludes: Box::new(move |path, is_directory| filters.excludes(path, is_directory)),
        allowance: Receiving::OWN,
    };
    let get = Box::new(GetTree {
        transfer,
        sources,
        walk,
        rules: options.rules(),
        limit_bps,
    });
    Ok(Command::Get {
        transfer,
        into: GetInto::Tree {
            run: request.into_run(()),
            get,
            standalone,
        },
        waiter,
    })
}

/// Splits a local path into the nearest existing directory, which it opens, and the rest of the
/// name; `None` if the whole path exists.
fn local_target(path: &Path) -> Result<(Root, Option<Name>), Error> {
    let shown = || escaped(path.as_os_str().as_bytes());
    let mut missing: Vec<OsString> = Vec::new();
    let mut there = path.to_owned();
    while !there.is_dir() {
        match there.components().next_back() {
            Some(Component::Normal(name)) => missing.push(name.to_owned()),
            _ => {
                return Err(FileError::new(
                    "open directory",
                    shown(),
                    io::ErrorKind::NotFound.into(),
                )
                .into());
            }
        }
        there.pop();
        if there.as_os_str().is_empty() {
            there.push(".");
        }
    }
    let name = match missing.is_empty() {
        true => None,
        false => Some(Name::new(
            missing.into_iter().rev().map(OsString::into_vec),
        )?),
    };
    Ok((Root::open(&there)?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_target_is_the_nearest_directory_and_the_names_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let name = |path: &str| {
            local_target(&dir.path().join(path)).map(|(_, name)| name.map(|name| name.to_string()))
        };
        assert_eq!(name("").unwrap(), None);
        assert_eq!(name("new").unwrap().as_deref(), Some("new"));
        assert_eq!(name("new/er/").unwrap().as_deref(), Some("new/er"));
        assert_eq!(name("file").unwrap().as_deref(), Some("file"));
        assert!(name("new/../x").is_err());
    }
}
