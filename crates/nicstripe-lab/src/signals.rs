//! Signal dispositions that the programs of a test inherit.

use std::sync::Once;

/// Gives programs that this process starts the default action of SIGINT, SIGQUIT and SIGHUP, also
/// if its own starter ignored them: `nohup`, or a shell's `&` in a script.
///
/// This process continues ignoring them, by a handler that does nothing: exec(2) replaces a handler
/// by the default action, and keeps what is ignored.
pub fn take_ignored_signals() {
    static TAKEN: Once = Once::new();
    TAKEN.call_once(|| {
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
            let handler = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
            // SAFETY: the handler does nothing, and so runs no code that a signal must not
            // interrupt.
            let earlier = unsafe { libc::signal(signal, handler) };
            if earlier != libc::SIG_IGN {
                // SAFETY: this restores the disposition that the call above returned.
                unsafe { libc::signal(signal, earlier) };
            }
        }
    });
}

extern "C" fn nothing(_: libc::c_int) {}
