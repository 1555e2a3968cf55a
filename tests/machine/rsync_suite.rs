//! rsync's own tests, with `nicstripe exec` as their remote shell.
//!
//! apt fetches rsync's source package, which contains the tests. The built tree stays in cargo's
//! directory for the next run.

use std::{
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use libtest_mimic::Completion;
use nicstripe_testkit::{
    Process,
    pair::{LINKS, Pair},
    program, tests,
    trial::{Test, lacks},
};

pub(crate) const TESTS: &[Test] = tests![rsyncs_own_tests_with_a_remote_shell_pass];

/// Tests that start a remote shell. rsync before 3.5 lacks the last three.
const NAMES: &str = "00-hello alt-dest daemon exclude-lsh files-from hardlinks ssh-basic \
    symlink-dirlink-basis remote-shell-newline-escaping scanner-argv-bounds variety";

/// Fetches the source of the installed version `$1` of rsync, otherwise the newest that apt offers.
///
/// apt gets a configuration of its own. That of a machine often lacks source packages, only root
/// may change its lists, and its hooks in `APT::Update` change files outside this folder.
const FETCH: &str = r#"
mkdir sources lists cache
eval "$(apt-config shell list Dir::Etc::sourcelist/f parts Dir::Etc::sourceparts/d)"
for file in "$list" "$parts"*.list "$parts"*.sources; do
  [ ! -f "$file" ] ||
    sed -E 's/^deb /deb-src /; s/^Types:.*/Types: deb-src/' "$file" >"sources/${file##*/}"
done
cat >apt.conf <<END
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "$PWD/sources";
Dir::State::Lists "$PWD/lists";
Dir::Cache "$PWD/cache";
Acquire::Languages "none";
#clear APT::Update;
END
# Fails for a source without source packages.
apt-get -c "$PWD/apt.conf" -qq update || true
echo "$1" >versions
apt-cache -c "$PWD/apt.conf" showsrc --only-source rsync |
  sed -n 's/^Version: //p' | sort -rV >>versions
while read -r version; do
  apt-get -c "$PWD/apt.conf" -qq source --download-only "rsync=$version" </dev/null || continue
  echo "$version" >fetched
  exit
done <versions
echo "apt can fetch no source of rsync" >&2
exit 1
"#;

/// Builds rsync and the programs of its tests, and moves the tree to `$2`. Its `tested` is the
/// installed rsync if that has the version of the source.
///
/// Needs only a C compiler and its library, so the built rsync lacks optional features.
const BUILD: &str = r#"
read -r version <fetched
dpkg-source -x "rsync_${version#*:}.dsc" tree
cd tree
# Otherwise make would run autoconf, because Debian's patches change its input.
touch aclocal.m4 configure.sh config.h.in
CFLAGS=-O0 sh configure.sh -q --disable-md2man --disable-roll-simd --disable-md5-asm --disable-lz4 \
  --disable-zstd --disable-xxhash --disable-openssl --disable-acl-support --disable-xattr-support \
  --with-included-popt --with-included-zlib
echo 'helpers: $(CHECK_PROGS)' >>Makefile
make -s -j2 helpers
tested=rsync
[ "$version" != "$1" ] || tested=$(command -v rsync)
ln -s "$tested" tested
# A test that runs at the same time may have been faster.
mv -T "$PWD" "$2" || [ -e "$2/tested" ]
"#;

/// Runs the named tests in a copy of `$KEPT`, all at once because they mostly wait. Their files are
/// outside the copy, because some tests list it.
///
/// rsync 3.4.2 replaced `runtests.sh` by `runtests.py`, which gives each test its own session. So
/// only the runner can end a test that hangs, after `--timeout`.
const RUN: &str = r#"
export scratchbase=$PWD
mkdir testtmp
cp -a "$KEPT" tree
# Keeps the mode of the file.
cat lsh.sh >tree/support/lsh.sh
cd tree
if [ -e runtests.py ]; then
  exec python3 runtests.py --rsync-bin="$PWD/tested" --timeout 40 -j 16 "$@"
fi
for name; do
  whichtests=$name.test rsync_bin=$PWD/tested sh runtests.sh >"../log-$name" 2>&1 &
done
wait
cat ../log-*
"#;

/// Stand-in for rsync's `support/lsh.sh`, which runs a command on this machine: in the current
/// directory for the host `lh`, in `$HOME` for `localhost`. Adds the test's name to `$CALLS`.
///
/// The daemon's commands do not inherit the environment of a test. `exclude-lsh` needs `CVSIGNORE`.
const SHELL: &str = r#"#!/bin/sh
folder=$HOME
while :; do
  case $1 in
    lh) folder=$PWD; break ;;
    localhost) break ;;
    --no-cd) folder=$PWD ;;
    -*) ;;
    *) echo "rsync's tests have no host $1" >&2; exit 1 ;;
  esac
  shift
