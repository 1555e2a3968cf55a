//! Tests of the packages' scripts, in a mount namespace of their own. `packaging/check` goes through
//! the life of a whole package.

use std::path::Path;

use libtest_mimic::Completion;
use nicstripe_testkit::{
    Process, Side, tests,
    trial::{Test, lacks},
};

pub(crate) const TESTS: &[Test] = tests![
    a_removed_package_leaves_no_enabled_service_and_a_purged_one_no_unit,
    a_removed_package_leaves_the_service_of_another_program,
];

pub(crate) fn obstacle() -> Option<String> {
    (!rustix::process::geteuid().is_root()).then(|| "only root can run a package's scripts".into())
}

/// Beginning of a script that runs in a mount namespace, in which nothing that it changes is of this
/// machine.
const MACHINE: &str = r#"
for folder in /etc/systemd/system /var/lib /run; do mount -t tmpfs -o mode=755 none $folder; done
mkdir /run/systemd /run/systemd/system fake
for name in systemctl deb-systemd-invoke; do
  printf '#!/bin/sh\necho "%s $*" >> "%s/log"\n' $name "$PWD" > fake/$name
  chmod +x fake/$name
done
PATH=$PWD/fake:$PATH
cd /etc/systemd/system
enable() {
  mkdir -p multi-user.target.wants nas.target.requires nicstripe.service.d
  ln -s nicstripe.service multi-user.target.wants/
  ln -s nicstripe.service nas.target.requires/
  echo '[Service]' > nicstripe.service.d/override.conf
  printf '[Service]\nExecStart=%s serve --root /srv/in\n' "$1" > nicstripe.service
  touch other.service
}
left() { find . -name '*nicstripe*' | sort | tr '\n' ' '; }
expect() { test "$(left)" = "$1" || { echo "left: $(left), expected: $1" >&2; exit 99; }; }
"#;

/// Runs a script after [`MACHINE`]. Returns what the stand-ins for systemd's programs were asked.
#[track_caller]
fn run(script: &str) -> String {
    let side = Side::here();
    let mut command = side.command("unshare");
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging");
    command.args(["-m", "sh", "-ec", &format!("{MACHINE}{script}")]);
    command.arg("sh").arg(scripts);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    Process::spawn(command).finish().expect(0);
    std::fs::read_to_string(side.path("log")).unwrap_or_default()
}

fn a_removed_package_leaves_no_enabled_service_and_a_purged_one_no_unit() -> Completion {
    if let Some(lack) = lacks(&["unshare"]) {
        return lack;
    }
    let kept = "./nicstripe.service ./nicstripe.service.d ";
    let asked = run(&format!(
        r#"
enable /usr/bin/nicstripe
sh "$1/debian/prerm" remove
sh "$1/debian/postrm" remove
expect "{kept}"
sh "$1/debian/postrm" purge
expect ""
test -e other.service
enable '"/usr/bin/nicstripe"'
sh -e "$1/rpm/preun" 0
sh -e "$1/rpm/postun" 0
expect "{kept}"
"#
    ));
    assert!(
        asked.contains("deb-systemd-invoke stop nicstripe"),
        "{asked}"
    );
    assert!(asked.contains("systemctl stop nicstripe"), "{asked}");
    Completion::Completed
}

fn a_removed_package_leaves_the_service_of_another_program() -> Completion {
    if let Some(lack) = lacks(&["unshare"]) {
        return lack;
    }
    let asked = run(r#"
enable /usr/local/bin/nicstripe
all=$(left)
sh "$1/debian/prerm" remove
sh "$1/debian/postrm" remove
sh "$1/debian/postrm" purge
sh -e "$1/rpm/preun" 0
expect "$all"
"#);
    assert!(!asked.contains("stop"), "{asked}");
    Completion::Completed
}
