//! Tests of trusted clients whose line in the peers file changes: between handshake and hello, and
//! during a session.

use std::{fs, net::SocketAddr, path::PathBuf, time::Duration};

use nicstripe_proto::{
    Frame, SessionId,
    message::{AnswerKind, AskKind, CloseCode, RefusalCode},
};
use tempfile::TempDir;

use super::{name, peer::Peer, within};
use crate::{
    CancellationToken, Daemon, DaemonHandle, FailCode,
    facts::Facts,
    trust::{Identity, PublicLine, private_folder},
};

/// Running daemon with a peers file. Its root holds one file and the empty folder `jail`.
struct Guarded {
    folder: TempDir,
    port: u16,
    client: Identity,
    other: Identity,
    daemon: DaemonHandle,
    shutdown: CancellationToken,
}

impl Guarded {
    /// Starts a daemon that grants `client` the rights in `options`, and `other` all rights.
    async fn new(options: &str) -> Self {
        let folder = private_folder();
        fs::create_dir_all(folder.path().join("served/jail")).unwrap();
        fs::write(folder.path().join("served/file"), "content").unwrap();
        let [client, other] = std::array::from_fn(|_| Identity::generate().unwrap());
        let peers = folder.path().join("peers");
        let builder = Daemon::builder()
            .peers_file(peers)
            .root(folder.path().join("served"))
            .port(0);
        let bound = builder
            .listen(vec!["127.0.1.1:0".parse().unwrap()])
            .bind()
            .await
            .unwrap();
        let (port, shutdown, daemon) = (
            bound.addresses()[0].address.port(),
            CancellationToken::new(),
            bound.handle(),
        );
        tokio::spawn(bound.run(shutdown.clone()));
        let guarded = Self {
            folder,
            port,
            client,
            other,
            daemon,
            shutdown,
        };
        guarded.allow(Some(options));
        guarded
    }

    fn peers(&self) -> PathBuf {
        self.folder.path().join("peers")
    }

    fn jailed(&self, options: &str) -> String {
        format!("{options}root={}/served/jail", self.folder.path().display())
    }

    /// Sets the options of `client` in the peers file, or removes its line.
    fn allow(&self, options: Option<&str>) {
        let line = |identity: &Identity, name: &str| {
            PublicLine::new(identity.public_key(), name).to_string()
        };
        let client = options.map(|options| {
            format!("{options} {}", line(&self.client, "client"))
                .trim_start()
                .to_owned()
        });
        self.write(&[client.unwrap_or_default(), line(&self.other, "other")].join("\n"));
    }

    /// Replaces the peers file atomically, as `nicstripe trust` does.
    fn write(&self, text: &str) {
        let new = self.folder.path().join("new");
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        fs::rename(&new, self.peers()).unwrap();
    }

    fn address(&self) -> SocketAddr {
        ([127, 0, 1, 1], self.port).into()
    }

    async fn session(&self, identity: &Identity) -> Peer {
        Peer::session([127, 0, 3, 1], self.address(), identity).await
    }

