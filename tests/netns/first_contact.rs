//! Replays the transcripts of `docs/FIRST-CONTACT.md`: typed as they stand there, with a real sshd,
//! on two hosts that have no keys.

use std::{
    io::Write as _,
    process::ChildStdin,
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_lab::{Host, Lab, LinkSpec};
use nicstripe_testkit::{Outcome, Process, Side, Sshd, content, program, tests, trial::Test};

use crate::hosts::{MIB, Rights, side};

pub(crate) const TESTS: &[Test] = tests![the_first_contacts_of_the_document_are_as_it_says];

const DOCUMENT: &str = include_str!("../../docs/FIRST-CONTACT.md");

/// Code of the document, in place of which a run has its own.
const CODE: &str = "7-crossover-violin";

/// Command of the document, and the lines that it prints.
#[derive(Debug)]
struct Step {
    host: &'static str,
    command: &'static str,
    lines: Vec<&'static str>,
}

/// Returns the code blocks of each section that has any.
fn sections() -> Vec<(&'static str, Vec<Step>)> {
    let sections = DOCUMENT.split("\n## ").skip(1);
    let title = |section: &'static str| section.lines().next().unwrap();
    sections
        .map(|section| (title(section), steps(section)))
        .collect()
}

fn steps(section: &'static str) -> Vec<Step> {
    let blocks = section.split("```\n").skip(1).step_by(2);
    let step = |block: &'static str| {
        let (typed, rest) = block.split_once('\n').unwrap();
        let (host, command) = typed.split_once("$ ").unwrap();
        Step {
            host,
            command,
            lines: rest.lines().collect(),
        }
    };
    blocks.map(step).collect()
}

/// Two hosts, of which `nas` has an sshd.
struct Machines {
    laptop: Side,
    nas: Side,
    ssh: String,
    _lab: Arc<Lab>,
}

impl Machines {
    /// Starts what was typed at a host, in a shell.
    fn start(&self, host: &str, typed: &str) -> (Process, ChildStdin) {
        let side = if host == "nas" {
            &self.nas
        } else {
            &self.laptop
        };
        let mut command = side.command("unshare");
        let shell = "echo $0 > /proc/sys/kernel/hostname; eval \"exec $1\"";
        command.args(["--uts", "sh", "-c", shell, host, typed]);
        let folder = std::fs::canonicalize(program()).unwrap();
        let folder = folder.parent().unwrap().display();
        command
            .env("PATH", format!("{folder}:/usr/bin:/bin"))
            .env("NICSTRIPE_SSH", &self.ssh);
        Process::spawn_open(command)
    }

    /// Types the commands of a section one after the other. One that waits for the other machine
    /// ends after it.
    fn replay(&self, steps: &[Step]) -> Duration {
        let begun = Instant::now();
        let mut code = CODE.to_owned();
        let mut waiting: Vec<(&Step, Process, ChildStdin)> = Vec::new();
        for step in steps {
            let (process, stdin) = self.start(step.host, &step.command.replace(CODE, &code));
            if step.lines.first() == Some(&CODE) {
                code = process.await_stdout("-").trim_end().to_owned();
                assert!(code.len() <= 25, "{code}");
                process.await_stderr("on the other machine");
                waiting.push((step, process, stdin));
                continue;
            }
            if step.command.starts_with("nicstripe serve") {
                process.await_stderr("listening on");
                waiting.push((step, process, stdin));
                continue;
            }
            for (other, process, stdin) in &mut waiting {
                if other.lines.contains(&"y") {
                    process.await_stderr("[y/N]");
                    stdin.write_all(b"y\n").unwrap();
                }
            }
            check(step, &process.finish().expect(0), &code);
            for (step, process, _) in waiting.drain(..) {
                if step.command.starts_with("nicstripe serve") {
                    process.kill();
                } else {
                    check(step, &process.finish().expect(0), &code);
                }
            }
        }
        begun.elapsed()
    }
}

/// Compares what a command has printed with the document, but for numbers, keys and paths.
fn check(step: &Step, ended: &Outcome, code: &str) {
    let printed = format!("{}{}", ended.stdout, ended.stderr);
    let mut printed = printed.lines();
    for line in step.lines.iter().filter(|line| **line != "y") {
        if *line == "…" {
            return;
        }
        let found = printed.next().unwrap_or_default().replace(code, CODE);
        assert_eq!(pattern(&found), pattern(line), "{step:#?}\n{ended}");
    }
    assert_eq!(printed.next(), None, "{step:#?}\n{ended}");
}

/// Returns a line with a `#` for each word that differs from run to run.
fn pattern(line: &str) -> String {
    let word = |word: &str| {
        let is_key = word.starts_with('(') && word.matches('-').count() == 2;
        let is_path = word.starts_with('/');
        let is_number = word.chars().any(|c| c.is_ascii_digit()) && !word.contains(CODE);
        match is_key || is_path || is_number {
            true => "#".to_owned(),
            false => word.to_owned(),
        }
    };
    line.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn the_first_contacts_of_the_document_are_as_it_says() {
    let sections = sections();
    assert_eq!(sections.len(), 3);
    for (title, steps) in &sections {
        let typed: usize = steps.iter().map(|step| step.command.len()).sum();
        let yes = steps.iter().flat_map(|step| &step.lines);
        let typed = typed + yes.filter(|line| **line == "y").count();
        assert!(
            DOCUMENT.contains(&format!(" | {typed} | ")),
            "{title}: {typed} typed"
        );
        let lab = Lab::builder()
            .links([LinkSpec::gigabit(); 2])
            .build()
            .unwrap();
        let lab = Arc::new(lab);
        let [laptop, nas] = [Host::A, Host::B].map(|host| side(&lab, host, Rights::All));
        laptop.write("disk.img", content(64 * MIB));
        let keys = laptop.path("keys");
        std::fs::create_dir(&keys).unwrap();
        let sshd = Sshd::in_folder(&keys, &nas.home(), &nas.files());
        let process = Process::spawn(sshd.command(|program| nas.command(program)));
        process.await_stderr(Sshd::READY);
        let machines = Machines {
            // The only user of the sshd, and the address of its name.
            ssh: format!(
                "{} -o LogLevel=ERROR -o User=root -o HostName=10.77.1.2",
                sshd.client()
            ),
            laptop,
            nas,
            _lab: lab,
        };
        let took = machines.replay(steps);
        println!("{title}: {typed} characters, {:.1} s", took.as_secs_f64());
        assert!(
            machines.nas.read("disk.img") == content(64 * MIB),
            "{title}"
        );
        process.kill();
    }
}
