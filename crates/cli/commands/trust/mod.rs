//! `nicstripe trust`: adds, lists and removes trusted peers.

mod list;
pub(crate) mod reader;

use clap::{Args, Subcommand};
use nicstripe::{
    BitRate,
    trust::{
        Access, Added, DialTarget, Identity, LineError, Peer, PeerName, PeerOptions, Peers,
        PublicKey, PublicLine,
    },
};

use crate::{
    failure::{CommandError, Failure, Fault, exit::Exit},
    output::{stdout, terminal::Terminal},
    places,
    text::invocation::quoted,
};

/// Manage trusted peers: only listed keys are accepted, as client and as daemon
#[derive(Debug, Args)]
pub(crate) struct Trust {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Trust a machine's key
    ///
    /// Takes effect at once, without a restart of the daemon. Options before the key, separated by
    /// commas, restrict the rights of that machine here: read-only, append-only, root=DIR,
    /// rate=RATE (bits per second, with K, M or G), no-bench, no-facts, special-modes. dial=HOST:PORT lets it
    /// connect to that service from here (nicstripe dial), listen=PORT listen here (nicstripe forward
    /// -R); both may be repeated.
    Add {
        /// Output of `nicstripe key` on the other machine, as one argument or several
        #[arg(required = true, value_name = "LINE")]
        line: Vec<String>,

        /// Name of the machine here [default: the host in the comment of the line]
        #[arg(long)]
        name: Option<String>,

        /// Replace the key that has this name, for a machine whose key has changed; its rights stay
        #[arg(long, requires = "name")]
        replace: bool,
    },
    /// Print the trusted peers, one per line: name, fingerprint, rights, when and from where they
    /// were last seen, key
    List {
        /// Print only names, and only those that need no shell quotes: for completions
        #[arg(long)]
        names: bool,

        /// Print one JSON document on standard output, also after a failure
        /// (docs/schema/trust-list.schema.json)
        #[arg(long, conflicts_with = "names")]
        json: bool,
    },
    /// Remove a trusted peer
    Remove {
        /// Name, key or fingerprint of the peer
        #[arg(required = true, value_name = "NAME|KEY")]
        which: Vec<String>,
    },
}

impl Trust {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        if let Action::List { json: true, .. } = self.action {
            return list::print_json();
        }
        let home = places::home()?;
        let path = home.peers_file();
        match self.action {
            Action::Add {
                line,
                name,
                replace,
            } => {
                let (line, mut options) = parse_line(&line.join(" "))?;
                refuse_own_key(&line.key)?;
                if let Some(name) = &name {
                    check_name(name)?;
                }
                let (added, peer) = Peers::edit(&path, |peers| {
                    let earlier = name
                        .as_deref()
                        .and_then(|name| peers.by_name(name))
                        .cloned();
                    if let Some(earlier) = earlier.filter(|peer| replace && peer.key != line.key) {
                        peers.remove(&earlier.key.to_string())?;
                        if options == PeerOptions::unrestricted() {
                            options = earlier.options;
                        }
                    }
                    let added = peers.add(&line, name.as_deref())?;
                    if options != PeerOptions::unrestricted() {
                        peers.set_options(&line.key, options)?;
                    }
                    Ok((added, peers.find(&line.key).cloned()))
                })?;
                terminal.say(describe(&added, &line.key, peer.as_ref()));
                reader::tell(&path, terminal);
            }
            Action::List { names: true, .. } => {
                Peers::load(&path)?
                    .iter()
                    .filter_map(plain_name)
                    .try_for_each(stdout::line)?;
            }
            Action::List { names: false, .. } => list::print(&home, terminal)?,
            Action::Remove { which } => {
                let removed = Peers::edit(&path, |peers| peers.remove(&which.join(" ")))?;
                terminal.say(format_args!(
                    "removed {} ({})",
                    name_of(&removed),
                    removed.key.fingerprint()
                ));
                reader::tell(&path, terminal);
            }
        }
        Ok(())
    }
}

/// Returns a peer's name if a shell needs no quotes for it. The name may come from the peer's own
/// key line, and a shell must not execute any part of it.
fn plain_name(peer: &Peer) -> Option<&str> {
    let name = peer.name.as_ref()?.as_str();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (name.bytes().all(is_plain) && !name.starts_with('-')).then_some(name)
}

/// Returns the access that `--read-only` and `--append-only` leave.
pub(crate) fn access(read_only: bool, append_only: bool) -> Access {
    match (read_only, append_only) {
        (true, _) => Access::ReadOnly,
        (_, true) => Access::AppendOnly,
        _ => Access::Full,
    }
}

/// Rejects a name that nobody could type as HOST.
pub(crate) fn check_name(name: &str) -> Result<(), Failure> {
    match name.parse::<PeerName>() {
        Ok(parsed) if !parsed.is_host() => Err(Fault::new(
            Exit::Usage,
            format!("name {name:?} cannot be typed as HOST: expected letters, digits, -, . and _"),
        )
        .into()),
        // An invalid name is an error of the peers file.
        _ => Ok(()),
    }
}

