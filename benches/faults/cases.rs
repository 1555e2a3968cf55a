//! Faults and thresholds of each case.

use std::{thread, time::Duration};

use nicstripe_lab::{BitRate, Direction, Host, Lab, MemoryLimit, can_corrupt};
use nicstripe_testkit::bench::{Cables, Peak, Place, Result, Sample, Scene, Spread, Way};
use rustix::process::Signal;

use crate::{
    disk::Disk,
    play::{Play, Played, Start},
    strangers::{Strangers, small_copy},
};

/// Fault injected into a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Case {
    None,
    Cut,
    Silent,
    OnewayThere,
    OnewayBack,
    Loss,
    Heal,
    Flap,
    Slow,
    Corrupt,
    RebootDaemon,
    RebootClient,
    StopDaemon,
    StopClient,
    Dark,
    Stall,
    Narrow,
    Crossed,
    Opposite,
    Strangers,
}

/// Measured value other than the time, and its threshold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Also {
    pub(crate) of_it: &'static str,
    pub(crate) decimals: usize,
    bar: f64,
    /// True if `bar` is a minimum, false if it is a maximum.
    least: bool,
}

impl Also {
    pub(crate) fn is_met_by(self, value: f64) -> bool {
        if self.least {
            value >= self.bar
        } else {
            value <= self.bar
        }
    }

    pub(crate) fn bar(self) -> String {
        format!("{} {}", if self.least { "≥" } else { "≤" }, self.bar)
    }
}

/// Result of one copy under a fault.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Time in seconds by which the copy exceeded the ideal time.
    pub(crate) over_ideal: f64,
    /// Values other than the time, in the order of [`Case::also`].
    pub(crate) also: Vec<f64>,
    pub(crate) failovers: u64,
    /// Peak memory of the client and the daemon.
    pub(crate) peaks: [Peak; 2],
}

impl Case {
    pub(crate) const ALL: [Self; 20] = [
        Self::None,
        Self::Cut,
        Self::Silent,
        Self::OnewayThere,
        Self::OnewayBack,
        Self::Loss,
        Self::Heal,
        Self::Flap,
        Self::Slow,
        Self::Corrupt,
        Self::RebootDaemon,
        Self::RebootClient,
        Self::StopDaemon,
        Self::StopClient,
        Self::Dark,
        Self::Stall,
        Self::Narrow,
        Self::Crossed,
        Self::Opposite,
        Self::Strangers,
    ];

