//! Programs in C and Go, built against an installation of this library.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    thread,
    time::Duration,
};

use crate::served::{Served, garbage};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Memory errors and definite leaks fail a program. Blocks of the library's threads that have not
/// ended when the program does are "possibly lost".
const VALGRIND: [&str; 6] = [
    "valgrind",
    "--quiet",
    "--error-exitcode=99",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite,indirect",
    "--show-leak-kinds=definite,indirect",
];

pub(crate) fn only_symbols_of_the_interface_are_exported() {
    let library = installed().join("lib/libnicstripe.so");
    let symbols = output(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(&library),
    );
    let symbols: Vec<_> = symbols
        .lines()
        .filter_map(|line| line.split(' ').next_back())
        .collect();
    let header = fs::read_to_string(Path::new(ROOT).join("include/nicstripe.h")).unwrap();
    assert!(symbols.len() > 40, "{symbols:?}");
    for symbol in symbols {
        assert!(header.contains(&format!("{symbol}(")), "{symbol}");
    }
    let dynamic = output(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains("soname: [libnicstripe.so.0]"), "{dynamic}");
}

pub(crate) fn the_example_uses_each_function() {
    let example = fs::read_to_string(Path::new(ROOT).join("examples/backup.c")).unwrap();
    let header = fs::read_to_string(Path::new(ROOT).join("include/nicstripe.h")).unwrap();
    let functions = header
        .split(['(', ' ', '*'])
        .zip(header.split_inclusive(['(', ' ', '*']));
    for (function, cut) in functions {
        if function.starts_with("nicstripe_") && cut.ends_with('(') {
            assert!(example.contains(&format!("{function}(")), "{function}");
        }
    }
}

pub(crate) fn a_c_program_backs_up() {
    let program = compiled("examples/backup.c", &[], &shared());
    backs_up(&program, &VALGRIND);
}

pub(crate) fn a_static_c_program_backs_up() {
    let archive = installed().join("lib/libnicstripe.a");
    let mut libraries = vec![archive.to_str().unwrap().to_owned()];
    libraries.extend(pkg_config(&["--static", "--libs-only-l"]));
    libraries.retain(|library| library != "-lnicstripe");
    backs_up(&compiled("examples/backup.c", &["static"], &libraries), &[]);
}

pub(crate) fn a_go_program_backs_up() {
    let program = installed().join("backup-go");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg(".");
    go.current_dir(Path::new(ROOT).join("examples/go"))
        .env("CGO_CFLAGS", "-Wall -Werror")
        .env("PKG_CONFIG_PATH", installed().join("lib/pkgconfig"))
        .env("GOPROXY", "off");
    output(&mut go);
    let mut vet = Command::new("go");
    vet.arg("vet")
        .current_dir(Path::new(ROOT).join("examples/go"))
        .env("PKG_CONFIG_PATH", installed().join("lib/pkgconfig"));
    output(&mut vet);
    backs_up(&program, &[]);
}

pub(crate) fn the_program_of_the_readme_compiles() {
    let readme = fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap();
    let (_, program) = readme.split_once("```c\n").unwrap();
    let (program, _) = program.split_once("```").unwrap();
    let source = installed().join("readme.c");
    fs::write(&source, program).unwrap();
    compiled(source.to_str().unwrap(), &[], &shared());
}

pub(crate) fn rates_are_measured() {
    let program = compiled("examples/rate.c", &[], &shared());
    let served = Served::start();
    for what in ["put", "get", "put-objects", "get-objects"] {
        let mut run = Command::new(&program);
        run.args(["127.0.0.1", what, "4"])
            .env("NICSTRIPE_PORT", served.port.to_string());
        let printed = output(run_at(&mut run, &served));
        assert!(printed.trim().parse::<f64>().unwrap() > 0.0, "{printed}");
    }
}

