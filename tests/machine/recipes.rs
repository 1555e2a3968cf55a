//! Tests of `docs/RECIPES.md`: programs of others over `nicstripe exec`, in both directions.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs::{self, File, Permissions},
    os::unix::{
        ffi::OsStringExt as _,
        fs::{PermissionsExt as _, symlink},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use libtest_mimic::Completion;
use nicstripe_testkit::{
    Outcome, Process, content, is_same,
    pair::{LINKS, MIB, Pair},
    program, tests,
    tree::plant,
    trial::{Test, is_installed, lacks},
};
use rustix::process::geteuid;
use tempfile::TempDir;

pub(crate) const TESTS: &[Test] = tests![
    tar_goes_both_ways,
    rsync_goes_both_ways,
    git_clones_and_pushes,
    scp_and_sftp_go_both_ways,
    a_block_device_is_written_and_read,
    a_cluster_of_postgresql_is_backed_up,
    restic_backs_up_and_restores,
    borg_backs_up_and_restores,
];

/// Client and daemon over two links. The client's line permits these commands.
struct Recipe {
    pair: Pair,
}

impl Recipe {
    fn new(rules: &[&str]) -> Self {
        let rules: Vec<String> = rules
            .iter()
            .map(|rule| format!("exec=\"{rule}\""))
            .collect();
        let pair = Pair::serving(&[], &rules.join(","));
        let source = pair.client.path("src");
        plant(&source, "a b/c  d", content(3 * MIB));
        plant(&source, "größe 'x' \"y\" $HOME * \\", b"odd");
        plant(&source, "large", content(12 * MIB + 7));
        plant(&source, "empty", b"");
        symlink("a b/c  d", source.join("link")).unwrap();
        Self { pair }
    }

    /// Runs a shell script on the client until it ends well. `$exec` is `nicstripe exec` with its
    /// options, and `$rsh` a program that calls it.
    #[track_caller]
    fn run(&self, script: &str) -> Outcome {
        let exec = self.exec();
        let rsh = self.pair.client.home().join("rsh");
        fs::write(&rsh, format!("#!/bin/sh\nexec {exec} \"$@\"\n")).unwrap();
        fs::set_permissions(&rsh, Permissions::from_mode(0o755)).unwrap();
        let mut command = self.pair.client.command("/bin/sh");
        command
            .env("PATH", path())
            .env("exec", exec)
            .env("rsh", rsh)
            .args(["-euc", script]);
        Process::spawn(command).finish().expect(0)
    }

    fn exec(&self) -> String {
        let [one, other] = LINKS;
        let port = self.pair.daemon.port;
        format!("{} exec -P {port} --link {one} --link {other}", program())
    }

    /// Asserts that a tree has the content of the source.
    #[track_caller]
    fn is_source(&self, copy: &Path) {
        let [source, copy] = [self.pair.client.path("src").as_path(), copy].map(contents);
        assert!(source.keys().eq(copy.keys()), "{:?}", copy.keys());
        for (name, bytes) in source {
            assert!(is_same(&copy[&name], &bytes), "{}", name.display());
        }
    }
}

/// Returns the bytes of each file and the target of each symbolic link in a tree.
fn contents(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut contents, mut folders) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_owned();
            if path.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                contents.insert(name, target.into_os_string().into_vec());
            } else if path.is_dir() {
                folders.push(path);
            } else {
                contents.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    contents
}

fn path() -> OsString {
    env::var_os("PATH").unwrap_or_default()
}

fn tar_goes_both_ways() -> Completion {
    if let Some(lack) = lacks(&["tar"]) {
        return lack;
    }
    let recipe = Recipe::new(&["tar -xf -", "tar -cf - src"]);
    recipe.run("tar -cf - src | $exec 127.0.0.1 -- tar -xf -");
    recipe.is_source(&recipe.pair.server.path("src"));
    recipe.run("mkdir back; $exec 127.0.0.1 -- tar -cf - src >tar; tar -xf tar -C back");
    recipe.is_source(&recipe.pair.client.path("back/src"));
    Completion::Completed
}

fn rsync_goes_both_ways() -> Completion {
    if let Some(lack) = lacks(&["rsync"]) {
        return lack;
    }
    let recipe = Recipe::new(&["rsync --server *"]);
    recipe.run("rsync -a -e \"$exec\" src/ 127.0.0.1:copy/");
    recipe.is_source(&recipe.pair.server.path("copy"));
    recipe.run("rsync -a -e \"$exec\" 127.0.0.1:copy/ back/");
    recipe.is_source(&recipe.pair.client.path("back"));
    recipe.run("rsync -as -e \"$exec\" src/ '127.0.0.1:odd  name/'");
    recipe.is_source(&recipe.pair.server.path("odd  name"));
    // No shell expands a pattern; with -s rsync does.
    recipe.run("rsync -as -e \"$exec\" '127.0.0.1:cop[x-z]/*' expanded/");
    recipe.is_source(&recipe.pair.client.path("expanded"));
    // A name that is not UTF-8.
    recipe.run(
        "odd=$(printf 'x-\\377')
         cp -a src \"$odd\"
         rsync -a -e \"$exec\" \"$odd\" 127.0.0.1:bytes/
         rsync -a -e \"$exec\" \"127.0.0.1:bytes/$odd/\" bytes/",
    );
    recipe.is_source(&recipe.pair.client.path("bytes"));
    Completion::Completed
}