/// Rejects this machine's own key, which a user copied from the wrong terminal. If this machine has
/// no key yet, every key is accepted.
fn refuse_own_key(key: &PublicKey) -> Result<(), Failure> {
    let path = places::home()?.identity_file();
    match Identity::load(&path) {
        Ok(own) if own.public_key() == *key => {
            let text = format!(
                "{} is this machine's own key: expected the other machine's key",
                key.fingerprint()
            );
            let hint = format!(
                "run `nicstripe key` on the other machine, and trust that line; if it prints this one, its disk was cloned: for a new key, there: rm {}; nicstripe key",
                quoted(path)
            );
            Err(Fault::new(Exit::Usage, text).with_hint(hint).into())
        }
        _ => Ok(()),
    }
}

impl CommandError for LineError {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
}

/// Parses the output of `nicstripe key`, optionally with options before it as in the peers file.
fn parse_line(text: &str) -> Result<(PublicLine, PeerOptions), LineError> {
    let text = text.trim();
    let has_options = !text.starts_with(PublicKey::KIND) && text.contains(PublicKey::KIND);
    if !has_options {
        return Ok((text.parse()?, PeerOptions::unrestricted()));
    }
    let peer: Peer = text.parse()?;
    let comment = peer.name.as_ref().map_or("", |name| name.as_str());
    Ok((PublicLine::new(peer.key, comment), peer.options))
}

fn describe(added: &Added, key: &PublicKey, peer: Option<&Peer>) -> String {
    let name = shown_name(peer.and_then(|peer| peer.name.as_ref()));
    let rights = peer.map_or_else(String::new, |peer| {
        format!("; it {}", rights(&peer.options))
    });
    let fingerprint = key.fingerprint();
    match added {
        Added::New => format!("trusted {name} ({fingerprint}){rights}"),
        Added::Renamed { from } => {
            let from = shown_name(from.as_ref());
            format!("renamed {from} ({fingerprint}) to {name}{rights}")
        }
        Added::Unchanged => format!("{name} ({fingerprint}) is already trusted{rights}"),
    }
}

/// Returns the peer's name, or a dash if it has none.
pub(crate) fn name_of(peer: &Peer) -> String {
    shown_name(peer.name.as_ref())
}

fn shown_name(name: Option<&PeerName>) -> String {
    name.map_or_else(|| NO_NAME.to_owned(), ToString::to_string)
}

/// Returns a peer's rights as text for `trust list`, such as `may read, write and replace`.
pub(crate) fn rights(options: &PeerOptions) -> String {
    let mut text = match options.access {
        Access::Full => "may read, write and replace".to_owned(),
        Access::AppendOnly => "may read and add new files".to_owned(),
        Access::ReadOnly => "may read".to_owned(),
    };
    if let Some(root) = &options.root {
        text.push_str(&format!(" in {}", root.display()));
    }
    if let Some(rate) = options.rate.filter(|rate| *rate > BitRate::ZERO) {
        text.push_str(&format!(" at up to {rate}"));
    }
    if options.special_modes {
        text.push_str(", with special modes");
    }
    if !options.dial.is_empty() {
        let targets: Vec<&str> = options.dial.iter().map(DialTarget::as_str).collect();
        text.push_str(&format!(", may connect to {}", targets.join(" and ")));
    }
    if !options.listen.is_empty() {
        let places: Vec<String> = options.listen.iter().map(ToString::to_string).collect();
        text.push_str(&format!(", may listen at {}", places.join(" and ")));
    }
    for rule in &options.exec {
        text.push_str(&format!(", may run \"{rule}\""));
    }
    text
}

/// Placeholder for the name of a peer without one, so that programs can split `trust list` into
/// columns.
const NO_NAME: &str = "-";

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "nicstripe-ed25519 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    #[test]
    fn a_line_may_carry_a_comment_or_options() {
        let (line, options) = parse_line(&format!(" {KEY} me@laptop ")).unwrap();
        assert_eq!(
            (line.comment.as_deref(), options),
            (Some("me@laptop"), PeerOptions::unrestricted())
        );
        let (line, options) = parse_line(&format!("read-only,root=/srv {KEY} nas")).unwrap();
        assert_eq!(
            (line.comment.as_deref(), options.access),
            (Some("nas"), Access::ReadOnly)
        );
        let error = parse_line("ssh-ed25519 AAAA").unwrap_err().to_string();
        assert!(
            error.contains("begins with \"nicstripe-ed25519\""),
            "{error}"
        );
        for wrong in [
            "",
            "ssh-ed25519 AAAA",
            "read-olny AAAA",
            "nicstripe-ed25519",
        ] {
            assert!(parse_line(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rights_are_said_in_words() {
        let said = |options: &str| rights(&options.parse().unwrap());
        assert_eq!(
            rights(&PeerOptions::unrestricted()),
            "may read, write and replace"
        );
        assert_eq!(
            said("read-only,root=/srv/a,rate=500M"),
            "may read in /srv/a at up to 500.0 Mbit/s"
        );
        assert_eq!(said("append-only"), "may read and add new files");
        assert_eq!(
            said("append-only,special-modes"),
            "may read and add new files, with special modes"
        );
        assert_eq!(
            said("read-only,dial=localhost:22,dial=web:80"),
            "may read, may connect to localhost:22 and web:80"
        );
        assert_eq!(
            said("read-only,listen=8080,listen=unix:/run/x"),
            "may read, may listen at 127.0.0.1:8080 and unix:/run/x"
        );
    }
}
