//! Panics of any thread end a command with an error, because threads that wait for the panicked one
//! would wait forever.

use std::{
    io::{self, Write as _},
    panic::{self, PanicHookInfo},
    process,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::exit::Exit;

/// Makes any later panic end the process.
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

/// Makes later panics survivable: a daemon ends only the affected session.
pub(crate) fn survive_panics() {
    SURVIVED.store(true, Ordering::Relaxed);
}

fn described(fault: &PanicHookInfo<'_>) -> String {
    let payload = fault.payload();
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let place = fault
        .location()
        .map(|at| format!("at {}:{}", at.file(), at.line()))
        .unwrap_or_default();
    nicstripe::escaped(format!("{place}: {}", text.unwrap_or("no reason given")).as_bytes())
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

    /// Run by the other test in a separate process.
    #[test]
    #[ignore = "a part of another test: ends the process"]
    fn child_whose_thread_panics_while_it_is_waited_for() {
        end_on_panic();
        let (given, taken) = std::sync::mpsc::channel::<()>();
        let kept = given.clone();
        thread::spawn(move || {
            let _given = given;
            panic!("a fault, \u{1b}for a test");
        });
        let _ = taken.recv();
        drop(kept);
    }

    #[test]
    fn a_thread_that_panics_ends_the_command_with_an_error() {
        let name = "fault::tests::child_whose_thread_panics_while_it_is_waited_for";
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", name, "--ignored", "--nocapture"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if begun.elapsed() > Duration::from_secs(60) {
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
