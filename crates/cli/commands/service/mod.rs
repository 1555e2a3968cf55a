//! `nicstripe service`: the daemon as a service of systemd.

mod firewall;
mod unit;

use std::{
    env, fs, io,
    os::unix::fs::{MetadataExt as _, lchown},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use clap::{Args, Subcommand};
use nicstripe::{DEFAULT_PORT, links::local_interfaces};
use nix::unistd::{Group, User};
use rustix::process::geteuid;

use self::unit::Unit;
use crate::{
    failure::{Failure, Fault, exit::Exit},
    output::{stdout, terminal::Terminal},
    places::SERVICE_HOME,
    text::{
        invocation::{Invocation, quoted},
        shown,
    },
};

/// Run the daemon as a service of systemd: at each start of the machine, restarted if it fails
#[derive(Debug, Args)]
pub(crate) struct Service {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Write the unit, make the directory, and start the daemon; again to change either
    Install {
        /// Directory to serve; made if it is missing
        #[arg(long, value_name = "DIR", default_value = "/srv/files")]
        root: PathBuf,

        /// User who runs the daemon; nicstripe is made if it is missing
        #[arg(long, default_value = USER)]
        user: String,
    },
    /// Print whether the daemon runs, what it serves and what it does; exit code 0 if it runs
    Status,
    /// Stop the daemon and remove the unit; directory, keys and peers stay
    Remove,
}

impl Service {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        match self.action {
            Action::Install { root, user } => install(&root, &user, terminal),
            Action::Status => status(terminal),
            Action::Remove => remove(terminal),
        }
    }
}

fn install(root: &Path, user: &str, terminal: &Terminal) -> Result<(), Failure> {
    check_machine()?;
    check_ownership()?;
    let root = std::path::absolute(root).map_err(Failure::writing(root))?;
    let Some(text) = root
        .to_str()
        .filter(|text| !text.chars().any(char::is_control))
    else {
        let text = format!(
            "{} cannot be written into a unit: expected a path without control characters",
            shown(&root)
        );
        return Err(Fault::new(Exit::Usage, text).into());
    };
    let program = env::current_exe().map_err(Failure::writing(unit::path()))?;
    check_program(&program)?;
    let user = found_or_made(user)?;
    let group = Group::from_gid(user.gid).ok().flatten();
    let group = group.map_or_else(|| user.gid.to_string(), |group| group.name);
    make_root(&root, &user, terminal)?;
    let unit = Unit {
        program: &program.to_string_lossy(),
        root: text,
        user: &user.name,
        group: &group,
    };
    fs::write(unit::path(), unit.text()).map_err(Failure::writing(unit::path()))?;
    // Earlier starts count towards the unit's limit. Fails for a unit that was never loaded.
    let _ = ask(&["reset-failed", "nicstripe"]);
    systemctl(&["daemon-reload"])?;
    systemctl(&["enable", "nicstripe"])?;
    systemctl(&["restart", "nicstripe"])?;
    terminal.say(format_args!(
        "serving {} as user {}, now and at each start of this machine",
        shown(&root),
        user.name
    ));
    tell_of_ports(terminal);
    terminal.say(format_args!(
        "to pair with another machine: sudo -u {} NICSTRIPE_HOME={SERVICE_HOME} nicstripe pair",
        user.name
    ));
    Ok(())
}

fn status(terminal: &Terminal) -> Result<(), Failure> {
    let shown_keys = "ActiveState,SubState,StatusText,FragmentPath,DropInPaths,UnitFileState,ActiveEnterTimestamp";
    let output = ask(&["show", "nicstripe", "--property", shown_keys])?;
    let value = |key: &str| {
        let mut lines = output.lines();
        lines
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
            .unwrap_or_default()
    };
    let path = value("FragmentPath");
    let is_active = value("ActiveState") == "active";
    // A package brings the unit, and leaves it off until its administrator chooses a directory.
    let is_used = is_active
        || Path::new(path) == unit::path()
        || value("UnitFileState").starts_with("enabled")
        || !value("DropInPaths").is_empty();
    if path.is_empty() || !is_used {
        return Err(missing());
    }
    let since = value("ActiveEnterTimestamp");
    match (is_active, since) {
        (true, since) if !since.is_empty() => stdout::line(format_args!("running since {since}"))?,
        (true, _) => stdout::line("running")?,
        (false, _) => stdout::line(format_args!(
            "not running: {} ({})",
            value("ActiveState"),
            value("SubState")
        ))?,
    }
    if let Some((root, user)) = fs::read_to_string(path)
        .ok()
        .and_then(|text| unit::served(&text))
    {
        stdout::line(format_args!("serves {} as user {user}", shown(root)))?;
    }
    let doing = value("StatusText");
    if !doing.is_empty() {
        stdout::line(doing)?;
    }
    match is_active {
        true => Ok(()),
        false => {
            terminal
                .hint("journalctl -u nicstripe -n 20 shows why; sudo systemctl start nicstripe");
            Err(Fault::new(Exit::Failed, "the service does not run").into())
        }
    }
}

