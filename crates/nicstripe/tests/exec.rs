//! Tests of commands at a peer through the library's API, run by an executor of the test.

use crate::harness::Served;
use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nicstripe::{
    Client, Error, FailCode,
    exec::{Executor, ExitStatus, PeerCommand, StartedCommand},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
    time::timeout,
};

/// Executor whose commands are tasks of this process.
#[derive(Debug, Default)]
struct Tasks {
    started: Mutex<Vec<PeerCommand>>,
    killed: Arc<AtomicBool>,
}

/// Sets its flag when it is dropped before the command has ended.
struct Kill(Arc<AtomicBool>, bool);

impl Kill {
    fn has_ended(&mut self) {
        self.1 = true;
    }
}

impl Drop for Kill {
    fn drop(&mut self) {
        self.0.store(!self.1, Ordering::Release);
    }
}

impl Executor for Tasks {
    fn start(&self, command: PeerCommand) -> io::Result<StartedCommand> {
        let words: Vec<String> = command
            .words
            .iter()
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        self.started.lock().unwrap().push(command);
        if words[0] == "unstartable" {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let (stdin, mut input) = duplex(64 << 10);
        let (mut output, stdout) = duplex(64 << 10);
        let (mut errors, stderr) = duplex(64 << 10);
        let mut kill = Kill(self.killed.clone(), false);
        let runs = async move {
            let code = match words[0].as_str() {
                "cat" => {
                    tokio::io::copy(&mut input, &mut output).await?;
                    errors.write_all(b"done").await?;
                    7
                }
                "flood" => {
                    let bytes = vec![b'o'; 8 << 20];
                    let flood = async { while errors.write_all(&[b'e'; 4096]).await.is_ok() {} };
                    tokio::select! {
                        () = flood => 1,
                        written = output.write_all(&bytes) => written.map(|()| 0)?,
                    }
                }
                "tell" => {
                    output.write_all(words[1].as_bytes()).await?;
                    errors.write_all(words[1].as_bytes()).await?;
                    words[1].parse().map_err(io::Error::other)?
                }
                "deaf" => {
                    drop(input);
                    0
                }
                _ => std::future::pending().await,
            };
            kill.has_ended();
            Ok(ExitStatus::Exited(code))
        };
        Ok(StartedCommand {
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            status: Box::pin(runs),
        })
    }
}

/// Daemon whose line for the client has these options, and the client.
struct Stage {
    served: Served,
    client: Client,
    tasks: Arc<Tasks>,
}

impl Stage {
    async fn new(options: &str) -> Self {
        let tasks = Arc::new(Tasks::default());
        let executor = tasks.clone();
        let options = |_: &TempDir| options.to_owned();
        let served = Served::start_granting(options, |builder| builder.executor(executor)).await;
        Self {
            client: served.client(2).await,
            served,
            tasks,
        }
    }

    /// Runs a command with this input. Returns its status, output and error output.
    async fn run(
        &self,
        words: &[impl AsRef<[u8]>],
        input: &[u8],
    ) -> (Result<ExitStatus, Error>, Vec<u8>, Vec<u8>) {
        let (stdout, mut output) = duplex(1 << 20);
        let (stderr, mut errors) = duplex(1 << 20);
        let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
        let input = io::Cursor::new(input.to_vec());
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let run = self.client.exec(words, input, stdout, stderr);
        let read =
            async { tokio::join!(output.read_to_end(&mut out), errors.read_to_end(&mut err)) };
        let (status, _) = timeout(LONG, async { tokio::join!(run, read) })
            .await
            .unwrap();
        (status, out, err)
    }

