//! `nicstripe trust`: adds, lists and removes trusted peers.

mod list;
pub(crate) mod reader;
pub(crate) mod rights;

use std::path::Path;

use clap::{Args, Subcommand};
use nicstripe::{
    BitRate,
    trust::{
        Access, Added, DialTarget, Identity, LineError, Peer, PeerName, PeerOptions, Peers,
        PeersError, PublicKey, PublicLine,
    },
};

use self::rights::{Rights, RightsArgs};
use crate::{
    failure::{CommandError, Failure, Fault, exit::Exit, usage},
    output::{stdout, terminal::Terminal},
    places,
    text::{
        granting::{allow_command, command, options_giving},
        invocation::{Invocation, quoted},
        shown,
        table::left_aligned,
    },
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
    /// Takes effect at once, without a restart of the daemon. The line gives no rights: without
    /// options here, the machine may read, write and replace files in the daemon's directory, and
    /// nothing else.
    Add {
        /// Output of `nicstripe key` on the other machine, as one argument or several
        #[arg(required = true, value_name = "LINE")]
        line: Vec<String>,

        /// Name of the machine here [default: the host in the comment of the line]
        #[arg(long)]
        name: Option<String>,

        /// Replace the key that has this name, for a machine whose key has changed; its rights stay.
        /// Or set the rights of a trusted key, also if it loses restrictions
        #[arg(long)]
        replace: bool,

        #[command(flatten)]
        rights: RightsArgs,
    },
    /// Change the rights of a trusted peer
    ///
    /// Adds to its rights, and prints what it was and is allowed. Takes effect at once for new
    /// connections, and within 3 s for running sessions that lose a right.
    Allow {
        /// Name, key or fingerprint of the peer
        #[arg(value_name = "NAME")]
        which: String,

        /// Set exactly these rights, also if the peer loses restrictions; without any, those of a
        /// line without options
        #[arg(long)]
        replace: bool,

        #[command(flatten)]
        rights: RightsArgs,
    },
    /// Print a trusted peer's rights, its key and the file that has them
    ///
    /// The options are those of the peers file. `nicstripe trust allow` changes them: --read-only,
    /// --append-only, --root DIR, --rate RATE, --no-bench, --no-facts, --special-modes, --dial
    /// TARGET, --listen TARGET, --exec COMMAND.
    Show {
        /// Name, key or fingerprint of the peer
        #[arg(value_name = "NAME")]
        which: String,
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
                rights,
            } => {
                let line = parse_line(&line.join(" "), name.as_deref())?;
                refuse_own_key(&line.key)?;
                if let Some(name) = &name {
                    check_name(name)?;
                }
                add(&path, &line, name.as_deref(), &rights.given()?, replace)?.tell(terminal);
                reader::tell(&path, terminal);
            }
            Action::Allow {
                which,
                replace,
                rights,
            } => {
                let rights = rights.given()?;
                if rights.is_none() && !replace {
                    let text = format!(
                        "no right is given: expected {}, or --replace",
                        rights::OPTIONS
                    );
                    return Err(usage(text).into());
                }
                allow(&path, &which, &rights, replace)?.tell(terminal);
                reader::tell(&path, terminal);
            }
            Action::Show { which } => {
                let peers = Peers::load(&path)?;
                show(find(&peers, &which)?, &path)
                    .into_iter()
                    .try_for_each(stdout::line)?;
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

/// Peer as the list has it, and what a command changed.
struct Changed {
    added: Option<Added>,
    peer: Peer,
    /// Rights that it had, or that the key had which it replaces; `None` for a new peer.
    had: Option<PeerOptions>,
}

impl Changed {
    fn tell(&self, terminal: &Terminal) {
        let Self { added, peer, had } = self;
        let (name, key) = (name_of(peer), peer.key.fingerprint());
        let had = had.as_ref().filter(|had| **had != peer.options);
        let is = rights(&peer.options);
        terminal.say(match (added, had) {
            (Some(Added::New), _) => format!("trusted {name} ({key}); it {is}"),
            (Some(Added::Renamed { from }), _) => {
                format!(
                    "renamed {} ({key}) to {name}; it {is}",
                    shown_name(from.as_ref())
                )
            }
            (_, Some(_)) => format!("changed the rights of {name} ({key})"),
            (Some(Added::Unchanged), _) => format!("{name} ({key}) is already trusted; it {is}"),
            (_, None) => format!("{name} ({key}) has these rights already; it {is}"),
        });
        if let Some(had) = had {
            tell_change(had, &peer.options, terminal);
        }
    }
}

pub(crate) fn tell_change(had: &PeerOptions, has: &PeerOptions, terminal: &Terminal) {
    terminal.say(format_args!("was: {}", rights(had)));
    terminal.say(format_args!("now: {}", rights(has)));
}

/// Adds a key to the list with rights from this command's own options. A known key keeps its own
/// without any, and loses a restriction only by `replace`.
fn add(
    path: &Path,
    line: &PublicLine,
    name: Option<&str>,
    rights: &Rights,
    replace: bool,
) -> Result<Changed, Failure> {
    let changed = Peers::edit(path, |peers| {
        let of_name = name.and_then(|name| peers.by_name(name));
        let replaced = of_name
            .filter(|peer| replace && peer.key != line.key)
            .cloned();
        let known = peers.find(&line.key).or(replaced.as_ref()).cloned();
        let had = known.as_ref().map(|known| known.options.clone());
        let options = match &had {
            Some(had) if rights.is_none() => had.clone(),
            _ => rights.alone(),
        };
        let loosened = had.as_ref().map(|had| had.loosened_by(&options));
        match (loosened, known) {
            (Some(loosened), Some(peer)) if !replace && !loosened.is_empty() => {
                return Ok(Err(looser(&peer, &loosened, Some(rights))));
            }
            _ => {}
        }
        if let Some(replaced) = replaced {
            peers.remove(&replaced.key.to_string())?;
        }
        let added = peers.add(line, name)?;
        peers.set_options(&line.key, options)?;
        found(peers, &line.key).map(|peer| {
            Ok(Changed {
                added: Some(added),
                peer,
                had,
            })
        })
    })?;
    Ok(changed?)
}

/// Adds rights to those of a peer, or sets them with `replace`.
fn allow(path: &Path, which: &str, rights: &Rights, replace: bool) -> Result<Changed, Failure> {
    let changed = Peers::edit(path, |peers| {
        let peer = match find(peers, which) {
            Ok(peer) => peer.clone(),
            Err(error) => return Ok(Err(error)),
        };
        let options = match replace {
            true => rights.alone(),
            false => match rights.added_to(&peer.options) {
                Ok(options) => options,
                Err(loosened) => return Ok(Err(looser(&peer, &loosened, None))),
            },
        };
        peers.set_options(&peer.key, options)?;
        found(peers, &peer.key).map(|changed| {
            Ok(Changed {
                added: None,
                peer: changed,
                had: Some(peer.options),
            })
        })
    })?;
    Ok(changed?)
}

/// Returns the peer of a key that was just stored.
fn found(peers: &Peers, key: &PublicKey) -> Result<Peer, PeersError> {
    let unknown = || PeersError::Unknown {
        text: key.to_string(),
    };
    peers.find(key).cloned().ok_or_else(unknown)
}

/// Returns the peer with exactly this name, key or fingerprint.
fn find<'a>(peers: &'a Peers, which: &str) -> Result<&'a Peer, Fault> {
    let of_key = |peer: &&Peer| peer.key.fingerprint() == which || peer.key.to_string() == which;
    let mut of_key = peers.iter().filter(of_key);
    let by_key = of_key.next().filter(|_| of_key.next().is_none());
    peers.by_name(which).or(by_key).ok_or_else(|| {
        let names: Vec<String> = peers.iter().map(name_of).collect();
        let known = match names.is_empty() {
            true => "there are none yet".to_owned(),
            false => format!("expected {}", names.join(", ")),
        };
        Fault::new(Exit::Failed, format!("no peer {which:?}: {known}"))
            .with_hint("list the trusted peers: nicstripe trust list")
    })
}