fn remove(terminal: &Terminal) -> Result<(), Failure> {
    check_machine()?;
    if !unit::path().exists() {
        return Err(missing());
    }
    check_ownership()?;
    let text = fs::read_to_string(unit::path()).unwrap_or_default();
    systemctl(&["disable", "--now", "nicstripe"])?;
    fs::remove_file(unit::path()).map_err(Failure::writing(unit::path()))?;
    systemctl(&["daemon-reload"])?;
    terminal.say(format_args!("removed {}", unit::path().display()));
    let root = unit::served(&text).map(|(root, _)| format!("{}, and ", shown(root)));
    terminal.say(format_args!(
        "kept: {}keys, peers and settings in {SERVICE_HOME}",
        root.unwrap_or_default()
    ));
    Ok(())
}

/// Checks that systemd runs, and that this user may change its units.
fn check_machine() -> Result<(), Fault> {
    if !Path::new("/run/systemd/system").is_dir() {
        return Err(no_systemd());
    }
    if geteuid().is_root() {
        return Ok(());
    }
    let hint = format!("sudo {}", Invocation::of_this_process().typed());
    Err(Fault::new(Exit::Refused, "only root can change services").with_hint(hint))
}

/// Checks that a unit that exists is one that this program wrote.
fn check_ownership() -> Result<(), Failure> {
    match fs::read_to_string(unit::path()) {
        Ok(text) if !unit::is_ours(&text) => {
            let path = unit::path().display();
            let text = format!("{path} was not written by `nicstripe service install`");
            let hint = format!("to replace it: rm {path}");
            Err(Fault::new(Exit::Refused, text).with_hint(hint).into())
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Failure::writing(unit::path())(error))
        }
        _ => Ok(()),
    }
}

/// Checks that only root can change the program, which the unit starts at each start of the machine:
/// neither its file nor a directory on the way to it.
fn check_program(program: &Path) -> Result<(), Failure> {
    if program
        .to_str()
        .is_none_or(|text| text.chars().any(char::is_control))
    {
        let text = format!(
            "{} cannot be written into a unit: expected a path without control characters",
            shown(program)
        );
        return Err(Fault::new(Exit::Usage, text).into());
    }
    let Some((path, who)) = changer_of(program)? else {
        return Ok(());
    };
    let text = format!(
        "{} can be changed by {who}: expected a program that only root may write",
        shown(path)
    );
    let folders = ["/usr/local/bin", "/usr/bin"].map(Path::new);
    let safe = folders
        .into_iter()
        .find(|folder| matches!(changer_of(folder), Ok(None)));
    let fault = Fault::new(Exit::Refused, text);
    Err(match safe {
        Some(folder) => {
            let target = quoted(folder.join("nicstripe"));
            let program = quoted(program);
            fault.with_hint(format!(
                "sudo install -m 755 {program} {target}; then: sudo {target} service install"
            ))
        }
        None => fault,
    }
    .into())
}

/// Returns who else than root can change a file or a directory above it, with the path; `None` if
/// nobody can.
fn changer_of(program: &Path) -> Result<Option<(&Path, String)>, Failure> {
    for path in program.ancestors() {
        let found = fs::symlink_metadata(path).map_err(Failure::opening(path))?;
        let (mode, user) = (found.mode(), found.uid());
        // In a sticky directory such as /tmp others can add names, but not replace root's.
        let is_sticky = found.is_dir() && mode & 0o1000 != 0;
        let group_writes = mode & 0o020 != 0 && found.gid() != 0;
        let who = match (user, (group_writes || mode & 0o002 != 0) && !is_sticky) {
            (0, false) => continue,
            (0, true) => "others than root".to_owned(),
            (user, _) => {
                let known = User::from_uid(user.into()).ok().flatten();
                known.map_or_else(
                    || format!("user {user}"),
                    |user| format!("user {}", user.name),
                )
            }
        };
        return Ok(Some((path, who)));
    }
    Ok(None)
}