    /// Returns the name of the case on the command line (`--case`).
    pub(crate) fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self)
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns the reason why the case cannot run on this machine; `None` if it can.
    pub(crate) fn obstacle(self) -> Option<String> {
        match self {
            Self::Corrupt => can_corrupt().err().map(|error| nicstripe::chain(&error)),
            Self::Stall => Disk::obstacle(),
            Self::Narrow => MemoryLimit::new(NARROW)
                .err()
                .map(|error| nicstripe::chain(&error)),
            _ => None,
        }
    }

    /// Returns the maximum time above ideal in seconds; `None` if the case has no threshold.
    pub(crate) fn over_bar(self) -> Option<f64> {
        match self {
            Self::Cut | Self::Flap | Self::Slow => Some(0.5),
            Self::Silent | Self::OnewayThere | Self::OnewayBack => Some(1.5),
            Self::Dark | Self::Crossed | Self::Opposite => Some(2.0),
            _ => None,
        }
    }

    pub(crate) fn also(self) -> &'static [Also] {
        match self {
            Self::Loss => &[Also {
                of_it: "% of the sum",
                decimals: 1,
                bar: 98.0,
                least: true,
            }],
            Self::Heal => &[
                Also {
                    of_it: "s from heal to data",
                    decimals: 2,
                    bar: 2.0,
                    least: false,
                },
                Also {
                    of_it: "% dip of other",
                    decimals: 1,
                    bar: 5.0,
                    least: false,
                },
            ],
            Self::Corrupt => &[Also {
                of_it: "total corruptions",
                decimals: 0,
                bar: CORRUPTIONS as f64,
                least: true,
            }],
            Self::Stall => &[Also {
                of_it: "s from thaw to full rate",
                decimals: 2,
                bar: 1.0,
                least: false,
            }],
            Self::Strangers => &[
                Also {
                    of_it: "% of the sum",
                    decimals: 1,
                    bar: 95.0,
                    least: true,
                },
                Also {
                    of_it: "s of a new client",
                    decimals: 3,
                    bar: 1.0,
                    least: false,
                },
            ],
            Self::Narrow => &[Also {
                of_it: "MiB with page cache",
                decimals: 0,
                bar: 128.0,
                least: false,
            }],
            _ => &[],
        }
    }

    /// Returns the maximum resident memory of the client or the daemon in MiB.
    pub(crate) fn memory_bar(self) -> f64 {
        32.0 + 8.0 * self.cables().count() as f64
    }

    fn cables(self) -> Cables {
        let count = if self == Self::Narrow { 4 } else { 2 };
        Cables::of(
            count.to_string(),
            vec![nicstripe_lab::LinkSpec::gigabit(); count],
        )
    }

    /// Returns the file size of the case in bytes: twice `--size` for `heal` and `crossed`.
    fn size(self, size: u64) -> u64 {
        if matches!(self, Self::Heal | Self::Crossed) {
            2 * size
        } else {
            size
        }
    }

    /// Injects the fault into a running copy, and waits until the copy is complete.
    fn play(self, mut play: Play<'_>, way: Way, disk: Option<&Disk>) -> Result<Outcome> {
        let lab = &play.scene.lab;
        // Answers flow in the opposite direction of the data.
        let [data, answers] = match way {
            Way::Put => [Direction::AToB, Direction::BToA],
            Way::Get => [Direction::BToA, Direction::AToB],
        };
        match self {
            Self::None | Self::Narrow | Self::Corrupt => {
                play.rest_on(play.scene.cables.count() as f64);
            }
            Self::Loss => play.rest_on(2.0),
            Self::Cut => at_half(&mut play, |play| Ok(play.scene.lab.cut(1)?), 1.0)?,
            Self::Silent => at_half(
                &mut play,
                |play| Ok(play.scene.lab.drop_silently(1, Direction::Both)?),
                1.0,
            )?,
            Self::OnewayThere => at_half(
                &mut play,
                |play| Ok(play.scene.lab.drop_silently(1, data)?),
                1.0,
            )?,
            Self::OnewayBack => at_half(
                &mut play,
                |play| Ok(play.scene.lab.drop_silently(1, answers)?),
                1.0,
            )?,
            Self::Slow => at_half(
                &mut play,
                |play| Ok(play.scene.lab.set_rate(1, BitRate::mbit(10))?),
                1.01,
            )?,
            Self::Heal => return heal(play),
            Self::Flap => {
                play.until_share(0.2)?;
                play.rest_on(1.0);
                let mut ended = false;
                for plugged in [false, true].into_iter().cycle() {
                    if ended {
                        break;
                    }
                    if plugged { lab.heal(1) } else { lab.cut(1) }?;
                    ended = play.watch_for(Duration::from_secs(1))?;
                }
            }
            Self::RebootDaemon => reboot(&mut play, 1)?,
            Self::RebootClient => reboot(&mut play, 0)?,
            Self::StopDaemon => stop(&mut play, 1)?,
            Self::StopClient => stop(&mut play, 0)?,
            Self::Dark => {
                play.until_share(0.5)?;
                (0..2).try_for_each(|link| lab.cut(link))?;
                if play.watch_for(DARK)? {
                    return Err("ended without a cable".into());
                }
                (0..2).try_for_each(|link| lab.heal(link))?;
                play.rest_on(2.0);
            }
            Self::Opposite => at_half(&mut play, lose_opposite_ends, 1.0)?,
            Self::Crossed => {
                play.until_share(0.1)?;
                lose_opposite_ends(&play)?;
                play.watch_for(PAIRING)?;
                // The replugged interface pairs with an interface that remained.
                OPPOSITE_ENDS
                    .iter()
                    .try_for_each(|&(host, link)| lab.set_plugged_at(host, link, true))?;
                play.watch_for(PAIRING)?;
                at_half(&mut play, |play| Ok(play.scene.lab.cut(0)?), 1.0)?;
            }
            Self::Stall => return stall(play, way, disk.ok_or("no disk")?),
            Self::Strangers => {
                let _strangers = Strangers::begin(play.scene)?;
                play.rest_on(2.0);
                play.until_share(0.6)?;
                let new_client = small_copy(play.scene)?.as_secs_f64();
                let (size, sum) = (play.scene.sample.size, play.scene.cables.theory());
                let played = play.end()?;
                let rate = size as f64 * 8.0 / played.wall.as_secs_f64();
                let share = 100.0 * rate / sum.unwrap_or(f64::NAN);
                return Ok(Outcome::of(&played, vec![share, new_client]));
            }
        }
        let size = play.scene.sample.size;
        let sum = play.scene.cables.theory().unwrap_or(f64::NAN);
        let played = play.end()?;
        let share = 100.0 * size as f64 * 8.0 / played.wall.as_secs_f64() / sum;
        Ok(Outcome::of(
            &played,
            if self == Self::Loss {
                vec![share]
            } else {
                Vec::new()
            },
        ))
    }
}

impl Outcome {
    fn of(played: &Played, also: Vec<f64>) -> Self {
        Self {
            over_ideal: played.over_ideal(),
            also,
            failovers: played.report.failovers.unwrap_or(0),
            peaks: played.peaks,
        }
    }
}

