//! Programs under comparison, and their commands with the best manual configuration.

use std::{
    env, fmt, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nicstripe::bench::BenchReport;
use nicstripe_lab::{Host, Lab};
use serde::Deserialize;

use super::{
    error::Result,
    place::Place,
    sample::Sample,
    scene::{Rights, Scene},
};
use crate::{Sshd, other_program, program};

/// Copy program under comparison, or iperf3 as the reference for the cables' capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Contender {
    /// The program under test: `nicstripe cp` and `nicstripe serve`.
    Nicstripe,
    /// Another build of nicstripe, at both ends: the program that `NICSTRIPE_OTHER_PROGRAM` names.
    OtherNicstripe,
    /// `nicstripe cp` to a host that ssh reaches, without a daemon.
    NicstripeSsh,
    /// `nicstripe exec`: a dd at the peer whose file is there, between a file here and the cables.
    Exec,
    /// `nicstripe bench`, which moves no file: the rate that it reports.
    Bench,
    /// The bench itself at both ends, as a minimal program over all cables: `benches/floor`. Only
    /// that bench can play these parts.
    #[value(skip)]
    Floor,
    /// `ssh HOST true`, which moves no file: the reference for the time to connect by ssh.
    Ssh,
    /// scp to or from an sshd on host B over the first cable, with the old protocol and AES-GCM of
    /// 128 bits, its fastest.
    Scp,
    /// iperf3, memory to memory, with one process per cable, bound to the cable's interface.
    /// Measures the cables' capacity.
    ///
    /// The client exits when the last 2 to 4 MB per cable (by the counters) are in its socket
    /// buffer, before they arrive. The result may therefore exceed the theoretical goodput.
    Iperf3,
    /// aria2 at the receiver and nginx at the sender, with four connections per cable.
    Aria2,
    /// axel at the receiver and nginx at the sender, with four connections per cable.
    Axel,
    /// rsync to an rsync daemon at the receiver, over one TCP connection.
    Rsync,
    /// GridFTP with four connections over a single cable. Striped over several cables, with one
    /// data node per cable at each end.
    Gridftp,
}

/// Server and client commands for one copy by one program.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Servers, started in this order before the measurement.
    pub(crate) servers: Vec<Server>,
    /// Clients and their hosts, started together. The measurement ends when all clients have
    /// exited.
    pub(crate) clients: Vec<(Host, Command)>,
}

/// Server process that must accept connections before the clients start.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) host: Host,
    pub(crate) command: Command,
    pub(crate) ready: Ready,
}

/// Condition that shows that a server accepts connections.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ready {
    /// A socket of the server listens on this TCP port.
    Listens(u16),
    /// The server printed a line with this prefix on standard error.
    Says(&'static str),
}

impl Contender {
    /// Returns the installed programs among `wanted`, and prints a line for each missing one.
    pub fn installed(wanted: &[Self]) -> Vec<Self> {
        let (installed, missing): (Vec<Self>, Vec<Self>) = wanted
            .iter()
            .partition(|contender| contender.is_installed());
        for contender in missing {
            println!(
                "{contender} skipped: not all of {} are installed",
                contender.programs().join(", ")
            );
        }
        installed
    }

    fn is_installed(self) -> bool {
        self.programs()
            .iter()
            .all(|program| version_of(program).is_some())
    }

