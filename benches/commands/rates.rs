//! Rates of commands over all cables.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use nicstripe_lab::{Host, Lab};
use nicstripe_testkit::{
    Sshd,
    bench::{
        Cables, Contender, Measured, Place, Process, Result, Sample, Spread, Stage, Table,
        as_nicstripe, sshd_in,
    },
    program,
};

use crate::{Arguments, Case, place};

/// Measures the cases in turns, and returns the table of results.
pub(crate) fn bench(arguments: &Arguments, cases: &[Case]) -> Result<Table> {
    let place = place(3 * arguments.size)?;
    let mut sample =
        Sample::incompressible(place.files(Host::A).join("sample.bin"), arguments.size)?;
    let mut ways: Vec<(Way, Vec<Measured>)> = cases
        .iter()
        .flat_map(|case| match case {
            Case::Rsync => vec![Way::Rsync, Way::RsyncOverSsh],
            Case::Borg => vec![Way::Borg, Way::BorgOverSsh],
            Case::Out => vec![Way::Out],
            _ => vec![Way::In],
        })
        .map(|way| (way, Vec::new()))
        .collect();
    for _ in 0..arguments.runs {
        for (way, runs) in &mut ways {
            let measured = way.run(&arguments.links, &place, &mut sample)?;
            eprintln!("{}: {:.3} s", way.name(), measured.wall.as_secs_f64());
            runs.push(measured);
        }
    }
    let mut table = Table::new(&HEADINGS);
    let theory = arguments.links.theory().unwrap_or(f64::NAN);
    for (way, runs) in &ways {
        let rate = |run: &Measured| arguments.size as f64 * 8.0 / run.wall.as_secs_f64();
        table.row([
            way.name().to_owned(),
            Spread::of(runs, |run| run.wall.as_secs_f64()).print(2),
            Spread::of(runs, |run| rate(run) / 1e6).middle(0),
            Spread::of(runs, |run| 100.0 * rate(run) / theory).print(1),
            way.bar().to_owned(),
            Spread::of(runs, |run| {
                run.cpu.as_secs_f64() * 1e9 / arguments.size as f64
            })
            .print(2),
        ]);
    }
    Ok(table)
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Out,
    In,
    Rsync,
    RsyncOverSsh,
    Borg,
    BorgOverSsh,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Out => "exec PEER -- dd if=FILE",
            Self::In => "exec PEER -- dd of=FILE",
            Self::Rsync => "rsync -e 'nicstripe exec'",
            Self::RsyncOverSsh => "rsync -e ssh, one cable",
            Self::Borg => "borg create --rsh 'nicstripe exec'",
            Self::BorgOverSsh => "borg create --rsh ssh, one cable",
        }
    }

    fn bar(self) -> &'static str {
        match self {
            Self::Out | Self::In => "≥ 98",
            Self::Rsync | Self::Borg => "≥ 1.9 × ssh",
            Self::RsyncOverSsh | Self::BorgOverSsh => "",
        }
    }

    /// Moves the sample through a command, checks what arrived and removes it.
    fn run(self, cables: &Cables, place: &Place, sample: &mut Sample) -> Result<Measured> {
        let from = match self {
            Self::Out => Host::B,
            _ => Host::A,
        };
        sample.move_to(&place.files(from))?;
        let received = place.files(from.peer()).join("received.bin");
        let ballast = place.ballast(sample.size)?;
        if matches!(self, Self::Borg | Self::BorgOverSsh) {
            init(place)?;
        }
        let stage = Stage::build(cables, place, Contender::Nicstripe)?;
        let limit = Duration::from_secs(60) + Duration::from_secs(sample.size >> 24);
        let peer = stage.lab.address(Host::B, 0).to_string();
        let exec = |words: &[&str]| {
            let command = stage.lab.command(Host::A, program());
            let mut command = as_nicstripe(command, place, Host::A, "exec");
            command.arg(&peer).arg("--").args(words);
            command
        };
        let measured = match self {
            Self::Out => stage.measure_between(
                exec(&["dd", "if=sample.bin", "bs=1M", "status=none"]),
                Stdio::null(),
                File::create(&received)?.into(),
                limit,
            ),
            Self::In => stage.measure_between(
                exec(&["dd", "of=received.bin", "bs=1M", "status=none"]),
                File::open(&sample.path)?.into(),
                Stdio::null(),
                limit,
            ),
            Self::Rsync => {
                let mut rsync = rsync(&stage.lab, &format!("{} exec", program()));
                rsync.env("NICSTRIPE_HOME", place.home(Host::A).config());
                rsync.arg(&sample.path).arg(format!("{peer}:received.bin"));
                stage.measure(rsync, limit)
            }
            Self::RsyncOverSsh => {
                let (sshd, _daemon) = sshd(&stage.lab, place)?;
                let mut rsync = rsync(&stage.lab, &sshd.client());
                let target = format!("root@{peer}:{}", received.display());
                rsync.arg(&sample.path).arg(target);
                stage.measure(rsync, limit)
            }
            Self::Borg => {
                let shell = format!("{} exec", program());
                let mut borg = borg(stage.lab.command(Host::A, "borg"), place);
                borg.env("NICSTRIPE_HOME", place.home(Host::A).config());
                create(borg, &shell, &format!("ssh://{peer}/./repository"), sample)
                    .and_then(|borg| stage.measure(borg, limit))
            }
            Self::BorgOverSsh => {
                let (sshd, _daemon) = sshd(&stage.lab, place)?;
                let repository = place.files(Host::B).join("repository");
                let url = format!("ssh://root@{peer}{}", repository.display());
                let borg = borg(stage.lab.command(Host::A, "borg"), place);
                create(borg, &sshd.client(), &url, sample)
                    .and_then(|borg| stage.measure(borg, limit))
            }
        }?;
        if matches!(self, Self::Borg | Self::BorgOverSsh) {
            extract(place, &received)?;
        }
        drop(ballast);
        sample.check(&received)?;
        fs::remove_file(received)?;
        Ok(measured)
    }
}

