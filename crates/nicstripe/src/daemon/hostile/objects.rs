//! Tests of trusted daemons that send false answers about objects: the caller gets a timely error
//! and no invented data.

use nicstripe_proto::{
    Message, Offer, SourceIdentity,
    journal::Timestamp,
    message::{Answer, AnswerKind, Ask, ObjectEntry, ObjectKind, ObjectStat, OfferKind},
};
use tokio::io::AsyncReadExt;

use super::{
    name,
    servers::against,
    wire::{Wire, plain_welcome},
};
use crate::{Client, Error, FailCode};

fn stat(size: u64) -> ObjectStat {
    ObjectStat {
        kind: ObjectKind::File,
        size,
        mtime: Timestamp::default(),
    }
}

fn entries(names: &[&str], more: bool) -> AnswerKind {
    let entry = |name: &&str| ObjectEntry {
        name: name.as_bytes().to_vec(),
        stat: stat(1),
    };
    AnswerKind::Entries {
        entries: names.iter().map(entry).collect(),
        more,
    }
}

/// Answers every request of the client with `answer`, and every get with `offer`.
async fn lie(wire: &mut Wire, answer: impl Fn(&Ask) -> AnswerKind, offer: Offer) {
    loop {
        let said = match wire.message().await {
            Ok(Message::Ask(ask)) => Message::Answer(Answer {
                id: ask.id,
                answer: answer(&ask),
            }),
            Ok(Message::Get(get)) => Message::Offer(Offer {
                transfer: get.transfer,
                ..offer.clone()
            }),
            Ok(_) => continue,
            Err(_) => return,
        };
        if wire.say(&said).await.is_err() {
            return;
        }
    }
}

fn offer(size: u64, kind: Option<OfferKind>) -> Offer {
    let source = SourceIdentity {
        size,
        ..SourceIdentity::default()
    };
    Offer {
        transfer: nicstripe_proto::TransferId(0),
        source,
        chunk_log2: 18,
        mode: 0o644,
        kind,
        data: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_that_are_none_are_errors_and_lists_without_end_are_seen() {
    let lists = [
        entries(&["b", "a"], false),
        entries(&[".."], false),
        entries(&["a/b"], false),
        entries(&[], true),
        // Repeats the same page without end.
        entries(&["a", "b"], true),
        AnswerKind::Done,
    ];
    for list in lists {
        let shown = format!("{list:?}");
        let evil = async move |wire: &mut Wire| lie(wire, |_| list.clone(), offer(1, None)).await;
        let error = against(plain_welcome(), evil, async |client: Client| {
            client.list(None).await.map(drop)
        })
        .await;
        let is_told = error.fail_code() == Some(FailCode::Protocol)
            || matches!(error, Error::Ended { .. } | Error::Protocol { .. });
        assert!(is_told, "{shown}: {}", crate::text::chain(&error));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_to_be_done_and_was_not_asked_is_an_error() {
    for answer in [AnswerKind::Stat { stat: stat(1) }, entries(&["a"], false)] {
        let evil = async move |wire: &mut Wire| lie(wire, |_| answer.clone(), offer(1, None)).await;
        let error = against(plain_welcome(), evil, async |client: Client| {
            client.remove(&name("a")).await
        })
        .await;
        let is_told = error.fail_code() == Some(FailCode::Protocol)
            || matches!(error, Error::Ended { .. } | Error::Protocol { .. });
        assert!(is_told, "{}", crate::text::chain(&error));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_takes_no_other_part_than_it_asked_for() {
    for other in [
        offer(99, None),
        offer(101, None),
        offer(1 << 40, None),
        offer(0, Some(OfferKind::Pipe)),
    ] {
        let evil = async move |wire: &mut Wire| {
            lie(
                wire,
                |_| AnswerKind::Stat { stat: stat(100) },
                other.clone(),
            )
            .await;
        };
        let error = against(plain_welcome(), evil, async |client: Client| {
            let mut reader = client.open(&name("a")).await?;
            let error = reader.read(&mut [0; 10]).await.unwrap_err();
            Err(error
                .into_inner()
                .unwrap()
                .downcast::<Error>()
                .map(|error| *error)
                .unwrap())
        })
        .await;
        assert_eq!(
            error.fail_code(),
            Some(FailCode::SourceChanged),
            "{}",
            crate::text::chain(&error)
        );
    }
}