pub(crate) fn calls_that_must_fail_do_with_their_codes() {
    let program = compiled("tests/programs/bad.c", &["-pthread"], &shared());
    let mut served = Served::start();
    // A hang ends it.
    let mut run = Command::new("timeout");
    run.arg("300")
        .args(VALGRIND)
        .arg(&program)
        .args([served.port.to_string(), garbage().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = run_at(&mut run, &served).spawn().unwrap();
    let mut answers = child.stdin.take().unwrap();
    let asked = BufReader::new(child.stdout.take().unwrap());
    for line in asked.lines() {
        match line.unwrap().as_str() {
            "crash" => served.crash(),
            "start" => served.begin(),
            other => panic!("{other}"),
        }
        answers.write_all(b"done\n").unwrap();
    }
    assert!(child.wait().unwrap().success());
}

/// Runs a backup program, below a tool that checks it, and compares what it leaves.
fn backs_up(program: &Path, below: &[&str]) {
    let (served, file, tree) = with_files();
    let mut run = match below {
        [tool, options @ ..] => {
            let mut run = Command::new(tool);
            run.args(options).arg(program);
            run
        }
        [] => Command::new(program),
    };
    run.args(["127.0.0.1", &served.port.to_string()])
        .args([&file, &tree]);
    let printed = output(run_at(&mut run, &served));
    for line in [
        "list: packs/",
        "walk: tree/deep/a",
        "last of 19000 bytes: a line of the pack",
        "read 1 byte: 2",
        "removed: yes",
        "cancelled: yes",
        "exec: 7, \"input\" and \"copied\"",
        "interrupted: 21",
        "done by nicstripe 0.1.0",
    ] {
        assert!(
            printed.lines().any(|printed| printed == line),
            "{line}: {printed}"
        );
    }
    let bytes = fs::read(&file).unwrap();
    assert!(fs::read(served.root().join("backup/file")).unwrap() == bytes);
    assert!(fs::read(format!("{}.back", file.display())).unwrap() == bytes);
    let back = PathBuf::from(format!("{}.back", tree.display()));
    assert_eq!(fs::read(back.join("deep/a")).unwrap(), b"a");
    assert!(!back.join("left.tmp").exists());
}

fn with_files() -> (Served, PathBuf, PathBuf) {
    let served = Served::start();
    let (file, tree) = (
        served.dir.path().join("file"),
        served.dir.path().join("tree"),
    );
    let bytes: Vec<u8> = (0..4 << 20).map(|at: u32| (at ^ (at >> 9)) as u8).collect();
    fs::write(&file, bytes).unwrap();
    fs::create_dir_all(tree.join("deep")).unwrap();
    fs::write(tree.join("deep/a"), "a").unwrap();
    fs::write(tree.join("left.tmp"), "t").unwrap();
    (served, file, tree)
}

fn run_at<'a>(command: &'a mut Command, served: &Served) -> &'a mut Command {
    command
        .env("NICSTRIPE_HOME", served.home())
        .env("LD_LIBRARY_PATH", installed().join("lib"))
}

/// Compiles a C program as strictly as possible. `extra` are flags, or a suffix of the program's name.
fn compiled(source: &str, extra: &[&str], libraries: &[String]) -> PathBuf {
    let stem = Path::new(source).file_stem().unwrap().to_str().unwrap();
    let program = installed().join(format!("{stem}{}", extra.concat()));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g"])
        .args(extra.iter().filter(|flag| flag.starts_with('-')))
        .args(pkg_config(&["--cflags"]))
        .arg("-o")
        .arg(&program)
        .arg(Path::new(ROOT).join(source))
        .args(libraries);
    output(&mut cc);
    program
}

fn shared() -> Vec<String> {
    pkg_config(&["--libs"])
}

fn pkg_config(options: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command
        .env("PKG_CONFIG_PATH", installed().join("lib/pkgconfig"))
        .args(options)
        .arg("nicstripe");
    let words = output(&mut command);
    words.split_whitespace().map(str::to_owned).collect()
}

/// Builds the library as `cargo test` does, and installs it once for all tests.
fn installed() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
        // With the tests, so that dependencies have the features of this build.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        // Set by `cargo test`; some build scripts run again if they change.
        for (variable, _) in env::vars_os() {
            let name = variable.to_string_lossy();
            if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
                cargo.env_remove(&variable);
            }
        }
        cargo
            .args(["build", "--locked", "--lib", "--tests", "--target-dir"])
            .arg(target)
            .args((!cfg!(debug_assertions)).then_some("--release"))
            .current_dir(ROOT);
        output(&mut cargo);
        let mut install = Command::new(Path::new(ROOT).join("install"));
        let profile = if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        };
        install
            .env("PREFIX", &prefix)
            .env("BUILT", target.join(profile));
        output(&mut install);
        prefix
    })
}

/// Returns the standard output of a command that must succeed within five minutes.
fn output(command: &mut Command) -> String {
    let name = format!("{command:?}");
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = child
        .spawn()
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let id = child.id();
    let (sender, ended) = std::sync::mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(ended) = ended.recv_timeout(Duration::from_secs(300)) else {
        let _ = Command::new("kill").arg(id.to_string()).status();
        panic!("{name} has not ended");
    };
    let ended = ended.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&ended.stdout), text(&ended.stderr));
    assert!(
        ended.status.success(),
        "{name}: {}\n{out}\n{err}",
        ended.status
    );
    out
}
