//! Open files at the daemon.

use std::{
    io::{ErrorKind, Read as _, Seek as _, SeekFrom},
    mem::MaybeUninit,
};

use library::blocking::ObjectReader;

use crate::{
    client::{checked, nicstripe_client},
    error::{call, quietly, required},
    handle::Exclusive,
    metadata::nicstripe_metadata,
    raw::{Buffer, ErrorOut, Text},
};

/// Open file at the daemon. All reads are of one content, also if the file is replaced meanwhile.
/// One thread may be in a call with it at a time.
pub struct nicstripe_reader(Exclusive<ObjectReader>);

/// Opens a file, and stores a reader in `reader`.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_open(
    client: Option<&nicstripe_client>,
    name: Text,
    reader: Option<&mut MaybeUninit<Option<Box<nicstripe_reader>>>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let into = required(reader, "reader")?.write(None);
        let opened = checked(client)?.open(&name.name("name")?)?;
        *into = Some(Box::new(nicstripe_reader(Exclusive::new(opened))));
        Ok(())
    })
}

/// Stores the metadata of the open file in `metadata`. Its size is the one at the time of opening.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_reader_stat(
    reader: Option<&nicstripe_reader>,
    metadata: Option<&mut MaybeUninit<nicstripe_metadata>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let into = required(metadata, "metadata")?;
        required(reader, "reader")?.0.with(|reader| {
            into.write(nicstripe_metadata::of(reader.stat()));
            Ok(())
        })
    })
}

/// Reads at most `len` bytes from `offset` on into `buffer`, like pread(2), and stores in `read` how
/// many there were: less than `len` only at the end of the file, 0 past it. After an error, `read`
/// is the number of bytes that arrived before it. Ascending reads without gaps are fastest.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_reader_read_at(
    reader: Option<&nicstripe_reader>,
    offset: u64,
    mut buffer: Buffer,
    len: usize,
    read: Option<&mut MaybeUninit<usize>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let done = required(read, "read")?.write(0);
        required(reader, "reader")?.0.with(|reader| {
            let buffer = buffer.all(len, "buffer")?;
            if offset >= reader.len() {
                return Ok(());
            }
            if reader.position() != offset {
                reader.seek(SeekFrom::Start(offset))?;
            }
            while *done < buffer.len() {
                match reader.read(&mut buffer[*done..]) {
                    Ok(0) => break,
                    Ok(more) => *done += more,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        })
    })
}

/// Closes and frees a reader; NULL is allowed. No thread may be in a call with it.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_reader_close(reader: Option<Box<nicstripe_reader>>) {
    if let Some(reader) = reader {
        quietly(|| reader.0.process().free(reader));
    }
}
