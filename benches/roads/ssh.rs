//! sshd on host B with a temporary key and configuration, and a matching ssh client on host A.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use nicstripe_lab::{Host, Lab};
use nicstripe_testkit::{
    bench::{Place, Process, Result},
    program,
};

/// Running sshd, and the configuration of its client.
pub(crate) struct Ssh {
    daemon: Process,
    /// Path of the client's configuration file.
    pub(crate) config: PathBuf,
}

impl Ssh {
    /// Starts sshd. The client connects through `nicstripe dial` if `by_dial` is set.
    pub(crate) fn start(lab: &Lab, place: &Place, by_dial: bool) -> Result<Self> {
        let folder = place.base().join("ssh");
        if !folder.exists() {
            make_keys(&folder)?;
        }
        let path = |name: &str| folder.join(name).display().to_string();
        let settings = format!(
            "Port {PORT}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n\
             UseDNS no\nPidFile none\nSubsystem sftp internal-sftp\n",
            path("host"),
            path("user.pub")
        );
        fs::write(path("sshd_config"), settings)?;
        // sshd's privilege separation directory, which Debian creates with the service.
        fs::create_dir_all("/run/sshd")?;
        let mut command = lab.command(Host::B, SSHD);
        command.args(["-D", "-e", "-f", &path("sshd_config")]);
        let daemon = Process::spawn(command, "sshd", &place.logs())?;
        daemon.await_listener(PORT)?;
        let peer = lab.address(Host::B, 0);
        let proxy = if by_dial {
            format!("ProxyCommand {} dial {peer} %h:%p\n", program())
        } else {
            String::new()
        };
        let settings = format!(
            "Port {PORT}\nIdentityFile {}\nIdentitiesOnly yes\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nBatchMode yes\n\
             LogLevel ERROR\n{proxy}",
            path("user")
        );
        let config = folder.join("config");
        fs::write(&config, settings)?;
        Ok(Self { daemon, config })
    }

    /// Returns the CPU time of sshd and all its login sessions.
    pub(crate) fn cpu(&self) -> Result<std::time::Duration> {
        self.daemon.cpu()
    }

    /// Returns the `ssh` command with its configuration file, in shell syntax.
    pub(crate) fn command(&self) -> String {
        format!("ssh -F {}", self.config.display())
    }
}

fn make_keys(folder: &std::path::Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    for name in ["host", "user"] {
        let mut command = Command::new("ssh-keygen");
        command
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(folder.join(name))
            .stdin(Stdio::null());
        if !command.status()?.success() {
            return Err("ssh-keygen created no key".into());
        }
    }
    Ok(())
}

/// TCP port on which sshd listens.
pub(crate) const PORT: u16 = 2222;

/// Path of sshd, which refuses to start without an absolute path.
pub(crate) const SSHD: &str = "/usr/sbin/sshd";