    /// Connects as `client`, and waits until the daemon has checked the key.
    async fn connect(&self) -> Peer {
        let connected = Peer::connect([127, 0, 3, 1], self.address(), &self.client).await;
        for _ in 0..200 {
            if self.daemon.metrics().greetings == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        connected.unwrap()
    }

    fn served(&self) -> PathBuf {
        self.folder.path().join("served")
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

type Change = fn(&Guarded);

async fn sees_file(peer: &mut Peer) -> bool {
    let stat = AskKind::Stat { name: name("file") };
    matches!(peer.asked(stat).await, AnswerKind::Stat { .. })
}

/// Returns the code with which the daemon fails a request.
async fn failure(peer: &mut Peer, kind: AskKind) -> Option<FailCode> {
    match peer.asked(kind).await {
        AnswerKind::Failed { code, .. } => Some(code),
        _ => None,
    }
}

/// Answers heartbeats until the daemon closes the session. Returns the close code.
async fn closed(peer: &mut Peer) -> CloseCode {
    loop {
        let frame = within(peer.next()).await.unwrap();
        if let Frame::Close { code } = frame {
            return CloseCode::from_u32(code);
        }
        let _ = peer.react(&frame).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hello_that_is_held_back_until_the_line_is_gone_gets_nothing() {
    let changes: [(&str, Change); 4] = [
        ("the line is removed", |guarded| guarded.allow(None)),
        ("a line cannot be read", |guarded| {
            guarded.write("read-olny nicstripe-ed25519 AAAA\n");
        }),
        ("the file is removed", |guarded| {
            fs::remove_file(guarded.peers()).unwrap();
        }),
        ("the file is a folder", |guarded| {
            fs::remove_file(guarded.peers()).unwrap();
            fs::create_dir(guarded.peers()).unwrap();
        }),
    ];
    for (change, make) in changes {
        let guarded = Guarded::new("").await;
        guarded.allow(Some(&guarded.jailed("read-only,")));
        let mut late = guarded.connect().await;
        make(&guarded);
        let Ok(Ok(_)) = late.greet(SessionId([1; 16]), true).await else {
            continue;
        };
        let sees = sees_file(&mut late).await;
        panic!("{change}: the hello was answered; sees the file outside of its jail: {sees}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hello_gets_the_rights_of_its_moment_and_not_those_of_the_handshake() {
    let guarded = Guarded::new("").await;
    let mut late = guarded.connect().await;
    guarded.allow(Some(&guarded.jailed("read-only,")));
    assert_eq!(late.refused(SessionId([1; 16]), true).await, None);
    assert!(!sees_file(&mut late).await);
    let make = AskKind::MakeDir { name: name("a") };
    assert_eq!(failure(&mut late, make).await, Some(FailCode::Refused));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn facts_are_told_in_order_and_not_to_a_peer_that_may_not_know_them() {
    let facts = |offset| AskKind::Facts { offset };
    let guarded = Guarded::new("").await;
    let mut client = guarded.session(&guarded.client).await;
    assert!(failure(&mut client, facts(1)).await.is_some());
    let AnswerKind::Facts { part, more: false } = client.asked(facts(0)).await else {
        panic!("facts of a small machine fit into one part");
    };
    let told = Facts::from_json(&part).unwrap();
    assert!(
        told.version.is_some() && told.host.cores.is_some(),
        "{told:?}"
    );
    let guarded = Guarded::new("no-facts").await;
    let mut client = guarded.session(&guarded.client).await;
    assert_eq!(
        failure(&mut client, facts(0)).await,
        Some(FailCode::Refused)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_end_when_their_key_is_removed_or_its_rights_shrink_and_no_others() {
    for options in [
        None,
        Some("read-only"),
        Some("no-bench"),
        Some("no-facts"),
        Some("root=/"),
    ] {
        let guarded = Guarded::new("").await;
        let (mut client, mut other) = (
            guarded.session(&guarded.client).await,
            guarded.session(&guarded.other).await,
        );
        assert!(sees_file(&mut client).await);
        let other = tokio::spawn(async move { other.end().await });
        guarded.allow(options);
        assert_eq!(
            closed(&mut client).await,
            CloseCode::RightsChanged,
            "{options:?}"
        );
        assert!(!other.is_finished(), "{options:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_go_on_while_the_list_cannot_be_read_or_allows_more() {
    let guarded = Guarded::new("no-bench").await;
    let mut client = guarded.session(&guarded.client).await;
    guarded.allow(Some(""));
    guarded.daemon.reload_peers();
    assert!(sees_file(&mut client).await);
    guarded.write("read-olny nicstripe-ed25519 AAAA\n");
    guarded.daemon.reload_peers();
    assert!(sees_file(&mut client).await);
    let mut new = guarded.connect().await;
    let greeted = new.greet(SessionId([2; 16]), true).await;
    assert!(greeted.is_err(), "but no new one is let in");
    guarded.allow(None);
    guarded.daemon.reload_peers();
    assert_eq!(closed(&mut client).await, CloseCode::RightsChanged);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_cannot_join_a_session_with_more_rights_than_its_key_has() {
    let guarded = Guarded::new("").await;
    let mut client = guarded.connect().await;
    assert_eq!(client.refused(SessionId([1; 16]), true).await, None);
    let mut second = guarded.connect().await;
    guarded.allow(Some("read-only"));
    assert!(second.refused(SessionId([1; 16]), false).await.is_some());
    assert_eq!(closed(&mut client).await, CloseCode::RightsChanged);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_peer_moves_the_root_of_another_out_of_what_is_served() {
    for exists in [true, false] {
        let guarded = Guarded::new("").await;
        let (jail, served) = (name("jail"), guarded.served());
        fs::write(guarded.folder.path().join("file"), "secret").unwrap();
        if !exists {
            fs::remove_dir(served.join("jail")).unwrap();
        }
        guarded.allow(Some(&guarded.jailed("append-only,")));
        if exists {
            let mut client = guarded.session(&guarded.client).await;
            assert!(!sees_file(&mut client).await, "the jail is empty");
            let mut other = guarded.session(&guarded.other).await;
            let rename = AskKind::Rename {
                from: jail,
                to: name("aside"),
                replace: false,
            };
            assert_eq!(other.asked(rename).await, AnswerKind::Done);
        }
        std::os::unix::fs::symlink("..", served.join("jail")).unwrap();
        let mut late = guarded.connect().await;
        let refused = late.refused(SessionId([1; 16]), true).await;
        assert_eq!(refused, Some(RefusalCode::Storage), "{exists}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_served_directory_that_was_replaced_is_refused_until_the_daemon_reloads() {
    let guarded = Guarded::new("").await;
    let served = guarded.served();
    assert!(sees_file(&mut guarded.session(&guarded.other).await).await);
    fs::rename(&served, guarded.folder.path().join("before")).unwrap();
    fs::create_dir(&served).unwrap();
    let mut late = guarded.connect().await;
    let refused = late.refused(SessionId([1; 16]), true).await;
    assert_eq!(refused, Some(RefusalCode::Storage));
    guarded.daemon.reload_peers();
    fs::write(served.join("file"), "new").unwrap();
    assert!(sees_file(&mut guarded.session(&guarded.other).await).await);
}
