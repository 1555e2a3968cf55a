//! Paths on a machine that ssh reaches, with the meaning that they have to scp: relative to the home
//! directory, absolute, or in the home of another user.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Component, Path, PathBuf},
};

use super::{
    location::{LocationError, remote_path},
    place::{Place, Via},
};
use crate::text::shown;

/// Path as typed, by the directory that it begins at.
#[derive(Debug, PartialEq, Eq)]
enum Typed {
    /// Relative to the user's home directory.
    Home(Vec<u8>),
    /// Relative to a directory this number of levels above the home directory.
    Above(usize, Vec<u8>),
    /// Relative to the home directory of another user.
    Of(String, Vec<u8>),
    /// Relative to the root of the file system.
    Root(Vec<u8>),
}

impl Typed {
    /// Returns the path of a remote argument; `None` if it is local.
    fn of(argument: &OsStr) -> Option<Self> {
        let (path, is_url) = remote_path(argument)?;
        let path = match path.strip_prefix(b"/") {
            // The path of a URL begins with a slash.
            Some(rest) if is_url && rest.starts_with(b"~") => rest.to_vec(),
            Some(rest) => return Some(Self::Root(trimmed(rest).to_vec())),
            None => path,
        };
        if let Some(rest) = path.strip_prefix(b"~") {
            let end = rest.iter().position(|byte| *byte == b'/');
            let (user, rest) = rest.split_at(end.unwrap_or(rest.len()));
            let rest = trimmed(rest).to_vec();
            return Some(match user {
                b"" => Self::Home(rest),
                user => Self::Of(String::from_utf8_lossy(user).into_owned(), rest),
            });
        }
        let (mut levels, mut rest) = (0, &path[..]);
        loop {
            rest = match rest {
                b".." => &[],
                [b'.', b'.', b'/', rest @ ..] => rest,
                _ => break,
            };
            levels += 1;
            rest = trimmed(rest);
        }
        Some(match levels {
            0 => Self::Home(trimmed(rest).to_vec()),
            levels => Self::Above(levels, rest.to_vec()),
        })
    }
}

/// Removes what names the directory itself: `./` and slashes at the start, and a single `.`.
fn trimmed(mut path: &[u8]) -> &[u8] {
    loop {
        path = match path {
            [b'/', rest @ ..] | [b'.', b'/', rest @ ..] => rest,
            b"." => return &[],
            path => return path,
        };
    }
}

/// Returns true if an argument leaves the home directory, so that names must begin at the root of
/// the file system.
pub(super) fn leaves_home(argument: &OsStr) -> bool {
    Typed::of(argument).is_some_and(|typed| !matches!(typed, Typed::Home(_)))
}

/// Returns the user whose home directory an argument names, as in `~bob/file`.
pub(super) fn user_of(argument: &OsStr) -> Option<String> {
    match Typed::of(argument)? {
        Typed::Of(user, _) => Some(user),
        _ => None,
    }
}

/// Home directories on the other machine.
#[derive(Debug, Clone)]
pub(super) struct Homes {
    /// That of the user who logged in.
    pub(super) own: PathBuf,
    /// Those of other users, by their names; `None` if there is no such user.
    pub(super) others: Vec<(String, Option<PathBuf>)>,
    /// True if names begin at the root of the file system, false for the user's own home directory.
    pub(super) from_root: bool,
}

/// Returns a remote argument as a URL of ssh whose path is relative to what names begin at; `None` if
/// the argument is local.
///
/// # Errors
///
/// It names a user who does not exist there.
pub(super) fn located(
    argument: &OsStr,
    place: &Place,
    homes: &Homes,
) -> Result<Option<OsString>, LocationError> {
    let Some(typed) = Typed::of(argument) else {
        return Ok(None);
    };
    let (start, rest) = match typed {
        Typed::Home(rest) if !homes.from_root => (None, rest),
        Typed::Home(rest) => (Some(homes.own.clone()), rest),
        Typed::Above(levels, rest) => (Some(above(&homes.own, levels)), rest),
        Typed::Of(user, rest) => {
            let of_user = homes.others.iter().find(|(name, _)| *name == user);
            let home = of_user.and_then(|(_, home)| home.clone());
            let unknown = || LocationError::NoUser {
                user: shown(&user),
                host: place.host.to_string(),
            };
            (Some(home.ok_or_else(unknown)?), rest)
        }
        Typed::Root(rest) => (Some(PathBuf::from("/")), rest),
    };
    let path = match start {
        None => [b"/~/", &rest[..]].concat(),
        Some(start) => {
            let mut path = start.into_os_string().into_vec();
            if !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend(rest);
            path
        }
    };
    let mut url = OsString::from(authority(place));
    url.push(OsStr::from_bytes(&escaped(&path)));
    Ok(Some(url))
}

