//! Tests of trusted daemons that send false answers about objects: the caller gets a timely error
//! and no invented data. The session tests of nicstripe-proto have the answers that a session
//! rejects.

use nicstripe_proto::{
    FailCode, Message, Offer, TransferId,
    journal::Timestamp,
    message::{Answer, AnswerKind, Ask, ObjectKind, ObjectStat, OfferKind},
};
use tokio::io::AsyncReadExt;

use super::{
    name,
    peer::{self, Peer, plain_welcome},
    servers::against,
};
use crate::{client::Client, report::error::Error};

fn stat(size: u64) -> AnswerKind {
    AnswerKind::Stat {
        stat: object(size),
        attributes: None,
    }
}

fn object(size: u64) -> ObjectStat {
    ObjectStat {
        kind: ObjectKind::File,
        size,
        mtime: Timestamp::default(),
        etag: None,
        digest: None,
        has_attributes: false,
    }
}

fn offer(size: u64) -> Offer {
    peer::offer(TransferId(0), size)
}

/// Runs `calls` on a client of a daemon that answers every request with `answer`, and every get
/// with `offer`. Returns the client's error.
async fn lied_to(
    answer: AnswerKind,
    offer: Offer,
    calls: impl AsyncFnOnce(Client) -> Result<(), Error>,
) -> Error {
    let lie = async move |peer: &mut Peer| {
        while let Ok(message) = peer.message().await {
            let said = match message {
                Message::Ask(Ask { id, .. }) => Message::Answer(Answer {
                    id,
                    answer: answer.clone(),
                }),
                Message::Get(get) => Message::Offer(Offer {
                    transfer: get.transfer,
                    ..offer.clone()
                }),
                _ => continue,
            };
            if peer.say(&said).await.is_err() {
                return;
            }
        }
    };
    against(plain_welcome(), lie, calls).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_takes_no_other_part_than_it_asked_for() {
    let pipe = Offer {
        kind: Some(OfferKind::Pipe),
        ..offer(0)
    };
    for other in [offer(99), offer(101), offer(1 << 40), pipe] {
        let error = lied_to(stat(100), other, async |client: Client| {
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
