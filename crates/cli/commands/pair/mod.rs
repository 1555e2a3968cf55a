//! `nicstripe pair`: two machines trust each other's keys by a short code.

mod name;

use std::{
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};

use clap::Args;
use nicstripe::{
    invitation::{Invitation, Paired, Purpose, join},
    trust::{Identity, Peer, PeerName, Peers, PeersError, PublicKey, PublicLine},
};
use tokio::time::timeout;

use super::trust::{
    check_name, looser_by_pairing, reader, rights,
    rights::{Rights, RightsArgs},
    tell_change,
};
use crate::{
    connect::{
        host::Host,
        invitation::{InvitationArgs, Meeting, failed, show},
    },
    failure::{Failure, Fault},
    output::{logging, terminal::Terminal},
    places,
    process::{runtime, signals::Signals},
    text::{invocation::quoted, shown},
};

/// Make two machines trust each other, by a code of two words
///
/// Without a code: shows a new one, and waits. With the code, on the other machine: finds the first
/// on every cable, also without addresses, or at HOST. Each then adds the other's key to its trusted
/// peers. A code is good for one guess within 10 minutes.
#[derive(Debug, Args)]
#[command(override_usage = "nicstripe pair [OPTIONS] [[HOST[:PORT]] CODE]")]
pub(crate) struct Pair {
    /// Code that the other machine shows, such as 7-crossover-violin; before it, if no cable joins
    /// both machines, the name or address of the other
    #[arg(value_name = "CODE", num_args = 0..=4)]
    words: Vec<String>,

    /// Name of the other machine here [default: the host name that it has there; asked for if that
    /// may mean another machine]
    #[arg(long)]
    name: Option<String>,

    #[command(flatten)]
    invitation: InvitationArgs,

    #[command(flatten)]
    rights: RightsArgs,
}

impl Pair {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        logging::start(terminal)?;
        // Rights that the list of peers cannot hold shall not spend a code.
        let rights = self.rights.given()?;
        if let Some(name) = &self.name {
            check_name(name)?;
        }
        let meeting = match &self.words[..] {
            [] => None,
            words => Some(Meeting::parse(words)?),
        };
        let home = places::home()?;
        let (path, identity) = (
            home.peers_file(),
            Identity::load_or_create(home.identity_file())?,
        );
        // A file that cannot be read shall not spend a code.
        Peers::load(&path)?;
        runtime::run_here(async {
            let mut signals = Signals::take()?;
            let pairing = async {
                let paired = self.meet(meeting, &identity, terminal).await?;
                self.finish(paired, &rights, terminal).await
            };
            signals.unless_stopped(pairing).await
        })?;
        reader::tell(&path, terminal);
        Ok(())
    }

    async fn meet(
        &self,
        meeting: Option<Meeting>,
        identity: &Identity,
        terminal: &Terminal,
    ) -> Result<Paired, Failure> {
        let port = reader::own_daemon();
        let met = match meeting {
            Some(meeting) => {
                let interfaces = &self.invitation.interface;
                let mut options = meeting.to_join(Purpose::Pair, port, interfaces);
                options.duration = self.invitation.timeout.unwrap_or(options.duration);
                join(identity, meeting.code, options).await
            }
            None => {
                let options = self.invitation.to_invite(Purpose::Pair, port);
                let invitation = Invitation::open(identity, options.clone()).map_err(failed)?;
                show(&invitation, &options, "nicstripe pair", terminal)?;
                invitation.wait().await
            }
        };
        met.map_err(failed)
    }

    /// Returns the name to store the peer under; `None` if its key has one.
    async fn name_of(
        &self,
        paired: &Paired,
        path: &Path,
        terminal: &Terminal,
    ) -> Result<Option<String>, Failure> {
        if self.name.is_some() {
            return Ok(self.name.clone());
        }
        let peers = Peers::load(path)?;
        let known = peers.find(&paired.key);
        if known.is_some_and(|known| known.name.is_some()) {
            return Ok(None);
        }
        name::chosen(paired, &peers, terminal).await.map(Some)
    }

    /// Stores the peer's key, and removes it again unless the peer stores ours.
    async fn finish(
        &self,
        paired: Paired,
        given: &Rights,
        terminal: &Terminal,
    ) -> Result<(), Failure> {
        let (key, port) = (paired.key, paired.port);
        let path = places::home()?.peers_file();
        let name = match self.name_of(&paired, &path, terminal).await {
            Ok(name) => name,
            Err(error) => {
                paired.refuse().await;
                return Err(error);
            }
        };
        let line = PublicLine::new(key, "");
        let stored = Stored::new(path, &line, |peers, earlier| {
            let options = match earlier {
                None => given.alone(),
                Some(earlier) => match given.added_to(&earlier.options) {
                    Ok(options) => options,
                    Err(loosened) => {
                        return Ok(Err(looser_by_pairing(earlier, &loosened, given)));
                    }
                },
            };
            peers.add(&line, name.as_deref())?;
            peers.set_options(&key, options).map(Ok)
        });
        let stored = match stored {
            Ok(stored) => stored,
            Err(error) => {
                paired.refuse().await;
                return Err(error);
            }
        };
        let peer = stored.peer.clone();
        let name = peer.as_ref().and_then(|peer| peer.name.clone());
        let name = name.map_or_else(String::new, |name| name.to_string());
        let mut finish = pin!(paired.finish(&name));
        let there = match timeout(QUIET, &mut finish).await {
            Ok(there) => there,
            Err(_) => {
                terminal.say(format_args!(
                    "{} is stored here, waiting for the other machine to store this one; if either loses power now, one may trust the other alone: nicstripe trust remove {} here, or pair again",
                    key.fingerprint(),
                    key.fingerprint()
                ));
                finish.await
            }
        };
        let there = there.map_err(failed)?;
        if let (Some(had), Some(has)) = (&stored.earlier, &peer)
            && had.options != has.options
        {
            tell_change(&had.options, &has.options, terminal);
        }
        stored.keep();
        let rights = peer.map_or_else(String::new, |peer| rights(&peer.options));
        let name = match name.is_empty() {
            true => key.to_string(),
            false => shown(&name),
        };
        terminal.say(format_args!(
            "paired with {name} ({}); it {rights} here",
            key.fingerprint()
        ));
        if !there.is_empty() {
            terminal.say(format_args!("{name} knows this machine as {there}"));
        }
        terminal.say(match (port, reader::own_daemon()) {
            (Some(_), _) => format!(
                "copy to it: nicstripe cp FILE {}",
                quoted(format!("{name}:"))
            ),
            // The other machine says how it calls this one.
            (None, Some(_)) if there.parse::<Host>().is_ok() => {
                format!(
                    "copy from {name}: nicstripe cp FILE {}",
                    quoted(format!("{there}:"))
                )
            }
            (None, Some(_)) => {
                format!("copy from {name} with the name that it has for this machine")
            }
            (None, None) => {
                "to copy, start the daemon on one of them: nicstripe serve DIR".to_owned()
            }
        });
        Ok(())
    }
}