    fn programs(self) -> Vec<&'static str> {
        match self {
            Self::Nicstripe | Self::Exec | Self::Bench => vec![program()],
            Self::OtherNicstripe => vec![other_program()],
            Self::NicstripeSsh => vec![program(), "ssh"],
            Self::Floor => Vec::new(),
            Self::Ssh => vec!["ssh"],
            Self::Scp => vec!["ssh", "scp"],
            Self::Iperf3 => vec!["iperf3"],
            Self::Aria2 => vec!["aria2c", "nginx"],
            Self::Axel => vec!["axel", "nginx"],
            Self::Rsync => vec!["rsync"],
            Self::Gridftp => vec!["globus-url-copy", "globus-gridftp-server"],
        }
    }

    /// Returns the program's name and version, as printed by its version flag.
    pub fn version(self) -> String {
        let Some(program) = self.programs().first().copied() else {
            return self.to_string();
        };
        let text = version_of(program).unwrap_or_default();
        let number = text.split_ascii_whitespace().find(|word| {
            word.trim_start_matches('v')
                .starts_with(|c: char| c.is_ascii_digit())
        });
        format!("{self} {}", number.unwrap_or("of unknown version"))
    }

    /// Returns true if the program leaves a copy of the file that can be compared with the source.
    pub(crate) fn copies_files(self) -> bool {
        !matches!(self, Self::Iperf3 | Self::Ssh | Self::Bench)
    }

    /// Parses nicstripe's report and checks its digest. Returns `None` for other programs.
    pub(crate) fn check_report(self, output: &str, sample: &Sample) -> Result<Option<CpReport>> {
        if !matches!(
            self,
            Self::Nicstripe | Self::OtherNicstripe | Self::NicstripeSsh
        ) {
            return Ok(None);
        }
        let report = CpReport::parse(output)?;
        sample.check_digest(report.blake3.as_deref().unwrap_or_default(), "nicstripe")?;
        Ok(Some(report))
    }

    /// Returns the rate in bits a second that a program reports for a direction, if it does nothing else.
    pub(crate) fn reported_rate(self, output: &str, from: Host) -> Result<Option<f64>> {
        if self != Self::Bench {
            return Ok(None);
        }
        let summary = serde_json::from_str::<BenchReport>(output)?.summary;
        let rate = match from {
            Host::A => summary.together,
            Host::B => summary.reverse,
        };
        let rate = rate.ok_or("nicstripe bench reported no rate")?;
        Ok(Some(rate.median_bps as f64))
    }

    /// Returns the server and client commands for a copy of the scene's file.
    pub(crate) fn plan(self, scene: &Scene<'_>) -> Result<Plan> {
        match self {
            Self::Nicstripe => nicstripe(scene, program()),
            Self::OtherNicstripe => nicstripe(scene, other_program()),
            Self::NicstripeSsh => over_ssh(scene),
            Self::Exec => exec(scene),
            Self::Bench => Ok(bench(scene)),
            Self::Floor => floor(scene),
            Self::Ssh => ssh(scene),
            Self::Scp => scp(scene),
            Self::Iperf3 => Ok(iperf3(scene)),
            Self::Aria2 => pull(scene, aria2(scene)?),
            Self::Axel => pull(scene, axel(scene)?),
            Self::Rsync => rsync(scene),
            Self::Gridftp if scene.cables.count() == 1 => gridftp(scene),
            Self::Gridftp => gridftp_striped(scene),
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nicstripe => "nicstripe",
            Self::OtherNicstripe => "other-nicstripe",
            Self::NicstripeSsh => "nicstripe-ssh",
            Self::Exec => "exec",
            Self::Bench => "bench",
            Self::Floor => "floor",
            Self::Ssh => "ssh",
            Self::Scp => "scp",
            Self::Iperf3 => "iperf3",
            Self::Aria2 => "aria2",
            Self::Axel => "axel",
            Self::Rsync => "rsync",
            Self::Gridftp => "gridftp",
        })
    }
}

