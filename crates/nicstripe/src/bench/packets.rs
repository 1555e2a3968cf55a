//! Temporary MTUs of the local interfaces while a point of an MTU sweep is measured.

use std::time::Duration;

use nicstripe_link::interfaces;

use crate::{
    client::Client,
    links::{local, request::RoutePolicy, route_keeper::RouteKeeper},
    report::error::Error,
};

/// Local interfaces of a benchmark's links, whose MTU may be changed. [`restore`](nicstripe_bench::Packets::restore) and
/// drop restore the original values. After a kill, the helper process that changed them restores them.
#[derive(Debug)]
pub(super) struct Packets {
    keeper: RouteKeeper,
    /// Index, name and original MTU of each interface.
    interfaces: Vec<(u32, String, u32)>,
}

impl Packets {
    /// Checks the permission to change the MTUs of `names`, without changing them. Returns the
    /// reason as an error if the permission is missing.
    pub(super) async fn claim(client: &Client, names: Vec<String>) -> Result<Self, String> {
        let keeper = client.keeper().ok_or("no record of changes is kept")?;
        if keeper.policy() == RoutePolicy::Never {
            return Err("changes of interfaces are disabled together with host routes".into());
        }
        let interfaces = interfaces().map_err(|error| crate::text::chain(&error))?;
        let mut found: Vec<(u32, String, u32)> = Vec::new();
        for name in names {
            let interface =
                local::find(&interfaces, &name).ok_or_else(|| format!("{name} is gone"))?;
            if !found.iter().any(|(index, ..)| *index == interface.index.0) {
                found.push((interface.index.0, name, interface.mtu));
            }
        }
        let packets = Self {
            keeper,
            interfaces: found,
        };
        // Setting the current value shows if it is permitted.
        for (index, name, mtu) in &packets.interfaces {
            packets
                .keeper
                .set_mtu(*index, *mtu, LONGEST)
                .await
                .map_err(|error| format!("{name}: {}", crate::text::chain(&error)))?;
        }
        nicstripe_bench::Packets::restore(&packets)
            .await
            .map_err(|error| crate::text::chain(&error))?;
        Ok(packets)
    }
}

impl nicstripe_bench::Packets for Packets {
    type Error = Error;

    /// Caps the MTU of all interfaces at `mtu` bytes: lowers larger ones and restores the others to
    /// their original value.
    async fn set(&self, mtu: u32) -> Result<(), Error> {
        for (index, name, own) in &self.interfaces {
            let set = match *own > mtu {
                true => self.keeper.set_mtu(*index, mtu, LONGEST).await.map(drop),
                false => self.keeper.restore_mtu(*index).await.map(drop),
            };
            set.map_err(|error| failed(name, &error))?;
        }
        Ok(())
    }

    /// Restores the original MTU of all interfaces; returns the first error.
    async fn restore(&self) -> Result<(), Error> {
        let mut first = Ok(());
        for (index, name, _) in &self.interfaces {
            if let Err(error) = self.keeper.restore_mtu(*index).await {
                first = first.and(Err(failed(name, &error)));
            }
        }
        first
    }
}

fn failed(name: &str, error: &nicstripe_link::MtuError) -> Error {
    Error::link(name, crate::text::chain(error))
}

/// Time after which the helper process restores an MTU without a request. Much longer than a point
/// takes.
const LONGEST: Duration = Duration::from_secs(120);
