//! Pointers from C as references and slices. All unsafe code of the crate is here.
//!
//! Only C makes the pointers in these types, so their contract is that of the header: a pointer is
//! NULL or valid for the call, and no thread writes to its target during the call. References to
//! handles and outputs need no code, because `Option<&T>` and `Option<Box<T>>` have the layout of a
//! pointer that may be NULL.

use std::{
    ffi::{CStr, CString, OsStr, c_char, c_void},
    mem::MaybeUninit,
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
    ptr,
};

use library::Name;

use crate::{
    error::{Failure, nicstripe_error},
    options::{nicstripe_connect_options, nicstripe_copy_options},
};

/// Pointer of an argument where a function leaves its error; may be NULL.
pub type ErrorOut<'a> = Option<&'a mut MaybeUninit<Option<Box<nicstripe_error>>>>;

/// Argument that is NUL-terminated bytes.
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// Returns the bytes without NUL, or `None` if the pointer is NULL.
    pub(crate) fn optional(&self) -> Option<&[u8]> {
        // SAFETY: the header requires NUL-terminated bytes that live as long as the call, and with it
        // `self`.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }

    /// Returns the bytes without NUL.
    pub(crate) fn bytes(&self, argument: &str) -> Result<&[u8], Failure> {
        self.optional().ok_or_else(|| Failure::null(argument))
    }

    /// Returns a name at the daemon.
    pub(crate) fn name(&self, argument: &str) -> Result<Name, Failure> {
        Ok(Name::parse(self.bytes(argument)?)?)
    }

    /// Returns a name at the daemon; `None` for NULL, which stands for the root.
    pub(crate) fn optional_name(&self) -> Result<Option<Name>, Failure> {
        Ok(self.optional().map(Name::parse).transpose()?)
    }

    /// Returns a path on this machine.
    pub(crate) fn path(&self, argument: &str) -> Result<PathBuf, Failure> {
        Ok(path(self.bytes(argument)?))
    }

    /// Returns text, such as a host name, that must be UTF-8.
    pub(crate) fn utf8(&self, argument: &str) -> Result<&str, Failure> {
        utf8(self.bytes(argument)?, argument)
    }
}

/// Argument that is an array of NUL-terminated bytes.
#[repr(transparent)]
pub struct Texts(*const Text);

impl Texts {
    /// Returns the elements as bytes.
    pub(crate) fn all(&self, count: usize, argument: &str) -> Result<Vec<&[u8]>, Failure> {
        // SAFETY: the header requires `count` pointers, and `Text` has the layout of one.
        let texts = unsafe { slice(self.0, count, argument) }?;
        texts.iter().map(|text| text.bytes(argument)).collect()
    }
}

/// Argument that is bytes to be read.
#[repr(transparent)]
pub struct Bytes(*const c_void);

impl Bytes {
    /// Returns the bytes; NULL stands for none if `len` is 0.
    pub(crate) fn all(&self, len: usize, argument: &str) -> Result<&[u8], Failure> {
        // SAFETY: the header requires `len` readable bytes.
        unsafe { slice(self.0.cast(), len, argument) }
    }
}

/// Argument that is a buffer to be filled.
#[repr(transparent)]
pub struct Buffer(*mut c_void);

impl Buffer {
    /// Returns the buffer; NULL stands for an empty one if `len` is 0.
    pub(crate) fn all(&mut self, len: usize, argument: &str) -> Result<&mut [u8], Failure> {
        check(self.0, len, argument)?;
        Ok(match len {
            0 => &mut [],
            // SAFETY: the header requires `len` writable bytes that no other thread uses. They may be
            // uninitialised: the library only writes to them.
            len => unsafe { std::slice::from_raw_parts_mut(self.0.cast(), len) },
        })
    }
}

/// Returns `count` values.
///
/// # Safety
///
/// `first` is NULL, or points to `count` values that live as long as `'a`.
unsafe fn slice<'a, T>(first: *const T, count: usize, argument: &str) -> Result<&'a [T], Failure> {
    check(first, count.saturating_mul(size_of::<T>()), argument)?;
    Ok(match count {
        0 => &[],
        // SAFETY: that of this function; `check` has excluded NULL and lengths over `isize::MAX`.
        count => unsafe { std::slice::from_raw_parts(first, count) },
    })
}

fn check<T>(first: *const T, bytes: usize, argument: &str) -> Result<(), Failure> {
    if bytes > 0 && first.is_null() {
        return Err(Failure::null(argument));
    }
    if isize::try_from(bytes).is_err() {
        return Err(Failure::argument(format!(
            "{argument}: {bytes} bytes exceed the address space"
        )));
    }
    if !first.is_aligned() {
        return Err(Failure::argument(format!("{argument}: not aligned")));
    }
    Ok(())
}

