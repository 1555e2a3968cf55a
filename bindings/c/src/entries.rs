//! Listings of directories.

use std::{ffi::c_char, mem::MaybeUninit, ptr};

use library::blocking::{Client, Entries};

use crate::{
    client::{checked, nicstripe_client},
    error::{Failure, call, quietly, required},
    handle::Exclusive,
    metadata::nicstripe_metadata,
    raw::{ErrorOut, OwnedText, Text},
};

/// Listing of a directory. One thread may be in a call with it at a time.
pub struct nicstripe_entries(Exclusive<Listing>);

struct Listing {
    entries: Entries,
    /// Name of the last entry, which the caller may still read.
    name: Option<OwnedText>,
}

/// Entry of a listing.
#[repr(C)]
pub struct nicstripe_entry {
    /// Name relative to the listed directory, bytes with `/` between components; NULL at the end of
    /// the listing. The listing owns it: it is valid until the next call with the listing.
    pub name: *const c_char,
    /// Metadata; unset at the end of the listing.
    pub metadata: nicstripe_metadata,
}

/// Begins the listing of a directory, and stores it in `entries`. `dir` may be NULL, for the root.
/// Names come in the order of their bytes.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_list(
    client: Option<&nicstripe_client>,
    dir: Text,
    entries: Option<&mut MaybeUninit<Option<Box<nicstripe_entries>>>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        begin(client, entries, |client| {
            Ok(client.entries(dir.optional_name()?))
        })
    })
}

/// Begins the listing of a directory and those below it, like nicstripe_list. If `after` is not NULL,
/// it begins behind that name, relative to `dir`: the last one of an earlier listing.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_walk(
    client: Option<&nicstripe_client>,
    dir: Text,
    after: Text,
    entries: Option<&mut MaybeUninit<Option<Box<nicstripe_entries>>>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        begin(client, entries, |client| {
            let walk = client.walk(dir.optional_name()?);
            Ok(match after.optional_name()? {
                Some(after) => walk.after(&after),
                None => walk,
            })
        })
    })
}

fn begin(
    client: Option<&nicstripe_client>,
    entries: Option<&mut MaybeUninit<Option<Box<nicstripe_entries>>>>,
    begin: impl FnOnce(&Client) -> Result<Entries, Failure>,
) -> Result<(), Failure> {
    let into = required(entries, "entries")?.write(None);
    let entries = begin(checked(client)?)?;
    let listing = Listing {
        entries,
        name: None,
    };
    *into = Some(Box::new(nicstripe_entries(Exclusive::new(listing))));
    Ok(())
}

/// Stores the next entry in `entry`, or a NULL name at the end. A listing ends after an error.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_entries_next(
    entries: Option<&nicstripe_entries>,
    entry: Option<&mut MaybeUninit<nicstripe_entry>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let into = required(entry, "entry")?;
        into.write(nicstripe_entry::end());
        required(entries, "entries")?.0.with(|listing| {
            listing.name = None;
            let Some(entry) = listing.entries.next() else {
                return Ok(());
            };
            let entry = entry?;
            let name = listing.name.insert(OwnedText::new(entry.name.to_bytes()));
            into.write(nicstripe_entry {
                name: name.as_ptr(),
                metadata: nicstripe_metadata::of(&entry.stat),
            });
            Ok(())
        })
    })
}

impl nicstripe_entry {
    fn end() -> Self {
        Self {
            name: ptr::null(),
            metadata: nicstripe_metadata::unset(),
        }
    }
}

/// Frees a listing and its last name; NULL is allowed. No thread may be in a call with it.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_entries_free(entries: Option<Box<nicstripe_entries>>) {
    if let Some(entries) = entries {
        quietly(|| entries.0.process().free(entries));
    }
}