fn git_clones_and_pushes() -> Completion {
    if let Some(lack) = lacks(&["git"]) {
        return lack;
    }
    let rules = ["git-upload-pack 'a b.git'", "git-receive-pack 'a b.git'"];
    let recipe = Recipe::new(&rules);
    let mut init = recipe.pair.server.command("git");
    init.env("PATH", path())
        .args(["init", "-q", "--bare", "a b.git"]);
    Process::spawn(init).finish().expect(0);
    recipe.run(
        "export GIT_SSH_COMMAND=\"$exec\"
         cd src
         git init -q
         git add .
         git -c user.name=a -c user.email=a@b commit -q -m first
         git push -q '127.0.0.1:a b.git' HEAD:refs/heads/main
         rm -rf .git
         cd ..
         git clone -q -b main '127.0.0.1:a b.git' clone
         rm -rf clone/.git",
    );
    recipe.is_source(&recipe.pair.client.path("clone"));
    Completion::Completed
}

fn scp_and_sftp_go_both_ways() -> Completion {
    if let Some(lack) = lacks(&["scp", "sftp"]) {
        return lack;
    }
    if !is_installed("sftp-server") && !SFTP_FOLDERS.iter().any(|folder| has_server(folder)) {
        return Completion::ignored_with("this machine has no sftp-server");
    }
    let recipe = Recipe::new(&["sftp-server"]);
    let (client, server) = (&recipe.pair.client, &recipe.pair.server);
    recipe.run("scp -q -S \"$rsh\" src/large '127.0.0.1:a b'");
    recipe.run("scp -q -S \"$rsh\" '127.0.0.1:a b' back");
    recipe.run("scp -q -r -C -S \"$rsh\" src 127.0.0.1:copy");
    assert!(is_same(&server.read("a b"), &client.read("src/large")));
    assert!(is_same(&client.read("back"), &client.read("src/large")));
    assert!(is_same(
        &server.read("copy/a b/c  d"),
        &client.read("src/a b/c  d")
    ));
    client.write(
        "batch",
        "put src/large 'c d'\nget 'c d' again\nrename 'c d' e\n",
    );
    recipe.run("sftp -q -b batch -S \"$rsh\" 127.0.0.1");
    assert!(is_same(&server.read("e"), &client.read("src/large")));
    assert!(is_same(&client.read("again"), &client.read("src/large")));
    Completion::Completed
}

/// Folders outside PATH in which the daemon finds `sftp-server`.
const SFTP_FOLDERS: &[&str] = &[
    "/usr/lib/openssh",
    "/usr/libexec/openssh",
    "/usr/lib/ssh",
    "/usr/libexec",
];

fn has_server(folder: &str) -> bool {
    Path::new(folder).join("sftp-server").exists()
}

fn a_block_device_is_written_and_read() -> Completion {
    if let Some(lack) = lacks(&["dd", "losetup"]) {
        return lack;
    }
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let len = 16 * MIB;
    File::create(&disk).unwrap().set_len(len as u64).unwrap();
    let device = match Device::of(&disk) {
        Ok(device) => device,
        Err(why) => return Completion::ignored_with(format!("no loop device: {why}")),
    };
    let name = &device.0;
    let write = format!("dd of={name} bs=1M conv=fsync");
    let read = format!("dd if={name} bs=1M");
    let recipe = Recipe::new(&[&write, &read]);
    let image = content(len);
    recipe.pair.client.write("image", &image);
    recipe.run(&format!("$exec 127.0.0.1 -- {write} <image"));
    assert!(is_same(&fs::read(&disk).unwrap(), &image));
    recipe.run(&format!("$exec 127.0.0.1 -- {read} >read"));
    assert!(is_same(&recipe.pair.client.read("read"), &image));
    Completion::Completed
}

/// Loop device. Dropping it detaches the device.
struct Device(String);

