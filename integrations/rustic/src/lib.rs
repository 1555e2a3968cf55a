//! Repositories of [`rustic_core`] at a nicstripe daemon, over every cable that leads there.
//!
//! [`Backend`] is a [`rustic_core::WriteBackend`]: a program uses a repository at a daemon like one
//! on its own disk, without another process, port or HTTP in between. Files have restic's own
//! layout. rustic and restic can therefore open the daemon's directory by its path, and `nicstripe
//! serve restic` the same repository from another machine.
//!
//! ```no_run
//! use nicstripe::{Client, Name, trust::{Home, Identity, Peers}};
//! use nicstripe_rustic::Backend;
//! use rustic_core::{
//!     BackupOptions, Credentials, PathList, Repository, RepositoryOptions, SnapshotOptions,
//! };
//!
//! // Both machines have a key and trust each other's: `nicstripe key`, `nicstripe trust add`.
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
//! let snapshot = repository.backup(
//!     &BackupOptions::default(),
//!     &source,
//!     SnapshotOptions::default().to_snapshot()?,
//! )?;
//! println!("{} is durable", snapshot.id);
//! drop(repository);
//! backend.close();
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! - **Durability.** A written file is on the daemon's disk, under its name, with exactly the bytes
//!   sent; a failed write leaves no name. A file named by the hash of its content is never
//!   replaced: an existing one of the same length counts as success.
//! - **Ranges.** A read of a part of a pack reads and transfers only that part.
//! - **Outages.** Lost cables cause no error. Calls wait for an unreachable daemon for
//!   the client's patience ([`nicstripe::ClientBuilder::patience`]), and each may be executed twice.
//!   What the backend repeats is logged to [`log`] as a warning.
//! - **Access rights.** The daemon enforces them. If its peers file grants this machine only
//!   `append-only`, backups work. Forgetting, pruning and changing the configuration fail with
//!   [`rustic_core::ErrorKind::AppendOnly`].
//! - **Errors** are [`rustic_core::RusticError`]s that name the file, the repository and the cause.
//!   Their source is the library's error:
//!
//! ```
//! fn was_refused(error: &rustic_core::RusticError) -> bool {
//!     let source = std::error::Error::source(error)
//!         .and_then(|source| source.downcast_ref::<nicstripe::Error>());
//!     source.is_some_and(|source| source.fail_code() == Some(nicstripe::FailCode::NotPermitted))
//! }
//! ```
//!
//! - **Threads.** rustic_core calls a backend from up to as many threads as the machine has cores;
//!   all of them share one session. Like all blocking code, the backend must not be called from an
//!   async task; see [`nicstripe::blocking`].
//!
//! rustic_core creates no locks. Its documentation lists the conditions for pruning while another
//! machine backs up.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod backend;
mod failure;
mod layout;
mod patience;
mod side_by_side;

pub use self::backend::Backend;