/// Measures a case `runs` times in one direction. The case `corrupt` continues until
/// [`CORRUPTIONS`] frames have been corrupted.
pub(crate) fn run(
    case: Case,
    way: Way,
    size: u64,
    runs: u32,
    options: &[String],
) -> Result<Vec<Outcome>> {
    let size = case.size(size);
    let place = if case == Case::Narrow {
        Place::on_disk(None, 2 * size)?
    } else {
        Place::in_memory(3 * size)?
    };
    let mut sample = place.sample(size)?;
    let mut outcomes: Vec<Outcome> = Vec::new();
    let corruptions = |outcomes: &[Outcome]| {
        outcomes
            .iter()
            .flat_map(|outcome| &outcome.also)
            .sum::<f64>()
    };
    while outcomes.len() < runs as usize
        || (case == Case::Corrupt && corruptions(&outcomes) < CORRUPTIONS as f64)
    {
        let outcome = once(case, way, &place, &mut sample, options)?;
        eprintln!(
            "{}, {}: {:.2} s over ideal, also {:.2?}",
            case.name(),
            way.name(),
            outcome.over_ideal,
            outcome.also
        );
        outcomes.push(outcome);
    }
    if case == Case::Corrupt {
        let all = corruptions(&outcomes);
        outcomes
            .iter_mut()
            .for_each(|outcome| outcome.also = vec![all]);
    }
    Ok(outcomes)
}

fn once(
    case: Case,
    way: Way,
    place: &Place,
    sample: &mut Sample,
    options: &[String],
) -> Result<Outcome> {
    let cables = case.cables();
    let mut options = options.to_vec();
    let lab = Lab::builder().links(cables.specs.iter().copied());
    let lab = if matches!(case, Case::Crossed | Case::Opposite) {
        lab.one_subnet()
    } else {
        lab
    };
    let scene = Scene::in_lab(lab, &cables, place, sample, way.from())?;
    // Must come after the scene, which recreates the folder.
    let disk = match case {
        Case::Stall => Some(Disk::over(
            &place.files(scene.to()),
            place,
            scene.sample.size,
        )?),
        _ => None,
    };
    let groups = if case == Case::Narrow {
        Some([MemoryLimit::new(NARROW)?, MemoryLimit::new(NARROW)?])
    } else {
        None
    };
    match case {
        Case::Loss => scene.lab.lose(1, Direction::Both, 0.005)?,
        Case::Corrupt => options.push("--streams=8".to_owned()),
        _ => {}
    }
    let start = Start {
        options: &options,
        groups: groups.as_ref(),
    };
    let _ballast = place.ballast(scene.sample.size)?;
    let mut play = Play::begin(&scene, start)?;
    if case == Case::Corrupt {
        play.until_share(0.02)?;
        (0..2).try_for_each(|link| scene.lab.corrupt(link, Direction::Both, CORRUPTED))?;
    }
    let mut outcome = case.play(play, way, disk.as_ref())?;
    if case == Case::Corrupt {
        let corrupted = (0..2)
            .map(|link| scene.lab.corrupted(link))
            .sum::<std::result::Result<u64, _>>()?;
        outcome.also = vec![corrupted as f64];
    }
    if let Some(groups) = &groups {
        let peak = (groups.iter())
            .filter_map(MemoryLimit::peak)
            .max()
            .ok_or("no peak of a memory cgroup")?;
        outcome.also = vec![peak as f64 / f64::from(1 << 20)];
    }
    Ok(outcome)
}

