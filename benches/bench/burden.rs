//! Impairments of cables, hosts and processes, applied equally to nicstripe and iperf3.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use nicstripe_lab::{BitRate, CpuQuota, Direction, Host, Lab, LinkSpec};
use nicstripe_testkit::bench::{Process, Result};
use rustix::process::{Pid, Signal, kill_process};

/// Cables and impairments of one case. Data flows from host A to host B.
#[derive(Clone, Debug, Default)]
pub(crate) struct Burden {
    pub(crate) cables: Vec<LinkSpec>,
    /// Shared rate limit of the traffic to host B over all cables; `None` for no limit.
    pub(crate) bus: Option<BitRate>,
    /// Frame loss probability of each cable in the direction to host B, 0 to 1.
    pub(crate) loss: f64,
    /// Kernel parameters: host, name below `/proc/sys`, value.
    pub(crate) sysctls: Vec<(Host, &'static str, &'static str)>,
    /// Host whose programs are stopped (SIGSTOP) five sixths of the time; `None` to stop none.
    pub(crate) stopped: Option<Host>,
    /// CPU quota of the programs on host B, in thousandths of a core; `None` for no quota.
    pub(crate) millicores: Option<u32>,
}

impl Burden {
    pub(crate) fn of(cables: impl Into<Vec<LinkSpec>>) -> Self {
        Self {
            cables: cables.into(),
            ..Self::default()
        }
    }

    /// Builds a lab with the cables, kernel parameters, bus limit and loss of this case.
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

    /// Moves the `receivers` into a cgroup with the CPU quota. Dropping the returned value ends the
    /// limit. Returns `None` if the case has no quota.
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

    /// Runs `action` while the programs of the stopped host are stopped five sixths of the time.
    /// Stops no program if the case has no stopped host. `ends` are the processes of hosts A and B.
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

/// Alternates SIGCONT and SIGSTOP until `is_over` is set. The processes run on return.
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
        // Fails if the process has exited.
        let _ = kill_process(*pid, signal);
    }
}

/// Stopped time in each cycle. During the running time of 50 ms, a gigabit cable fills a buffer of
/// 6 MiB, and the window stays closed for the rest of the cycle. The sender's kernel counted 26 %
/// of the time as limited by the window with a stopped time of 150 ms. This is too close to the
/// threshold of 20 %. A silent session becomes suspect after 500 ms.
const STOPPED: Duration = Duration::from_millis(250);
const RUNNING: Duration = Duration::from_millis(50);
