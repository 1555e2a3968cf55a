//! Tests of the records of an open connection.

use rustls::{AlertDescription, ContentType};

use super::super::pump::RENEW_AFTER;
use super::super::record::{MAX_PLAINTEXT, RECORD_OVERHEAD, RecordError};
use super::*;

#[test]
fn slices_of_any_size_arrive_as_one_run_of_bytes() {
    let mut pair = Pair::open();
    let data = noise(200_000);
    let cuts = [
        0, 0, 1, 33, 33, 16_384, 32_768, 32_769, 131_104, 199_999, 200_000,
    ];
    let slices: Vec<&[u8]> = cuts.windows(2).map(|cut| &data[cut[0]..cut[1]]).collect();
    pair.client.send(&slices, &mut pair.to_server).unwrap();
    assert_eq!(
        pair.to_server.len(),
        data.len() + data.len().div_ceil(MAX_PLAINTEXT) * RECORD_OVERHEAD
    );
    assert_eq!(pair.server_reads().unwrap(), data);
    pair.server
        .send(&[&[], &data[..1], &[]], &mut pair.to_client)
        .unwrap();
    pair.server.send(&[], &mut pair.to_client).unwrap();
    assert_eq!(pair.to_client.len(), 1 + RECORD_OVERHEAD);
    assert_eq!(pair.client_reads().unwrap(), data[..1]);
}

#[test]
fn keys_are_renewed_in_both_directions_while_data_flows() {
    let mut pair = Pair::open();
    pair.client.renew_after(3);
    pair.server.renew_after(2);
    let data = noise(10 * MAX_PLAINTEXT);
    for round in 0..5 {
        pair.client.send(&[&data], &mut pair.to_server).unwrap();
        // One renewal per three records; the first of a round may follow the last of the previous
        // one.
        let records = 10 + if round == 0 { 3 } else { 4 };
        let extra = pair.to_server.len() - data.len() - 10 * RECORD_OVERHEAD;
        assert!(extra / (5 + RECORD_OVERHEAD) + 10 <= records, "{extra}");
        assert!(extra > 0, "{extra}");
        assert_eq!(pair.server_reads().unwrap(), data);
        pair.server.send(&[&data], &mut pair.to_client).unwrap();
        assert_eq!(pair.client_reads().unwrap(), data);
    }
}

#[test]
fn a_request_to_renew_keys_is_answered_at_once() {
    let mut pair = Pair::open();
    // `key_update` with update_requested. The sender must then use its next key, which
    // `send_record` does not do.
    pair.client.send_record(
        ContentType::Handshake,
        &[24, 0, 0, 1, 1],
        &mut pair.to_server,
    );
    pair.server_reads().unwrap();
    assert_eq!(pair.to_client.len(), 5 + RECORD_OVERHEAD);
    pair.server.send(&[b"after"], &mut pair.to_client).unwrap();
    assert_eq!(pair.client_reads().unwrap(), b"after");
    pair.client
        .send(&[b"with the old key"], &mut pair.to_server)
        .unwrap();
    assert!(matches!(
        pair.server_reads(),
        Err(TlsError::Record(RecordError::Forged))
    ));
}

#[test]
fn requests_to_renew_keys_are_answered_once_while_the_answer_is_unsent() {
    let mut pair = Pair::open();
    let answer = 5 + RECORD_OVERHEAD;
    for round in 0..1000 {
        // Data between the requests keeps the limit on records without data from ending the
        // connection.
        pair.client.ask_to_renew(&mut pair.to_server);
        pair.client.send(&[b"x"], &mut pair.to_server).unwrap();
        assert_eq!(pair.server_reads().unwrap(), b"x");
        assert_eq!(pair.to_client.len(), answer, "round {round}");
    }
    // Once the answer was sent, the next request gets its own.
    assert_eq!(pair.client_reads().unwrap(), b"");
    pair.client.ask_to_renew(&mut pair.to_server);
    pair.server_reads().unwrap();
    assert_eq!(pair.to_client.len(), answer);
    pair.server.send(&[b"after"], &mut pair.to_client).unwrap();
    assert_eq!(pair.client_reads().unwrap(), b"after");
}

#[test]
fn renewal_comes_long_before_a_key_wears_out() {
    // Another crate of the program may ask rustls for suites of TLS 1.2, too.
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let limits = provider.cipher_suites.iter().filter_map(|suite| {
        let limit = suite.tls13()?.common.confidentiality_limit;
        Some((suite, limit))
    });
    assert!(limits.clone().count() > 0);
    for (suite, limit) in limits {
        assert!(RENEW_AFTER <= limit / 2, "{suite:?}: {limit}");
    }
}

/// Function that damages the first of two records; its second argument is the length of one.
type Change = fn(&mut Vec<u8>, usize);

