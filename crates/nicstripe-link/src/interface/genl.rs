//! Requests to a family of generic netlink, such as `ethtool`.

use std::{io, sync::OnceLock};

use nicstripe_netlink::{Attributes, Message, Netlink, Request, text, u16_at};

/// Socket for the requests to one family, in the calling thread's network namespace.
pub(crate) struct Generic {
    netlink: Netlink,
    family: u16,
}

impl Generic {
    /// Opens a socket for a family that is built into the kernel.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the kernel has no such family.
    pub(crate) fn open(name: &str) -> io::Result<Self> {
        let mut netlink = Netlink::generic()?;
        let family = family(&mut netlink, name)?;
        Ok(Self { netlink, family })
    }

    /// Creates a request with a command of the family.
    pub(crate) fn request(&self, command: u8) -> Request {
        Request::new(self.family, &[command, FIRST_VERSION, 0, 0])
    }

    /// Queries one object. Passes the attributes of the answer to `parse`.
    pub(crate) fn query<T>(
        &mut self,
        request: &Request,
        parse: impl Fn(Attributes<'_>) -> Option<T>,
    ) -> io::Result<Option<T>> {
        self.netlink
            .query(request, |message| parse(attributes(message)?))
    }

    /// Returns the number of objects in a dump.
    pub(crate) fn count(&mut self, request: &Request) -> io::Result<usize> {
        let objects = self.netlink.dump(request, |_| Some(()))?;
        Ok(objects.len())
    }
}

/// Returns the ID of a family. The IDs of built-in families are constant while the kernel runs.
fn family(netlink: &mut Netlink, name: &str) -> io::Result<u16> {
    static FAMILIES: OnceLock<Vec<(String, u16)>> = OnceLock::new();
    let families = match FAMILIES.get() {
        Some(families) => families,
        None => {
            let families = families(netlink)?;
            FAMILIES.get_or_init(|| families)
        }
    };
    let found = families.iter().find(|(found, _)| found == name);
    Ok(found.ok_or(io::ErrorKind::Unsupported)?.1)
}

/// Lists the families with their IDs. A query by an unknown name would make the kernel run modprobe
/// and wait for it, so this is a dump.
fn families(netlink: &mut Netlink) -> io::Result<Vec<(String, u16)>> {
    let request = Request::new(GENL_ID_CTRL, &[CTRL_CMD_GETFAMILY, FIRST_VERSION, 0, 0]);
    netlink.dump(&request, |message| {
        let attributes = attributes(message)?;
        Some((
            text(attributes.find(CTRL_ATTR_FAMILY_NAME)?),
            u16_at(attributes.find(CTRL_ATTR_FAMILY_ID)?, 0)?,
        ))
    })
}

/// Returns the attributes of a generic netlink message.
pub(crate) fn attributes<'a>(message: &Message<'a>) -> Option<Attributes<'a>> {
    message
        .split(GENERIC_HEADER_LEN)
        .map(|(_, attributes)| attributes)
}

/// Flag of an attribute that contains others.
pub(crate) const NLA_F_NESTED: u16 = 0x8000;

// include/uapi/linux/genetlink.h
const GENERIC_HEADER_LEN: usize = 4;
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// Version of the messages of the families that this crate asks.
const FIRST_VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn the_kernel_has_a_family_for_itself_and_none_without_a_name() {
        let mut control = Generic::open("nlctrl").unwrap();
        assert_eq!(control.family, GENL_ID_CTRL);
        let request = control.request(CTRL_CMD_GETFAMILY);
        assert!(control.count(&request).unwrap() >= 1);
        assert_eq!(
            Generic::open("").map(|_| ()).unwrap_err().kind(),
            io::ErrorKind::Unsupported
        );
    }
}