/// Returns an rsync command on host A that starts the other rsync by `shell`.
fn rsync(lab: &Lab, shell: &str) -> Command {
    let mut command = lab.command(Host::A, "rsync");
    command.args(["--whole-file", "--inplace", "-e", shell]);
    command
}

/// Gives borg folders of its own, and answers its questions.
fn borg(mut command: Command, place: &Place) -> Command {
    command
        .env("BORG_BASE_DIR", place.logs())
        .env("BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK", "yes")
        .env("BORG_RELOCATED_REPO_ACCESS_IS_OK", "yes");
    command
}

/// Returns the command that stores the sample in the repository at host B.
fn create(mut command: Command, shell: &str, url: &str, sample: &Sample) -> Result<Command> {
    let folder = sample.path.parent().ok_or("a sample has a folder")?;
    command
        .current_dir(folder)
        .args(["create", "-C", "none", "--rsh", shell])
        .arg(format!("{url}::sample"))
        .arg(sample.name()?);
    Ok(command)
}

/// Makes an empty repository on host B.
fn init(place: &Place) -> Result<()> {
    let mut init = borg(Command::new("borg"), place);
    let status = init
        .current_dir(place.files(Host::B))
        .args(["init", "-e", "none", "repository"])
        .status()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("borg init failed: {status}").into()),
    }
}

/// Extracts the sample from the repository on host B, and removes that.
fn extract(place: &Place, to: &Path) -> Result<()> {
    let folder = place.files(Host::B);
    let mut extract = borg(Command::new("borg"), place);
    let status = extract
        .current_dir(&folder)
        .args(["extract", "repository::sample"])
        .status()?;
    if !status.success() {
        return Err(format!("borg extract failed: {status}").into());
    }
    fs::rename(folder.join("sample.bin"), to)?;
    Ok(fs::remove_dir_all(folder.join("repository"))?)
}

/// Starts an sshd on host B.
fn sshd(lab: &Lab, place: &Place) -> Result<(Sshd, Process)> {
    let (sshd, command) = sshd_in(lab, place)?;
    let daemon = Process::spawn(command, "sshd", &place.logs())?;
    daemon.await_line(Sshd::READY)?;
    Ok((sshd, daemon))
}

const HEADINGS: [&str; 6] = [
    "command",
    "s",
    "Mbit/s",
    "% of theory",
    "bar",
    "CPU s/GB, command here and daemon",
];
