//! Advice after a change of the peers file: only nicstripe processes of the same user read it, and
//! a daemon of another user reads another file.

use std::{env, fs, path::Path};

use nicstripe::DEFAULT_PORT;
use nix::unistd::{Uid, User};

use crate::{output::terminal::Terminal, text::shown};

/// Prints the changed peers file and its user. Warns if a process of another user listens on the
/// default port, since that daemon reads another peers file.
pub(crate) fn tell(path: &Path, terminal: &Terminal) {
    let own = Uid::effective();
    terminal.say(format_args!(
        "in {}, for nicstripe {}",
        shown(path),
        whose(own)
    ));
    if let Some(other) = listener_of_another(own.as_raw()) {
        let user = name_of(Uid::from_raw(other));
        let as_user = match other {
            0 => "sudo".to_owned(),
            _ => format!("sudo -u {user}"),
        };
        terminal.warning(&format!("port {DEFAULT_PORT} is used by a process of user {user}, which reads another peers file"));
        terminal.hint(&format!(
            "if that is the daemon: {as_user} nicstripe trust …, with the same arguments"
        ));
    }
}

fn whose(own: Uid) -> String {
    match env::var_os("NICSTRIPE_HOME").filter(|value| !value.is_empty()) {
        Some(home) => format!("with NICSTRIPE_HOME={}", shown(home)),
        None => format!("run by {}", name_of(own)),
    }
}

/// Returns the user's name, or the user ID if it has no name.
fn name_of(uid: Uid) -> String {
    User::from_uid(uid)
        .ok()
        .flatten()
        .map_or_else(|| uid.to_string(), |user| user.name)
}

/// Returns the default port if a process of this user listens on it: the daemon, probably.
pub(crate) fn own_daemon() -> Option<u16> {
    let own = Uid::effective().as_raw();
    users_at_the_port().contains(&own).then_some(DEFAULT_PORT)
}

fn users_at_the_port() -> Vec<u32> {
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .map(|path| fs::read_to_string(path).unwrap_or_default())
        .iter()
        .flat_map(|table| listeners(table, DEFAULT_PORT))
        .collect()
}

/// Returns the ID of another user than `own` who listens on the default port; `None` if `own`
/// listens or the port is free.
fn listener_of_another(own: u32) -> Option<u32> {
    let users = users_at_the_port();
    users.first().copied().filter(|_| !users.contains(&own))
}

/// Returns the user IDs of the sockets that listen on a port, from the text of `/proc/net/tcp`
/// (proc(5)).
fn listeners(table: &str, port: u16) -> Vec<u32> {
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, local) = fields.get(1)?.rsplit_once(':')?;
        let is_listener = *fields.get(3)? == LISTEN && u16::from_str_radix(local, 16) == Ok(port);
        is_listener.then(|| fields.get(7)?.parse().ok()).flatten()
    };
    table.lines().skip(1).filter_map(of_line).collect()
}

/// Value of TCP_LISTEN in the `st` column of `/proc/net/tcp`, from the kernel's `tcp_states.h`.
const LISTEN: &str = "0A";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_a_listening_socket_is_read_from_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1E43 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 100 0 0 10 0
   1: 0100007F:1E43 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1001        0 2 1 0 20 4 30 10 -1
   2: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 3 1 0 100 0 0 10 0
   3: 00000000000000000000000000000000:1E43 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     7 0 4
   4: half";
        assert_eq!(DEFAULT_PORT, 0x1E43);
        assert_eq!(listeners(table, DEFAULT_PORT), [1000, 7]);
        assert_eq!(listeners(table, 22), [0]);
        assert!(listeners("", 22).is_empty());
    }
}
