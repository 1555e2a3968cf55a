//! Files at the daemon that are written piece by piece.

use std::{io::Write as _, mem::MaybeUninit};

use library::blocking::ObjectWriter;

use crate::{
    client::{checked, nicstripe_client},
    error::{Failure, call, quietly, required},
    handle::Exclusive,
    metadata::nicstripe_report,
    raw::{Bytes, CopyOptionsIn, ErrorOut, Text},
};

/// File at the daemon that is being written. It gets its name when it is finished. One thread may be
/// in a call with it at a time.
pub struct nicstripe_writer(Exclusive<ObjectWriter>);

/// Begins a file whose length need not be known, and stores a writer in `writer`. `options` may be
/// NULL. Does not wait for the daemon, so that a later call reports that the name exists.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_create(
    client: Option<&nicstripe_client>,
    name: Text,
    options: CopyOptionsIn,
    writer: Option<&mut MaybeUninit<Option<Box<nicstripe_writer>>>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let into = required(writer, "writer")?.write(None);
        let (name, options) = (name.name("name")?, options.read()?);
        let created = checked(client)?.create(&name, options.file()?);
        *into = Some(Box::new(nicstripe_writer(Exclusive::new(created))));
        Ok(())
    })
}

/// Appends all `len` bytes. After an error the file cannot be completed: later calls return
/// NICSTRIPE_FINISHED.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_writer_write(
    writer: Option<&nicstripe_writer>,
    bytes: Bytes,
    len: usize,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let bytes = bytes.all(len, "bytes")?;
        let writer = required(writer, "writer")?;
        let mut writer = writer.0.lock()?;
        let written = writer.as_mut().ok_or_else(Failure::ended)?.write_all(bytes);
        if written.is_err() {
            // Nobody knows how many of the bytes were taken.
            *writer = None;
        }
        Ok(written?)
    })
}

/// Completes the file. On success all of it is durable under its name; otherwise the name is as
/// before, except after NICSTRIPE_TIMED_OUT or NICSTRIPE_CANCELLED, when the file may be complete.
/// The writer is still to be freed. `report` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_writer_finish(
    writer: Option<&nicstripe_writer>,
    report: Option<&mut MaybeUninit<nicstripe_report>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let finished = required(writer, "writer")?.0.take()?.finish()?;
        report.map(|into| into.write(nicstripe_report::of(&finished)));
        Ok(())
    })
}

/// Frees a writer; NULL is allowed. One that was not finished leaves nothing at the daemon. No thread
/// may be in a call with it.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_writer_free(writer: Option<Box<nicstripe_writer>>) {
    if let Some(writer) = writer {
        quietly(|| writer.0.process().free(writer));
    }
}