/// Returns the version output of a program; `None` if the program cannot be started.
fn version_of(program: &str) -> Option<String> {
    // nginx and GridFTP accept a flag with a single dash only; the others at least print their
    // name.
    let flag = if program == "nginx" {
        "-v"
    } else if program.starts_with("globus") {
        "-version"
    } else {
        "--version"
    };
    let output = Command::new(program)
        .arg(flag)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    Some(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// Returns the `nicstripe serve` command for host B.
pub fn serve(scene: &Scene<'_>) -> Command {
    as_daemon(on_host(scene, Host::B, program()), scene.place)
}

/// Returns the `nicstripe cp` command for host A, with the scene's file and direction.
pub fn cp(scene: &Scene<'_>) -> Result<Command> {
    cp_by(
        scene,
        program(),
        &format!("{}:{}", scene.peer, scene.sample.name()?),
    )
}

/// Like [`cp`], by this build of nicstripe and with this remote file.
fn cp_by(scene: &Scene<'_>, program: &str, remote: &str) -> Result<Command> {
    let command = on_host(scene, Host::A, program);
    let mut command = as_nicstripe(command, scene.place, Host::A, "cp");
    command.arg("--quiet");
    match scene.from {
        Host::A => command.arg(&scene.sample.path).arg(remote),
        Host::B => command.arg(remote).arg(scene.received()?),
    };
    Ok(command)
}

/// Returns a plan of one build of nicstripe, client and daemon.
fn nicstripe(scene: &Scene<'_>, program: &str) -> Result<Plan> {
    let remote = format!("{}:{}", scene.peer, scene.sample.name()?);
    let mut client = cp_by(scene, program, &remote)?;
    client.arg("--json");
    Ok(Plan {
        servers: vec![daemon(scene, program)],
        clients: vec![(Host::A, client)],
    })
}

/// Returns the daemon of host B as a server.
fn daemon(scene: &Scene<'_>, program: &str) -> Server {
    Server {
        host: Host::B,
        command: as_daemon(on_host(scene, Host::B, program), scene.place),
        ready: Ready::Says(LISTENING),
    }
}

/// Returns a plan in which host A may run every command on host B.
fn exec(scene: &Scene<'_>) -> Result<Plan> {
    let peers = scene.place.home(Host::B).peers_file();
    let line = fs::read_to_string(&peers)?;
    if !line.starts_with(ALL_COMMANDS) {
        fs::write(&peers, format!("{ALL_COMMANDS} {line}"))?;
    }
    let (redirected, here, there) = match scene.from {
        Host::A => ("exec \"$@\" < \"$0\"", scene.sample.path.clone(), "of="),
        Host::B => ("exec \"$@\" > \"$0\"", scene.received()?, "if="),
    };
    let mut client = scene.lab.command(Host::A, "sh");
    client
        .args(["-c", redirected])
        .arg(here)
        .args([program(), "exec", &scene.peer, "--", "dd", "bs=1M"])
        .args([&format!("{there}{}", scene.sample.name()?), "status=none"])
        .env("NICSTRIPE_HOME", scene.place.home(Host::A).config())
        .env_remove("RUST_LOG");
    Ok(Plan {
        servers: vec![daemon(scene, program())],
        clients: vec![(Host::A, client)],
    })
}

/// Returns a plan of `nicstripe bench` for 5 s.
fn bench(scene: &Scene<'_>) -> Plan {
    let command = on_host(scene, Host::A, program());
    let mut client = as_nicstripe(command, scene.place, Host::A, "bench");
    client
        .arg(&scene.peer)
        .args(["-t", "5", "--repeat", "1", "--json", "--no-history"]);
    Plan {
        servers: vec![daemon(scene, program())],
        clients: vec![(Host::A, client)],
    }
}

/// Returns a plan with an sshd on host B. `nicstripe cp` starts the program there itself.
fn over_ssh(scene: &Scene<'_>) -> Result<Plan> {
    let (sshd, server) = sshd(scene)?;
    let file = scene.place.files(Host::B).join(scene.sample.name()?);
    let remote = format!("root@{}:{}", scene.peer, file.display());
    let mut client = cp_by(scene, program(), &remote)?;
    client.arg("--json").env("NICSTRIPE_SSH", sshd.client());
    Ok(Plan {
        servers: vec![server],
        clients: vec![(Host::A, client)],
    })
}

/// Returns a plan with this bench as receiver and sender; `benches/floor/pair.rs` parses the
/// arguments.
fn floor(scene: &Scene<'_>) -> Result<Plan> {
    let own = env::current_exe()?;
    let addresses = |host| {
        let links = 0..scene.cables.count();
        let addresses = links.map(|link| scene.lab.address(host, link).to_string());
        addresses.collect::<Vec<_>>().join(",")
    };
    let part = |part: &str, host: Host, file: &Path| {
        let mut command = scene.lab.command(host, &own);
        command
            .args(["--part", part])
            .args(["--size", &scene.sample.size.to_string()])
            .args(["--own", &addresses(host)])
            .args(["--peer", &addresses(host.peer())])
            .arg("--file")
            .arg(file);
        command
    };
    let receiver = Server {
        host: scene.to(),
        command: part("receiver", scene.to(), &scene.received()?),
        ready: Ready::Says(LISTENING),
    };
    Ok(Plan {
        servers: vec![receiver],
        clients: vec![(scene.from, part("sender", scene.from, &scene.sample.path))],
    })
}

/// Returns a plan in which ssh only connects.
fn ssh(scene: &Scene<'_>) -> Result<Plan> {
    let (sshd, server) = sshd(scene)?;
    let typed = sshd.client();
    let mut words = typed.split(' ');
    let mut client = scene.lab.command(Host::A, words.next().unwrap_or("ssh"));
    client
        .args(words)
        .arg(format!("root@{}", scene.peer))
        .arg("true");
    Ok(Plan {
        servers: vec![server],
        clients: vec![(Host::A, client)],
    })
}

/// Returns a plan with an sshd on host B and scp on host A.
fn scp(scene: &Scene<'_>) -> Result<Plan> {
    let (sshd, server) = sshd(scene)?;
    let mut client = scene.lab.command(Host::A, "scp");
    client
        .args(["-O", "-c", "aes128-gcm@openssh.com"])
        .args(sshd.copy_options());
    let remote = |path: &Path| format!("root@{}:{}", scene.peer, path.display());
    let received = scene.received()?;
    match scene.from {
        Host::A => client.arg(&scene.sample.path).arg(remote(&received)),
        Host::B => client.arg(remote(&scene.sample.path)).arg(received),
    };
    Ok(Plan {
        servers: vec![server],
        clients: vec![(Host::A, client)],
    })
}

/// Returns an sshd on host B.
fn sshd(scene: &Scene<'_>) -> Result<(Sshd, Server)> {
    let (sshd, command) = sshd_in(&scene.lab, scene.place)?;
    let server = Server {
        host: Host::B,
        command,
        ready: Ready::Says(Sshd::READY),
    };
    Ok((sshd, server))
}

/// Makes keys and a configuration of an sshd on host B, and returns its command. It listens once it
/// has printed [`Sshd::READY`].
pub fn sshd_in(lab: &Lab, place: &Place) -> Result<(Sshd, Command)> {
    if let Some(obstacle) = Sshd::obstacle() {
        return Err(obstacle.into());
    }
    let folder = place.logs().join("ssh");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let home = place.home(Host::B);
    let sshd = Sshd::in_folder(&folder, home.config(), &place.files(Host::B));
    let command = sshd.command(|program| lab.command(Host::B, program));
    Ok((sshd, command))
}

/// Returns a nicstripe command for a host, as root or unprivileged according to the scene.
fn on_host(scene: &Scene<'_>, host: Host, program: &str) -> Command {
    match scene.rights {
        Rights::All => scene.lab.command(host, program),
        Rights::None => scene.lab.unprivileged_command(host, program),
    }
}

/// Completes a nicstripe command to `serve --root` on host B, with host B's files.
pub(crate) fn as_daemon(command: Command, place: &Place) -> Command {
    let mut command = as_nicstripe(command, place, Host::B, "serve");
    command.arg("--root").arg(place.files(Host::B));
    command
}

/// Adds a subcommand and the host's `NICSTRIPE_HOME` to a nicstripe command.
pub fn as_nicstripe(mut command: Command, place: &Place, host: Host, subcommand: &str) -> Command {
    command
        .arg(subcommand)
        .env("NICSTRIPE_HOME", place.home(host).config())
        .env_remove("RUST_LOG");
    command
}

/// Right to run every command, at the beginning of a line of peers.
const ALL_COMMANDS: &str = "exec=*";

/// Report of `nicstripe cp --json`, limited to the fields that the benches use.
#[derive(Debug, Deserialize)]
pub struct CpReport {
    pub blake3: Option<String>,
    pub resumed_bytes: Option<u64>,
    pub resent_bytes: Option<u64>,
    pub failovers: Option<u64>,
    /// Time from the first byte of the file until it was durable.
    pub moving_s: Option<f64>,
    pub tree: Option<TreeReport>,
    pub links: Vec<LinkReport>,
}

/// Part of a [`CpReport`] about a directory tree.
#[derive(Debug, Deserialize)]
pub struct TreeReport {
    /// Number of copied files of the tree.
    pub files: u64,
    /// Number of entries that were up to date at the receiver.
    pub unchanged: u64,
    pub failed: u64,
}

/// Part of a [`CpReport`] about one link.
#[derive(Debug, Deserialize)]
pub struct LinkReport {
    pub interface: String,
    pub peer_interface: Option<String>,
    pub remote: String,
    pub bytes: u64,
    pub verified: Option<bool>,
    pub path_mtu: Option<u32>,
}

impl CpReport {
    /// Parses the last line of the output of `nicstripe cp --json`, which is the report.
    pub fn parse(output: &str) -> Result<Self> {
        let last = output
            .lines()
            .next_back()
            .ok_or("nicstripe cp printed no report")?;
        Ok(serde_json::from_str(last)?)
    }
}

/// Returns a plan with one iperf3 server and client per cable. Each client sends bytes in
/// proportion to its cable's rate.
fn iperf3(scene: &Scene<'_>) -> Plan {
    let mut plan = Plan {
        servers: Vec::new(),
        clients: Vec::new(),
    };
    for (link, bytes) in scene
        .cables
        .divide(scene.sample.size)
        .into_iter()
        .enumerate()
    {
        let port = 5201 + u16::try_from(link).unwrap_or(0);
        let [near, far] =
            [scene.from, scene.to()].map(|host| scene.lab.address(host, link).to_string());
        let mut server = scene.lab.command(scene.to(), "iperf3");
        server.args(["-s", "-B", &far, "-p", &port.to_string()]);
        plan.servers.push(Server {
            host: scene.to(),
            command: server,
            ready: Ready::Listens(port),
        });
        let mut client = scene.lab.command(scene.from, "iperf3");
        let bound = format!("{near}%{}", scene.lab.interface(link));
        client.args([
            "-c",
            &far,
            "-B",
            &bound,
            "-p",
            &port.to_string(),
            "-n",
            &bytes.to_string(),
        ]);
        plan.clients.push((scene.from, client));
    }
    plan
}

/// Returns a plan with nginx at the sender and a download client at the receiver.
fn pull(scene: &Scene<'_>, client: Command) -> Result<Plan> {
    let server = Server {
        host: scene.from,
        command: nginx(&scene.lab, scene.place, scene.from, "")?,
        ready: Ready::Listens(NGINX_PORT),
    };
    Ok(Plan {
        servers: vec![server],
        clients: vec![(scene.to(), client)],
    })
}

/// Returns the nginx command for a host, which serves the host's files at [`NGINX_PORT`]. `directives`
/// are added to those of the server.
pub fn nginx(lab: &Lab, place: &Place, host: Host, directives: &str) -> Result<Command> {
    let folder = place.logs().join("nginx");
    fs::create_dir_all(&folder)?;
    let (folder, root) = (folder.display(), place.files(host));
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {folder};"))
        .concat();
    let settings = format!(
        "daemon off; master_process off; pid {folder}/pid; error_log {folder}/error; events {{ worker_connections 512; }}\n\
         http {{ access_log off; sendfile on; keepalive_requests 1000000; {temporary}\n\
         server {{ listen 0.0.0.0:{NGINX_PORT}; root {}; {directives} }} }}\n",
        root.display()
    );
    let file = place.logs().join("nginx.conf");
    fs::write(&file, settings)?;
    let mut command = lab.command(host, "nginx");
    command
        .args(["-p", &folder.to_string(), "-e", &format!("{folder}/error")])
        .arg("-c")
        .arg(file);
    Ok(command)
}

/// Returns the file's nginx URLs, one per cable.
fn urls(scene: &Scene<'_>) -> Result<Vec<String>> {
    let name = scene.sample.name()?;
    let url = |link| {
        format!(
            "http://{}:{NGINX_PORT}/{name}",
            scene.lab.address(scene.from, link)
        )
    };
    Ok((0..scene.cables.count()).map(url).collect())
}

/// Returns the aria2 command with four connections per cable.
fn aria2(scene: &Scene<'_>) -> Result<Command> {
    let mut command = scene.lab.command(scene.to(), "aria2c");
    command.args([
        "--no-conf",
        "-q",
        "-c",
        "-x",
        "4",
        "-s",
        &connections(scene),
        "-k",
        "1M",
        "--file-allocation=none",
    ]);
    command
        .args(["--auto-save-interval=1", "--uri-selector=inorder", "-d"])
        .arg(scene.place.files(scene.to()))
        .args(urls(scene)?);
    Ok(command)
}

/// Returns the axel command with four connections per cable.
fn axel(scene: &Scene<'_>) -> Result<Command> {
    let mut command = scene.lab.command(scene.to(), "axel");
    command
        .args(["-q", "-n", &connections(scene), "-o"])
        .arg(scene.received()?)
        .args(urls(scene)?)
        .env("HOME", scene.place.logs());
    Ok(command)
}

fn connections(scene: &Scene<'_>) -> String {
    (4 * scene.cables.count()).to_string()
}

/// Returns a plan with an rsync daemon at the receiver and an rsync client at the sender, over the
/// first cable.
fn rsync(scene: &Scene<'_>) -> Result<Plan> {
    let server = rsync_daemon(&scene.lab, scene.place, scene.to())?;
    let mut client = scene.lab.command(scene.from, "rsync");
    client
        .args(["--inplace", "--whole-file"])
        .arg(&scene.sample.path);
    client.arg(format!(
        "rsync://{}:{RSYNC_PORT}/to/",
        scene.lab.address(scene.to(), 0)
    ));
    let server = Server {
        host: scene.to(),
        command: server,
        ready: Ready::Listens(RSYNC_PORT),
    };
    Ok(Plan {
        servers: vec![server],
        clients: vec![(scene.from, client)],
    })
}

/// Returns the command of an rsync daemon on [`RSYNC_PORT`] that serves the host's files as the
/// module `to`.
pub(crate) fn rsync_daemon(lab: &Lab, place: &Place, host: Host) -> Result<Command> {
    let settings = place.logs().join("rsyncd.conf");
    let module = place.files(host);
    fs::write(
        &settings,
        format!(
            "use chroot = no\nuid = 0\ngid = 0\n[to]\npath = {}\nread only = no\n",
            module.display()
        ),
    )?;
    let mut command = lab.command(host, "rsync");
    command
        .args(["--daemon", "--no-detach", &format!("--port={RSYNC_PORT}")])
        .arg(format!("--config={}", settings.display()));
    Ok(command)
}

/// Returns a plan with a GridFTP server at the receiver and a client with four connections, over
/// the first cable.
fn gridftp(scene: &Scene<'_>) -> Result<Plan> {
    let address = scene.lab.address(scene.to(), 0).to_string();
    let server = gridftp_server(
        scene,
        scene.to(),
        GRIDFTP_PORT,
        &["-data-interface", &address],
    );
    let mut client = scene.lab.command(scene.from, "globus-url-copy");
    client
        .args(["-q", "-fast", "-p", "4"])
        .arg(format!("file://{}", scene.sample.path.display()));
    client
        .arg(format!(
            "ftp://{address}:{GRIDFTP_PORT}{}",
            scene.received()?.display()
        ))
        .env("HOME", scene.place.logs());
    Ok(Plan {
        servers: vec![server],
        clients: vec![(scene.from, client)],
    })
}

/// Returns a plan for striped GridFTP: one front end and one data node per cable at each host. The
/// client starts a third-party transfer between the front ends.
fn gridftp_striped(scene: &Scene<'_>) -> Result<Plan> {
    let count = scene.cables.count();
    let mut servers = Vec::new();
    let ports = (GRIDFTP_NODES..).take(count);
    let nodes: Vec<String> = ports
        .clone()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    for host in [scene.from, scene.to()] {
        for (link, port) in ports.clone().enumerate() {
            let address = scene.lab.address(host, link).to_string();
            servers.push(gridftp_server(
                scene,
                host,
                port,
                &[
                    "-dn",
                    "-ipc-interface",
                    "127.0.0.1",
                    "-data-interface",
                    &address,
                ],
            ));
        }
        servers.push(gridftp_server(
            scene,
            host,
            GRIDFTP_PORT,
            &["-r", &nodes.join(","), "-stripe-count", &count.to_string()],
        ));
    }
    let url = |host, path: PathBuf| {
        format!(
            "ftp://{}:{GRIDFTP_PORT}{}",
            scene.lab.address(host, 0),
            path.display()
        )
    };
    let mut client = scene.lab.command(scene.from, "globus-url-copy");
    client
        .args(["-q", "-fast", "-stripe", "-sbs", "1048576", "-p", "4"])
        .env("HOME", scene.place.logs());
    client.args([
        url(scene.from, scene.sample.path.clone()),
        url(scene.to(), scene.received()?),
    ]);
    Ok(Plan {
        servers,
        clients: vec![(scene.from, client)],
    })
}

fn gridftp_server(scene: &Scene<'_>, host: Host, port: u16, more: &[&str]) -> Server {
    let mut command = scene.lab.command(host, "globus-gridftp-server");
    command.args([
        "-s",
        "-aa",
        "-anonymous-user",
        "root",
        "-allow-root",
        "-c",
        "none",
        "-auth-level",
        "0",
        "-p",
        &port.to_string(),
    ]);
    command.args(more).env("HOME", scene.place.logs());
    Server {
        host,
        command,
        ready: Ready::Listens(port),
    }
}

pub const NGINX_PORT: u16 = 8080;
pub(crate) const RSYNC_PORT: u16 = 8730;
const GRIDFTP_PORT: u16 = 2811;
/// Port of the first GridFTP data node. Each further node uses the next port.
const GRIDFTP_NODES: u16 = 6001;

/// Prefix of the line that `nicstripe serve` prints on standard error once it listens.
pub const LISTENING: &str = "listening on";