fn show(peer: &Peer, path: &Path) -> Vec<String> {
    let options = peer.options.to_string();
    let options = match options.is_empty() {
        true => "none".to_owned(),
        false => options,
    };
    let rows = [
        ("name", name_of(peer)),
        ("key", peer.key.to_string()),
        ("fingerprint", peer.key.fingerprint()),
        ("options", options),
        ("rights", rights(&peer.options)),
        ("file", shown(path)),
    ];
    left_aligned(&rows.map(|(what, value)| vec![what.to_owned(), value]))
}

/// Returns the error of a change by which a trusted peer would lose a restriction, or a key that is added
/// again would get more.
fn looser(peer: &Peer, loosened: &[&str], rights: Option<&Rights>) -> Fault {
    let text = format!(
        "{} is already trusted, with other rights, and would lose or relax {}: expected --replace",
        name_of(peer),
        loosened.join(", ")
    );
    let adding = rights.and_then(|rights| allow_command(&handle_of(peer), &rights.alone()));
    let adding = adding.map(|command| format!("to add to its rights: {command}; "));
    let typed = Invocation::of_this_process().typed();
    let adding = adding.unwrap_or_default();
    let hint = format!("{adding}to set exactly these: {typed} --replace");
    usage(text).with_hint(hint)
}