    async fn end(self) {
        self.client.close().await;
        self.served.shutdown.cancel();
    }
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn bytes_go_through_a_command_and_its_status_comes_back() {
    let stage = Stage::new("exec=cat").await;
    for len in [0, 1, 300_000, 20 << 20] {
        let input: Vec<u8> = (0..len).map(|index: usize| (index / 7) as u8).collect();
        let (status, output, errors) = stage.run(&["cat"], &input).await;
        assert_eq!(status.unwrap(), ExitStatus::Exited(7), "{len}");
        assert!(output == input && errors == b"done", "{len}");
    }
    let started = stage.tasks.started.lock().unwrap()[0].clone();
    assert_eq!(
        (started.peer.as_str(), started.root.is_some()),
        ("peer", true)
    );
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_without_async_code_gets_the_whole_output_of_a_command_or_an_error() {
    let stage = Stage::new("exec=cat").await;
    let client = nicstripe::blocking::Client::from(stage.client.clone());
    let ran = tokio::task::spawn_blocking(move || {
        let output = client.exec(["cat"], "input").unwrap();
        assert_eq!(output.status, ExitStatus::Exited(7));
        assert_eq!(
            (&output.stdout[..], &output.stderr[..]),
            (&b"input"[..], &b"done"[..])
        );
        let most = nicstripe::blocking::MOST_OUTPUT as usize;
        let endless = client.exec(["cat"], vec![0; most + 1]);
        assert!(matches!(endless, Err(Error::File(_))));
        let refused = client.exec(["refused"], "").unwrap_err();
        assert!(refused.fail_code().is_some());
    });
    timeout(LONG, ran).await.unwrap().unwrap();
    stage.end().await;
}

#[tokio::test]
async fn commands_at_once_do_not_exchange_their_outputs() {
    let stage = Arc::new(Stage::new("exec=\"tell *\"").await);
    let mut running = tokio::task::JoinSet::new();
    for number in 0_u8..32 {
        let stage = stage.clone();
        running.spawn(async move {
            let number = number.to_string();
            // The outputs of a refused command are requested, too.
            let (words, other) = (["tell", &number], ["refused"]);
            let (told, refused) = tokio::join!(stage.run(&words, b""), stage.run(&other, b""));
            assert!(refused.0.is_err() && refused.1.is_empty());
            let (status, output, errors) = told;
            assert_eq!(status.unwrap().code().to_string(), number);
            assert_eq!([output, errors], [number.as_bytes(); 2]);
        });
    }
    running.join_all().await;
    Arc::into_inner(stage).unwrap().end().await;
}

#[tokio::test]
async fn a_flood_of_errors_and_unread_input_stop_nothing() {
    let stage = Stage::new("exec=flood,exec=deaf").await;
    let (status, output, errors) = stage.run(&["flood"], b"").await;
    assert_eq!(status.unwrap(), ExitStatus::Exited(0));
    assert!(output.len() == 8 << 20 && !errors.is_empty());
    let (status, ..) = stage.run(&["deaf"], &vec![0; 40 << 20]).await;
    assert_eq!(status.unwrap(), ExitStatus::Exited(0));
    stage.end().await;
}

#[tokio::test]
async fn only_what_the_line_permits_is_started() {
    let stage = Stage::new("exec=\"cat -u *\",exec=unstartable").await;
    for words in [&["cat"][..], &["cat", "x"], &["sh"], &["/bin/cat", "-u"]] {
        let (status, ..) = stage.run(words, b"").await;
        let error = status.unwrap_err();
        assert_eq!(error.fail_code(), Some(FailCode::NotPermitted), "{error:?}");
        let text = nicstripe::chain(&error);
        assert!(text.contains("exec=") && text.contains(words[0]), "{text}");
    }
    assert!(stage.tasks.started.lock().unwrap().is_empty());
    assert!(stage.run(&["cat", "-u", "x"], b"").await.0.is_ok());
    let error = stage.run(&["unstartable"], b"").await.0.unwrap_err();
    assert!(nicstripe::chain(&error).contains("start"), "{error:?}");
    stage.end().await;
}

#[tokio::test]
async fn words_with_nul_and_words_that_only_look_alike_start_nothing() {
    let stage = Stage::new(r#"exec="cat -u",exec="tail -n *""#).await;
    let (long, many) = (vec![b'a'; 1 << 16], vec![b"cat".as_slice(); 4097]);
    let invalid: &[&[&[u8]]] = &[
        &[],
        &[b""],
        &[b"", b"cat", b"-u"],
        &[b"\0"],
        &[b"cat\0", b"-u"],
        &[b"\0cat", b"-u"],
        &[b"cat", b"-u\0"],
        &[b"cat", b"-u\0id"],
        &[b"cat", b"\0-u"],
        &[b"cat", b"-u", b"\0"],
        &[b"cat\0-u"],
        &[b"cat\0-u\0id"],
        &[b"tail", b"-n", b"1\0"],
        &[b"cat", b"-u", &long],
        &[b"tail", b"-n", &long],
        &many,
    ];
    for &words in invalid {
        let error = stage.run(words, b"").await.0.unwrap_err();
        assert!(matches!(error, Error::File(_)), "{words:?}: {error:?}");
    }
    let others: &[&[&[u8]]] = &[
        &[b"cat\xff", b"-u"],
        &[b"cat", b"-u\xff"],
        &[b"\xc3at", b"-u"],
        // The letter "a" and the hyphen in two bytes, which UTF-8 forbids.
        &[b"c\xc1\xa1t", b"-u"],
        &[b"cat", b"\xc0\xadu"],
        // NUL in two bytes.
        &[b"cat\xc0\x80", b"-u"],
        &[b"cat", b"-u\x7f"],
        &[b"cat", b"-u\x08"],
        &[b"cat", b"-u\x1b[A"],
        &[b"tail\xff", b"-n", b"1"],
        &[b"tail", b"-n\xff", b"1"],
        &many[..4096],
    ];
    for &words in others {
        let error = stage.run(words, b"").await.0.unwrap_err();
        let code = error.fail_code();
        assert_eq!(code, Some(FailCode::NotPermitted), "{words:?}: {error:?}");
    }
    assert!(stage.tasks.started.lock().unwrap().is_empty());
    assert!(stage.run(&["cat", "-u"], b"").await.0.is_ok());
    stage.end().await;
}

#[tokio::test]
async fn a_command_whose_caller_goes_away_is_killed() {
    let stage = Stage::new("exec=wait").await;
    let (stdin, _open) = duplex(1);
    let run = stage
        .client
        .exec(["wait"], stdin, tokio::io::sink(), tokio::io::sink());
    assert!(timeout(Duration::from_millis(300), run).await.is_err());
    let killed = async {
        while !stage.tasks.killed.load(Ordering::Acquire) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, killed).await.unwrap();
    stage.end().await;
}

#[tokio::test]
async fn a_session_runs_64_commands_at_once_and_the_next_one_later() {
    let stage = Stage::new("exec=wait,exec=cat").await;
    let mut open = Vec::new();
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let (stdin, kept) = duplex(1);
        open.push(kept);
        let client = stage.client.clone();
        running.spawn(async move {
            let (stdout, stderr) = (tokio::io::sink(), tokio::io::sink());
            client.exec(["wait"], stdin, stdout, stderr).await
        });
    }
    let all_run = async {
        while stage.tasks.started.lock().unwrap().len() < 64 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, all_run).await.unwrap();
    let error = stage.run(&["cat"], b"").await.0.unwrap_err();
    assert_eq!(error.fail_code(), Some(FailCode::Refused), "{error:?}");
    assert!(
        nicstripe::chain(&error).contains("limit of 64"),
        "{error:?}"
    );
    running.shutdown().await;
    let again = async { while stage.run(&["cat"], b"").await.0.is_err() {} };
    timeout(LONG, again).await.unwrap();
    stage.end().await;
}

#[tokio::test]
async fn a_command_whose_daemon_goes_away_has_no_status() {
    let stage = Stage::new("exec=wait").await;
    let shutdown = stage.served.shutdown.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        shutdown.cancel();
    });
    let (status, ..) = stage.run(&["wait"], b"").await;
    assert!(
        matches!(status, Err(Error::Ended { .. } | Error::Peer { .. })),
        "{status:?}"
    );
}