/// Wait for the other machine's report after which the user sees what is awaited.
const QUIET: Duration = Duration::from_secs(5);

/// Change of the list of peers. Dropping it, also because the user interrupts, restores what the list
/// had of the key, unless it is kept.
struct Stored {
    path: PathBuf,
    key: PublicKey,
    /// Peer as changed.
    peer: Option<Peer>,
    earlier: Option<Peer>,
    is_kept: bool,
}

impl Stored {
    fn new(
        path: PathBuf,
        line: &PublicLine,
        change: impl FnOnce(&mut Peers, Option<&Peer>) -> Result<Result<(), Fault>, PeersError>,
    ) -> Result<Self, Failure> {
        let (changed, earlier, peer) = Peers::edit(&path, |peers| {
            let earlier = peers.find(&line.key).cloned();
            let changed = change(peers, earlier.as_ref())?;
            Ok((changed, earlier, peers.find(&line.key).cloned()))
        })?;
        changed?;
        Ok(Self {
            path,
            key: line.key,
            peer,
            earlier,
            is_kept: false,
        })
    }

    fn keep(mut self) {
        self.is_kept = true;
    }

    fn restore(&self) -> Result<(), PeersError> {
        Peers::edit(&self.path, |peers| {
            peers.remove(&self.key.to_string())?;
            let Some(earlier) = &self.earlier else {
                return Ok(());
            };
            let name = earlier.name.as_ref().map(PeerName::as_str);
            peers.add(&PublicLine::new(self.key, ""), name)?;
            peers.set_options(&self.key, earlier.options.clone())
        })
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        if !self.is_kept
            && let Err(error) = self.restore()
        {
            Terminal::default().warning(&format!(
                "the key {} is still in the list of peers: {}",
                self.key.fingerprint(),
                nicstripe::chain(&error)
            ));
        }
    }
}
