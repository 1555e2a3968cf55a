//! `nicstripe service`: the daemon as a service of systemd.

mod firewall;
mod unit;

use std::{
    env, fs, io,
    os::unix::{
        fs::{MetadataExt as _, lchown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use clap::{Args, Subcommand};
use nicstripe::{DEFAULT_PORT, links::local_interfaces};
use nix::unistd::{Group, User};
use rustix::process::geteuid;

use self::unit::Unit;
use crate::{
    failure::{Failure, Fault, exit::Exit, usage},
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
    #[command(visible_alias = "uninstall")]
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
    check_systemd()?;
    let program = env::current_exe().map_err(Failure::writing(unit::path()))?;
    check_program(&program)?;
    check_rights()?;
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
        return Err(usage(text).into());
    };
    let user = found_or_made(user)?;
    check_access(&program, &user)?;
    let group = Group::from_gid(user.gid).ok().flatten();
    let group = group.map_or_else(|| user.gid.to_string(), |group| group.name);
    make_root(&root, &user, terminal)?;
    let unit = Unit {
        program: &program.to_string_lossy(),
        root: text,
        user: &user.name,
        group: &group,
    };
    start(&unit.text())?;
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

/// Writes the unit and starts it. After a failure the machine has the unit that it had before, or
/// none.
fn start(text: &str) -> Result<(), Failure> {
    let before = fs::read(unit::path()).ok();
    let begun = SystemTime::now();
    let starting = || {
        fs::write(unit::path(), text).map_err(Failure::writing(unit::path()))?;
        // Earlier starts count towards the unit's limit. Fails for a unit that was never loaded.
        let _ = ask(&["reset-failed", "nicstripe"]);
        systemctl(&["daemon-reload"])?;
        systemctl(&["enable", "nicstripe"])?;
        systemctl(&["restart", "nicstripe"])
    };
    let Err(why) = starting() else {
        return Ok(());
    };
    let said = journal_since(begun);
    // An error here has occurred before, or is seen by the next command.
    let text = match before {
        Some(before) => {
            let _ = fs::write(unit::path(), before);
            let _ = ask(&["daemon-reload"]);
            let _ = ask(&["reset-failed", "nicstripe"]);
            match ask(&["restart", "nicstripe"]) {
                Ok(_) => "the service did not start, and serves as before",
                Err(_) => "the service did not start, neither with the unit that it had before",
            }
        }
        None => {
            let _ = ask(&["disable", "--now", "nicstripe"]);
            let _ = fs::remove_file(unit::path());
            let _ = ask(&["daemon-reload"]);
            let _ = ask(&["reset-failed", "nicstripe"]);
            "the service did not start, and is not installed"
        }
    };
    Err(Fault::new(Exit::Failed, text)
        .because(why.one_line())
        .with_details(said)
        .with_hint("journalctl -u nicstripe -n 20 shows why")
        .into())
}

/// Returns the last lines of the service's journal.
fn journal_since(begun: SystemTime) -> Vec<String> {
    let begun = begun.duration_since(SystemTime::UNIX_EPOCH);
    let since = format!("@{}", begun.unwrap_or(Duration::ZERO).as_secs());
    let options = [
        "-u",
        "nicstripe",
        "-o",
        "cat",
        "-q",
        "--no-pager",
        "-n",
        "8",
    ];
    let output = Command::new("journalctl")
        .args(options)
        .args(["-S", &since])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let text = output.map_or_else(|_| Vec::new(), |output| output.stdout);
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines();
    lines
        .map(|line| format!("  journal: {}", shown(line)))
        .collect()
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
    check_systemd()?;
    check_rights()?;
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

fn check_systemd() -> Result<(), Fault> {
    match Path::new("/run/systemd/system").is_dir() {
        true => Ok(()),
        false => Err(no_systemd()),
    }
}

fn check_rights() -> Result<(), Fault> {
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
        return Err(usage(text).into());
    }
    let Some((path, who)) = changer_of(program)? else {
        return Ok(());
    };
    let text = format!(
        "{} can be changed by {who}: expected a program that only root may write",
        shown(path)
    );
    Err(elsewhere(program, Fault::new(Exit::Refused, text)).into())
}

/// Checks that the user of the service can run the program, before a unit names it.
fn check_access(program: &Path, user: &User) -> Result<(), Failure> {
    let refused = |why: &str| {
        let text = format!("user {} cannot run {}: {why}", user.name, shown(program));
        Failure::from(elsewhere(program, Fault::new(Exit::Refused, text)))
    };
    // PrivateTmp= of the unit.
    if program.starts_with("/tmp") || program.starts_with("/var/tmp") {
        return Err(refused("the service has a /tmp of its own"));
    }
    let mut command = Command::new(program);
    command.arg("--version").current_dir("/");
    command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    command.stdin(Stdio::null()).stdout(Stdio::null());
    match command.stderr(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(refused(&format!("--version ended with {status}"))),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(refused(
            "expected a program in directories that each user may enter",
        )),
        Err(error) => Err(refused(&error.to_string())),
    }
}

/// Adds the hint to install the program in a directory that only root may write, and each user may
/// enter.
fn elsewhere(program: &Path, fault: Fault) -> Fault {
    let folders = ["/usr/local/bin", "/usr/bin"].map(Path::new);
    let is_safe = |folder: &&Path| matches!(changer_of(folder), Ok(None));
    let Some(folder) = folders.into_iter().find(is_safe) else {
        return fault;
    };
    let helper = program.with_file_name("nicstripe-routes");
    let helper = helper.is_file().then(|| format!(" {}", quoted(&helper)));
    let typed = env::args_os().next().unwrap_or_default();
    let again = Invocation::of_this_process().with(&typed, folder.join("nicstripe").as_os_str());
    fault.with_hint(format!(
        "sudo install -m 755 {}{} {}; then: sudo {again}",
        quoted(program),
        helper.unwrap_or_default(),
        quoted(folder)
    ))
}

/// Returns who else than root can change a file or a directory above it, with the path; `None` if
/// no one can.
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
/// has the records of host routes of any server.
fn found_or_made(name: &str) -> Result<User, Failure> {
    let find = || User::from_name(name).ok().flatten();
    let found = find();
    if found.is_none() && name != USER {
        let name = shown(name);
        return Err(usage(format!("there is no user {name}"))
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
