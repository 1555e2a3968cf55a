//! Tests with hostile peers. A protocol violation ends the multiplexer and costs no more memory
//! than an honest peer.

use super::*;

fn batch(records: &[(ConnId, Record<'_>)]) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    let mut writer = RecordWriter::new(&mut bytes);
    for (conn, record) in records {
        assert!(writer.push(*conn, *record));
    }
    let len = writer.len();
    bytes.truncate(len);
    bytes
}

/// Returns the daemon's end of a multiplexer with one open connection.
fn daemon() -> (Tunnels, ConnId) {
    let mut mux = Mux::new();
    let conn = mux.opened();
    (mux.daemon, conn)
}

const UNKNOWN: ConnId = ConnId(9);
const OPEN: Record<'static> = Record::Open {
    window: 1,
    target: "x:1",
};

#[test]
fn breaches_are_named() {
    let known = ConnId(0);
    let (data, long) = (Record::Data(b"x"), [0; FIRST_WINDOW as usize + 1]);
    let refused = Record::Refused {
        code: TargetRefusal::TooMany,
        why: "",
    };
    let wide = Record::Open {
        window: MOST_WINDOW + 1,
        target: "x:1",
    };
    let unexpected = |what, conn| TunnelError::Unexpected { what, conn };
    let beyond = TunnelError::Window {
        conn: 0,
        len: long.len(),
    };
    let breaches: [(&[(ConnId, Record<'_>)], TunnelError); 14] = [
        (&[(known, OPEN)], TunnelError::NotNew(0)),
        (&[(UNKNOWN, OPEN); 2], TunnelError::NotNew(9)),
        (&[(UNKNOWN, data)], unexpected("data", 9)),
        (&[(UNKNOWN, Record::End)], unexpected("an end", 9)),
        (&[(UNKNOWN, Record::Reset)], unexpected("a reset", 9)),
        (&[(UNKNOWN, Record::Window(1))], unexpected("a window", 9)),
        (
            &[(known, Record::Opened(1))],
            unexpected("that it is open", 0),
        ),
        (&[(known, refused)], unexpected("a refusal", 0)),
        (&[(known, Record::End); 2], unexpected("a second end", 0)),
        (
            &[(known, Record::End), (known, data)],
            unexpected("data after the end", 0),
        ),
        (&[(UNKNOWN, OPEN), (UNKNOWN, data)], unexpected("data", 9)),
        (
            &[(known, Record::Window(MOST_WINDOW))],
            TunnelError::TooWide(0),
        ),
        (&[(UNKNOWN, wide)], TunnelError::TooWide(9)),
        (&[(known, Record::Data(&long))], beyond),
    ];
    for (records, error) in breaches {
        let ended = daemon().0.handle_batch(&batch(records));
        assert_eq!(ended, Err(error), "{records:?}");
    }
    let mut client = Tunnels::new(Role::Client);
    assert_eq!(
        client.handle_batch(&batch(&[(known, OPEN)])),
        Err(unexpected("an open", 0))
    );
}

#[test]
fn a_peer_that_opens_without_end_and_takes_no_answer_is_stopped() {
    let mut daemon = Tunnels::new(Role::Daemon);
    let mut result = Ok(());
    for number in 0..100_000 {
        result = daemon.handle_batch(&batch(&[(ConnId(number), OPEN)]));
        if result.is_err() {
            break;
        }
    }
    assert_eq!(result, Err(TunnelError::TooMany));
    assert_eq!(daemon.len(), 2 * MOST_CONNECTIONS);
    assert_eq!(events(&mut daemon).len(), MOST_CONNECTIONS);
}

#[test]
fn a_peer_that_opens_and_resets_without_end_leaves_nothing() {
    let mut daemon = Tunnels::new(Role::Daemon);
    for number in 0..100_000 {
        let conn = ConnId(number);
        daemon
            .handle_batch(&batch(&[(conn, OPEN), (conn, Record::Reset)]))
            .unwrap();
        assert_eq!(
            events(&mut daemon),
            [
                TunnelEvent::Asked {
                    conn,
                    target: "x:1".into()
                },
                TunnelEvent::Reset(conn)
            ]
        );
        daemon.close(conn);
    }
    daemon.check();
    assert!(daemon.is_empty());
}

#[test]
fn a_peer_that_fills_every_window_and_is_not_read_has_the_most_and_no_more() {
    let mut daemon = Tunnels::new(Role::Daemon);
    let mut sent = 0;
    for number in 0..MOST_CONNECTIONS as u32 {
        let conn = ConnId(number);
        daemon.handle_batch(&batch(&[(conn, OPEN)])).unwrap();
        daemon.accept(conn);
        let mut told = vec![0; 4096];
        let len = daemon.fill(&mut told);
        let Some(Ok((_, Record::Opened(window)))) = RecordReader::new(&told[..len]).next() else {
            panic!("no answer")
        };
        let bytes = vec![1; window as usize];
        sent += u64::from(window);
        daemon
            .handle_batch(&batch(&[(conn, Record::Data(&bytes))]))
            .unwrap();
    }
    daemon.check();
    assert_eq!(daemon.buffered_bytes(), sent);
    assert!(sent <= MOST_RECEIVED, "{sent}");
}
