//! Faults that strike running commands at random moments.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nicstripe_lab::{Host, Lab};
use nicstripe_sim::Rng;
use nicstripe_testkit::{
    bench::{Cables, Place, Process, Result, Sample, Table, as_nicstripe, serve_in},
    program,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::{Arguments, Case, place};

/// Strikes `--attempts` commands by each fault, and returns the table of their ends.
pub(crate) fn bench(arguments: &Arguments, cases: &[Case]) -> Result<Table> {
    let place = place(3 * TOGETHER as u64 * SIZE)?;
    let sample = Sample::incompressible(place.files(Host::A).join("sample.bin"), SIZE)?;
    let mut table = Table::new(&["fault", "commands", "whole", "cut off", "exit codes"]);
    for case in cases {
        let mut random = Rng::new(arguments.seed);
        let mut ends = Ends::default();
        while ends.count() < arguments.attempts {
            let round = Round::begin(&arguments.links, &place, &sample)?;
            round.play(*case, &mut random, &mut ends)?;
            eprintln!("{case:?}: {ends:?}");
        }
        let codes = ends.codes.iter();
        let codes: Vec<String> = codes.map(|(code, n)| format!("{code} × {n}")).collect();
        table.row([
            format!("{case:?}"),
            ends.count().to_string(),
            ends.whole.to_string(),
            ends.cut_off.to_string(),
            codes.join(", "),
        ]);
    }
    Ok(table)
}

/// Ends of the commands of a case.
#[derive(Debug, Default)]
struct Ends {
    /// Commands whose input and output arrived completely.
    whole: u32,
    /// Commands of which only a prefix arrived.
    cut_off: u32,
    codes: BTreeMap<i32, u32>,
}

impl Ends {
    fn count(&self) -> u32 {
        self.whole + self.cut_off
    }
}

/// Commands that run together on one daemon.
struct Round<'a> {
    lab: Lab,
    place: &'a Place,
    sample: &'a Sample,
    daemon: Process,
    attempts: Vec<Attempt>,
}

/// Running client, and the files that its command and itself write.
struct Attempt {
    client: Process,
    /// Written by the command on host B. Its name occurs in the command lines of its processes only.
    copy: PathBuf,
    output: PathBuf,
}

impl<'a> Round<'a> {
    fn begin(cables: &Cables, place: &'a Place, sample: &'a Sample) -> Result<Self> {
        let lab = Lab::builder().links(cables.specs.iter().copied()).build()?;
        let daemon = serve_in(&lab, place)?;
        let peer = lab.address(Host::B, 0).to_string();
        let attempts = (0..TOGETHER).map(|number| {
            let copy = format!("copy-{number}.bin");
            let output = place.files(Host::A).join(format!("output-{number}.bin"));
            let command = lab.command(Host::A, program());
            let mut command = as_nicstripe(command, place, Host::A, "exec");
            command.args([&peer, "--", "tee", &copy]);
            let client = Process::spawn_between(
                command,
                &format!("client-{number}"),
                &place.logs(),
                File::open(&sample.path)?.into(),
                File::create(&output)?.into(),
            )?;
            let copy = place.files(Host::B).join(copy);
            Ok(Attempt {
                client,
                copy,
                output,
            })
        });
        let attempts = attempts.collect::<Result<_>>()?;
        Ok(Self {
            lab,
            place,
            sample,
            daemon,
            attempts,
        })
    }

    /// Injects the fault, waits for the ends of all commands and checks them.
    fn play(mut self, case: Case, random: &mut Rng, ends: &mut Ends) -> Result<()> {
        let moments = |random: &mut Rng| Duration::from_millis(random.below(LASTS_MS));
        match case {
            Case::KillDaemon => {
                thread::sleep(moments(random));
                self.daemon.kill()?;
                self.daemon = serve_in(&self.lab, self.place)?;
            }
            Case::Cut => {
                thread::sleep(moments(random));
                let cables = 0..self.lab.counters()?.len();
                cables.clone().try_for_each(|cable| self.lab.cut(cable))?;
                thread::sleep(Duration::from_secs(5));
                cables.clone().try_for_each(|cable| self.lab.heal(cable))?;
            }
            Case::Stop => self.stop(random)?,
            case => {
                let mut strikes: Vec<(Duration, usize)> = (0..self.attempts.len())
                    .map(|attempt| (moments(random), attempt))
                    .collect();
                strikes.sort_unstable();
                let begun = Instant::now();
                for (moment, attempt) in strikes {
                    thread::sleep(moment.saturating_sub(begun.elapsed()));
                    self.kill(case, attempt)?;
                }
            }
        }
        self.end(ends)
    }

    /// Kills the client or the command of an attempt, unless it has ended.
    fn kill(&self, case: Case, attempt: usize) -> Result<()> {
        let attempt = &self.attempts[attempt];
        let target = match case {
            Case::KillClient => Some(attempt.client.pid()),
            _ => attempt.command()?,
        };
        if let Some(target) = target {
            let _ = kill_process(target, Signal::KILL);
        }
        Ok(())
    }

