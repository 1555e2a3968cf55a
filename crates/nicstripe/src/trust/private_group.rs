//! User private groups: Debian, Fedora and others create one group per user, so that the umask can
//! be 002.

use std::fs;

use nix::unistd::{Gid, Group, Uid, User};

/// Returns true if a group is a user's private one: the user's primary group, with the user's name
/// and no other member.
///
/// Returns false if a lookup fails.
pub(super) fn is_private_group(gid: u32, uid: u32) -> bool {
    let (user, group) = (
        User::from_uid(Uid::from_raw(uid)),
        Group::from_gid(Gid::from_raw(gid)),
    );
    match (user, group, fs::read_to_string(USERS)) {
        (Ok(Some(user)), Ok(Some(group)), Ok(users)) => is_private(&user, &group, &users),
        _ => false,
    }
}

/// Returns true if `group` is the private group of `user`; `users` is the content of /etc/passwd.
/// Requires equal names, like `pam_umask`: users of a directory service cannot be listed, and one
/// of them might have this group as primary group.
fn is_private(user: &User, group: &Group, users: &str) -> bool {
    user.gid == group.gid
        && user.name == group.name
        && group.mem.iter().all(|member| *member == user.name)
        && users
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .all(|line| is_of_another_group(line, user))
}

/// Returns true if a line of /etc/passwd describes `user`, or a user with another primary group.
fn is_of_another_group(line: &str, user: &User) -> bool {
    let mut numbers = line.split(':').skip(2).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(uid)), Some(Ok(gid))) => uid == user.uid.as_raw() || gid != user.gid.as_raw(),
        _ => false,
    }
}

/// Path of this machine's user database.
const USERS: &str = "/etc/passwd";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const PASSWD: &str = "# users\nroot:x:0:0:root:/root:/bin/sh\n\nme:x:1000:1000:Me,,,:/home/me:/bin/sh\nalso-me:x:1000:1000::/:/bin/sh\nyou:x:1001:1001::/home/you:/bin/sh\n";

    fn user(gid: u32) -> User {
        let mut user = User::from_uid(Uid::from_raw(0)).unwrap().unwrap();
        (user.name, user.uid, user.gid) = ("me".into(), Uid::from_raw(1000), Gid::from_raw(gid));
        user
    }

    fn group(name: &str, gid: u32, members: &[&str]) -> Group {
        let mut group = Group::from_gid(Gid::from_raw(0)).unwrap().unwrap();
        (group.name, group.gid) = (name.into(), Gid::from_raw(gid));
        group.mem = members.iter().map(ToString::to_string).collect();
        group
    }

    #[test]
    fn a_group_is_private_if_nobody_else_can_be_in_it() {
        assert!(is_private(&user(1000), &group("me", 1000, &[]), PASSWD));
        assert!(is_private(&user(1000), &group("me", 1000, &["me"]), PASSWD));
        for (why, user, group, users) in [
            (
                "it has another member",
                user(1000),
                group("me", 1000, &["me", "you"]),
                PASSWD.to_owned(),
            ),
            (
                "it is not the primary one",
                user(1000),
                group("me", 1001, &[]),
                PASSWD.to_owned(),
            ),
            (
                "its name differs from the user's",
                user(1000),
                group("users", 1000, &[]),
                PASSWD.to_owned(),
            ),
            (
                "it is another user's primary one",
                user(1000),
                group("me", 1000, &[]),
                format!("{PASSWD}x:x:7:1000::/:/bin/sh\n"),
            ),
            (
                "a line cannot be read",
                user(1000),
                group("me", 1000, &[]),
                format!("{PASSWD}+::::::\n"),
            ),
        ] {
            assert!(!is_private(&user, &group, &users), "{why}");
        }
    }

    #[test]
    fn unknown_users_and_groups_have_no_private_group() {
        assert!(!is_private_group(4_000_000_123, 4_000_000_123));
    }
}
