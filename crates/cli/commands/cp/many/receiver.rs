//! Target of a copy to several, and how it gets an item.

use std::{
    collections::HashSet, fs::Metadata, net::IpAddr, os::unix::ffi::OsStrExt as _, sync::Arc,
    time::Duration,
};

use nicstripe::{
    Client, ClientBuilder, CopyOptions, Error, FailCode, FetchRequest, Kind, Name, NameError,
    RenameOptions,
    chain::{Fault, Need},
    routes::RouteKeeper,
    trust::PublicKey,
};
use parking_lot::Mutex;

use super::{
    super::{
        arguments::Cp,
        copy_kind::CopyKind,
        plan::Plan,
        slices::{self, SliceError, is_dir},
    },
    files::{Item, LargeFile, staging},
};
use crate::{connect::setup, failure::Failure};

/// Target of a copy, with its own session for the chain.
#[derive(Debug)]
pub(super) struct Receiver {
    /// Number of the copy whose target it is.
    pub(super) copy: usize,
    /// Host of the target.
    pub(super) shown: String,
    pub(super) client: Client,
    /// Names of the sources at the target; `None` for its root.
    pub(super) places: Vec<Option<Name>>,
    /// Rate in bytes a second of the cables to it; `None` if unknown.
    pub(super) expected: Option<u64>,
    pub(super) preserve: bool,
    /// Key with which it fetches from others.
    fetch_key: PublicKey,
    key: PublicKey,
    /// Where the others reach it.
    addresses: Vec<IpAddr>,
    port: u16,
    /// Names that the others may read, by their keys.
    admitted: Mutex<HashSet<(PublicKey, Name)>>,
}

/// Why an item did not get to a receiver.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The order failed.
    Fault(Fault),
    Lost,
    FeedLost,
}

impl Receiver {
    pub(super) async fn connect(
        (copy, cp): (usize, &Cp),
        keeper: &Arc<RouteKeeper>,
    ) -> Result<Self, Failure> {
        let plan = Plan::of(cp)?;
        let shown = plan.place.host.to_string();
        let patience = |builder: ClientBuilder| builder.patience(PATIENCE);
        let connected = cp
            .connect(&plan.place, keeper, patience, setup::say)
            .await?;
        let mut cp = cp.clone();
        let target = connected.inside(cp.target())?;
        if let (Some(inside), Some(typed)) = (target, cp.paths.last_mut()) {
            *typed = inside;
        }
        let client = connected.client.clone();
        let survey = client.links().await?;
        let mut addresses: Vec<IpAddr> = survey.links.iter().map(|link| link.link.remote).collect();
        let known = survey.peer_interfaces.iter();
        let known = known.flat_map(|interface| &interface.addresses);
        addresses.extend(known.map(|address| address.ip));
        let mut seen = HashSet::new();
        addresses.retain(|address| seen.insert(*address));
        addresses.truncate(MOST_ADDRESSES);
        Ok(Self {
            copy,
            places: places(&cp, &client).await?,
            fetch_key: client.fetch_key().await?,
            key: client.peer().await?.key,
            expected: survey.expected.map(|rate| rate.0 / 8),
            port: cp.links.port(plan.place.port),
            preserve: cp.preserve || cp.tree.archive,
            admitted: Mutex::default(),
            addresses,
            client,
            shown,
        })
    }

    /// Returns whether the target needs a file, by the size and time of what it has.
    pub(super) async fn need(&self, file: &LargeFile) -> Need {
        let Some(name) = file.name_at(&self.places) else {
            return Need::Never;
        };
        match self.client.stat(&name).await {
            // The copy that follows decides about it.
            Ok(found) if found.kind != Kind::File => Need::Never,
            Ok(found) if file.version.is_kept_as(found.size, found.modified) => Need::There,
            Ok(_) => Need::Missing,
            Err(error) if error.is_not_found() => Need::Missing,
            Err(_) => Need::Never,
        }
    }

    /// Returns the name under which the target has a file, or is getting it.
    fn name_of(&self, file: &LargeFile, has_it: bool) -> Result<Name, Trouble> {
        let name = file.name_at(&self.places);
        let name = match has_it || file.is_one_item() {
            true => name,
            false => name.and_then(|name| staging(&name, file)),
        };
        name.ok_or(Trouble::Fault(Fault::Refused))
    }

    fn options(&self, file: &LargeFile, item: &Item) -> CopyOptions {
        match file.is_one_item() {
            true => CopyOptions {
                replace: true,
                parents: true,
                times: true,
                preserve: self.preserve,
                ..CopyOptions::default()
            },
            false => slices::options_of(item.range.start, file.version.size),
        }
    }

