//! Fuzz targets for a tunnel multiplexer with a hostile peer.

use super::tape::Tape;
use crate::{
    Role,
    tunnel::{
        ConnId, MOST_WINDOW, Record, RecordReader, RecordWriter, Target, TargetRefusal,
        TunnelEvent, Tunnels,
    },
};

/// Fuzz target: decodes a batch of the tunnel multiplexer, and its targets. Encoding the records
/// again must yield the same bytes.
pub fn mux(data: &[u8]) {
    let mut again = vec![0; data.len()];
    let mut writer = RecordWriter::new(&mut again);
    for (conn, record) in RecordReader::new(data).map_while(Result::ok) {
        assert!(writer.push(conn, record));
        if let Record::Open { target, .. } = record {
            assert_eq!(Target::parse(target).to_string(), target);
        }
    }
    let len = writer.len();
    assert!(
        data.starts_with(&again[..len]),
        "a decoded record does not re-encode to the same bytes"
    );
}

/// Fuzz target: runs a tunnel multiplexer with records from a hostile peer and actions of local
/// programs.
///
/// The multiplexer's memory accounting must be consistent and stay within bounds. No connection may
/// remain after the multiplexer has ended and all programs have closed their connections.
pub fn tunnels(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    let role = if first & 1 == 0 {
        Role::Daemon
    } else {
        Role::Client
    };
    let (mut end, mut tape) = (Tunnels::new(role), Tape::new(rest));
    while !tape.is_empty() {
        if step(&mut end, &mut tape).is_none() {
            break;
        }
        end.check();
    }
    end.end();
    (0..MOST_KNOWN).for_each(|conn| end.close(ConnId(conn)));
    end.check();
    assert!(end.is_empty());
}

/// Maximum connection ID that local programs use. Higher IDs are rejected immediately.
const MOST_KNOWN: u32 = 1024;

/// Performs one action of a local program or the peer; `None` if the peer violates the protocol.
fn step(end: &mut Tunnels, tape: &mut Tape<'_>) -> Option<()> {
    let conn = ConnId(tape.below(6) as u32);
    match tape.below(16) {
        0 => drop(end.open("host:22")),
        1 => drop(end.write(conn, &vec![1; tape.number().min(1 << 18) as usize])),
        2 | 3 => {
            let mut into = vec![0; 1 + tape.number().min(1 << 18) as usize];
            if let Ok(Some(count)) = end.peek(conn, &mut into) {
                end.consume(conn, count);
            }
        }
        4 => end.finish(conn),
        5 => end.close(conn),
        6 | 7 => _ = end.fill(&mut vec![0; 1 << 18]),
        _ => {
            let target = "host:22";
            let bytes = vec![2; 1 + tape.number().min(1 << 18) as usize];
            let window = 1 + tape.number().min(2 * u64::from(MOST_WINDOW)) as u32;
            let record = match tape.below(10) {
                0 | 1 => Record::Open { window, target },
                2 => Record::Opened(window),
                3 => Record::Refused {
                    code: TargetRefusal::TooMany,
                    why: "no",
                },
                4 | 5 => Record::Data(&bytes),
                6 => Record::End,
                7 => Record::Reset,
                8 => Record::UsedUp,
                _ => Record::Window(window),
            };
            let mut batch = vec![0; bytes.len() + 100];
            let mut writer = RecordWriter::new(&mut batch);
            assert!(writer.push(conn, record));
            let len = writer.len();
            end.handle_batch(&batch[..len]).ok()?;
        }
    }
    while let Some(event) = end.poll_event() {
        match event {
            TunnelEvent::Asked { conn, .. } if tape.byte() > 200 => {
                end.refuse(conn, TargetRefusal::NotAllowed, "no");
            }
            TunnelEvent::Asked { conn, .. } => end.accept(conn),
            TunnelEvent::Refused { conn, .. } => end.close(conn),
            _ => {}
        }
    }
    Some(())
}