/// Returns the user. Makes [`USER`] and its group if they are missing, as the packages do. The group
/// has the records of host routes, whoever serves.
fn found_or_made(name: &str) -> Result<User, Failure> {
    let find = || User::from_name(name).ok().flatten();
    let found = find();
    if found.is_none() && name != USER {
        let name = shown(name);
        return Err(Fault::new(Exit::Usage, format!("there is no user {name}"))
            .with_hint(format!("sudo useradd --system {name}"))
            .into());
    }
    if Group::from_name(USER).ok().flatten().is_none() {
        run("groupadd", &["--system", USER])?;
    }
    if let Some(user) = found {
        return Ok(user);
    }
    let home = ["--gid", USER, "--home-dir", SERVICE_HOME];
    let shell = ["--shell", "/usr/sbin/nologin"];
    run(
        "useradd",
        &[&["--system"], &home[..], &shell, &[USER]].concat(),
    )?;
    let text = format!("useradd has made no user {USER}");
    Ok(find().ok_or_else(|| Fault::new(Exit::Failed, text))?)
}

/// Makes the directory for the user if it is missing. Otherwise warns if it belongs to another one.
fn make_root(root: &Path, user: &User, terminal: &Terminal) -> Result<(), Failure> {
    if !root.exists() {
        fs::create_dir_all(root).map_err(Failure::writing(root))?;
        let (uid, gid) = (Some(user.uid.as_raw()), Some(user.gid.as_raw()));
        // Of a link that another user has put there meanwhile, only the link.
        lchown(root, uid, gid).map_err(Failure::writing(root))?;
        terminal.say(format_args!("made {}", shown(root)));
        return Ok(());
    }
    let found = fs::metadata(root).map_err(Failure::writing(root))?;
    if !found.is_dir() {
        return Err(Failure::writing(root)(io::ErrorKind::NotADirectory.into()));
    }
    if found.uid() != user.uid.as_raw() && !user.uid.is_root() {
        terminal.warning(&format!(
            "{} belongs to another user than {}, who may have to be given it",
            shown(root),
            user.name
        ));
        terminal.hint(&format!("chown {}: {}", user.name, quoted(root)));
    }
    Ok(())
}

/// Says which port must be open, where, and by which command.
fn tell_of_ports(terminal: &Terminal) {
    let interfaces = local_interfaces().unwrap_or_default();
    let cables = interfaces
        .iter()
        .filter(|interface| interface.left_out.is_none());
    let names: Vec<String> = cables.map(|interface| shown(&interface.name)).collect();
    if let Some(command) = firewall::opening(&names) {
        terminal.say(format_args!(
            "port {DEFAULT_PORT} must be open for TCP and UDP on {}: {command}",
            names.join(", ")
        ));
    }
}

fn systemctl(arguments: &[&str]) -> Result<(), Failure> {
    run("systemctl", arguments)
}

/// Runs a program of the machine, whose messages go to standard error.
fn run(program: &'static str, arguments: &[&str]) -> Result<(), Failure> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let why = match command.status() {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    let text = format!("{program} {} failed: {why}", arguments.join(" "));
    let hint = "journalctl -u nicstripe -n 20 shows why";
    Err(Fault::new(Exit::Failed, text).with_hint(hint).into())
}

fn ask(arguments: &[&str]) -> Result<String, Fault> {
    let output = Command::new("systemctl")
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        _ => Err(no_systemd()),
    }
}

fn missing() -> Failure {
    Fault::new(Exit::Failed, "no service is installed")
        .with_hint("sudo nicstripe service install --root DIR")
        .into()
}

fn no_systemd() -> Fault {
    let text = "systemd does not run on this machine: expected it for a service";
    Fault::new(Exit::Failed, text).with_hint("to run the daemon otherwise: nicstripe serve DIR")
}

/// User of the packages' unit.
const USER: &str = "nicstripe";
