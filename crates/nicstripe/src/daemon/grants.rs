//! Keys that peers admit to some of their files, for as long as their session lasts.

use std::{
    collections::{HashMap, HashSet, VecDeque, hash_map::Entry},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use nicstripe_proto::{FailCode, Name, Request};
use parking_lot::Mutex;

use super::rights::Rights;
use crate::{
    file::FileError,
    trust::{Access, PeerOptions, PublicKey},
};

/// Admitted keys of a daemon.
#[derive(Debug, Default)]
pub(super) struct Grants {
    by_key: Mutex<HashMap<PublicKey, Grant>>,
    /// True if a grant has ended since [`take_ended`](Self::take_ended).
    has_ended: AtomicBool,
}

#[derive(Debug, Clone)]
pub(super) struct Grant {
    /// Key of the peer.
    pub(super) by: PublicKey,
    pub(super) options: PeerOptions,
    pub(super) names: Arc<GrantedNames>,
}

/// Names that an admitted key may read: the latest [`MOST_NAMES`].
#[derive(Debug, Default)]
pub(super) struct GrantedNames {
    latest: Mutex<LatestNames>,
    is_over: AtomicBool,
}

#[derive(Debug, Default)]
struct LatestNames {
    order: VecDeque<Name>,
    known: HashSet<Name>,
}

impl Grants {
    /// Returns what a key is admitted to; `None` if it is not.
    pub(super) fn of(&self, key: &PublicKey) -> Option<Grant> {
        self.by_key.lock().get(key).cloned()
    }

    /// Returns true if a grant has ended since the last call, so that its sessions must end.
    pub(super) fn take_ended(&self) -> bool {
        self.has_ended.swap(false, Ordering::AcqRel)
    }

    /// Lets a key read names of the peer with `rights`, and returns the guard that ends it.
    ///
    /// # Errors
    ///
    /// The key is admitted already, or the peer has admitted too many.
    fn admit(
        self: &Arc<Self>,
        key: PublicKey,
        rights: &Rights,
    ) -> Result<GrantGuard, &'static str> {
        let mut by_key = self.by_key.lock();
        if by_key.contains_key(&key) {
            return Err("it is admitted already");
        }
        let by = rights.key();
        if by_key.values().filter(|grant| grant.by == by).count() >= MOST_GRANTS {
            return Err("limit of admitted keys reached");
        }
        let names = Arc::<GrantedNames>::default();
        let options = PeerOptions {
            root: rights.options().root.clone(),
            access: Access::ReadOnly,
            rate: rights.options().rate,
            no_bench: true,
            no_facts: true,
            special_modes: false,
            dial: Vec::new(),
            listen: Vec::new(),
            exec: Vec::new(),
        };
        let grant = Grant {
            by,
            options,
            names: names.clone(),
        };
        by_key.insert(key, grant);
        Ok(GrantGuard {
            grants: self.clone(),
            key,
            names,
        })
    }
}

/// Ends the rights of an admitted key when it is dropped.
#[derive(Debug)]
struct GrantGuard {
    grants: Arc<Grants>,
    key: PublicKey,
    names: Arc<GrantedNames>,
}

impl Drop for GrantGuard {
    fn drop(&mut self) {
        self.names.is_over.store(true, Ordering::Release);
        self.grants.by_key.lock().remove(&self.key);
        self.grants.has_ended.store(true, Ordering::Release);
    }
}

/// Keys that the peer of one session has admitted.
#[derive(Debug, Default)]
pub(super) struct OwnGrants(Mutex<HashMap<PublicKey, GrantGuard>>);

impl OwnGrants {
    /// Lets a key read these names too, until the session ends.
    pub(super) fn admit(
        &self,
        grants: &Arc<Grants>,
        key: PublicKey,
        rights: &Rights,
        names: &[Name],
    ) -> Result<(), FileError> {
        let mut own = self.0.lock();
        let guard = match own.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => {
                let admitted = grants.admit(key, rights);
                free.insert(admitted.map_err(|why| FileError::refused("admit", key, why))?)
            }
        };
        guard.names.add(names);
        Ok(())
    }
}

impl GrantedNames {
    fn add(&self, names: &[Name]) {
        let mut latest = self.latest.lock();
        for name in names {
            if latest.known.insert(name.clone()) {
                latest.order.push_back(name.clone());
            }
            if latest.order.len() > MOST_NAMES
                && let Some(oldest) = latest.order.pop_front()
            {
                latest.known.remove(&oldest);
            }
        }
    }

    /// Returns true once the key has no rights any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Returns an error unless a request is for a file that the key may read.
    pub(super) fn check(&self, request: &Request) -> Result<(), FileError> {
        let name = match request {
            Request::Get(get) if get.entry.is_none() => Some(&get.name),
            _ => None,
        };
        match name {
            Some(name) if !self.is_over() && self.latest.lock().known.contains(name) => Ok(()),
            Some(name) => Err(not_admitted(name)),
            None => Err(not_admitted(&"more than single files")),
        }
    }
}

pub(super) fn not_admitted(what: &dyn std::fmt::Display) -> FileError {
    let why = "this key is admitted to single files of one copy";
    FileError::refused("open", what, why).with_code(FailCode::NotPermitted)
}

/// Maximum number of keys that one peer has admitted.
const MOST_GRANTS: usize = 16;

/// Maximum number of names that an admitted key may read: more than a receiver of a chain gets at once.
const MOST_NAMES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        daemon::trusted::Trusted,
        trust::{Identity, Peers, PublicLine},
    };

    fn key() -> PublicKey {
        Identity::generate().unwrap().public_key()
    }

    #[test]
    fn a_grant_is_the_share_of_its_giver_has_a_limit_and_ends_with_it() {
        let (giver, admitted) = (key(), key());
        let mut peers = Peers::default();
        peers.add(&PublicLine::new(giver, ""), None).unwrap();
        let trusted = Trusted::fixed(peers.clone());
        let rights = trusted.rights(&peers, &giver).unwrap();
        assert!(rights.only().is_none() && rights.owner() == giver);
        assert!(trusted.rights(&peers, &admitted).is_none() && !trusted.knows(&admitted));
        let own = OwnGrants::default();
        let file = [Name::new(["file"]).unwrap()];
        let admit = |key| own.admit(&trusted.grants, key, &rights, &file);
        admit(admitted).unwrap();
        let granted = trusted.rights(&peers, &admitted).unwrap();
        assert_eq!((granted.key(), granted.owner()), (admitted, giver));
        assert_eq!(trusted.owner(admitted), giver);
        assert_eq!(granted.options().access, Access::ReadOnly);
        assert!(granted.only().is_some() && granted.loss(&peers).is_none());
        (1..MOST_GRANTS).for_each(|_| admit(key()).unwrap());
        assert!(admit(key()).is_err() && admit(admitted).is_ok());
        // Another session of the giver does not take it over.
        let other = OwnGrants::default();
        assert!(
            other
                .admit(&trusted.grants, admitted, &rights, &file)
                .is_err()
        );
        assert!(!trusted.grants.take_ended());
        drop(own);
        assert!(trusted.grants.take_ended() && granted.loss(&peers).is_some());
        assert!(trusted.rights(&peers, &admitted).is_none() && !trusted.knows(&admitted));
    }
}
