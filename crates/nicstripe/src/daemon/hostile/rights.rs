//! Tests of trusted clients whose line in the peers file changes: between handshake and hello, and
//! during a session.

use std::{fs, path::PathBuf, time::Duration};

use nicstripe_link::facts::Facts;
use nicstripe_proto::{
    FailCode, Frame, SessionId,
    message::{AnswerKind, AskKind, CloseCode, RefusalCode},
};
use tempfile::TempDir;

use super::{Stage, name, peer::Peer, within};
use crate::trust::{Identity, PublicLine, private_folder};

/// Running daemon with a peers file. Its root holds one file and the empty folder `jail`.
struct Guarded {
    stage: Stage,
    /// Folder with the peers file.
    folder: TempDir,
}

impl Guarded {
    /// Starts a daemon that grants `Stage::client` the rights in `options`, and `Stage::other` all
    /// rights.
    async fn new(options: &str) -> Self {
        let folder = private_folder();
        let peers = folder.path().join("peers");
        let stage = Stage::built(|builder| builder.peers_file(peers)).await;
        fs::create_dir(stage.served("jail")).unwrap();
        fs::write(stage.served("file"), "content").unwrap();
        let guarded = Self { stage, folder };
        guarded.allow(Some(options));
        guarded
    }

    fn peers(&self) -> PathBuf {
        self.folder.path().join("peers")
    }

    fn jailed(&self, options: &str) -> String {
        format!("{options}root={}", self.stage.served("jail").display())
    }

    /// Sets the options of `Stage::client` in the peers file, or removes its line.
    fn allow(&self, options: Option<&str>) {
        let line = |identity: &Identity, name: &str| {
            PublicLine::new(identity.public_key(), name).to_string()
        };
        let client = options.map(|options| {
            format!("{options} {}", line(&self.stage.client, "client"))
                .trim_start()
                .to_owned()
        });
        self.write(&[client.unwrap_or_default(), line(&self.stage.other, "other")].join("\n"));
    }

    /// Replaces the peers file atomically, as `nicstripe trust` does.
    fn write(&self, text: &str) {
        let new = self.folder.path().join("new");
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        fs::rename(&new, self.peers()).unwrap();
    }

    /// Connects as `Stage::client`, and waits until the daemon has checked the key.
    async fn connect(&self) -> Peer {
        let peer = self.stage.connect(&self.stage.client).await;
        for _ in 0..200 {
            if self.stage.handle.metrics().greetings == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        peer
    }

    /// Opens a session as `Stage::client`.
    async fn session(&self) -> Peer {
        self.stage.session(&self.stage.client).await
    }

    /// Opens a session as `Stage::other`.
    async fn other(&self) -> Peer {
        self.stage.session(&self.stage.other).await
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
    assert_eq!(failure(&mut late, make).await, Some(FailCode::NotPermitted));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn facts_are_told_in_order_and_not_to_a_peer_that_may_not_know_them() {
    let facts = |offset| AskKind::Facts { offset };
    let guarded = Guarded::new("").await;
    let mut client = guarded.session().await;
    assert!(failure(&mut client, facts(1)).await.is_some());
    let AnswerKind::Facts { part, more: false } = client.asked(facts(0)).await else {
        panic!("facts of a small machine fit into one part");
    };
    let told = Facts::from_json(&part).unwrap();
    assert!(told.version.is_some(), "{told:?}");
    assert!(told.host.cores.is_some(), "{told:?}");
    let guarded = Guarded::new("no-facts").await;
    let mut client = guarded.session().await;
    assert_eq!(
        failure(&mut client, facts(0)).await,
        Some(FailCode::NotPermitted)
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
        let (mut client, mut other) = (guarded.session().await, guarded.other().await);
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
    let mut client = guarded.session().await;
    guarded.allow(Some(""));
    guarded.stage.handle.reload_peers();
    assert!(sees_file(&mut client).await);
    guarded.write("read-olny nicstripe-ed25519 AAAA\n");
    guarded.stage.handle.reload_peers();
    assert!(sees_file(&mut client).await);
    let mut new = guarded.connect().await;
    let greeted = new.greet(SessionId([2; 16]), true).await;
    assert!(greeted.is_err(), "but no new one is let in");
    guarded.allow(None);
    guarded.stage.handle.reload_peers();
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
        let (jail, served) = (name("jail"), guarded.stage.served(""));
        fs::write(guarded.stage.root.path().join("file"), "secret").unwrap();
        if !exists {
            fs::remove_dir(served.join("jail")).unwrap();
        }
        guarded.allow(Some(&guarded.jailed("append-only,")));
        if exists {
            let mut client = guarded.session().await;
            assert!(!sees_file(&mut client).await, "the jail is empty");
            let mut other = guarded.other().await;
            let rename = AskKind::Rename {
                from: jail,
                to: name("aside"),
                replace: false,
                only_if: None,
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
    let served = guarded.stage.root.path().join("served");
    assert!(sees_file(&mut guarded.other().await).await);
    fs::rename(&served, guarded.stage.root.path().join("before")).unwrap();
    fs::create_dir(&served).unwrap();
    let mut late = guarded.connect().await;
    let refused = late.refused(SessionId([1; 16]), true).await;
    assert_eq!(refused, Some(RefusalCode::Storage));
    guarded.stage.handle.reload_peers();
    fs::write(served.join("file"), "new").unwrap();
    assert!(sees_file(&mut guarded.other().await).await);
}
