//! Tests of the records' wire format, byte for byte.

use super::super::record::*;

const CONN: ConnId = ConnId(0x0403_0201);

/// Returns one record of each kind, with its encoding for the connection [`CONN`].
pub(crate) fn all() -> Vec<(Record<'static>, Vec<u8>)> {
    let with = |kind: u8, code: u8, len: u8, body: &[u8]| {
        [&[kind, code, 0, 0, 1, 2, 3, 4, len, 0, 0, 0][..], body].concat()
    };
    vec![
        (
            Record::Open {
                window: 0x1_0000,
                target: "h:22",
            },
            with(1, 0, 8, b"\0\0\x01\0h:22"),
        ),
        (Record::Opened(4096), with(2, 0, 4, &[0, 16, 0, 0])),
        (
            Record::Refused {
                code: TargetRefusal::Unreachable,
                why: "no",
            },
            with(3, 3, 2, b"no"),
        ),
        (Record::Data(b"bytes"), with(4, 0, 5, b"bytes")),
        (Record::End, with(5, 0, 0, b"")),
        (Record::Reset, with(6, 0, 0, b"")),
        (Record::Window(1), with(7, 0, 4, &[1, 0, 0, 0])),
        (Record::UsedUp, with(8, 0, 0, b"")),
    ]
}

#[test]
fn every_record_has_its_bytes() {
    for (record, bytes) in all() {
        let mut buffer = vec![0; 100];
        let mut writer = RecordWriter::new(&mut buffer);
        assert!(writer.push(CONN, record));
        let len = writer.len();
        assert_eq!(&buffer[..len], bytes, "{record:?}");
        assert_eq!(
            RecordReader::new(&bytes).collect::<Vec<_>>(),
            [Ok((CONN, record))]
        );
        for cut in 1..bytes.len() {
            assert_eq!(
                RecordReader::new(&bytes[..cut]).collect::<Vec<_>>(),
                [Err(RecordError::Short)],
                "{record:?} cut at {cut}"
            );
        }
    }
}

#[test]
fn records_that_cannot_be_are_refused() {
    let with = |kind: u8, code: u8, reserved: u8, len: u32, body: &[u8]| {
        let header = [kind, code, reserved, 0, 1, 0, 0, 0];
        [&header[..], &len.to_le_bytes(), body].concat()
    };
    let empty = |kind, code, reserved| with(kind, code, reserved, 0, b"");
    let most = MAX_TARGET;
    for (bytes, expected) in [
        (empty(0, 0, 0), RecordError::Kind(0)),
        (empty(9, 0, 0), RecordError::Kind(9)),
        (empty(5, 0, 1), RecordError::Reserved),
        (empty(5, 1, 0), RecordError::Reserved),
        (empty(3, 0, 0), RecordError::Code(0)),
        (empty(3, 5, 0), RecordError::Code(5)),
        (empty(4, 0, 0), RecordError::Body { kind: 4, len: 0 }),
        (with(4, 0, 0, u32::MAX, b""), RecordError::Short),
        (
            with(5, 0, 0, 1, &[0]),
            RecordError::Body { kind: 5, len: 1 },
        ),
        (with(7, 0, 0, 4, &[0; 4]), RecordError::NoWindow),
        (
            with(1, 0, 0, 4, &[1; 4]),
            RecordError::Text { len: 0, most },
        ),
        (
            with(1, 0, 0, 275, &[1; 275]),
            RecordError::Text { len: 271, most },
        ),
        (with(1, 0, 0, 5, &[0xff; 5]), RecordError::NotText),
    ] {
        let read = RecordReader::new(&bytes).next();
        assert_eq!(read, Some(Err(expected)), "{bytes:?}");
    }
}
