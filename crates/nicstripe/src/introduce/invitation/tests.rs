use std::{future::ready, sync::Arc, time::Instant as StdInstant};

use nicstripe_proto::invitation::{Confirm, PAKE_LEN, Pake, encode};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};

use super::{joining::only_one, *};
use crate::{
    Daemon,
    bootstrap::{Call, Serving, Wishes},
    discovery::DiscoveredPeer,
    trust::{Identity, Peers},
    wire::tls::{ClientTls, ServerTls, TlsStream},
};

/// Identities of two machines, and the code that one shows.
struct Scene {
    inviter: Identity,
    joiner: Identity,
    code: Code,
}

fn scene() -> Scene {
    Scene {
        inviter: Identity::generate().unwrap(),
        joiner: Identity::generate().unwrap(),
        code: code("7-crossover-violin"),
    }
}

fn code(text: &str) -> Code {
    text.parse().unwrap()
}

/// Returns options for a free port of the loopback interface.
fn loopback() -> InvitationOptions {
    InvitationOptions {
        daemon_port: Some(7747),
        listen: vec![([127, 0, 0, 1], 0).into()],
        port: Some(0),
        ..InvitationOptions::default()
    }
}

fn at(address: SocketAddr) -> JoinOptions {
    JoinOptions {
        host: Some(address.ip().to_string()),
        port: Some(address.port()),
        ..JoinOptions::default()
    }
}

fn address(invitation: &Invitation) -> SocketAddr {
    invitation.addresses()[0].address
}

impl Scene {
    fn open(&self) -> (Invitation, SocketAddr) {
        let invitation = Invitation::with_code(&self.inviter, self.code, loopback()).unwrap();
        let address = address(&invitation);
        (invitation, address)
    }

    /// Opens an invitation and waits for its joiner.
    fn waiting(&self) -> (JoinHandle<Result<Paired, InvitationError>>, SocketAddr) {
        let (invitation, address) = self.open();
        (tokio::spawn(invitation.wait()), address)
    }

    /// Asserts that the invitation continues, and ends with the right joiner.
    async fn goes_on(
        &self,
        waiting: JoinHandle<Result<Paired, InvitationError>>,
        address: SocketAddr,
    ) {
        assert!(self.join(address, self.code).await.is_ok());
        assert!(soon(waiting).await.unwrap().is_ok());
    }

    async fn join(&self, address: SocketAddr, code: Code) -> Result<Paired, InvitationError> {
        soon(join(&self.joiner, code, at(address))).await
    }

    /// Connects to an inviter without saying anything.
    async fn tls(&self, address: SocketAddr) -> TlsStream {
        let tls = ClientTls::for_invitation(&self.joiner, Arc::new(|_| true));
        let tcp = TcpStream::connect(address).await.unwrap();
        TlsStream::connect(tcp, &tls, deadline()).await.unwrap()
    }
}

fn trusting(identity: &Identity) -> Peers {
    let mut peers = Peers::default();
    let line = identity.public_key().to_string().parse().unwrap();
    peers.add(&line, Some("peer")).unwrap();
    peers
}

fn deadline() -> StdInstant {
    StdInstant::now() + PATIENCE
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap()
}

fn sentence<T: std::fmt::Debug>(result: Result<T, InvitationError>) -> String {
    crate::text::chain(&result.unwrap_err())
}

const WRONG: &str = "the code is wrong or someone else tried it: start again with a new one";

/// Timeout of a step that takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn the_right_code_gives_each_end_the_key_of_the_other() {
    let scene = scene();
    let (waiting, address) = scene.waiting();
    let theirs = scene.join(address, scene.code).await.unwrap();
    let ours = soon(waiting).await.unwrap().unwrap();
    assert_eq!(theirs.key, scene.inviter.public_key());
    assert_eq!(ours.key, scene.joiner.public_key());
    assert_eq!((theirs.port, ours.port), (Some(7747), None));
    assert_eq!(theirs.address, address);
    assert!(ours.address.ip().is_loopback());
    assert_eq!(theirs.interface.as_deref(), Some("lo"));
    assert_eq!(ours.interface.as_deref(), Some("lo"));
    let host = rustix::system::uname();
    assert_eq!(theirs.host, host.nodename().to_str().unwrap());
    let finished =
        soon(async { tokio::join!(ours.finish("laptop"), theirs.finish("\u{7}nas")) }).await;
    let (there, here) = (finished.0.unwrap(), finished.1.unwrap());
    assert_eq!((&*there, &*here), ("\\u{7}nas", "laptop"));
}