impl Device {
    fn of(disk: &Path) -> Result<Self, String> {
        let mut losetup = Command::new("losetup");
        let attached = losetup.args(["--find", "--show"]).arg(disk).output();
        let attached = attached.map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        match attached.status.success() {
            true => Ok(Self(text(&attached.stdout))),
            false => Err(text(&attached.stderr)),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

fn a_cluster_of_postgresql_is_backed_up() -> Completion {
    if let Some(lack) = lacks(&["initdb", "pg_ctl", "pg_basebackup", "tar"]) {
        return lack;
    }
    // PostgreSQL refuses to run as root.
    if geteuid().is_root()
        && let Some(lack) = lacks(&["setpriv"])
    {
        return lack;
    }
    let cluster = Cluster::new();
    cluster.start("data");
    let socket = cluster.folder.path().display();
    let backup = format!("pg_basebackup -h {socket} -U keeper -D - -Ft -X fetch -c fast");
    let recipe = Recipe::new(&[&backup]);
    recipe.run(&format!("$exec 127.0.0.1 -- {backup} >base.tar"));
    cluster.stop("data");
    cluster.extract(&recipe.pair.client.path("base.tar"));
    cluster.start("restored");
    cluster.stop("restored");
    Completion::Completed
}

/// Folder of PostgreSQL's clusters and of their socket, and the cluster that runs.
struct Cluster {
    folder: TempDir,
}

impl Cluster {
    /// Creates a cluster `data`, whose superuser is `keeper`.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        if geteuid().is_root() {
            let owner = Command::new("chown")
                .arg("nobody")
                .arg(folder.path())
                .status();
            assert!(owner.unwrap().success());
        }
        let cluster = Self { folder };
        let data = cluster.path("data");
        let options = ["-A", "trust", "-U", "keeper", "--no-sync", "-D", &data];
        cluster.run("initdb", &options);
        cluster
    }

    fn path(&self, name: &str) -> String {
        let path = self.folder.path().join(name);
        path.into_os_string().into_string().unwrap()
    }

    fn start(&self, name: &str) {
        let folder = self.folder.path().display();
        let options = format!("-F -k {folder} -c listen_addresses=''");
        let (data, log) = (self.path(name), self.path("log"));
        self.run(
            "pg_ctl",
            &["start", "-w", "-D", &data, "-l", &log, "-o", &options],
        );
    }

    fn stop(&self, name: &str) {
        self.run(
            "pg_ctl",
            &["stop", "-w", "-m", "fast", "-D", &self.path(name)],
        );
    }

    /// Makes a cluster `restored` of a backup.
    fn extract(&self, backup: &Path) {
        let restored = self.path("restored");
        self.run("mkdir", &["-m", "700", &restored]);
        let mut tar = self.command("tar");
        tar.args(["-xf", "-", "-C", &restored]);
        tar.stdin(File::open(backup).unwrap());
        assert!(tar.status().unwrap().success());
    }

    #[track_caller]
    fn run(&self, program: &str, arguments: &[&str]) {
        let mut command = self.command(program);
        command.args(arguments).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
    }

    /// Returns a command of a user who is not root.
    fn command(&self, program: &str) -> Command {
        let mut command = match geteuid().is_root() {
            true => Command::new("setpriv"),
            false => Command::new(program),
        };
        if geteuid().is_root() {
            let group = Command::new("id").args(["-g", "nobody"]).output().unwrap();
            let group = String::from_utf8(group.stdout).unwrap();
            let group = format!("--regid={}", group.trim());
            command.args(["--reuid=nobody", &group, "--clear-groups", program]);
        }
        command
            .env_clear()
            .env("PATH", path())
            .env("LC_ALL", "C")
            .current_dir(self.folder.path());
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Fails for a cluster that does not run.
        for name in ["data", "restored"] {
            let mut stop = self.command("pg_ctl");
            stop.args(["stop", "-m", "immediate", "-D", &self.path(name)]);
            let _ = stop.stdin(Stdio::null()).output();
        }
    }
}

fn restic_backs_up_and_restores() -> Completion {
    if let Some(lack) = lacks(&["restic"]) {
        return lack;
    }
    if !is_installed("sftp-server") && !SFTP_FOLDERS.iter().any(|folder| has_server(folder)) {
        return Completion::ignored_with("this machine has no sftp-server");
    }
    let recipe = Recipe::new(&["sftp-server"]);
    recipe.run(
        "export RESTIC_PASSWORD=secret
         restic() { command restic --no-cache -o sftp.command=\"$exec -s 127.0.0.1 sftp\" -r sftp:127.0.0.1:repo \"$@\"; }
         restic init
         restic backup src
         restic check --read-data
         restic restore latest --target back",
    );
    recipe.is_source(&recipe.pair.client.path("back/src"));
    Completion::Completed
}

fn borg_backs_up_and_restores() -> Completion {
    if let Some(lack) = lacks(&["borg"]) {
        return lack;
    }
    let recipe = Recipe::new(&["borg serve *"]);
    let repository: PathBuf = recipe.pair.server.path("repo");
    recipe.run(&format!(
        "export BORG_RSH=\"$exec\" BORG_BASE_DIR=\"$PWD/borg\" BORG_REPO=ssh://127.0.0.1{}
         export BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes
         borg init -e none
         borg create ::first src
         borg check --verify-data
         mkdir back
         cd back
         borg extract ::first",
        repository.display()
    ));
    recipe.is_source(&recipe.pair.client.path("back/src"));
    Completion::Completed
}
