//! Memory of Python objects, without a copy.

use std::slice;

use pyo3::{buffer::PyUntypedBuffer, exceptions::PyValueError, prelude::*};

/// Memory of a Python object, which it can neither free nor move until this is dropped.
///
/// Python code of another thread can still change its content meanwhile, as in `socket.send` and
/// `socket.recv_into`: it finds or leaves a mixture of old and new bytes, no more.
pub(crate) struct Buffer(PyUntypedBuffer);

impl Buffer {
    /// Borrows memory to be read: `bytes`, `bytearray`, `memoryview`, an array.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object)?;
        match buffer.is_c_contiguous() {
            true => Ok(Self(buffer)),
            false => Err(PyValueError::new_err("expected a C-contiguous buffer")),
        }
    }

    /// Borrows memory to be written.
    pub(crate) fn writable(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = Self::of(object)?;
        match buffer.0.readonly() {
            true => Err(PyValueError::new_err("expected a writable buffer")),
            false => Ok(buffer),
        }
    }

    #[expect(unsafe_code, reason = "the interpreter's memory, without its lock")]
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: the buffer is contiguous (`of`), and its exporter keeps these bytes where they are
        // until it is released, which dropping `self` does.
        unsafe { slice::from_raw_parts(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }

    #[expect(unsafe_code, reason = "the interpreter's memory, without its lock")]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        if self.0.readonly() || self.0.len_bytes() == 0 {
            return &mut [];
        }
        // SAFETY: as in `bytes`, and the exporter permits writing.
        unsafe { slice::from_raw_parts_mut(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}
