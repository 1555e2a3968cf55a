//! Mapping of user and group IDs to names at the sender, and of names to local IDs at the receiver.
//!
//! A lookup may block on a directory service. The tree's thread therefore looks up each user or
//! group once, and caches a bounded number of results.

use std::{collections::HashMap, hash::Hash};

use nicstripe_proto::tree::{AclKind, AclName, Owner, OwnerName, OwnerNames};
use nix::unistd::{Gid, Group, Uid, User};

/// Maximum number of cached lookups per map; a full map is cleared.
const MOST_KNOWN: usize = 4096;

/// Functions that look up users or groups by ID or by name. They return `None` for unknown ones and
/// for failed lookups.
#[derive(Clone, Copy)]
struct Lookup {
    name_of: fn(u32) -> Option<String>,
    id_of: fn(&str) -> Option<u32>,
}

const USERS: Lookup = Lookup {
    name_of: |uid| Some(User::from_uid(Uid::from_raw(uid)).ok()??.name),
    id_of: |name| Some(User::from_name(name).ok()??.uid.as_raw()),
};

const GROUPS: Lookup = Lookup {
    name_of: |gid| Some(Group::from_gid(Gid::from_raw(gid)).ok()??.name),
    id_of: |name| Some(Group::from_name(name).ok()??.gid.as_raw()),
};

pub(super) struct Owners {
    users: Kind,
    groups: Kind,
}

impl Default for Owners {
    fn default() -> Self {
        Self {
            users: Kind::of(USERS),
            groups: Kind::of(GROUPS),
        }
    }
}

impl Owners {
    /// Creates a cache that uses these lookup functions instead of the system's, for tests.
    #[cfg(test)]
    pub(super) fn knowing(
        name_of: fn(u32) -> Option<String>,
        id_of: fn(&str) -> Option<u32>,
    ) -> Self {
        let [users, groups] = [Lookup { name_of, id_of }; 2].map(Kind::of);
        Self { users, groups }
    }

    /// Returns the names to send for the user and group of an owner; `None` if neither ID has a
    /// name.
    pub(super) fn names_of(&mut self, owner: Owner) -> Option<OwnerNames> {
        let names = OwnerNames {
            user: self.users.name_of(owner.uid),
            group: self.groups.name_of(owner.gid),
            acl: None,
        };
        (names != OwnerNames::default()).then_some(names)
    }

    /// Returns the local IDs for the sender's user and group names. Keeps the sender's ID for an
    /// unknown name.
    pub(super) fn local(
        &mut self,
        owner: Owner,
        user: Option<OwnerName>,
        group: Option<OwnerName>,
    ) -> Owner {
        Owner {
            uid: self.users.local(owner.uid, user),
            gid: self.groups.local(owner.gid, group),
        }
    }

    /// Returns the name to send for a user or group ID in an ACL.
    pub(super) fn name_in_acl(&mut self, kind: AclKind, id: u32) -> Option<OwnerName> {
        self.of(kind).name_of(id)
    }

    pub(super) fn local_in_acl(&mut self, AclName { kind, id, name }: &AclName) -> u32 {
        self.of(*kind).local(*id, Some(name.clone()))
    }

    fn of(&mut self, kind: AclKind) -> &mut Kind {
        match kind {
            AclKind::User => &mut self.users,
            AclKind::Group => &mut self.groups,
        }
    }
}

struct Kind {
    lookup: Lookup,
    names: HashMap<u32, Option<OwnerName>>,
    ids: HashMap<OwnerName, Option<u32>>,
}

impl Kind {
    fn of(lookup: Lookup) -> Self {
        Self {
            lookup,
            names: HashMap::new(),
            ids: HashMap::new(),
        }
    }

    fn name_of(&mut self, id: u32) -> Option<OwnerName> {
        if id == ROOT {
            return None;
        }
        // The lookup puts replacement characters into names that are not UTF-8; such a name is
        // useless.
        let look_up = |id: &u32| {
            (self.lookup.name_of)(*id)
                .filter(|name| !name.contains('\u{fffd}'))
                .and_then(|name| OwnerName::new(&name))
        };
        remembered(&mut self.names, id, look_up)
    }

    /// Returns the local ID for an ID and name of the sender. Root is matched by ID alone: no name
    /// turns root into another user, or another user into root.
    fn local(&mut self, id: u32, name: Option<OwnerName>) -> u32 {
        let Some(name) = name.filter(|_| id != ROOT) else {
            return id;
        };
        let found = remembered(&mut self.ids, name, |name| {
            (self.lookup.id_of)(name.as_str())
        });
        found.filter(|found| *found != ROOT).unwrap_or(id)
    }
}