    pub(super) async fn put(&self, file: &LargeFile, item: &Item) -> Result<(), Trouble> {
        let refused = |_| Trouble::Fault(Fault::Refused);
        file.check().map_err(refused)?;
        let (name, options) = (self.name_of(file, false)?, self.options(file, item));
        if file.is_one_item() {
            let put = self.client.put(&file.path, Some(name), options).finish();
            put.await.map_err(of_receiver)?;
        } else {
            let version = file.version;
            let from = (&*file.path, item.range.clone());
            let is_same = |found: &Metadata| version.is_of(found);
            let put = slices::put(&self.client, from, (&name, version.size), is_same);
            put.await.map_err(|error| match error {
                SliceError::Changed | SliceError::Source(_) => Trouble::Fault(Fault::Refused),
                SliceError::Target(error) => of_receiver(error),
            })?;
        }
        file.check().map_err(refused)
    }

    /// Has it fetch an item from another receiver, which has the whole file under its name if `has_it`.
    pub(super) async fn fetch(
        &self,
        file: &LargeFile,
        item: &Item,
        (feed, has_it): (&Self, bool),
    ) -> Result<(), Trouble> {
        let digest = file.digest(item).await;
        let digest = digest.map_err(|_| Trouble::Fault(Fault::Refused))?;
        let from = feed.name_of(file, has_it)?;
        feed.admit(self.fetch_key, &from).await?;
        let request = FetchRequest {
            key: feed.key,
            addresses: feed.addresses.clone(),
            port: feed.port,
            from,
            range: item.range.clone(),
            digest,
            to: self.name_of(file, false)?,
            metadata: Some((file.version.modified, file.version.mode)),
            options: self.options(file, item),
        };
        match self.client.fetch_from(&request).await.map_err(of_receiver) {
            // The feed has what was here before.
            Err(Trouble::Fault(Fault::Wrong)) if file.check().is_err() => {
                Err(Trouble::Fault(Fault::Refused))
            }
            fetched => fetched.map(drop),
        }
    }

    async fn admit(&self, key: PublicKey, name: &Name) -> Result<(), Trouble> {
        let admitted = (key, name.clone());
        if self.admitted.lock().contains(&admitted) {
            return Ok(());
        }
        let names = std::slice::from_ref(name);
        match self.client.admit(&key, names).await {
            Ok(()) => {
                let mut known = self.admitted.lock();
                // The daemon forgets the oldest of a thousand.
                if known.len() >= MOST_ADMITTED {
                    known.clear();
                }
                known.insert(admitted);
                Ok(())
            }
            Err(error) if error.fail_code().is_some() => Err(Trouble::Fault(Fault::Unreached)),
            Err(_) => Err(Trouble::FeedLost),
        }
    }

    /// Gives a file of several items its time, its mode and its name.
    pub(super) async fn complete(&self, file: &LargeFile) -> Result<(), Error> {
        let (Some(name), Ok(part)) = (file.name_at(&self.places), self.name_of(file, false)) else {
            return Ok(());
        };
        slices::end(&self.client, &part, file.version, self.preserve).await?;
        let options = RenameOptions::replacing();
        self.client.rename(&part, &name, options).await
    }

    /// Removes what the target has of a file of several items.
    pub(super) async fn give_up(&self, file: &LargeFile) {
        if let Ok(part) = self.name_of(file, false) {
            let _ = self.client.remove(&part).await;
        }
    }
}

async fn places(cp: &Cp, client: &Client) -> Result<Vec<Option<Name>>, Failure> {
    let CopyKind::PutTree {
        sources,
        name,
        as_name,
    } = Plan::of(cp)?.kind
    else {
        return Ok(Vec::new());
    };
    let is_dir = match &name {
        Some(name) if as_name => is_dir(client, name).await,
        _ => true,
    };
    let place = |source: &std::path::PathBuf| {
        let is_content = source.as_os_str().as_bytes().ends_with(b"/");
        let own = source.file_name().filter(|_| !is_content && is_dir);
        let above = name.iter().flat_map(Name::components);
        let own = own.iter().map(|own| own.as_bytes());
        let all: Vec<&[u8]> = above.chain(own).collect();
        match all.is_empty() {
            true => Ok(None),
            false => Name::new(all).map(Some),
        }
    };
    let places: Result<_, NameError> = sources.iter().map(place).collect();
    Ok(places?)
}

/// Returns what an error of a receiver's session means for its order.
fn of_receiver(error: Error) -> Trouble {
    match error.fail_code() {
        Some(FailCode::Digest) => Trouble::Fault(Fault::Wrong),
        Some(FailCode::Busy) => Trouble::Fault(Fault::Unreached),
        Some(_) => Trouble::Fault(Fault::Refused),
        None if matches!(error, Error::File(_)) => Trouble::Fault(Fault::Refused),
        None => Trouble::Lost,
    }
}

/// Time for which a receiver that is lost is waited for before others continue without it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Maximum number of addresses at which others look for a receiver.
const MOST_ADDRESSES: usize = 16;

/// Number of names that a key is remembered to have.
const MOST_ADMITTED: usize = 512;
