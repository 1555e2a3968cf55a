//! Open files at the daemon, beneath those of `nicstripe._files`.

use std::{
    io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _},
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use nicstripe::{Error, blocking};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyBytes};

use crate::{
    buffer::Buffer,
    error::{of_stream, raised},
    own::Own,
    report::Report,
    wait::wait,
};

/// File at the daemon that is read.
#[pyclass(module = "nicstripe", frozen)]
pub(crate) struct ObjectReader {
    reader: Own<blocking::ObjectReader>,
    /// Size in bytes when it was opened.
    #[pyo3(get)]
    size: u64,
    /// Entity tag when it was opened. All bytes are of this content: if it is replaced, reads fail.
    #[pyo3(get)]
    etag: Option<String>,
}

impl ObjectReader {
    pub(crate) fn new(reader: blocking::ObjectReader) -> Self {
        Self {
            size: reader.len(),
            etag: reader.stat().etag.map(|tag| tag.to_string()),
            reader: Own::new(reader),
        }
    }
}

#[pymethods]
impl ObjectReader {
    /// Fills a buffer from the position on. Returns the number of bytes, less than the buffer's only at
    /// the end of the file.
    fn readinto(&self, py: Python<'_>, into: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut buffer = Buffer::writable(into)?;
        self.reader.wait(py, |reader| {
            let (from, into, mut filled) = (reader.position(), buffer.bytes_mut(), 0);
            while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
                match reader.read(rest) {
                    Ok(0) => break,
                    Ok(read) => filled += read,
                    Err(error) => {
                        // The caller does not learn of what was read.
                        let _ = reader.seek(SeekFrom::Start(from));
                        return Err(of_stream(error));
                    }
                }
            }
            Ok(filled)
        })
    }

    /// Sets the offset of the next read, in bytes, and returns it.
    #[pyo3(signature = (offset, whence=0))]
    fn seek(&self, py: Python<'_>, offset: i64, whence: u8) -> PyResult<u64> {
        let to = match whence {
            0 => SeekFrom::Start(u64::try_from(offset).map_err(|_| before())?),
            1 => SeekFrom::Current(offset),
            2 => SeekFrom::End(offset),
            _ => return Err(PyValueError::new_err("expected whence 0, 1 or 2")),
        };
        let sought = self.reader.wait(py, |reader| Ok(reader.seek(to).ok()))?;
        sought.ok_or_else(before)
    }

    /// Returns the offset of the next read, in bytes.
    fn tell(&self, py: Python<'_>) -> PyResult<u64> {
        self.reader.wait(py, |reader| Ok(reader.position()))
    }

    /// Ends the fetch of what was not read.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.reader.take_to_close(py).map(drop)
    }
}

/// File at the daemon that is written.
#[pyclass(module = "nicstripe", frozen)]
pub(crate) struct ObjectWriter {
    writer: Own<blocking::ObjectWriter>,
    written: AtomicU64,
}

impl ObjectWriter {
    pub(crate) fn new(writer: blocking::ObjectWriter) -> Self {
        Self {
            writer: Own::new(writer),
            written: AtomicU64::new(0),
        }
    }
}

#[pymethods]
impl ObjectWriter {
    /// Appends all bytes of a buffer. Returns their number. After an error, which may have left some of
    /// them out, the file cannot be completed any more.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let buffer = Buffer::of(data)?;
        self.writer.wait_or_drop(py, |writer| {
            let bytes = buffer.bytes();
            writer.write_all(bytes).map_err(of_stream)?;
            self.written
                .fetch_add(bytes.len() as u64, Ordering::Relaxed);
            Ok(bytes.len())
        })
    }

    /// Returns the number of bytes written.
    fn tell(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Completes the file: it is durable, under its name.
    fn finish(&self, py: Python<'_>) -> PyResult<Report> {
        let Some(writer) = self.writer.take(py)? else {
            return Err(raised(py, &Error::Closed));
        };
        Ok(Report(wait(py, || writer.finish())?))
    }

    /// Discards what was written; the name does not change.
    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        self.writer.take_to_close(py).map(drop)
    }
}

fn before() -> PyErr {
    PyValueError::new_err("offset before the start of the file, or too large")
}

/// Returns a range that reads from `start` to `stop`.
pub(crate) fn range(start: u64, stop: Option<u64>) -> Option<Range<u64>> {
    match (start, stop) {
        (0, None) => None,
        (start, stop) => Some(start..stop.unwrap_or(u64::MAX)),
    }
}

/// Returns all bytes that a reader has up to `stop`.
pub(crate) fn whole<'py>(
    py: Python<'py>,
    mut reader: blocking::ObjectReader,
    stop: Option<u64>,
) -> PyResult<Bound<'py, PyBytes>> {
    let end = stop.map_or(reader.len(), |stop| stop.min(reader.len()));
    let left = end.saturating_sub(reader.position());
    if left > MOST_AT_ONCE {
        let mut bytes = Vec::new();
        wait(py, || reader.read_to_end(&mut bytes).map_err(of_stream))?;
        return Ok(PyBytes::new(py, &bytes));
    }
    PyBytes::new_with(py, left as usize, |into| {
        wait(py, || {
            reader.read_exact(into).map_err(of_stream)?;
            // Finds the end, or what is wrong with it.
            match reader.read(&mut [0]).map_err(of_stream)? {
                0 => Ok(()),
                _ => Err(of_stream(ErrorKind::InvalidData.into())),
            }
        })
    })
}

/// Bytes for which the daemon's word of a size is enough to take memory: a larger file takes it as it
/// arrives.
const MOST_AT_ONCE: u64 = 64 << 20;
