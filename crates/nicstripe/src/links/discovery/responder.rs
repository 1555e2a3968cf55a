//! Daemon side of discovery: answers the questions of clients that may find it. Answers for an
//! inviter, too, which anyone who asks for its number may find.

use std::{io, net::Ipv6Addr, sync::Arc, time::Instant};

use nicstripe_link::{
    Interface, InterfaceKind, InterfaceName, multicast_listener, shared_multicast_listener,
};
use nicstripe_proto::{
    TokenBucket,
    discovery::{DATAGRAM_LEN, GROUP, Limiter, Question, Response},
    invitation::Number,
};
use tokio::net::UdpSocket;

use super::cable::{Cable, receive};
use crate::{
    trust::{Identity, PublicKey, is_by, sign},
    wire::{tasks::AbortOnDrop, tls::KeyFilter},
};

pub(crate) struct ResponderConfig {
    pub(crate) identity: Identity,
    /// Function that returns true for a key whose questions are answered.
    pub(crate) accepts: KeyFilter,
    /// True to answer the questions of all other keys, too.
    pub(crate) announce: bool,
    /// Number of the invitation whose questions are answered, and no others; `None` for a daemon,
    /// which answers none of them.
    pub(crate) invitation: Option<Number>,
    /// TCP port in the answers.
    pub(crate) port: u16,
    /// UDP port for the questions.
    pub(crate) asked_at: u16,
    /// Names of the interfaces on which to answer; `None` for each that is up and not a port of a
    /// bridge or bond.
    pub(crate) only: Option<Vec<InterfaceName>>,
}

/// Responder to discovery questions on each interface with a link-local address. Has one task per
/// interface, stopped on drop.
#[derive(Debug)]
pub(crate) struct Responder {
    answerer: Arc<Answerer>,
    listening: Vec<ListeningInterface>,
}

#[derive(Debug)]
struct ListeningInterface {
    cable: Cable,
    task: AbortOnDrop<()>,
}

impl Responder {
    pub(crate) fn new(config: ResponderConfig) -> Self {
        let host = rustix::system::uname().nodename().to_bytes().to_vec();
        Self {
            answerer: Arc::new(Answerer { config, host }),
            listening: Vec::new(),
        }
    }

    /// Starts listening on the interfaces of this list, and stops on all others.
    ///
    /// Logs failures to listen. Must be called within a tokio runtime, at the start and whenever
    /// interfaces or their addresses change.
    pub(crate) fn update(&mut self, interfaces: &[Interface]) {
        let served = interfaces.iter().filter(|interface| self.serves(interface));
        let cables: Vec<(&Interface, Cable)> = served
            .filter_map(|interface| Some((interface, Cable::of(interface)?)))
            .collect();
        self.listening.retain(|listener| {
            let is_served = cables.iter().any(|(_, cable)| *cable == listener.cable);
            is_served && !listener.task.is_finished()
        });
        for (interface, cable) in cables {
            if self
                .listening
                .iter()
                .any(|listener| listener.cable == cable)
            {
                continue;
            }
            match self.open(interface, cable) {
                Ok(listener) => self.listening.push(listener),
                Err(error) => {
                    tracing::warn!(interface = %cable.name, %error, "cannot answer discovery on this interface");
                }
            }
        }
    }

    /// Closes all sockets, and returns once they are closed.
    pub(crate) async fn close(self) {
        for ListeningInterface { task, .. } in self.listening {
            task.abort();
            // The error is the abortion.
            let _ = task.await;
        }
    }

    fn serves(&self, interface: &Interface) -> bool {
        let chosen = match &self.answerer.config.only {
            Some(names) => names.contains(&interface.name),
            None => interface.master.is_none(),
        };
        chosen && interface.up && interface.kind != InterfaceKind::Loopback
    }

    fn open(&self, interface: &Interface, cable: Cable) -> io::Result<ListeningInterface> {
        let config = &self.answerer.config;
        // Several inviters of a machine may wait for questions at once.
        let listener = match config.invitation {
            Some(_) => shared_multicast_listener(interface, GROUP, config.asked_at)?,
            None => multicast_listener(interface, GROUP, config.asked_at)?,
        };
        let socket = UdpSocket::from_std(listener)?;
        tracing::debug!(interface = %cable.name, address = %cable.address, "answering discovery");
        let task = AbortOnDrop::new(tokio::spawn(answer(self.answerer.clone(), cable, socket)));
        Ok(ListeningInterface { cable, task })
    }
}

