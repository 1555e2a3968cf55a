//! Devices and FIFOs that receive a file.

use std::{fs::File, io, sync::Arc};

/// Open character device or FIFO that receives a file.
#[derive(Debug, Clone)]
pub(crate) struct Outlet(Arc<File>);

impl Outlet {
    pub(super) fn of(file: File) -> Self {
        Self(Arc::new(file))
    }

    pub(super) fn file(&self) -> io::Result<File> {
        self.0.try_clone()
    }
}

/// Two outlets are equal if they are the same open file.
impl PartialEq for Outlet {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Outlet {}
