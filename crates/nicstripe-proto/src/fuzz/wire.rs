//! Fuzz targets for bytes from a connection or a discovery datagram.

use std::fmt::Debug;

use minicbor::{Decode, Encode};

use crate::{
    bootstrap::{Reply, Request},
    discovery::{DATAGRAM_LEN, Question, Response},
    frame::{Decoder, FrameError, Piece},
    invitation::{self, Number},
    message::{Hello, Message, Refusal, Welcome},
    name::{MAX_COMPONENT, MAX_COMPONENTS, MAX_NAME, Name, escaped, printable},
    tree::{BatchReader, BatchWriter, Existing, Record, TreeRules, decide},
};

/// Fuzz target: decodes the bytes of a connection in pieces. The result must not depend on the
/// fragmentation, and each frame must have only one encoding.
///
/// The first byte is the length of the pieces.
pub fn frames(data: &[u8]) {
    let Some((len, bytes)) = data.split_first() else {
        return;
    };
    let (whole, error) = read_frames(bytes, usize::MAX);
    assert_eq!(
        read_frames(bytes, 1 + usize::from(*len)),
        (whole.clone(), error)
    );
    assert!(
        bytes.starts_with(&whole),
        "a decoded frame does not re-encode to the same bytes"
    );
}

/// Returns the decoded frames in encoded form, and the error that ended the decoding.
fn read_frames(bytes: &[u8], piece_len: usize) -> (Vec<u8>, Option<FrameError>) {
    let (mut decoder, mut again) = (Decoder::new(), Vec::with_capacity(bytes.len()));
    for mut piece in bytes.chunks(piece_len.min(bytes.len()).max(1)) {
        loop {
            match decoder.next(&mut piece) {
                Ok(Some(Piece::Frame(frame))) => frame.encode(&mut again),
                Ok(Some(Piece::DataStart(header))) => header.encode(&mut again),
                Ok(Some(Piece::DataBytes(payload))) => again.extend_from_slice(payload),
                Ok(Some(Piece::DataEnd)) => {}
                Ok(Some(Piece::Load(header))) => header.encode(&mut again),
                Ok(Some(Piece::Echo(header))) => header.encode(&mut again),
                Ok(Some(Piece::Filler { bytes, .. })) => again.extend_from_slice(bytes),
                Ok(None) => break,
                Err(error) => return (again, Some(error)),
            }
        }
    }
    (again, None)
}

/// Fuzz target: decodes, encodes and again decodes a control message.
pub fn messages(data: &[u8]) {
    read_back::<Message>(data);
}

/// Fuzz target: decodes, encodes and again decodes a hello, a welcome, a refusal, or a message of the
/// bootstrap over ssh. The first byte selects the type.
pub fn greetings(data: &[u8]) {
    let Some((kind, body)) = data.split_first() else {
        return;
    };
    match kind % 5 {
        3 => {
            if let Ok(request) = Request::decode(body) {
                assert_eq!(Request::decode(&request.encode()), Ok(request));
            }
        }
        4 => {
            if let Ok(reply) = Reply::decode(body) {
                assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
            }
        }
        0 => read_back::<Hello>(body),
        1 => read_back::<Welcome>(body),
        _ => read_back::<Refusal>(body),
    }
}

/// Panics unless decoding, encoding and decoding again yields an equal value.
fn read_back<T: for<'b> Decode<'b, ()> + Encode<()> + PartialEq + Debug>(bytes: &[u8]) {
    let Ok(value) = minicbor::decode::<T>(bytes) else {
        return;
    };
    let written = minicbor::to_vec(&value).expect("writing to a vector cannot fail");
    let again: T = minicbor::decode(&written).expect("written data can be read");
    assert_eq!(again, value);
}

/// Fuzz target: decodes and encodes a batch of a tree, and computes verdicts on its entries.
pub fn batches(data: &[u8]) {
    let records: Vec<Record<'_>> = BatchReader::new(data).map_while(Result::ok).collect();
    let mut buffer = vec![0; 2 * data.len()];
    let mut writer = BatchWriter::new(&mut buffer, 0);
    assert!(
        records.iter().all(|record| writer.push(record)),
        "a record grows more than twofold"
    );
    let len = writer.len();
    let again =
        BatchReader::new(&buffer[..len]).map(|record| record.expect("written data can be read"));
    assert!(again.eq(records.iter().cloned()));
    for record in &records {
        let Record::Entry(entry) = record else {
            continue;
        };
        let file = |size| Existing::File {
            size,
            mtime: entry.mtime,
            digest: None,
        };
        let rules = TreeRules {
            replace: entry.mode & 1 != 0,
            update: entry.mode & 2 != 0,
            ..TreeRules::default()
        };
        assert!(decide(&rules, entry, None).is_wanted());
        for existing in [
            file(0),
            file(u64::MAX),
            Existing::Directory,
            Existing::Symlink(Vec::new()),
            Existing::Other,
        ] {
            let verdict = decide(&rules, entry, Some(&existing));
            assert!(
                !verdict.is_wanted() || existing != Existing::Directory,
                "a directory would be replaced"
            );
            assert!(
                !verdict.is_wanted() || rules.replace || rules.update,
                "something would be replaced without the option"
            );
        }
    }
}