done
shift
echo "${scratchdir##*/}" >>"$CALLS"
exec $EXEC 127.0.0.1 env -C "$folder" "HOME=$HOME" "${CVSIGNORE+CVSIGNORE=$CVSIGNORE}" "$@"
"#;

fn rsyncs_own_tests_with_a_remote_shell_pass() -> Completion {
    if let Some(lack) = lacks(&["rsync", "apt-get", "make", "cc", "awk", "perl", "python3"]) {
        return lack;
    }
    let kept = match built() {
        Ok(kept) => kept,
        Err(reason) => return Completion::ignored_with(reason),
    };
    let pair = Pair::serving(&[], r#"exec="env -C *""#);
    let (client, port) = (&pair.client, pair.daemon.port);
    client.write("lsh.sh", SHELL);
    let has = |file: String| kept.join("testsuite").join(file).exists();
    let is_there = |name: &&str| has(format!("{name}.test")) || has(format!("{name}_test.py"));
    let names: Vec<&str> = NAMES.split_whitespace().filter(is_there).collect();
    // Those of rsync 3.4.1.
    assert!(names.len() >= 7, "{names:?}");
    let [one, other] = LINKS;
    let exec = format!("{} exec -P {port} --link {one} --link {other}", program());
    let mut command = client.command("timeout");
    command
        .env("PATH", env::var_os("PATH").unwrap_or_default())
        .env("KEPT", &kept)
        .env("CALLS", client.path("calls"))
        .env("EXEC", exec)
        .args(["-k", "2", "55", "sh", "-euc", RUN, "sh"])
        .args(&names);
    let outcome = Process::spawn(command).finish();
    let calls = fs::read_to_string(client.path("calls")).unwrap_or_default();
    for name in names {
        let is_pass = |line: &str| line.split_whitespace().eq(["PASS", name]);
        assert!(outcome.stdout.lines().any(is_pass), "{name}\n{outcome}");
        assert!(calls.lines().any(|call| call == name), "{name}: {calls}");
    }
    Completion::Completed
}

/// Returns the path of the built tree, or the reason why it cannot be fetched or built.
fn built() -> Result<PathBuf, String> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = tempfile::tempdir_in(place).unwrap();
    let query = r#"dpkg-query -W -f '${source:Version}' rsync"#;
    let version = run(query, 5, &[], folder.path())?;
    let kept = place.join(format!("rsync-suite-{version}"));
    if !kept.exists() {
        let arguments = [OsStr::new(&version), kept.as_os_str()];
        run(FETCH, 15, &arguments, folder.path())?;
        run(BUILD, 50, &arguments, folder.path())?;
    }
    Ok(kept)
}

/// Runs a shell script in a folder for at most this number of seconds. Returns its standard output.
///
/// # Errors
///
/// Returns the last line on standard error if the script fails.
fn run(script: &str, seconds: u32, words: &[&OsStr], folder: &Path) -> Result<String, String> {
    let mut command = Command::new("timeout");
    command
        .args(["-k", "2", &seconds.to_string(), "sh", "-euc", script, "sh"])
        .args(words)
        .env("LC_ALL", "C")
        .current_dir(folder)
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    let [out, error] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let reason = match output.status.code() {
        Some(0) => return Ok(out),
        Some(124) => format!("no end within {seconds} s"),
        _ => error.lines().next_back().unwrap_or_default().to_owned(),
    };
    Err(format!("rsync's own tests: {reason}"))
}
