//! Panic handling. A panic in any thread ends a command with an error, because threads that wait
//! for the panicked thread would wait forever.

use std::{
    io::{self, Write as _},
    panic::{self, PanicHookInfo},
    process,
    sync::atomic::{AtomicBool, Ordering},
};

use super::exit::Exit;

/// Installs a panic hook that ends the process, unless [`survive_panics`] was called.
pub(crate) fn end_on_panic() {
    panic::set_hook(Box::new(|fault| {
        let text = described(fault);
        if SURVIVED.load(Ordering::Relaxed) {
            return tracing::error!("internal error, {text}");
        }
        // Writes to the stream directly: the panicked thread may hold the lock of the progress
        // bars.
        let _ = writeln!(io::stderr(), "error: internal error, {text}\nhint: {HINT}");
        process::exit(Exit::Failed.code().into());
    }));
}

/// Keeps the process alive after later panics, so that a daemon loses only the affected session.
pub(crate) fn survive_panics() {
    SURVIVED.store(true, Ordering::Relaxed);
}

fn described(fault: &PanicHookInfo<'_>) -> String {
    let payload = fault.payload();
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let location = fault
        .location()
        .map(|at| format!("at {}:{}", at.file(), at.line()))
        .unwrap_or_default();
    nicstripe::escaped(format!("{location}: {}", text.unwrap_or("no reason given")).as_bytes())
}

const HINT: &str = "please report these two lines with the command; received data is kept, the same command resumes";

static SURVIVED: AtomicBool = AtomicBool::new(false);

#[cfg(test)]
mod tests {
    use std::{
        env,
        process::{Command, Stdio},
        thread,
        time::{Duration, Instant},
    };

    use super::*;

    /// Panics in a child process, which the other test starts and examines.
    #[test]
    #[ignore = "a part of another test: ends the process"]
    fn child_whose_thread_panics_while_it_is_waited_for() {
        end_on_panic();
        let (given, taken) = std::sync::mpsc::channel::<()>();
        let written = given.clone();
        thread::spawn(move || {
            let _given = given;
            panic!("a fault, \u{1b}for a test");
        });
        let _ = taken.recv();
        drop(written);
    }

    #[test]
    fn a_thread_that_panics_ends_the_command_with_an_error() {
        let name = "failure::panics::tests::child_whose_thread_panics_while_it_is_waited_for";
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", name, "--ignored", "--nocapture"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let started_at = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if started_at.elapsed() > Duration::from_secs(60) {
                child.kill().unwrap();
                panic!("it still waits for a thread that is gone");
            }
            thread::sleep(Duration::from_millis(10));
        }
        let ended = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(
            ended.status.code(),
            Some(Exit::Failed.code().into()),
            "{stderr}"
        );
        assert!(
            stderr.contains("error: internal error, at ")
                && stderr.contains("a fault, \\u{1b}for a test"),
            "{stderr}"
        );
    }
}
