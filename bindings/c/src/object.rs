//! Whole files from and to memory.

use std::mem::MaybeUninit;

use crate::{
    client::{checked, nicstripe_client},
    error::{call, required},
    metadata::nicstripe_report,
    raw::{Buffer, Bytes, CopyOptionsIn, ErrorOut, Text},
};

/// Reads at most `len` bytes of a file from `offset` on into `buffer`, and stores in `read` how many
/// there were: less than `len` only at the end of the file. Each call opens the file, so that two may
/// read different contents; nicstripe_open reads one. NICSTRIPE_FAIL_RANGE if `offset` is past the
/// end.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_read(
    client: Option<&nicstripe_client>,
    name: Text,
    offset: u64,
    mut buffer: Buffer,
    len: usize,
    read: Option<&mut MaybeUninit<usize>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let into = required(read, "read")?.write(0);
        let (client, name) = (checked(client)?, name.name("name")?);
        *into = client.read_into(&name, offset, buffer.all(len, "buffer")?)?;
        Ok(())
    })
}

/// Writes a file from memory. On success the name has all bytes, durably; otherwise it is as before,
/// except after NICSTRIPE_TIMED_OUT or NICSTRIPE_CANCELLED, when the file may be complete. `options`
/// and `report` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_write(
    client: Option<&nicstripe_client>,
    name: Text,
    bytes: Bytes,
    len: usize,
    options: CopyOptionsIn,
    report: Option<&mut MaybeUninit<nicstripe_report>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let (client, name, options) = (checked(client)?, name.name("name")?, options.read()?);
        let written = client.write(&name, bytes.all(len, "bytes")?, options.file()?)?;
        report.map(|into| into.write(nicstripe_report::of(&written)));
        Ok(())
    })
}