#[test]
fn a_changed_repeated_or_missing_record_ends_the_connection() {
    let record = 100 + RECORD_OVERHEAD;
    let changes: [(&str, Change); 5] = [
        ("changed", |bytes, _| bytes[50] ^= 1),
        ("type changed", |bytes, _| bytes[0] = 22),
        ("repeated", |bytes, record| {
            bytes.copy_within(..record, record);
        }),
        ("missing", |bytes, record| drop(bytes.drain(..record))),
        ("swapped", |bytes, record| bytes.rotate_left(record)),
    ];
    for (name, change) in changes {
        let mut pair = Pair::open();
        for part in noise(200).chunks(100) {
            pair.client.send(&[part], &mut pair.to_server).unwrap();
        }
        let mut bytes = pair.to_server.pending().to_vec();
        change(&mut bytes, record);
        let error = pair.server_reads_instead(&bytes).unwrap_err();
        assert!(
            matches!(
                error,
                TlsError::Record(RecordError::Forged | RecordError::Unprotected(22))
            ),
            "{name}: {error:?}"
        );
        let told = pair.client_reads().unwrap_err();
        assert!(
            matches!(
                told,
                TlsError::Alert(
                    AlertDescription::BadRecordMac | AlertDescription::UnexpectedMessage
                )
            ),
            "{name}: {told:?}"
        );
        assert!(matches!(
            pair.server.send(&[b"x"], &mut pair.to_client),
            Err(TlsError::Unusable(_))
        ));
        assert!(matches!(
            pair.server_reads_instead(&bytes),
            Err(TlsError::Unusable(_))
        ));
    }
}

#[test]
fn lengths_beyond_the_limit_are_refused_before_the_bytes_are_there() {
    let mut pair = Pair::open();
    let error = pair
        .server_reads_instead(&[23, 3, 3, 0x41, 0x01])
        .unwrap_err();
    assert!(
        matches!(error, TlsError::Record(RecordError::TooLong(16_641))),
        "{error:?}"
    );
    assert!(matches!(
        pair.client_reads(),
        Err(TlsError::Alert(AlertDescription::RecordOverflow))
    ));
}

#[test]
fn close_is_a_word_and_an_end_without_it_is_a_cut() {
    let mut pair = Pair::open();
    pair.server.send(&[b"last"], &mut pair.to_client).unwrap();
    assert_eq!(pair.client_reads().unwrap(), b"last");
    assert!(matches!(pair.client.on_end(), TlsError::Truncated));

    pair.client.close(&mut pair.to_server).unwrap();
    pair.client.close(&mut pair.to_server).unwrap();
    assert_eq!(pair.to_server.len(), 2 + RECORD_OVERHEAD);
    assert!(matches!(
        pair.client.send(&[b"more"], &mut pair.to_server),
        Err(TlsError::Unusable(_))
    ));
    let mut bytes = pair.to_server.pending().to_vec();
    bytes.extend(b"trailing bytes of any kind");
    let received = pair
        .server
        .receive::<TlsError>(&mut bytes, &mut pair.to_client, &mut |_: &[u8]| Ok(()))
        .unwrap();
    assert!(received.peer_closed);
    assert_eq!(received.discard, bytes.len());
    // The other direction is still open (RFC 8446, section 6.1).
    pair.server.send(&[b"answer"], &mut pair.to_client).unwrap();
    assert_eq!(pair.client_reads().unwrap(), b"answer");
}

#[test]
fn alerts_other_messages_and_idle_talk_end_the_connection() {
    let told = |content: ContentType, body: &[u8], times: usize| {
        let mut pair = Pair::open();
        for _ in 0..times {
            pair.client.send_record(content, body, &mut pair.to_server);
        }
        pair.server_reads().map(drop)
    };
    assert!(matches!(
        told(ContentType::Alert, &[2, 80], 1),
        Err(TlsError::Alert(AlertDescription::InternalError))
    ));
    for (content, body, times) in [
        (ContentType::Alert, &[2][..], 1),
        (ContentType::Handshake, &[4, 0, 0, 0], 1),
        (ContentType::Handshake, &[24, 0, 0, 1, 2], 1),
        (ContentType::ChangeCipherSpec, &[1], 1),
        (ContentType::ApplicationData, &[], 33),
    ] {
        let error = told(content, body, times).unwrap_err();
        assert!(matches!(error, TlsError::Unexpected(_)), "{error:?}");
    }
    assert!(matches!(
        told(ContentType::from(0), &[], 1),
        Err(TlsError::Record(RecordError::Untyped))
    ));
    assert!(told(ContentType::ApplicationData, &[], 32).is_ok());
    assert!(told(ContentType::Alert, &[1, 90], 1).is_ok());
}

#[test]
fn a_clients_key_is_accepted_by_the_first_word() {
    let mut pair = Pair::open();
    assert!(!pair.client.is_confirmed());
    pair.server
        .send(&[b"welcome"], &mut pair.to_client)
        .unwrap();
    pair.client_reads().unwrap();
    assert!(pair.client.is_confirmed());
    // Later the same alert has another meaning.
    pair.server
        .send_record(ContentType::Alert, &[2, 49], &mut pair.to_client);
    assert!(matches!(
        pair.client_reads(),
        Err(TlsError::Alert(AlertDescription::AccessDenied))
    ));
}

#[test]
fn an_error_of_the_sink_ends_the_connection() {
    let mut pair = Pair::open();
    pair.client
        .send(&[&noise(50_000)], &mut pair.to_server)
        .unwrap();
    let mut bytes = pair.to_server.pending().to_vec();
    let mut calls = 0;
    let result = pair
        .server
        .receive(&mut bytes, &mut pair.to_client, &mut |_: &[u8]| {
            calls += 1;
            Err(TlsError::TimedOut)
        });
    assert!(matches!(result, Err(TlsError::TimedOut)));
    assert_eq!(calls, 1);
    assert!(matches!(pair.server_reads(), Err(TlsError::Unusable(_))));
}
