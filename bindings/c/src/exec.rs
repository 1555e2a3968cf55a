//! Commands at the daemon.

use std::mem::MaybeUninit;

use library::exec::ExitStatus;

use crate::{
    client::{checked, nicstripe_client},
    error::{call, required},
    raw::{Bytes, ErrorOut, OwnedBytes, Texts},
};

/// Result of a command. Free with nicstripe_output_free.
#[repr(C)]
pub struct nicstripe_output {
    /// Exit code, 0 to 255; -1 if a signal killed the command.
    pub exit_code: i32,
    /// Number of the signal that killed the command; 0 if it exited.
    pub signal: i32,
    /// Standard output.
    pub out: OwnedBytes,
    /// Standard error.
    pub err: OwnedBytes,
}

/// Runs a command at the daemon to its end with its whole input, and stores its result in `output`.
/// The daemon must permit the command to this client.
///
/// `words` are the program and its arguments, `count` of them; no shell interprets them. `input` is
/// `len` bytes for the standard input, and may be NULL if `len` is 0. A command that fails is no
/// error; an output of more than 64 MiB is.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_exec(
    client: Option<&nicstripe_client>,
    words: Texts,
    count: usize,
    input: Bytes,
    len: usize,
    output: Option<&mut MaybeUninit<Option<Box<nicstripe_output>>>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let into = required(output, "output")?.write(None);
        let (words, input) = (words.all(count, "words")?, input.all(len, "input")?);
        let left = checked(client)?.exec(words, input)?;
        let (exit_code, signal) = match left.status {
            ExitStatus::Exited(code) => (code.into(), 0),
            ExitStatus::Signalled(signal) => (-1, signal.into()),
        };
        *into = Some(Box::new(nicstripe_output {
            exit_code,
            signal,
            out: OwnedBytes::new(left.stdout),
            err: OwnedBytes::new(left.stderr),
        }));
        Ok(())
    })
}

/// Frees the result of a command; NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_output_free(output: Option<Box<nicstripe_output>>) {
    drop(output);
}