/// Argument with options of a copy; NULL for the defaults.
#[repr(transparent)]
pub struct CopyOptionsIn(*const nicstripe_copy_options);

impl CopyOptionsIn {
    pub(crate) fn read(&self) -> Result<nicstripe_copy_options, Failure> {
        // SAFETY: zeros are the defaults of each field: NULL, 0 and no flags.
        let defaults = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: the header requires a struct whose first field is its size in bytes. Each field
        // may have any bits.
        unsafe { read_sized(self.0, defaults) }
    }
}

/// Argument with options of a connection; NULL for the defaults.
#[repr(transparent)]
pub struct ConnectOptionsIn(*const nicstripe_connect_options);

impl ConnectOptionsIn {
    pub(crate) fn read(&self) -> Result<nicstripe_connect_options, Failure> {
        // SAFETY: as in `CopyOptionsIn::read`.
        let defaults = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: as in `CopyOptionsIn::read`.
        unsafe { read_sized(self.0, defaults) }
    }
}

/// Reads a struct of an older or a newer header. Fields that the caller does not know keep their
/// default; those that this library does not know must be 0.
///
/// # Safety
///
/// `from` is NULL, or points to a struct whose first field, a `usize`, is its size in bytes. Each
/// field of `T` may have any bits.
unsafe fn read_sized<T>(from: *const T, mut into: T) -> Result<T, Failure> {
    if from.is_null() {
        return Ok(into);
    }
    // SAFETY: the first field is there, whatever the size.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    if !(size_of::<usize>()..=MOST_OPTIONS).contains(&size) {
        return Err(Failure::argument(format!(
            "options: size {size}, expected sizeof the struct"
        )));
    }
    // SAFETY: the caller's struct has `size` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size) };
    let known = bytes.len().min(size_of::<T>());
    if bytes[known..].iter().any(|byte| *byte != 0) {
        return Err(Failure::argument(
            "options: a field is set that this library does not have".to_owned(),
        ));
    }
    // SAFETY: `known` bytes fit into both structs, which do not overlap.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut into).cast(), known) };
    Ok(into)
}

/// Maximum size of an options struct in bytes; a larger one is taken for an uninitialised one.
const MOST_OPTIONS: usize = 4096;

/// NUL-terminated text that a struct of the library owns.
#[repr(transparent)]
pub struct OwnedText(*const c_char);

impl OwnedText {
    /// Copies bytes up to the first NUL.
    pub(crate) fn new(bytes: impl Into<Vec<u8>>) -> Self {
        let mut bytes: Vec<u8> = bytes.into();
        bytes.truncate(bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len()));
        Self(CString::new(bytes).unwrap_or_default().into_raw())
    }

    /// Returns the text for a struct that lives at most as long as this value.
    pub(crate) fn as_ptr(&self) -> *const c_char {
        self.0
    }
}

impl Drop for OwnedText {
    fn drop(&mut self) {
        // SAFETY: `new` made the pointer with `CString::into_raw`, and the header forbids writes.
        drop(unsafe { CString::from_raw(self.0.cast_mut()) });
    }
}

// SAFETY: the value owns its text, and nothing changes it.
unsafe impl Send for OwnedText {}
// SAFETY: as for `Send`.
unsafe impl Sync for OwnedText {}

/// Bytes that a struct of the library owns. A NUL follows them.
#[repr(C)]
pub struct OwnedBytes {
    /// The bytes; never NULL.
    pub bytes: *const u8,
    /// Number of bytes without the NUL.
    pub len: usize,
}

impl OwnedBytes {
    pub(crate) fn new(mut bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        bytes.push(0);
        let bytes = Box::into_raw(bytes.into_boxed_slice()).cast();
        Self { bytes, len }
    }
}

impl Drop for OwnedBytes {
    fn drop(&mut self) {
        let bytes = ptr::slice_from_raw_parts_mut(self.bytes.cast_mut(), self.len + 1);
        // SAFETY: `new` made the box with one byte more than `len`, and the header forbids writes.
        drop(unsafe { Box::from_raw(bytes) });
    }
}

pub(crate) fn path(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}

pub(crate) fn utf8<'a>(bytes: &'a [u8], argument: &str) -> Result<&'a str, Failure> {
    let text = std::str::from_utf8(bytes);
    text.map_err(|_| Failure::argument(format!("{argument}: not UTF-8")))
}
