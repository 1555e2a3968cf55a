//! Other MTUs for our interfaces, for as long as a point is measured.

use std::time::Duration;

use nicstripe_link::interfaces;

use crate::{bench::report::BenchLink, client::Client, error::Error, link::RoutePolicy, path_routes::RouteKeeper};

/// Our interfaces of a bench's links, whose MTU may be changed. What they had is put back by [`Packets::restore`], and when it is dropped;
/// after a kill the keeper's helper does it.
#[derive(Debug)]
pub(super) struct Packets {
    keeper: RouteKeeper,
    /// With their names, and what they have of themselves.
    interfaces: Vec<(u32, String, u32)>,
}

impl Packets {
    /// Finds out whether we may; an answer in words where not. Nothing is changed.
    pub(super) async fn claim(client: &Client, links: &[BenchLink]) -> Result<Self, String> {
        let keeper = client.keeper().ok_or("this program keeps no records of what it changes")?;
        if keeper.policy() == RoutePolicy::Never {
            return Err("host routes are switched off, and changes of interfaces with them".into());
        }
        let here = interfaces().map_err(|error| crate::chain(&error))?;
        let mut found: Vec<(u32, String, u32)> = Vec::new();
        for name in links.iter().map(|link| &link.ends.client.name) {
            let interface = here.iter().find(|interface| interface.is_called(name)).ok_or_else(|| format!("{name} is gone"))?;
            if !found.iter().any(|(index, ..)| *index == interface.index.0) {
                found.push((interface.index.0, name.clone(), interface.mtu));
            }
        }
        let packets = Self { keeper, interfaces: found };
        // Whether we may is known when what is there is asked for.
        for (index, name, mtu) in &packets.interfaces {
            packets.keeper.set_mtu(*index, *mtu, LONGEST).await.map_err(|error| format!("{name}: {}", crate::chain(&error)))?;
        }
        packets.restore().await.map_err(|error| crate::chain(&error))?;
        Ok(packets)
    }

    /// Has no interface send larger packets than this: those that have larger ones of themselves get it, the others what they had.
    pub(super) async fn set(&self, mtu: u32) -> Result<(), Error> {
        for (index, name, own) in &self.interfaces {
            let set = match *own > mtu {
                true => self.keeper.set_mtu(*index, mtu, LONGEST).await.map(drop),
                false => self.keeper.restore_mtu(*index).await.map(drop),
            };
            set.map_err(|error| failed(name, &error))?;
        }
        Ok(())
    }

    /// Puts back what the interfaces had. All are tried; the first error is told.
    pub(super) async fn restore(&self) -> Result<(), Error> {
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
    Error::Link { link: name.to_owned(), why: crate::chain(error) }
}

/// When the helper puts back an MTU by itself: much later than a point takes.
const LONGEST: Duration = Duration::from_secs(120);
