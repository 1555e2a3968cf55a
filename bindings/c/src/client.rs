//! Clients: connections, limits of calls, and names.

use std::{ffi::c_char, mem::MaybeUninit, time::Duration};

use library::{CancellationToken, blocking::Client};

use crate::{
    error::{Failure, call, quietly, required},
    handle::Process,
    metadata::nicstripe_metadata,
    raw::{ConnectOptionsIn, CopyOptionsIn, ErrorOut, Text},
};

/// Client of one daemon. Any number of threads may use it at once. nicstripe_client_free must be the
/// last call with it.
pub struct nicstripe_client {
    process: Process,
    /// Client without limits, for clones and transfers.
    unlimited: Client,
    /// Client whose calls end in time or by `interrupt`.
    limited: Client,
    pub(crate) most: Option<Duration>,
    pub(crate) interrupt: CancellationToken,
}

impl nicstripe_client {
    fn new(unlimited: Client, timeout_ms: u64) -> Self {
        let most = (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms));
        let interrupt = CancellationToken::new();
        let limited = unlimited.interrupted_by(interrupt.clone());
        Self {
            process: Process::current(),
            limited: most.map_or(limited.clone(), |most| limited.within(most)),
            unlimited,
            most,
            interrupt,
        }
    }

    /// Returns the client for transfers, whose waits have limits of their own.
    pub(crate) fn unlimited(&self) -> Result<&Client, Failure> {
        self.process.check()?;
        Ok(&self.unlimited)
    }
}

/// Returns the client of an argument, if this process may use it.
pub(crate) fn checked(client: Option<&nicstripe_client>) -> Result<&Client, Failure> {
    let client = required(client, "client")?;
    client.process.check()?;
    Ok(&client.limited)
}

/// Returns the version of the library, such as "0.1.0". Static text.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Connects to a daemon, and stores a client in `client`.
///
/// `host` is a name or an address, UTF-8. `options` may be NULL. Waits until the daemon has answered
/// and has capacity; see `patience_ms`.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_connect(
    host: Text,
    options: ConnectOptionsIn,
    client: Option<&mut MaybeUninit<Option<Box<nicstripe_client>>>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let into = required(client, "client")?.write(None);
        let (host, options) = (host.utf8("host")?, options.read()?);
        let builder = options.builder()?;
        let connected = match options.timeout_ms {
            0 => Client::connect(builder, host)?,
            most => Client::connect_within(builder, host, Duration::from_millis(most))?,
        };
        // Transfers run longer than a call may wait.
        let unlimited = connected.within(Duration::MAX);
        let client = nicstripe_client::new(unlimited, options.timeout_ms);
        *into = Some(Box::new(client));
        Ok(())
    })
}

/// Stores another client of the same session in `clone`, to be freed by itself. Each of its calls
/// ends with NICSTRIPE_TIMED_OUT after `timeout_ms`, or never by itself if that is 0. It is
/// interrupted by itself, too.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_client_clone(
    client: Option<&nicstripe_client>,
    timeout_ms: u64,
    clone: Option<&mut MaybeUninit<Option<Box<nicstripe_client>>>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let into = required(clone, "clone")?.write(None);
        let client = required(client, "client")?.unlimited()?;
        let clone = nicstripe_client::new(client.clone(), timeout_ms);
        *into = Some(Box::new(clone));
        Ok(())
    })
}

/// Ends the running calls of this client, and of the values that it made, with NICSTRIPE_CANCELLED;
/// so end all later ones. Clones are not affected. Does not block, and may be called by any thread, but not by
/// a signal handler.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_client_interrupt(
    client: Option<&nicstripe_client>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        checked(client)?;
        required(client, "client")?.interrupt.cancel();
        Ok(())
    })
}

/// Closes the session. Later calls of this client, its clones and their values end with
/// NICSTRIPE_CLOSED. Running transfers are interrupted and can be resumed. Waits at most
/// 10 s.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_close(client: Option<&nicstripe_client>, error: ErrorOut<'_>) -> i32 {
    call(error, || {
        checked(client)?.clone().close();
        Ok(())
    })
}

/// Frees a client; NULL is allowed. Readers, writers, listings and transfers stay valid. The last of
/// them ends the session and its threads at once, without what nicstripe_close waits for.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_client_free(client: Option<Box<nicstripe_client>>) {
    if let Some(client) = client {
        quietly(|| client.process.free(client));
    }
}

/// Creates a directory and its missing parents. No error if it exists.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_make_dir(
    client: Option<&nicstripe_client>,
    name: Text,
    error: ErrorOut<'_>,
) -> i32 {
    call(
        error,
        || Ok(checked(client)?.make_dir(&name.name("name")?)?),
    )
}

/// Removes a file or an empty directory, durably.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_remove(
    client: Option<&nicstripe_client>,
    name: Text,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || Ok(checked(client)?.remove(&name.name("name")?)?))
}

/// Renames a file or directory. `options` may be NULL; NICSTRIPE_REPLACE, NICSTRIPE_PARENTS and
/// `only_if` apply.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_rename(
    client: Option<&nicstripe_client>,
    from: Text,
    to: Text,
    options: CopyOptionsIn,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let (from, to, options) = (from.name("from")?, to.name("to")?, options.read()?);
        Ok(checked(client)?.rename(&from, &to, options.rename()?)?)
    })
}

/// Copies a file at the daemon; no data crosses the links. `options` is as for nicstripe_rename.
/// Stores the metadata of the copy in `metadata`, which may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_copy(
    client: Option<&nicstripe_client>,
    from: Text,
    to: Text,
    options: CopyOptionsIn,
    metadata: Option<&mut MaybeUninit<nicstripe_metadata>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let (from, to, options) = (from.name("from")?, to.name("to")?, options.read()?);
        let copy = checked(client)?.copy(&from, &to, options.rename()?)?;
        metadata.map(|into| into.write(nicstripe_metadata::of(&copy)));
        Ok(())
    })
}

/// Stores the metadata of a file or directory in `metadata`.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_stat(
    client: Option<&nicstripe_client>,
    name: Text,
    metadata: Option<&mut MaybeUninit<nicstripe_metadata>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let into = required(metadata, "metadata")?;
        let stat = checked(client)?.stat(&name.name("name")?)?;
        into.write(nicstripe_metadata::of(&stat));
        Ok(())
    })
}

/// Reads a file at the daemon, compares its hash with the one that the daemon kept when it received
/// the file, and stores its metadata in `metadata`, which may be NULL. NICSTRIPE_DAMAGED if they
/// differ. No data crosses the links.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_verify(
    client: Option<&nicstripe_client>,
    name: Text,
    metadata: Option<&mut MaybeUninit<nicstripe_metadata>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let stat = checked(client)?.verify(&name.name("name")?)?;
        metadata.map(|into| into.write(nicstripe_metadata::of(&stat)));
        Ok(())
    })
}
