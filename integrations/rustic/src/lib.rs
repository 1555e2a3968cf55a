//! Repositories of [`rustic_core`] at a nicstripe daemon, over every cable that leads there.
//!
//! [`Backend`] is a [`rustic_core::WriteBackend`]: what a program does with a repository on its disk it does with one at a daemon, and no
//! process, port or HTTP is between. Files are kept in restic's own layout, so that rustic and restic open the daemon's folder by its path
//! as well, and `nicstripe serve restic` the same repository from elsewhere.
//!
//! ```no_run
//! use nicstripe::{Client, Name, trust::{Home, Identity, Peers}};
//! use nicstripe_rustic::Backend;
//! use rustic_core::{BackupOptions, Credentials, PathList, Repository, RepositoryOptions, SnapshotOptions};
//!
//! // Two machines have a key each, and each trusts the other's: `nicstripe key`, `nicstripe trust add`.
//! let home = Home::from_env()?;
//! let client = Client::builder()
//!     .identity(Identity::load_or_create(&home.identity_file())?)
//!     .peers(Peers::load(&home.peers_file())?);
//! let backend = Backend::connect(client, "nas", Some(Name::parse(b"backup/laptop")?))?;
//!
//! let repository = Repository::new(&RepositoryOptions::default(), &backend.clone().into())?
//!     .open(&Credentials::password("secret"))?
//!     .to_indexed_ids()?;
//! let source = PathList::from_string("/home")?.sanitize()?;
//! let snapshot = repository.backup(&BackupOptions::default(), &source, SnapshotOptions::default().to_snapshot()?)?;
//! println!("{} is durable", snapshot.id);
//! drop(repository);
//! backend.close();
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! # What holds
//!
//! - **Durable and whole.** A file that was written is on the daemon's disk, under its name, with the bytes that were sent; one that was
//!   not has no name. A file whose name is its content's hash is never replaced: that it is there already, as long as it should be, is as
//!   good.
//! - **Parts.** A part of a pack is asked for as that part: no more is read at the daemon or sent.
//! - **Outages.** A cable that is lost is not noticed. A daemon that is away is waited for ([`Backend::patience`]), and what it may not
//!   have done is done again: each call may be made twice. Calls that are made again are told to [`log`] as warnings.
//! - **Rights.** They are the daemon's. Where its line of this machine says `append-only`, backups work, and to forget, to prune or to
//!   change the configuration fails with [`rustic_core::ErrorKind::AppendOnly`].
//! - **Errors** are [`rustic_core::RusticError`]s that name the file, the place and the cause. What came of the library is their source:
//!
//! ```
//! fn was_refused(error: &rustic_core::RusticError) -> bool {
//!     let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<nicstripe::Error>());
//!     source.is_some_and(|source| source.fail_code() == Some(nicstripe::FailCode::Refused))
//! }
//! ```
//!
//! - **Threads.** rustic_core's own call a backend, up to as many as the machine has cores; all of them share one session. As any blocking
//!   code, none of this may be called from an async task: [`nicstripe::blocking`] says more.
//!
//! rustic_core makes no locks. To prune while another machine backs up is right only as its documentation says.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod backend;
mod failure;
mod layout;
mod patience;
mod side_by_side;

pub use self::backend::{Backend, PATIENCE};
