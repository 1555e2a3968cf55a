//! Arguments of `ls`, and the files and directories that they mean.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
};

use nicstripe::{Client, Kind, Name, Stat};

use super::{Wishes, show::Listed};
use crate::{
    connect::{
        globs::{join, names_of},
        location::{Location, Remote, RemotePath, parent},
        place::Place,
        setup::Connected,
    },
    failure::{Failure, Fault, exit::Exit, usage},
    text::{invocation::Invocation, shown, spelling::nearest},
};

/// Arguments that name the same machine.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) place: Place,
    pub(super) paths: Vec<OsString>,
}

/// Returns the arguments by machine, in the order in which the machines were named.
pub(super) fn groups(paths: &[OsString]) -> Result<Vec<Group>, Failure> {
    let mut groups: Vec<Group> = Vec::new();
    for typed in paths {
        let (path, Remote { place, .. }) = remote(typed)?;
        match groups.iter_mut().find(|group| group.place == place) {
            Some(group) => group.paths.push(path),
            None => groups.push(Group {
                place,
                paths: vec![path],
            }),
        }
    }
    Ok(groups)
}

/// Returns an argument with a colon after a host alone, and the place that it names.
pub(super) fn remote(typed: &OsStr) -> Result<(OsString, Remote), Failure> {
    let mut named = typed.to_owned();
    let mut location = Location::parse(typed)?;
    if matches!(location, Location::Local(_)) && is_host(typed) {
        named.push(":");
        location = Location::parse(&named)?;
    }
    if let Location::Remote(remote) = location {
        return Ok((named, remote));
    }
    let typed = shown(typed);
    let text = format!("\"{typed}\" is on this machine: expected HOST: or HOST:PATH");
    let program = Invocation::of_this_process().program();
    let hint = format!("name the machine: {program} ls HOST:");
    Err(usage(text).with_hint(hint).into())
}

fn is_host(typed: &OsStr) -> bool {
    let bytes = typed.as_bytes();
    !bytes.contains(&b'/') && !bytes.starts_with(b".")
}

/// Files and directories to list.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Files, and with `-d` directories, that are listed by themselves.
    pub(super) files: Vec<Item>,
    pub(super) directories: Vec<Item>,
}

impl Found {
    pub(super) fn add(&mut self, items: Vec<Item>) {
        for item in items {
            match item.has_content {
                true => self.directories.push(item),
                false => self.files.push(item),
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.files.len() + self.directories.len()
    }
}

/// File or directory that an argument means.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) remote: Remote,
    kind: Kind,
    /// Metadata; `None` for the directory at which names begin, which has no name to ask for.
    stat: Option<Stat>,
    has_content: bool,
}

impl Item {
    pub(super) fn listed(&self) -> Listed {
        Listed::of(&self.remote, self.kind, self.stat.as_ref(), true)
    }
}

/// Looks up what an argument means: one item, or those that match a pattern.
pub(super) async fn look(
    connected: &Connected,
    typed: &OsStr,
    wishes: Wishes,
) -> Result<Vec<Item>, Failure> {
    let client = &connected.client;
    let inside = connected.inside(typed)?;
    let (_, remote) = remote(inside.as_deref().unwrap_or(typed))?;
    let Some(name) = remote.path.name() else {
        return Ok(vec![Item {
            has_content: !wishes.directory,
            kind: Kind::Dir,
            stat: None,
            remote,
        }]);
    };
    let is_slashed = matches!(remote.path, RemotePath::Directory(_));
    let mut items = Vec::new();
    for name in names_of(client, name).await? {
        let stat = match client.stat(&name).await {
            Err(error) if error.is_not_found() => {
                return Err(missing(client, typed, &remote, &name).await.into());
            }
            found => found?,
        };
        let is_directory = match stat.kind {
            Kind::Dir => true,
            // Like ls, follows a symbolic link that is an argument, except with -l.
            Kind::Other if !wishes.long => is_listable(client, &name).await?,
            // The daemon rejects the listing of a file.
            _ => is_slashed,
        };
        items.push(Item {
            remote: Remote {
                path: RemotePath::File(name),
                ..remote.clone()
            },
            kind: stat.kind,
            stat: Some(stat),
            has_content: is_directory && !wishes.directory,
        });
    }
    Ok(items)
}

/// Returns true if a name that is neither a file nor a directory leads to a directory.
async fn is_listable(client: &Client, name: &Name) -> Result<bool, Failure> {
    match client.entries(Some(name.clone())).next().await {
        Ok(_) => Ok(true),
        Err(error) if error.fail_code().is_some() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns the error for a missing name, with a similar one from its directory.
async fn missing(client: &Client, typed: &OsStr, remote: &Remote, name: &Name) -> Fault {
    let parent = parent(typed);
    let invocation = Invocation::of_this_process();
    let hint = match similar(client, name).await {
        // In a URL some characters need escapes.
        Some(leaf) if !typed.as_bytes().windows(3).any(|three| three == b"://") => {
            let mut near = parent.to_owned();
            near.push(leaf);
            format!("did you mean: {}", invocation.with(typed, &near))
        }
        _ => format!("list what is there: {}", invocation.with(typed, parent)),
    };
    let target = Remote {
        path: RemotePath::File(name.clone()),
        ..remote.clone()
    };
    Fault::new(Exit::Files, format!("there is no \"{target}\"")).with_hint(hint)
}

/// Returns a name from the directory of a missing one that is similar to it. Looks at one page of
/// the listing, and finds nothing if there is none.
async fn similar(client: &Client, name: &Name) -> Option<String> {
    let components: Vec<&[u8]> = name.components().collect();
    let (leaf, above) = components.split_last()?;
    let dir = match above {
        [] => None,
        above => Some(Name::new(above.iter().copied()).ok()?),
    };
    let mut entries = client.entries(dir);
    let mut names = Vec::new();
    while let Ok(Some(entry)) = entries.next().await
        && names.len() < MOST_COMPARED
    {
        names.extend(
            str::from_utf8(entry.name.file_name())
                .ok()
                .map(str::to_owned),
        );
    }
    let leaf = str::from_utf8(leaf).ok()?;
    nearest(leaf, names.iter().map(String::as_str)).map(str::to_owned)
}

/// Returns the place of an entry of a directory.
pub(super) fn inside(dir: &Remote, leaf: &[u8]) -> Result<Remote, Failure> {
    Ok(Remote {
        path: RemotePath::File(join(dir.path.name(), leaf)?),
        ..dir.clone()
    })
}

/// Maximum number of names that are compared with a missing one: one page of a listing.
const MOST_COMPARED: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_needs_no_colon_and_a_local_path_is_refused() {
        let of = |typed: &[&str]| {
            let typed: Vec<OsString> = typed.iter().map(OsString::from).collect();
            groups(&typed)
        };
        let groups = of(&["nas", "pc:a", "nas:b/", "me@nas", "ssh://me@nas/c"]).unwrap();
        let found: Vec<(String, usize)> = groups
            .iter()
            .map(|group| (group.place.to_string(), group.paths.len()))
            .collect();
        let expected = [("nas", 2), ("pc", 1), ("me@nas", 2)];
        assert_eq!(
            found,
            expected.map(|(place, count)| (place.to_owned(), count))
        );
        assert_eq!(groups[0].paths, ["nas:", "nas:b/"]);
        for local in ["./a", "/a", ".", "-", "a/b"] {
            let failure = of(&[local]).unwrap_err();
            assert!(failure.one_line().contains("on this machine"), "{local}");
        }
    }
}
