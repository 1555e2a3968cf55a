//! Impairments of the hosts or of one end of a load, for nicstripe and iperf3 alike.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use nicstripe_lab::{BitRate, CpuQuota, Direction, Host, Lab, LinkSpec};
use rustix::process::{Pid, Signal, kill_process};

use crate::bench_support::{Process, Result};

/// Cables and impairments. Data flows from host A to host B.
#[derive(Clone, Debug, Default)]
pub(crate) struct Burden {
    pub(crate) cables: Vec<LinkSpec>,
    /// Rate limit of all traffic to B over all cables.
    pub(crate) bus: Option<BitRate>,
    /// Share of frames to B that each cable drops.
    pub(crate) loss: f64,
    /// Host, name, value.
    pub(crate) sysctls: Vec<(Host, &'static str, &'static str)>,
    /// End that is stopped most of the time.
    pub(crate) stopped: Option<Host>,
    /// CPU quota of host B's program, in thousandths of a core.
    pub(crate) millicores: Option<u32>,
}

impl Burden {
    pub(crate) fn of(cables: impl Into<Vec<LinkSpec>>) -> Self {
        Self {
            cables: cables.into(),
            ..Self::default()
        }
    }

    /// Builds hosts and cables.
    pub(crate) fn lab(&self) -> Result<Lab> {
        let lab = Lab::builder().links(self.cables.iter().copied());
        let lab = self.sysctls.iter().fold(lab, |lab, (host, name, value)| {
            lab.sysctl(*host, *name, *value)
        });
        let lab = lab.build()?;
        let links: Vec<usize> = (0..self.cables.len()).collect();
        if let Some(rate) = self.bus {
            lab.share_bus(Host::B, &links, rate)?;
        }
        if self.loss > 0.0 {
            links
                .iter()
                .try_for_each(|link| lab.lose(*link, Direction::AToB, self.loss))?;
        }
        Ok(lab)
    }

    /// Limits the CPU of programs on host B, until the quota is dropped.
    pub(crate) fn ration(&self, receivers: &[&Process]) -> Result<Option<CpuQuota>> {
        let Some(millicores) = self.millicores else {
            return Ok(None);
        };
        let quota = CpuQuota::new(millicores)?;
        for receiver in receivers {
            quota.take(receiver.pid().as_raw_nonzero().get().cast_unsigned())?;
        }
        Ok(Some(quota))
    }

    /// Runs an action, and stops one end most of the time if that is part of the burden.
    pub(crate) fn while_stopped<T>(
        &self,
        ends: [&[&Process]; 2],
        action: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let pids: Vec<Pid> = match self.stopped {
            None => return action(),
            Some(host) => ends[host as usize]
                .iter()
                .map(|process| process.pid())
                .collect(),
        };
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| stop_and_go(&pids, &is_over));
            let outcome = action();
            is_over.store(true, Ordering::Relaxed);
            outcome
        })
    }
}

/// Stops and continues processes repeatedly; they run on return.
fn stop_and_go(pids: &[Pid], is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        for (signal, time) in [(Signal::CONT, RUNNING), (Signal::STOP, STOPPED)] {
            send(pids, signal);
            thread::sleep(time);
        }
    }
    send(pids, Signal::CONT);
}

fn send(pids: &[Pid], signal: Signal) {
    for pid in pids {
        // Fails if the process has ended.
        let _ = kill_process(*pid, signal);
    }
}

/// In 50 ms a gigabit cable fills a buffer of 6 MiB, and the window stays closed for the rest of
/// the time. With 150 ms the sender's kernel counted 26 % of the time as limited by the window, too
/// close to the threshold of 20 %. A silent session becomes suspect after 500 ms.
const STOPPED: Duration = Duration::from_millis(250);
const RUNNING: Duration = Duration::from_millis(50);
