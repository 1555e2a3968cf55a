//! Real sshd on a host of a lab, for nicstripe over ssh.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::process::geteuid;

use crate::{program, trial::is_installed};

/// Keys and settings of an sshd and of its clients, in a folder. Only root of this machine can log
/// in, with the key of the folder.
#[derive(Debug)]
pub struct Sshd {
    folder: PathBuf,
}

impl Sshd {
    /// TCP port of the sshd.
    pub const PORT: &str = "2222";

    /// Line that the sshd prints on standard error once it accepts connections.
    pub const READY: &str = "Server listening on";

    /// Returns the reason why no sshd can be started here.
    pub fn obstacle() -> Option<String> {
        if !geteuid().is_root() {
            return Some("sshd needs root".into());
        }
        let is_missing = |name: &&str| !is_installed(name) && !Path::new(name).exists();
        let missing = ["ssh", "ssh-keygen", SSHD].into_iter().find(is_missing)?;
        Some(format!("{missing} is not installed"))
    }

    /// Makes the keys and settings in `folder`. Programs that ssh starts have `nicstripe_home`, the
    /// user's home directory `home`, and find this project's program by its name.
    pub fn in_folder(folder: &Path, nicstripe_home: &Path, home: &Path) -> Self {
        for name in ["host", "user"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(folder.join(name))
                .stdin(Stdio::null())
                .status();
            assert!(made.unwrap().success());
        }
        // sshd insists on this folder, which its service makes.
        let _ = fs::create_dir("/run/sshd");
        let programs = fs::canonicalize(program()).unwrap();
        let config = format!(
            "HostKey {0}/host\nAuthorizedKeysFile {0}/user.pub\nStrictModes no\nUsePAM no\nPidFile none\nSubsystem sftp internal-sftp\n\
             PermitRootLogin prohibit-password\nSetEnv NICSTRIPE_HOME={1} PATH={2}:/usr/bin:/bin HOME={3}\n",
            folder.display(),
            nicstripe_home.display(),
            programs.parent().unwrap().display(),
            home.display(),
        );
        fs::write(folder.join("config"), config).unwrap();
        fs::set_permissions(folder.join("user"), fs::Permissions::from_mode(0o600)).unwrap();
        Self {
            folder: folder.to_owned(),
        }
    }

    /// Starts the sshd by a command that `on_host` makes for a program.
    pub fn command(&self, on_host: impl FnOnce(&str) -> Command) -> Command {
        let mut command = on_host(SSHD);
        command
            .args(["-D", "-e", "-p", Self::PORT, "-f"])
            .arg(self.folder.join("config"));
        command
    }

    /// Returns the ssh command of a client, for `NICSTRIPE_SSH`.
    pub fn client(&self) -> String {
        format!(
            "ssh -F none -p {} -i {1}/user -o BatchMode=yes -o StrictHostKeyChecking=accept-new -o UserKnownHostsFile={1}/known",
            Self::PORT,
            self.folder.display()
        )
    }

    /// Returns the options of scp and sftp: those of [`client`](Self::client), except for that of the
    /// port.
    pub fn copy_options(&self) -> Vec<String> {
        let typed = self.client();
        let words = typed.split(' ').skip(1);
        words
            .map(|word| if word == "-p" { "-P" } else { word }.to_owned())
            .collect()
    }
}

const SSHD: &str = "/usr/sbin/sshd";