/// Returns the error of a trusted peer that would lose a restriction by pairing again.
pub(crate) fn looser_by_pairing(peer: &Peer, loosened: &[&str], rights: &Rights) -> Fault {
    let text = format!(
        "{} is already trusted, and would lose or relax {}: pairing only adds rights",
        name_of(peer),
        loosened.join(", ")
    );
    let setting = allow_command(&handle_of(peer), &rights.alone());
    let hint = setting.map(|command| format!("to set exactly these: {command} --replace"));
    Fault::new(Exit::Refused, text).hinted(hint)
}

/// Returns the text by which a command names a peer.
fn handle_of(peer: &Peer) -> String {
    let name = peer.name.as_ref().map(|name| name.as_str());
    let name = name.filter(|name| !name.starts_with('-'));
    name.map_or_else(|| peer.key.fingerprint(), str::to_owned)
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

/// Rejects a name that no one could type as HOST.
pub(crate) fn check_name(name: &str) -> Result<(), Failure> {
    match name.parse::<PeerName>() {
        Ok(parsed) if !parsed.is_host() => Err(usage(format!(
            "name {name:?} cannot be typed as HOST: expected letters, digits, -, . and _"
        ))
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
            Err(usage(text).with_hint(hint).into())
        }
        _ => Ok(()),
    }
}

impl CommandError for LineError {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
}

/// Parses the output of `nicstripe key`. Rejects options before it: its writer would
/// choose rights here.
fn parse_line(text: &str, name: Option<&str>) -> Result<PublicLine, Failure> {
    let text = text.trim();
    let has_options = !text.starts_with(PublicKey::KIND) && text.contains(PublicKey::KIND);
    if !has_options {
        return Ok(text.parse().map_err(LineError::Key)?);
    }
    let peer: Peer = text.parse()?;
    let comment = peer.name.as_ref().map_or("", |name| name.as_str());
    let verb = ["nicstripe", "trust", "add"].map(str::to_owned);
    let line = PublicLine::new(peer.key, comment).to_string();
    let name = name.map(|name| format!("--name={name}"));
    let words = verb.into_iter().chain([line]).chain(name);
    let words: Vec<String> = words.chain(options_giving(&peer.options)).collect();
    let hint = match command(&words) {
        Some(command) => {
            format!("only if you want that machine to have these rights here: {command}")
        }
        None => "its options have characters that cannot be shown: give rights by the options of nicstripe trust add --help".to_owned(),
    };
    let text = format!(
        "the line has the options {}: expected only {} KEY and a name, because the other machine does not choose its rights",
        shown(peer.options.to_string()),
        PublicKey::KIND
    );
    Err(usage(text).with_hint(hint).into())
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
        other => format!("is {}", other.word()),
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
    for (is_denied, what) in [(options.no_bench, "bench"), (options.no_facts, "facts")] {
        if is_denied {
            text.push_str(&format!(", no {what}"));
        }
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
    fn a_line_may_carry_a_comment_and_no_options() {
        let line = parse_line(&format!(" {KEY} me@laptop "), None).unwrap();
        assert_eq!(line.comment.as_deref(), Some("me@laptop"));
        let error = parse_line("ssh-ed25519 AAAA", None).unwrap_err().one_line();
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
            assert!(parse_line(wrong, None).is_err(), "{wrong}");
        }
        for options in ["exec=*", "root=/srv,read-only", "dial=a:1", "no-bench"] {
            let error = parse_line(&format!("{options} {KEY} nas"), None).unwrap_err();
            assert!(error.one_line().contains(options), "{error}");
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
            said("read-only,no-bench,no-facts"),
            "may read, no bench, no facts"
        );
        assert_eq!(
            said("read-only,listen=8080,listen=unix:/run/x"),
            "may read, may listen at 127.0.0.1:8080 and unix:/run/x"
        );
    }
}