async fn answer(answerer: Arc<Answerer>, cable: Cable, socket: UdpSocket) {
    let mut limiter = Limiter::new(Instant::now());
    let mut reading = TokenBucket::new(READ_BURST, READ_PER_SECOND, Instant::now());
    let mut buffer = [0; DATAGRAM_LEN];
    loop {
        let received = receive(&socket, &mut buffer).await;
        let now = Instant::now();
        match received {
            Ok(Some((datagram, from))) => {
                // An answer that is lost is asked for again.
                if let Some(answer) =
                    answerer.answer_to(datagram, *from.ip(), cable, &mut limiter, now)
                    && let Err(error) = cable.send(&socket, &answer, from)
                {
                    tracing::debug!(interface = %cable.name, to = %from, %error, "cannot send discovery answer");
                }
            }
            Ok(None) => {}
            Err(error) => {
                tracing::debug!(interface = %cable.name, %error, "cannot receive discovery query");
            }
        }
        // In a flood the kernel drops unread datagrams, which costs less than reading them.
        if !reading.take(now) {
            tokio::time::sleep(reading.wait(now)).await;
        }
    }
}

/// Content of the answers and the rules for answering, shared by all interfaces.
struct Answerer {
    config: ResponderConfig,
    host: Vec<u8>,
}

impl std::fmt::Debug for Answerer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answerer")
            .field("announce", &self.config.announce)
            .field("port", &self.config.port)
            .finish_non_exhaustive()
    }
}

impl Answerer {
    /// Returns the answer to a datagram from this neighbour; `None` if it is not a valid question,
    /// its key may not find the daemon, or the rate limit is reached.
    ///
    /// The cheap checks come first, so that a stranger costs no signature check.
    fn answer_to(
        &self,
        datagram: &[u8],
        from: Ipv6Addr,
        cable: Cable,
        limiter: &mut Limiter,
        now: Instant,
    ) -> Option<[u8; DATAGRAM_LEN]> {
        let question = Question::decode(datagram)?;
        let key = PublicKey::from_bytes(question.claims().key).ok()?;
        let ours = self.config.identity.public_key();
        if question.claims().address != from
            || question.claims().invitation != self.config.invitation
            || key == ours
            || !(self.config.announce || (self.config.accepts)(&key))
        {
            return None;
        }
        let limited = || {
            tracing::debug!(interface = %cable.name, %from, "query rate limit reached");
            None
        };
        if !limiter.check(from, now) {
            return limited();
        }
        let question = question.verified(is_by)?;
        // Only what the signature proves is charged to an address.
        if !limiter.admit(from, now) {
            return limited();
        }
        let answer = Response {
            nonce: question.nonce,
            key: *ours.as_bytes(),
            address: cable.address,
            port: self.config.port,
            index: cable.index.0,
            interface: cable.name.as_bytes().to_vec(),
            host: self.host.clone(),
            asker_key: question.key,
            asker_address: question.address,
            invitation: question.invitation.is_some(),
        };
        answer.encode(|text| sign(&self.config.identity, text))
    }
}

/// Rate limit of reading datagrams per interface: burst, and datagrams per second. Reading and
/// rejecting one takes a few µs, so about 3 % of a core (estimated).
const READ_BURST: u32 = 512;
const READ_PER_SECOND: u32 = 10_000;

#[cfg(test)]
mod tests {
    use nicstripe_link::InterfaceIndex;
    use nicstripe_proto::discovery::Nonce;

    use super::*;

    const ASKER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

    fn cable() -> Cable {
        Cable {
            index: InterfaceIndex(3),
            name: "eth1".parse().unwrap(),
            address: "fe80::2".parse().unwrap(),
        }
    }

    /// Returns a responder that trusts only the key of `trusted`.
    fn answerer(trusted: &Identity, announce: bool) -> Answerer {
        let trusted = trusted.public_key();
        Answerer {
            config: ResponderConfig {
                identity: Identity::generate().unwrap(),
                accepts: Arc::new(move |key| *key == trusted),
                announce,
                invitation: None,
                port: 7747,
                asked_at: 7747,
                only: None,
            },
            host: b"nas".to_vec(),
        }
    }

    fn question(asker: &Identity) -> Question {
        Question {
            nonce: Nonce(crate::trust::random::random_bytes()),
            key: *asker.public_key().as_bytes(),
            address: ASKER,
            invitation: None,
        }
    }

    fn signed(question: &Question, by: &Identity) -> [u8; DATAGRAM_LEN] {
        question.encode(|text| sign(by, text)).unwrap()
    }

    fn answer_of(
        answerer: &Answerer,
        datagram: &[u8],
        from: Ipv6Addr,
    ) -> Option<[u8; DATAGRAM_LEN]> {
        let now = Instant::now();
        answerer.answer_to(datagram, from, cable(), &mut Limiter::new(now), now)
    }