fn above(home: &Path, levels: usize) -> PathBuf {
    let mut path: PathBuf = home
        .components()
        .filter(|component| !matches!(component, Component::CurDir))
        .collect();
    // The root is above itself.
    (0..levels).for_each(|_| _ = path.pop());
    path
}

fn authority(place: &Place) -> String {
    let user = match &place.via {
        Via::Ssh { user: Some(user) } => format!("{user}@"),
        _ => String::new(),
    };
    let host = match place.host.contains(':') {
        true => format!("[{}]", place.host),
        false => place.host.to_string(),
    };
    let port = place
        .port
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    format!("ssh://{user}{host}{port}")
}

fn escaped(path: &[u8]) -> Vec<u8> {
    let escape = |byte: &u8| match byte {
        b'%' => b"%25".to_vec(),
        byte => vec![*byte],
    };
    path.iter().flat_map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::location::Location;

    #[test]
    fn paths_mean_what_they_mean_to_scp() {
        let homes = |from_root| Homes {
            own: "/home/me".into(),
            others: vec![
                ("bob".into(), Some("/home/bob".into())),
                ("eve".into(), None),
            ],
            from_root,
        };
        let place: Place = "me@nas".parse().unwrap();
        let shown = |typed: &str, from_root| {
            let url = located(typed.as_ref(), &place, &homes(from_root)).unwrap();
            match Location::parse(&url.unwrap()).unwrap() {
                Location::Remote(remote) => remote.to_string(),
                other => panic!("{typed}: {other:?}"),
            }
        };
        for (typed, in_home, from_root) in [
            ("me@nas:", "me@nas:", "me@nas:/home/me/"),
            ("me@nas:.", "me@nas:", "me@nas:/home/me/"),
            ("me@nas:~", "me@nas:", "me@nas:/home/me/"),
            ("me@nas:a b%/", "me@nas:a b%/", "me@nas:/home/me/a b%/"),
            ("me@nas:./~x", "me@nas:~x", "me@nas:/home/me/~x"),
            ("me@nas:~/*.img", "me@nas:*.img", "me@nas:/home/me/*.img"),
            ("ssh://me@nas/~/a", "me@nas:a", "me@nas:/home/me/a"),
        ] {
            assert!(!leaves_home(typed.as_ref()), "{typed}");
            assert_eq!(shown(typed, false), in_home, "{typed}");
            assert_eq!(shown(typed, true), from_root, "{typed}");
        }
        for (typed, path) in [
            ("me@nas:/", "me@nas:/"),
            ("me@nas:/srv/in/", "me@nas:/srv/in/"),
            ("ssh://me@nas:22/srv/in", "me@nas:/srv/in"),
            ("me@nas:~bob", "me@nas:/home/bob/"),
            ("me@nas:~bob/a", "me@nas:/home/bob/a"),
            ("ssh://nas/~bob/a", "me@nas:/home/bob/a"),
            ("me@nas:..", "me@nas:/home/"),
            ("me@nas:../bob/a", "me@nas:/home/bob/a"),
            ("me@nas:../../../x", "me@nas:/x"),
        ] {
            assert!(leaves_home(typed.as_ref()), "{typed}");
            assert_eq!(shown(typed, true), path, "{typed}");
        }
        assert_eq!(user_of("me@nas:~bob/a".as_ref()), Some("bob".into()));
        assert_eq!(user_of("me@nas:~/a".as_ref()), None);
        let error = located("me@nas:~eve/a".as_ref(), &place, &homes(true)).unwrap_err();
        assert_eq!(error.to_string(), "there is no user \"eve\" on nas");
        for local in ["a", "-", "./a:b", "/a"] {
            assert_eq!(
                located(local.as_ref(), &place, &homes(true)),
                Ok(None),
                "{local}"
            );
        }
    }
}