#[tokio::test]
async fn a_wrong_code_is_told_at_both_ends_and_ends_the_invitation() {
    let scene = scene();
    for wrong in ["7-crossover-unicorn", "7-velvet-violin"] {
        let (waiting, address) = scene.waiting();
        assert_eq!(sentence(scene.join(address, code(wrong)).await), WRONG);
        assert_eq!(sentence(soon(waiting).await.unwrap()), WRONG);
        let late = scene.join(address, scene.code).await;
        assert!(
            matches!(late, Err(InvitationError::Connect { .. })),
            "{late:?}"
        );
    }
}

#[tokio::test]
async fn of_two_guesses_at_once_only_the_first_is_judged() {
    let scene = scene();
    let (waiting, address) = scene.waiting();
    // The honest joiner is slow: its confirmation comes after the wrong one.
    let mut slow = Channel::new(scene.tls(address).await);
    slow.send(&first_message()).await.unwrap();
    assert!(matches!(slow.receive().await, Ok(Message::Pake(_))));
    let wrong = code("7-crossover-unicorn");
    assert_eq!(sentence(scene.join(address, wrong).await), WRONG);
    assert_eq!(sentence(soon(waiting).await.unwrap()), WRONG);
    // The kernel may accept the bytes, but no one answers.
    let _ = slow.send(&Message::Confirm(Confirm { mac: [0; 32] })).await;
    assert!(soon(slow.receive()).await.is_err());
}

/// Returns a valid half of the PAKE: the base point of the curve.
fn half_of_pake() -> [u8; PAKE_LEN] {
    let mut message = [0x66; PAKE_LEN];
    (message[0], message[1]) = (b'A', 0x58);
    message
}

fn first_message() -> Message {
    let message = half_of_pake();
    Message::Pake(Pake { number: 7, message })
}