    /// Stops the client, the daemon or the command of each attempt for 20 s, in turn.
    fn stop(&self, random: &mut Rng) -> Result<()> {
        thread::sleep(Duration::from_millis(random.below(LASTS_MS)));
        let mut stopped = Vec::new();
        for (number, attempt) in self.attempts.iter().enumerate() {
            stopped.extend(match number % 3 {
                0 => Some(attempt.client.pid()),
                1 => attempt.command()?,
                _ => Some(self.daemon.pid()),
            });
        }
        for pid in &stopped {
            let _ = kill_process(*pid, Signal::STOP);
        }
        thread::sleep(Duration::from_secs(20));
        for pid in &stopped {
            let _ = kill_process(*pid, Signal::CONT);
        }
        Ok(())
    }

    fn end(self, ends: &mut Ends) -> Result<()> {
        let deadline = Instant::now() + LONGEST;
        for mut attempt in self.attempts {
            attempt.client.await_end(deadline)?;
            let ended = Instant::now();
            let errors = attempt.client.errors()?;
            let status = attempt.client.status()?;
            while let Some(pid) = attempt.left_over()? {
                if ended.elapsed() > GONE_WITHIN {
                    let pid = pid.as_raw_nonzero();
                    return Err(format!("process {pid} is left of a command: {errors}").into());
                }
                thread::sleep(Duration::from_millis(50));
            }
            let arrived = [&attempt.copy, &attempt.output].map(|file| prefix_of(file, self.sample));
            let [copied, output] = arrived;
            let [copied, output] = [copied?, output?];
            let is_whole = copied.min(output) == self.sample.size;
            if status.success() && !is_whole {
                let text = format!("exit code 0 with {copied} bytes in and {output} bytes out");
                return Err(text.into());
            }
            ends.whole += u32::from(is_whole);
            ends.cut_off += u32::from(!is_whole);
            *ends.codes.entry(status.code().unwrap_or(-1)).or_default() += 1;
            if !status.success() {
                eprintln!("  {status}: {}", errors.trim_end());
            }
            fs::remove_file(&attempt.output)?;
            let _ = fs::remove_file(&attempt.copy);
        }
        Ok(())
    }
}

impl Attempt {
    /// Returns the process of the command on host B, if it runs.
    fn command(&self) -> Result<Option<Pid>> {
        let processes = self.processes()?;
        Ok(processes
            .into_iter()
            .find(|(_, words)| words[0] == b"tee")
            .map(|(pid, _)| pid))
    }

    /// Returns a process of the command: the command itself or its guard.
    fn left_over(&self) -> Result<Option<Pid>> {
        Ok(self.processes()?.first().map(|(pid, _)| *pid))
    }

    /// Returns all processes whose arguments name the copy.
    fn processes(&self) -> io::Result<Vec<(Pid, Vec<Vec<u8>>)>> {
        let name = self.copy.file_name().unwrap_or_default();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")?.flatten() {
            let pid = entry.file_name().to_str().and_then(|pid| pid.parse().ok());
            let Some(pid) = pid.and_then(Pid::from_raw) else {
                continue;
            };
            let Ok(line) = fs::read(entry.path().join("cmdline")) else {
                continue;
            };
            let words: Vec<Vec<u8>> = line.split(|byte| *byte == 0).map(Vec::from).collect();
            if words.iter().any(|word| word == name.as_encoded_bytes()) {
                found.push((pid, words));
            }
        }
        Ok(found)
    }
}

/// Returns the length of a file in bytes; 0 if there is none.
///
/// # Errors
///
/// The file is no prefix of the sample: bytes are missing in its middle, or came twice.
fn prefix_of(file: &Path, sample: &Sample) -> Result<u64> {
    let Ok(mut found) = File::open(file) else {
        return Ok(0);
    };
    let mut expected = File::open(&sample.path)?;
    let (mut ours, mut theirs) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut at = 0;
    loop {
        let len = found.read(&mut theirs)?;
        if len == 0 {
            return Ok(at);
        }
        expected.read_exact(&mut ours[..len])?;
        if ours[..len] != theirs[..len] {
            return Err(format!("{} differs after byte {at}", file.display()).into());
        }
        at += len as u64;
    }
}

/// Number of commands that run at a time.
const TOGETHER: usize = 10;

/// Bytes that each command reads and writes.
const SIZE: u64 = 64 << 20;

/// Time in which faults strike in milliseconds: that of a round over two gigabit cables, 640 MiB in
/// each direction.
const LASTS_MS: u64 = 2000;

/// Time in which all commands of a round must end.
const LONGEST: Duration = Duration::from_secs(90);

/// Time in which all processes of a command must have ended after its client.
const GONE_WITHIN: Duration = Duration::from_secs(5);