/// Fuzz target: checks a name in wire form, as typed, or as displayed. The first byte selects the
/// form.
pub fn names(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else {
        return;
    };
    match kind % 3 {
        0 => {
            let name: Result<Name, _> = minicbor::decode(bytes);
            name.iter().for_each(check_name);
        }
        1 => Name::parse(bytes).iter().for_each(check_name),
        _ => check_shown(bytes),
    }
}

fn check_name(name: &Name) {
    let components: Vec<&[u8]> = name.components().collect();
    assert!((1..=MAX_COMPONENTS).contains(&components.len()));
    let joined = components.join(&b'/');
    assert!(joined.len() <= MAX_NAME);
    for component in components {
        assert!(component.len() <= MAX_COMPONENT);
        assert!(!matches!(component, b"" | b"." | b".."));
        assert!(!component.iter().any(|byte| matches!(byte, 0 | b'/')));
    }
    assert_eq!(Name::parse(&joined).as_ref(), Ok(name));
    read_back::<Name>(&minicbor::to_vec(name).expect("writing to a vector cannot fail"));
    check_shown(&joined);
}

/// Panics unless the escaped text is unambiguous and harmless to a terminal.
fn check_shown(bytes: &[u8]) {
    let shown = escaped(bytes);
    assert!(
        !shown.chars().any(|c| c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'))
    );
    assert_eq!(
        printable(shown.as_bytes()),
        shown,
        "escaping what is escaped changes it"
    );
    assert!(shown.len() <= 8 * bytes.len());
}

/// Fuzz target: decodes and encodes a discovery datagram. Encoding with the same key must yield the
/// same bytes.
pub fn discovery(data: &[u8]) {
    assert!(
        data.len() == DATAGRAM_LEN
            || (Question::decode(data).is_none() && Response::decode(data).is_none())
    );
    // Most changes of the length are not interesting, because the decoder accepts a single length.
    let mut datagram = [0; DATAGRAM_LEN];
    let len = data.len().min(DATAGRAM_LEN);
    datagram[..len].copy_from_slice(&data[..len]);
    let question = Question::decode(&datagram).map(|unverified| {
        let mut made = None;
        let question = unverified.verified(|_, _, signature| made.replace(*signature).is_none());
        let question = question.expect("the signature counts as right");
        assert_eq!(question.encode(|_| made).as_ref(), Some(&datagram));
        question
    });
    let Some(unverified) = Response::decode(&datagram) else {
        return;
    };
    assert_eq!(question, None, "a question that is an answer");
    let mut made = None;
    let answer = unverified.verified(|_, _, signature| made.replace(*signature).is_none());
    let answer = answer.expect("the signature counts as right");
    assert_eq!(answer.encode(|_| made).as_ref(), Some(&datagram));
    let asked = Question {
        nonce: answer.nonce,
        key: answer.asker_key,
        address: answer.asker_address,
        invitation: answer.invitation.then_some(Number::LAST),
    };
    assert!(answer.answers(&asked));
    assert!(
        !answer.answers(&Question {
            key: answer.key.map(|byte| !byte),
            ..asked
        }) || answer.key.map(|byte| !byte) == answer.asker_key
    );
}

/// Fuzz target: decodes the messages of an invitation's connection in pieces, and encodes them
/// again; or reads a code as typed. The first byte is the length of the pieces, 0 for a code.
pub fn invitations(data: &[u8]) {
    let Some((len, bytes)) = data.split_first() else {
        return;
    };
    if *len == 0 {
        return check_code(bytes);
    }
    let whole = read_invitation(bytes, bytes.len());
    assert_eq!(read_invitation(bytes, usize::from(*len)), whole);
    for message in &whole.0 {
        let written = invitation::encode(message);
        let (again, error) = read_invitation(&written, written.len());
        assert_eq!((&again[..], error), (std::slice::from_ref(message), None));
    }
}

/// Returns the decoded messages, and the error that ended the decoding.
fn read_invitation(
    bytes: &[u8],
    piece_len: usize,
) -> (Vec<invitation::Message>, Option<invitation::MessageError>) {
    let (mut reader, mut messages) = (invitation::Reader::default(), Vec::new());
    for mut piece in bytes.chunks(piece_len.max(1)) {
        loop {
            match reader.next(&mut piece) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
    }
    (messages, None)
}

fn check_code(typed: &[u8]) {
    let typed = String::from_utf8_lossy(typed);
    match typed.parse::<invitation::Code>() {
        Ok(code) => assert_eq!(code.to_text().parse(), Ok(code)),
        Err(error) => assert!(error.to_string().len() < 512, "{error}"),
    }
}