    #[test]
    fn a_trusted_asker_gets_an_answer_that_proves_itself() {
        let asker = Identity::generate().unwrap();
        let answerer = answerer(&asker, false);
        let question = question(&asker);
        let datagram = answer_of(&answerer, &signed(&question, &asker), ASKER).unwrap();
        let answer = Response::decode(&datagram)
            .unwrap()
            .verified(is_by)
            .unwrap();
        assert!(answer.answers(&question));
        assert_eq!(
            answer.key,
            *answerer.config.identity.public_key().as_bytes()
        );
        assert_eq!((answer.port, answer.index), (7747, 3));
        assert_eq!(answer.interface, b"eth1");
        assert_eq!(answer.host, b"nas");
        assert_eq!(answer.address, cable().address);
    }

    #[test]
    fn a_stranger_learns_nothing_unless_everybody_is_to_know() {
        let (asker, stranger) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let datagram = signed(&question(&stranger), &stranger);
        assert_eq!(answer_of(&answerer(&asker, false), &datagram, ASKER), None);
        assert!(answer_of(&answerer(&asker, true), &datagram, ASKER).is_some());
    }

    #[test]
    fn an_inviter_answers_anyone_who_asks_for_its_number_and_no_daemon_does() {
        let (asker, stranger) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let mut answerer = answerer(&asker, true);
        let ask = |answerer: &Answerer, number| {
            let question = Question {
                invitation: number,
                ..question(&stranger)
            };
            let datagram = answer_of(answerer, &signed(&question, &stranger), ASKER)?;
            let answer = Response::decode(&datagram)
                .unwrap()
                .verified(is_by)
                .unwrap();
            Some(answer.invitation && answer.answers(&question))
        };
        assert_eq!(ask(&answerer, None), Some(false));
        assert_eq!(ask(&answerer, Number::new(7)), None, "a daemon");
        answerer.config.invitation = Number::new(7);
        assert_eq!(ask(&answerer, Number::new(7)), Some(true));
        assert_eq!(ask(&answerer, Number::new(8)), None);
        assert_eq!(ask(&answerer, None), None);
    }

    #[test]
    fn a_question_of_another_signer_or_place_and_ones_own_are_not_answered() {
        let (asker, thief) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let elsewhere = "fe80::bad".parse().unwrap();
        for announce in [false, true] {
            let answerer = answerer(&asker, announce);
            let own = &answerer.config.identity;
            for (what, of, by, from) in [
                ("signed by another key", &asker, &thief, ASKER),
                (
                    "overheard, and asked from elsewhere",
                    &asker,
                    &asker,
                    elsewhere,
                ),
                ("by itself", own, own, ASKER),
            ] {
                let datagram = signed(&question(of), by);
                assert_eq!(answer_of(&answerer, &datagram, from), None, "{what}");
            }
        }
    }

    #[test]
    fn a_flood_of_one_source_costs_a_few_signatures_and_strangers_none() {
        let (asker, stranger) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let answerer = answerer(&asker, false);
        let now = Instant::now();
        let mut limiter = Limiter::new(now);
        let mut ask = |by: &Identity, from: Ipv6Addr, times: usize| {
            let question = Question {
                address: from,
                ..question(by)
            };
            let datagram = signed(&question, by);
            (0..times)
                .filter(|_| {
                    answerer
                        .answer_to(&datagram, from, cable(), &mut limiter, now)
                        .is_some()
                })
                .count()
        };
        assert_eq!(ask(&stranger, "fe80::bad".parse().unwrap(), 1000), 0);
        let answered = ask(&asker, "fe80::bad".parse().unwrap(), 1000);
        assert!((1..=20).contains(&answered), "{answered}");
        assert_eq!(ask(&asker, ASKER, 1), 1, "another source is still answered");
    }

    #[test]
    fn a_flood_of_questions_with_a_trusted_key_and_no_signature_keeps_nobody_out() {
        let (asker, thief) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let answerer = answerer(&asker, false);
        let (mut limiter, mut now) = (Limiter::new(Instant::now()), Instant::now());
        let honest = signed(&question(&asker), &asker);
        for _ in 0..5 {
            // 4,000 a second, from as many addresses and from that of the honest one.
            for number in 0..1000u16 {
                let from = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number);
                let forged = Question {
                    address: from,
                    ..question(&asker)
                };
                let forged = signed(&forged, &thief);
                let answer = answerer.answer_to(&forged, from, cable(), &mut limiter, now);
                assert_eq!(answer, None);
            }
            now += std::time::Duration::from_millis(250);
            let answer = answerer.answer_to(&honest, ASKER, cable(), &mut limiter, now);
            assert!(answer.is_some());
        }
    }
}
