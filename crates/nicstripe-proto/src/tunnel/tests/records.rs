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
    let error = |bytes: &[u8]| RecordReader::new(bytes).next().unwrap().unwrap_err();
    let header = |kind: u8, code: u8, reserved: u8, len: u32| {
        [
            &[kind, code, reserved, 0, 1, 0, 0, 0][..],
            &len.to_le_bytes(),
        ]
        .concat()
    };
    assert_eq!(error(&header(0, 0, 0, 0)), RecordError::Kind(0));
    assert_eq!(error(&header(9, 0, 0, 0)), RecordError::Kind(9));
    assert_eq!(error(&header(5, 0, 1, 0)), RecordError::Reserved);
    assert_eq!(error(&header(5, 1, 0, 0)), RecordError::Reserved);
    assert_eq!(error(&header(3, 0, 0, 0)), RecordError::Code(0));
    assert_eq!(error(&header(3, 5, 0, 0)), RecordError::Code(5));
    assert_eq!(
        error(&header(4, 0, 0, 0)),
        RecordError::Body { kind: 4, len: 0 }
    );
    assert_eq!(error(&header(4, 0, 0, u32::MAX)), RecordError::Short);
    assert_eq!(
        error(&[header(5, 0, 0, 1), vec![0]].concat()),
        RecordError::Body { kind: 5, len: 1 }
    );
    assert_eq!(
        error(&[header(7, 0, 0, 4), vec![0; 4]].concat()),
        RecordError::NoWindow
    );
    assert_eq!(
        error(&[header(1, 0, 0, 4), vec![1; 4]].concat()),
        RecordError::Text {
            len: 0,
            most: MAX_TARGET
        }
    );
    assert_eq!(
        error(&[header(1, 0, 0, 275), vec![1; 275]].concat()),
        RecordError::Text {
            len: 271,
            most: MAX_TARGET
        }
    );
    assert_eq!(
        error(&[header(1, 0, 0, 5), vec![0xff; 5]].concat()),
        RecordError::NotText
    );
}
