//! MTU changes that the helper makes for its caller, and restores when they expire, on request, or
//! when the helper ends.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    helper::rights::may_change_mtus,
    interface::InterfaceIndex,
    mtu::{MtuError, manager::Mtus},
    routes::MAX_ROUTES,
};

pub(crate) struct HeldMtus<'d> {
    state_dir: &'d Path,
    /// Indexes of the changed interfaces, at most [`MAX_ROUTES`], each with the time at which its
    /// MTU is restored.
    held: Vec<(InterfaceIndex, Instant)>,
    is_ending: bool,
}

impl<'d> HeldMtus<'d> {
    pub(crate) fn new(state_dir: &'d Path) -> Self {
        Self {
            state_dir,
            held: Vec::new(),
            is_ending: false,
        }
    }

    /// Changes the MTU of an interface for `seconds`, and returns the original MTU. A repeated
    /// change restarts the timer.
    pub(crate) fn set(
        &mut self,
        interface: InterfaceIndex,
        mtu: u32,
        seconds: u32,
    ) -> Result<u32, MtuError> {
        if self.is_ending {
            return Err(MtuError::Ending(interface));
        }
        if !may_change_mtus() {
            return Err(MtuError::NotPermitted(interface));
        }
        let is_new = !self.held.iter().any(|(held, _)| *held == interface);
        if is_new && self.held.len() >= MAX_ROUTES {
            return Err(MtuError::TooMany(interface));
        }
        let was = Mtus::open(self.state_dir)?.set(interface, mtu)?;
        self.held.retain(|(held, _)| *held != interface);
        self.held.push((
            interface,
            Instant::now() + Duration::from_secs(seconds.into()),
        ));
        Ok(was)
    }

    /// Restores the MTU of one interface; returns true if that changed it.
    pub(crate) fn restore(&mut self, interface: InterfaceIndex) -> Result<bool, MtuError> {
        let Some(position) = self.held.iter().position(|(held, _)| *held == interface) else {
            return Ok(false);
        };
        let changed = Mtus::open(self.state_dir)?.restore(interface)?;
        self.held.remove(position);
        Ok(changed)
    }

    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.held.iter().map(|(_, end)| *end).min()
    }

    /// Restores the MTUs whose time has expired. Retries a failed restore one second later.
    pub(crate) fn release_expired(&mut self) {
        let now = Instant::now();
        let expired: Vec<_> = self
            .held
            .iter()
            .filter(|(_, end)| *end <= now)
            .map(|(interface, _)| *interface)
            .collect();
        for interface in expired {
            if self.restore(interface).is_err() {
                self.held
                    .iter_mut()
                    .filter(|(held, _)| *held == interface)
                    .for_each(|(_, end)| *end = now + AGAIN);
            }
        }
    }

    /// Restores all MTUs and rejects further changes. A failed restore is retried one second later,
    /// or by the next nicstripe process at its start if the helper has ended.
    pub(crate) fn end(&mut self) {
        self.is_ending = true;
        self.held
            .iter_mut()
            .for_each(|(_, end)| *end = Instant::now());
        self.release_expired();
    }

    /// Restores the MTUs that dead processes changed. Ignores errors: the next change reports them.
    pub(crate) fn clean(&self) {
        let _ = Mtus::open(self.state_dir).and_then(|mtus| mtus.clean());
    }
}

/// Delay before a failed restore is retried (picked by eye).
const AGAIN: Duration = Duration::from_secs(1);