/// Runs `action` when half of the file has arrived. The ideal time assumes that the rest uses
/// `cables` cables.
fn at_half(
    play: &mut Play<'_>,
    action: impl FnOnce(&Play<'_>) -> Result<()>,
    cables: f64,
) -> Result<()> {
    play.until_share(0.5)?;
    action(play)?;
    play.rest_on(cables);
    Ok(())
}

/// Unplugs [`OPPOSITE_ENDS`], so that each machine has one working interface. The two interfaces
/// are on different cables.
fn lose_opposite_ends(play: &Play<'_>) -> Result<()> {
    Ok(OPPOSITE_ENDS
        .iter()
        .try_for_each(|&(host, link)| play.scene.lab.set_plugged_at(host, link, false))?)
}

/// Cuts a cable for 2 s. Measures the time until the cable carries data again, and the other
/// cable's dip.
fn heal(mut play: Play<'_>) -> Result<Outcome> {
    play.until_share(0.3)?;
    let cut = play.now();
    play.scene.lab.cut(1)?;
    play.watch_for(Duration::from_secs(2))?;
    let before = play.received(1);
    let healed = play.now();
    play.scene.lab.heal(1)?;
    play.until("data flowed on the healed cable", |play| {
        play.received(1) >= before + DATA
    })?;
    let took = (play.now() - healed).as_secs_f64();
    play.rest_on(2.0);
    let played = play.end()?;
    let rates = played.rates(0, Duration::from_secs(1));
    let within = |from: Duration, to: Duration| {
        rates
            .iter()
            .filter(move |(at, _)| (from..to).contains(at))
            .map(|(_, rate)| *rate)
    };
    let steady: Vec<f64> = within(Duration::from_millis(1300), cut).collect();
    let least = within(cut, healed + Duration::from_secs(3)).fold(f64::INFINITY, f64::min);
    let dip = 1.0 - least / Spread::of(&steady, |rate| *rate).median();
    eprintln!(
        "data on the healed cable after {took:.3} s; the other dipped by {:.1} %",
        100.0 * dip
    );
    Ok(Outcome::of(&played, vec![took, 100.0 * dip]))
}

/// Simulates a reboot at half of the file: drops all traffic, kills the process with SIGKILL, and
/// restarts the process 3 s later.
fn reboot(play: &mut Play<'_>, end: usize) -> Result<()> {
    play.until_share(0.5)?;
    let lab = &play.scene.lab;
    (0..2).try_for_each(|link| lab.drop_silently(link, Direction::Both))?;
    play.kill(end)?;
    if play.scene.received()?.exists() {
        return Err("the final name exists before the copy is complete".into());
    }
    thread::sleep(SWITCHED_OFF);
    (0..2).try_for_each(|link| lab.pass(link))?;
    play.start_again(end)?;
    play.rest_on(2.0);
    Ok(())
}

fn stop(play: &mut Play<'_>, end: usize) -> Result<()> {
    play.until_share(0.5)?;
    play.signal(end, Signal::STOP)?;
    play.watch_for(STOPPED)?;
    play.signal(end, Signal::CONT)?;
    play.rest_on(2.0);
    Ok(())
}

/// Freezes the receiver's disk for 30 s. Measures the time from the thaw to the full rate.
///
/// # Errors
///
/// A connection is abandoned, or memory grows by more than [`GROWTH`].
fn stall(mut play: Play<'_>, way: Way, disk: &Disk) -> Result<Outcome> {
    let receiver = match way {
        Way::Put => 1,
        Way::Get => 0,
    };
    play.until_share(0.3)?;
    let mut freezer = disk.freeze(STALL)?;
    play.watch_for(STALL / 6)?;
    let full = play.peak(receiver);
    while freezer.try_wait()?.is_none() {
        play.look()?;
    }
    let thawed = play.now();
    let grown = play.peak(receiver).saturating_sub(full);
    play.rest_on(2.0);
    let theory = play.scene.cables.theory().unwrap_or(f64::NAN) / 8.0;
    let played = play.end()?;
    if played.report.failovers != Some(0) {
        return Err(format!("a stall failed a cable: {:?}", played.report).into());
    }
    if grown > GROWTH {
        return Err(format!("memory grew by {grown} bytes in a stall").into());
    }
    let window = Duration::from_millis(250);
    let rates = [0, 1].map(|link| played.rates(link, window));
    let sums = rates[0]
        .iter()
        .zip(&rates[1])
        .map(|((at, one), (_, other))| (*at, one + other));
    let full_rate = sums
        .filter(|(at, _)| *at >= thawed + window)
        .find(|(_, rate)| *rate >= 0.9 * theory);
    let took = full_rate.map_or(f64::INFINITY, |(at, _)| {
        (at - window).saturating_sub(thawed).as_secs_f64()
    });
    Ok(Outcome::of(&played, vec![took]))
}

/// Number of corrupted frames required for the case `corrupt`.
const CORRUPTIONS: u64 = 1000;
/// Probability of corruption of a long frame: one in 50. Each long frame is a superpacket of up to
/// 64 KiB.
const CORRUPTED: f64 = 0.02;

/// Interfaces to unplug, by host and index: the second one of A and the first one of B.
const OPPOSITE_ENDS: [(Host, usize); 2] = [(Host::A, 1), (Host::B, 0)];

/// Time for nicstripe to pair the interfaces that remain.
const PAIRING: Duration = Duration::from_secs(2);

const DARK: Duration = Duration::from_secs(60);
const STOPPED: Duration = Duration::from_secs(5);
const SWITCHED_OFF: Duration = Duration::from_secs(3);
const STALL: Duration = Duration::from_secs(30);

/// Permitted growth of the resident memory during a stall, in bytes: allocators and the kernel
/// round up.
const GROWTH: u64 = 1 << 20;

/// Memory limit of the client and of the daemon in the case `narrow`, in bytes.
const NARROW: u64 = 128 << 20;

/// Number of received bytes from which a cable counts as carrying data. Handshakes are shorter.
const DATA: u64 = 1 << 20;