const ROOT: u32 = 0;

fn remembered<K: Hash + Eq, V: Clone>(
    known: &mut HashMap<K, V>,
    key: K,
    look_up: impl FnOnce(&K) -> V,
) -> V {
    if let Some(value) = known.get(&key) {
        return value.clone();
    }
    if known.len() >= MOST_KNOWN {
        known.clear();
    }
    let value = look_up(&key);
    known.insert(key, value.clone());
    value
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! { static LOOKUPS: Cell<usize> = const { Cell::new(0) }; }

    /// Lookup functions of the simulated sender's machine.
    const THERE: Lookup = Lookup {
        name_of: |id| {
            LOOKUPS.set(LOOKUPS.get() + 1);
            match id {
                0 => Some("root".into()),
                1000 => Some("alice".into()),
                1001 => Some("b\u{fffd}b".into()),
                1002 => Some("a:b".into()),
                1003 => Some(String::new()),
                1004 => Some("x".repeat(256)),
                _ => None,
            }
        },
        id_of: |_| None,
    };

    /// Lookup functions of the simulated receiver's machine.
    const HERE: Lookup = Lookup {
        name_of: |_| None,
        id_of: |name| {
            LOOKUPS.set(LOOKUPS.get() + 1);
            match name {
                "root" | "toor" => Some(0),
                "alice" => Some(2000),
                "staff" => Some(50),
                _ => None,
            }
        },
    };

    fn name(text: &str) -> Option<OwnerName> {
        OwnerName::new(text)
    }

    #[test]
    fn a_sender_names_whom_it_knows_but_root() {
        let mut owners = Owners::knowing(THERE.name_of, THERE.id_of);
        let mut names_of = |uid, gid| owners.names_of(Owner { uid, gid });
        let names = |user, group| {
            Some(OwnerNames {
                user,
                group,
                ..OwnerNames::default()
            })
        };
        assert_eq!(names_of(1000, 7), names(name("alice"), None));
        assert_eq!(names_of(0, 1000), names(None, name("alice")));
        assert_eq!(names_of(0, 0), None);
        for unsendable in 1001..=1005 {
            assert_eq!(names_of(unsendable, unsendable), None, "{unsendable}");
        }
    }

    #[test]
    fn a_name_that_is_known_here_gives_the_number_and_all_else_leaves_it() {
        let mut owners = Owners::knowing(HERE.name_of, HERE.id_of);
        for (why, id, user, expected) in [
            ("known", 1000, "alice", 2000),
            ("unknown", 1000, "nobody-here", 1000),
            ("root stays root", 0, "alice", 0),
            ("no owner becomes root", 1000, "root", 1000),
            ("nor by another name of root's", 1000, "toor", 1000),
            ("as it is, to the kernel", u32::MAX, "nobody-here", u32::MAX),
        ] {
            let found = owners.local(Owner { uid: id, gid: 5 }, name(user), name("staff"));
            assert_eq!((found.uid, found.gid), (expected, 50), "{why}");
        }
        let unnamed = Owner { uid: 1000, gid: 5 };
        assert_eq!(owners.local(unnamed, None, None), unnamed);
    }

    #[test]
    fn each_is_looked_up_once_and_memory_is_bounded() {
        let (mut there, mut here) = (Kind::of(THERE), Kind::of(HERE));
        LOOKUPS.set(0);
        for _ in 0..3 {
            there.name_of(1000);
            there.name_of(7);
            here.local(1000, name("alice"));
            here.local(1000, name("nobody-here"));
        }
        assert_eq!(LOOKUPS.get(), 4);
        for id in 1..=3 * MOST_KNOWN as u32 {
            there.name_of(id);
            here.local(id, name(&id.to_string()));
            assert!(there.names.len() <= MOST_KNOWN && here.ids.len() <= MOST_KNOWN);
        }
        assert_eq!(
            (there.name_of(1000), here.local(1000, name("alice"))),
            (name("alice"), 2000),
            "evicted, and found again"
        );
    }

    #[test]
    fn this_machine_knows_its_own() {
        let owner = Owner {
            uid: u32::MAX - 17,
            gid: u32::MAX - 17,
        };
        assert_eq!(Owners::default().names_of(owner), None);
        let nobody = (USERS.id_of)("nobody").expect("every machine with a user list has a nobody");
        assert_eq!(
            Owners::default().local(owner, name("nobody"), None),
            Owner {
                uid: nobody,
                ..owner
            }
        );
        assert_eq!((USERS.name_of)(nobody).as_deref(), Some("nobody"));
    }
}