#[tokio::test]
async fn two_invitations_of_one_machine_are_told_apart_without_a_guess() {
    let scene = scene();
    let (first, first_at) = scene.open();
    let other_code = code("8-velvet-unicorn");
    let second = Invitation::with_code(&scene.inviter, other_code, loopback()).unwrap();
    let second_at = address(&second);
    let waiting = [tokio::spawn(first.wait()), tokio::spawn(second.wait())];
    let astray = scene.join(first_at, other_code).await;
    assert!(
        matches!(astray, Err(InvitationError::OtherNumber { address }) if address == first_at),
        "{astray:?}"
    );
    for (address, code) in [(second_at, other_code), (first_at, scene.code)] {
        assert!(scene.join(address, code).await.is_ok());
    }
    for waiting in waiting {
        assert!(soon(waiting).await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn an_invitation_takes_a_free_port_if_its_own_is_in_use() {
    let scene = scene();
    let options = InvitationOptions {
        port: None,
        ..loopback()
    };
    let open = || Invitation::open(&scene.inviter, options.clone()).unwrap();
    let (first, second) = (open(), open());
    assert_ne!(address(&first).port(), address(&second).port());
}

#[test]
fn two_keys_for_one_number_are_refused_with_both_names() {
    let number = code("7-crossover-violin").number();
    let found = |key: u8, host: &str, interface: &str| DiscoveredPeer {
        key: PublicKey::from_bytes([key; 32]).unwrap(),
        trusted: false,
        name: None,
        host_hint: host.into(),
        interface: interface.into(),
        peer_interface: "eth1".into(),
        peer_index: 3,
        address: "[fe80::2%7]:7746".parse().unwrap(),
        rtt: Duration::ZERO,
    };
    let same = vec![found(1, "nas", "eth0"), found(1, "nas", "eth1")];
    assert_eq!(only_one(number, same.clone()).unwrap(), same);
    let two = vec![
        found(1, "nas", "eth0"),
        found(1, "nas", "eth1"),
        found(2, "", "eth2"),
    ];
    assert_eq!(
        sentence(only_one(number, two)),
        "two machines answer for invitation 7: nas on eth0 (key AQEB-AQEB-AQEB) and a machine \
         without a name on eth2 (key AgIC-AgIC-AgIC): start again with a new code"
    );
}

/// Accepts one connection, connects to `inviter`, and forwards the messages of both.
async fn forward(listener: TcpListener, inviter: SocketAddr) {
    let identity = Identity::generate().unwrap();
    let (tcp, _) = listener.accept().await.unwrap();
    let tls = ServerTls::for_invitation(&identity);
    let tls = TlsStream::accept(tcp, &tls, deadline(), ready(())).await;
    let mut joiner = Channel::new(tls.unwrap());
    let tls = ClientTls::for_invitation(&identity, Arc::new(|_| true));
    let tcp = TcpStream::connect(inviter).await.unwrap();
    let tls = TlsStream::connect(tcp, &tls, deadline()).await;
    let mut inviter = Channel::new(tls.unwrap());
    loop {
        let (to, message) = tokio::select! {
            message = joiner.receive() => (&mut inviter, message),
            message = inviter.receive() => (&mut joiner, message),
        };
        let Ok(message) = message else { break };
        if to.send(&message).await.is_err() {
            break;
        }
    }
    joiner.close().await;
}

#[tokio::test]
async fn a_machine_in_the_middle_that_forwards_all_messages_is_a_wrong_code() {
    let scene = scene();
    let (waiting, address) = scene.waiting();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let middle = listener.local_addr().unwrap();
    let forwarding = tokio::spawn(forward(listener, address));
    assert_eq!(sentence(scene.join(middle, scene.code).await), WRONG);
    assert_eq!(sentence(soon(waiting).await.unwrap()), WRONG);
    soon(forwarding).await.unwrap();
}

#[tokio::test]
async fn a_false_inviter_without_the_code_is_refused() {
    let scene = scene();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let liar_at = listener.local_addr().unwrap();
    let identity = scene.inviter.clone();
    let lying = tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        let tls = ServerTls::for_invitation(&identity);
        let tls = TlsStream::accept(tcp, &tls, deadline(), ready(())).await;
        let mut channel = Channel::new(tls.unwrap());
        let Ok(Message::Pake(theirs)) = channel.receive().await else {
            panic!("no PAKE");
        };
        let mut message = half_of_pake();
        message[0] = b'B';
        let pake = Pake { message, ..theirs };
        channel.send(&Message::Pake(pake)).await.unwrap();
        let Ok(Message::Confirm(theirs)) = channel.receive().await else {
            panic!("no confirmation");
        };
        // It echoes the joiner's proof.
        channel.send(&Message::Confirm(theirs)).await.unwrap();
        channel.receive().await.unwrap()
    });
    assert_eq!(sentence(scene.join(liar_at, scene.code).await), WRONG);
    let answer = soon(lying).await.unwrap();
    assert_eq!(answer, Message::from(Refusal::WrongCode));
}

#[tokio::test]
async fn a_daemon_refuses_a_joiner_of_any_key() {
    let scene = scene();
    let root = tempfile::tempdir().unwrap();
    let peers = trusting(&scene.joiner);
    let daemon = Daemon::builder()
        .identity(scene.inviter.clone())
        .peers(peers)
        .root(root.path())
        .listen(vec!["127.0.0.1:0".parse().unwrap()])
        .port(0)
        .bind()
        .await
        .unwrap();
    let address = daemon.addresses()[0].address;
    let running = tokio::spawn(daemon.run(crate::CancellationToken::new()));
    let refused = scene.join(address, scene.code).await;
    assert!(
        matches!(refused, Err(InvitationError::NotWaiting { address: at }) if at == address),
        "{refused:?}"
    );
    running.abort();
}

#[tokio::test]
async fn garbage_and_silence_are_no_guess_and_end_in_time() {
    let scene = scene();
    let (mut invitation, address) = scene.open();
    invitation.limits.connection = Duration::from_secs(3);
    let waiting = tokio::spawn(invitation.wait());
    let pake = |message| encode(&Message::Pake(Pake { number: 7, message }));
    let done = encode(&Message::Done(Done::default()));
    let hostile = [
        vec![0xff; 4096],
        vec![0; 4096],
        vec![0xff, 0xff],
        done.clone(),
        encode(&Message::Confirm(Confirm { mac: [0; 32] })),
        pake([0xff; PAKE_LEN]),
        pake([0; PAKE_LEN]),
        [pake(half_of_pake()), done.clone()].concat(),
        done.repeat(10_000),
    ];
    for bytes in &hostile {
        let mut tls = scene.tls(address).await;
        tls.queue(&[bytes]).unwrap();
        // The inviter may close before it has read all.
        let _ = soon(tls.flush()).await;
        let mut channel = Channel::new(tls);
        let ended = async { while channel.receive().await.is_ok() {} };
        soon(ended).await;
    }
    let mut raw = TcpStream::connect(address).await.unwrap();
    raw.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = soon(raw.read_to_end(&mut answer)).await;
    assert!(answer.is_empty(), "a scanner gets no byte");
    // One is silent after TLS, and one after its half of the PAKE.
    let silent = scene.tls(address).await;
    let mut half = Channel::new(scene.tls(address).await);
    half.send(&first_message()).await.unwrap();
    let started_at = StdInstant::now();
    let ended = async { while half.receive().await.is_ok() {} };
    soon(ended).await;
    assert!(started_at.elapsed() < PATIENCE / 2);
    drop(silent);
    scene.goes_on(waiting, address).await;
}

#[tokio::test]
async fn half_open_connections_end_the_invitation_at_the_sixteenth() {
    let scene = scene();
    let (mut invitation, address) = scene.open();
    invitation.limits.connection = Duration::from_millis(100);
    let waiting = tokio::spawn(invitation.wait());
    let mut open = Vec::new();
    for _ in 0..17 {
        open.push(TcpStream::connect(address).await.unwrap());
    }
    let error = sentence(soon(waiting).await.unwrap());
    assert!(
        error.starts_with("16 connections ended without a proof of the code, the last from 127."),
        "{error}"
    );
    for tcp in &mut open {
        let mut answer = Vec::new();
        let _ = soon(tcp.read_to_end(&mut answer)).await;
        assert!(answer.is_empty());
    }
}

#[tokio::test]
async fn a_few_half_open_connections_delay_the_joiner_only_for_their_time() {
    let scene = scene();
    let (mut invitation, address) = scene.open();
    invitation.limits.connection = Duration::from_secs(2);
    let waiting = tokio::spawn(invitation.wait());
    let mut open = Vec::new();
    for _ in 0..6 {
        open.push(TcpStream::connect(address).await.unwrap());
    }
    scene.goes_on(waiting, address).await;
}

#[tokio::test(start_paused = true)]
async fn an_invitation_that_no_one_uses_expires() {
    let scene = scene();
    let options = InvitationOptions {
        lifetime: Duration::from_secs(9999),
        ..loopback()
    };
    let invitation = Invitation::with_code(&scene.inviter, scene.code, options).unwrap();
    let started_at = Instant::now();
    assert_eq!(
        sentence(invitation.wait().await),
        "the code was not used within 600 s: start again with a new one"
    );
    let waited = started_at.elapsed();
    assert!(waited >= LONGEST_INVITATION && waited < LONGEST_INVITATION + PATIENCE);
}

#[tokio::test]
async fn a_peer_that_does_not_store_the_key_is_told_apart() {
    let scene = scene();
    for refuses in [false, true] {
        let (waiting, address) = scene.waiting();
        let theirs = scene.join(address, scene.code).await.unwrap();
        let ours = soon(waiting).await.unwrap().unwrap();
        let finishing = tokio::spawn(ours.finish("x"));
        match refuses {
            true => theirs.refuse().await,
            false => drop(theirs),
        }
        let error = sentence(soon(finishing).await.unwrap());
        assert!(
            error.contains("did not confirm that it stored our key"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn another_purpose_is_refused_at_both_ends() {
    let scene = scene();
    let (waiting, address) = scene.waiting();
    let options = JoinOptions {
        purpose: Purpose::OneCopy,
        ..at(address)
    };
    let joined = soon(join(&scene.joiner, scene.code, options)).await;
    let is_purpose = |error| matches!(error, Err(InvitationError::OtherPurpose { .. }));
    assert!(is_purpose(joined));
    assert!(is_purpose(soon(waiting).await.unwrap()));
}

#[tokio::test]
async fn a_machine_does_not_pair_with_itself() {
    let mut scene = scene();
    scene.joiner = scene.inviter.clone();
    let (waiting, address) = scene.waiting();
    let own = scene.join(address, scene.code).await;
    assert!(matches!(own, Err(InvitationError::Own { .. })), "{own:?}");
    assert!(!waiting.is_finished());
    waiting.abort();
}

#[tokio::test]
async fn a_search_that_finds_no_one_names_the_interfaces() {
    let scene = scene();
    let options = JoinOptions {
        duration: Duration::from_millis(50),
        excluded: vec!["eth9".to_owned()],
        ..JoinOptions::default()
    };
    match soon(join(&scene.joiner, scene.code, options)).await {
        Err(InvitationError::Nobody {
            number,
            interfaces,
            excluded,
        }) => {
            assert!(number.get() == 7 && !interfaces.is_empty() && excluded == ["eth9"]);
        }
        // This machine has no cable.
        Err(InvitationError::System(crate::Error::NoInterface { .. })) => {}
        other => panic!("{other:?}"),
    }
    let nobody = InvitationError::Nobody {
        number: scene.code.number(),
        interfaces: vec!["eth0".to_owned(), "eth1".to_owned()],
        excluded: vec!["eth9".to_owned()],
    };
    assert_eq!(
        nobody.to_string(),
        "no machine answers for invitation 7 on eth0, eth1 (excluded: eth9)"
    );
}

#[tokio::test]
async fn neither_code_nor_secret_is_in_debug_output() {
    let scene = scene();
    let (invitation, _) = scene.open();
    let shown = format!("{invitation:?}");
    assert!(!shown.contains("violin"), "{shown}");
    assert!(!shown.contains("crossover"), "{shown}");
}

/// Pairs both ends of a new scene, as sender and receiver.
async fn sender_and_receiver() -> (Paired, Paired) {
    let scene = scene();
    let options = InvitationOptions {
        purpose: Purpose::OneCopy,
        ..loopback()
    };
    let invitation = Invitation::with_code(&scene.inviter, scene.code, options).unwrap();
    let options = JoinOptions {
        purpose: Purpose::OneCopy,
        ..at(address(&invitation))
    };
    let waiting = tokio::spawn(invitation.wait());
    let sender = soon(join(&scene.joiner, scene.code, options)).await;
    (sender.unwrap(), soon(waiting).await.unwrap().unwrap())
}

fn item(name: &str) -> Item {
    Item {
        name: name.into(),
        is_dir: false,
        is_link: false,
        files: 1,
        bytes: 9,
    }
}

fn call() -> Call {
    Call::new(Wishes::default()).unwrap()
}

#[tokio::test]
async fn an_offer_that_is_accepted_leads_to_a_daemon_for_this_copy() {
    let (sender, mut receiver) = sender_and_receiver().await;
    let offering = tokio::spawn(sender.offer(call(), vec![item("a"), item("b")]));
    let offered = soon(receiver.offered()).await.unwrap();
    assert_eq!(offered.items, [item("a"), item("b")]);
    let serving = Serving {
        key: Identity::generate().unwrap().public_key(),
        port: 7750,
        home: "/in".as_ref(),
        homes: &[],
    };
    let mut ours = soon(receiver.accept(&offered.called, &serving))
        .await
        .unwrap();
    let (peer, theirs) = soon(offering).await.unwrap().unwrap();
    assert_eq!(peer.port(), 7750);
    let (_, ended) = soon(async { tokio::join!(theirs.complete(), ours.ended()) }).await;
    assert_eq!(ended, CopyEnd::Complete);
    assert_eq!(soon(ours.ended()).await, CopyEnd::Stopped);
}

#[tokio::test]
async fn an_offer_that_is_declined_or_too_long_or_left_is_told() {
    let (sender, mut receiver) = sender_and_receiver().await;
    let offering = tokio::spawn(sender.offer(call(), vec![item("a")]));
    soon(receiver.offered()).await.unwrap();
    soon(receiver.decline()).await;
    let error = sentence(soon(offering).await.unwrap());
    assert!(error.ends_with(" declined the files"), "{error}");

    let (sender, mut receiver) = sender_and_receiver().await;
    let many = vec![item(&"n".repeat(255)); 300];
    let offering = tokio::spawn(sender.offer(call(), many));
    let error = sentence(soon(receiver.offered()).await);
    assert!(error.contains("stopped the exchange"), "{error}");
    drop(receiver);
    let error = sentence(soon(offering).await.unwrap());
    assert!(error.starts_with("300 files and directories"), "{error}");

    let (sender, mut receiver) = sender_and_receiver().await;
    let offering = tokio::spawn(sender.offer(call(), vec![item("a")]));
    soon(receiver.offered()).await.unwrap();
    offering.abort();
    assert!(matches!(
        soon(receiver.gone()).await,
        InvitationError::Lost { .. }
    ));
}
