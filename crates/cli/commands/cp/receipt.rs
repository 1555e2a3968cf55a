//! Receipt of a copy of one file (`--receipt`).

use std::{
    fs::File,
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::SystemTime,
};

use nicstripe::{
    Client, ConnectedPeer, Name, Report,
    receipts::{Outline, Receipt, outline_of},
    trust::Identity,
};
use tokio::task::spawn_blocking;

use super::{
    arguments::Cp,
    copy_kind::CopyKind,
    plan::Plan,
    single::{name_of_put, path_of_get},
};
use crate::{
    commands::receipt::{Document, Words, of_one_file},
    connect::location::shown_place,
    failure::{Failure, Fault, exit::Exit, usage},
    output::files,
    places,
    text::shown,
};

/// Receipt that is to be written once the file has arrived.
#[derive(Debug)]
pub(super) struct Wanted {
    path: PathBuf,
    file: Arrives,
    peer: ConnectedPeer,
    source: String,
    started: SystemTime,
}

#[derive(Debug)]
enum Arrives {
    There(Name),
    Here(PathBuf),
}

impl Wanted {
    /// Prepares the receipt that is asked for, so that the copy does not begin if there can be none.
    pub(super) async fn of(cp: &Cp, client: &Client, plan: &Plan) -> Result<Option<Self>, Failure> {
        let Some(path) = cp.receipt.as_deref().filter(|_| !cp.tree.dry_run) else {
            return Ok(None);
        };
        let file = match &plan.kind {
            CopyKind::Put { .. } => Arrives::There(name_of_put(client, plan).await?.0),
            CopyKind::PutPipe { name } => Arrives::There(name.clone()),
            CopyKind::Get { name, target } => Arrives::Here(path_of_get(name, target)),
            _ => return Err(of_one_file().into()),
        };
        let name = file.name()?;
        if Name::parse(name.to_string().as_bytes()).ok() != Some(name.clone()) {
            let text = format!("the name {name} has bytes that a receipt cannot hold");
            return Err(usage(text).into());
        }
        let peer = client.peer().await?;
        if peer.name.is_none() {
            let place = &plan.place;
            let text =
                format!("{place} has no key that lasts, so that nobody could check its receipt");
            return Err(usage(text)
                .with_hint("run nicstripe serve there, and pair with it")
                .into());
        }
        files::check(path)?;
        Ok(Some(Self {
            path: path.to_owned(),
            file,
            peer,
            source: cp
                .sources()
                .first()
                .map_or_else(String::new, |source| shown_place(source)),
            started: SystemTime::now(),
        }))
    }

    /// Has the receiver read the file, and writes its receipt.
    pub(super) async fn write(self, client: &Client, report: &Report) -> Result<(), Failure> {
        let words = Words::of(self.source, self.started, report);
        let (receipt, receiver) = match &self.file {
            Arrives::There(name) => {
                let receipt = client.receipt(name, words.digest()?).await?;
                (receipt, self.peer.key)
            }
            Arrives::Here(path) => {
                let identity = Identity::load_or_create(places::home()?.identity_file())?;
                let (outline, modified) = read(path).await?;
                let file = (self.file.name()?, modified);
                let from = (self.peer.key, words.digest()?);
                let receipt = Receipt::signed_by(&identity, file, outline, from)?;
                (receipt, identity.public_key())
            }
        };
        if report
            .digest
            .is_some_and(|digest| digest != receipt.outline.digest())
        {
            return Err(changed(&receipt.name.to_string()).into());
        }
        Document::of(&receipt, &receiver, words).write(&self.path)
    }
}

impl Arrives {
    fn name(&self) -> Result<Name, Failure> {
        match self {
            Self::There(name) => Ok(name.clone()),
            Self::Here(path) => {
                let own = path.file_name().unwrap_or_default().as_bytes();
                Ok(Name::new([own])?)
            }
        }
    }
}

async fn read(path: &Path) -> Result<(Outline, SystemTime), Failure> {
    let of = path.to_owned();
    let read = spawn_blocking(move || {
        let file = File::open(of)?;
        let found = file.metadata()?;
        let outline = outline_of(&file, found.len())?;
        // A file that changed while it was read equals no copy.
        let is_same = file.metadata()?.modified()? == found.modified()?;
        Ok::<_, io::Error>(is_same.then_some((outline, found.modified()?)))
    });
    let read = read.await?.map_err(Failure::opening(path))?;
    Ok(read.ok_or_else(|| changed(&shown(path)))?)
}

fn changed(name: &str) -> Fault {
    let text = format!("{name} changed after it was copied: there is no receipt");
    Fault::new(Exit::SourceChanged, text)
}
