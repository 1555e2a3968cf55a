//! Hints about a peer that this user has seen lately, and does not need after each command.

use std::{
    env, fs,
    io::Read as _,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{output::files, places};

/// Returns true if the hint about `peer` was not given within [`PAUSE`], and records that it is
/// given now. A record that cannot be read or written repeats the hint.
pub(crate) fn is_due(peer: &str) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let (Some(path), Ok(now)) = (record(), now) else {
        return true;
    };
    let mut text = String::new();
    let file = fs::File::open(&path).map(|file| file.take(MOST_BYTES));
    let _ = file.and_then(|mut file| file.read_to_string(&mut text));
    let Some(text) = noted(&text, peer, now) else {
        return false;
    };
    let _ = files::replace(&path, text.as_bytes());
    true
}

/// Returns the record with the hint about `peer`; `None` if it has a recent one.
fn noted(record: &str, peer: &str, now: Duration) -> Option<String> {
    let recent = record.lines().filter(|line| {
        let seconds = line.split_once(' ').and_then(|(at, _)| at.parse().ok());
        // A time of the future is that of a clock which was set back.
        seconds.is_some_and(|at: u64| at <= now.as_secs() && now.as_secs() - at < PAUSE.as_secs())
    });
    let recent: Vec<&str> = recent.collect();
    let is_recent = |line: &&str| line.split_once(' ').is_some_and(|(_, of)| of == peer);
    if recent.iter().any(is_recent) {
        return None;
    }
    let new = format!("{} {peer}", now.as_secs());
    let lines = recent.iter().rev().take(MOST_PEERS).rev();
    let lines: Vec<&str> = lines.copied().chain([&*new]).collect();
    Some(lines.join("\n") + "\n")
}

/// Returns the file of the record, in the first of these directories that exists: that of this
/// user's state, and that of this log-in. `None` if neither does: none is made for a hint.
fn record() -> Option<PathBuf> {
    let state = places::home().ok().map(|home| home.state().to_owned());
    let session = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let folder = state.into_iter().chain(session).find(|path| path.is_dir());
    folder.map(|folder| folder.join("nicstripe-hints"))
}

/// Time after which a hint about a peer is given again.
const PAUSE: Duration = Duration::from_secs(3600);

const MOST_PEERS: usize = 100;

/// Maximum size of the record that is read. A name has at most 255 bytes.
const MOST_BYTES: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_about_a_peer_is_given_once_an_hour() {
        let at = Duration::from_secs;
        let first = noted("", "nas", at(5000)).unwrap();
        assert_eq!(first, "5000 nas\n");
        assert_eq!(noted(&first, "nas", at(8599)), None);
        assert_eq!(
            noted(&first, "pc", at(8599)).unwrap(),
            "5000 nas\n8599 pc\n"
        );
        for later in [8600, 4999] {
            let again = noted(&first, "nas", at(later)).unwrap();
            assert_eq!(again, format!("{later} nas\n"));
        }
        assert_eq!(noted("x\n\n7", "nas", at(9)).unwrap(), "9 nas\n");
        let full = (0..200).fold(String::new(), |full, peer| {
            noted(&full, &peer.to_string(), at(peer)).unwrap_or(full)
        });
        assert_eq!(full.lines().count(), MOST_PEERS + 1);
    }
}
