//! Entry points of the fuzz targets: records and handshakes before authentication, compressed
//! chunks, tree filters, and the peers file.
//!
//! `fuzz/fuzz_targets` calls these functions; the tests in this crate run them on every file of
//! `fuzz/corpus`.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use nicstripe_proto::BitRate;
use rustls::{
    ConnectionTrafficSecrets, ContentType,
    crypto::cipher::{AeadKey, Iv},
};

use crate::{
    file::{BufferPool, FileError, Packer, unpack},
    links::request::LinkRequest,
    tree::filter::Filters,
    trust::{Access, Identity, Peer, PeerOptions, Peers, PublicKey, PublicLine},
    wire::tls::{
        ClientTls, MAX_RECORD, Opener, RECORD_OVERHEAD, RecordError, Sealer, SendBuffer, ServerTls,
        Tls, TlsError, record_len,
    },
};

/// Fuzzes the records of an established connection. The input is the peer's records, of any type
/// and length. Its first bytes select a man-in-the-middle attack: change, repeat, swap or drop a
/// record. The receiver must read exactly the sent records up to the first altered one.
pub fn records(data: &[u8]) {
    let Some((header, rest)) = data.split_first_chunk::<4>() else {
        return;
    };
    let [suite, harm, at, how] = header.map(usize::from);
    if harm == 255 {
        return lengths(rest);
    }
    let Ok(mut sealer) = Sealer::new(secrets(suite)) else {
        return;
    };
    let sent: Vec<&[u8]> = rest.chunks(1 + suite / 2).take(8).collect();
    let mut records: Vec<Vec<u8>> = Vec::new();
    for part in &sent {
        let mut record = vec![0; part.len() - 1 + RECORD_OVERHEAD];
        sealer
            .seal(part[0].into(), &part[1..], &mut record)
            .expect("a record of at most 16 KiB");
        records.push(record);
    }
    let intact = harm_records(&mut records, harm, at, how);
    let mut opener = Opener::new(secrets(suite)).expect("a cipher of TLS 1.3");
    let mut read = 0;
    for mut record in records {
        if record_len(&record).is_err() {
            break;
        }
        match opener.open(&mut record) {
            Ok(opened) => assert_eq!(Some(opened), meant(sent[read])),
            Err(RecordError::Untyped) => assert_eq!(None, meant(sent[read])),
            Err(_) => break,
        }
        read += 1;
    }
    assert!(read >= intact, "an intact record was rejected");
    assert!(read <= sent.len());
}

/// Returns the content type and plaintext that the receiver must see for a sent record. The first
/// byte of `part` is the content type. If it is zero, the rest is padded plaintext, whose type is
/// its last nonzero byte.
fn meant(part: &[u8]) -> Option<(ContentType, &[u8])> {
    match part {
        [0, padded @ ..] => padded
            .iter()
            .rposition(|byte| *byte != 0)
            .map(|at| (padded[at].into(), &padded[..at])),
        [content, plaintext @ ..] => Some(((*content).into(), plaintext)),
        [] => None,
    }
}

/// Changes, drops, repeats or swaps records as `harm` selects. Returns the number of intact records
/// at the front.
fn harm_records(records: &mut Vec<Vec<u8>>, harm: usize, at: usize, how: usize) -> usize {
    let count = records.len();
    if count == 0 {
        return 0;
    }
    let which = at % count;
    match harm % 5 {
        0 => return count,
        1 => {
            let place = (at / 2 * 37 + how) % records[which].len();
            records[which][place] ^= 1 << (how % 8);
            // The version in the header is ignored (RFC 8446, section 5.1), and the slice
            // determines the length.
            if (1..5).contains(&place) {
                return which.min(count);
            }
        }
        2 => drop(records.remove(which)),
        3 => {
            let again = records[which].clone();
            records.insert(which, again);
            return which + 1;
        }
        _ => {
            let other = how % count;
            records.swap(which, other);
            return which.min(other);
        }
    }
    which
}

/// Fuzzes the length field in record headers, and checks that forged records are rejected.
fn lengths(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some(len)) = record_len(rest) {
        assert!((5..=MAX_RECORD).contains(&len));
        rest = rest.get(len..).unwrap_or_default();
    }
    let Ok(mut opener) = Opener::new(secrets(0)) else {
        return;
    };
    assert!(
        opener.open(&mut bytes.to_vec()).is_err(),
        "a record that was not sealed"
    );
}

fn secrets(suite: usize) -> ConnectionTrafficSecrets {
    let (key, iv) = (AeadKey::from([7; 32]), Iv::from([9; 12]));
    match suite % 2 {
        0 => ConnectionTrafficSecrets::Aes256Gcm { key, iv },
        _ => ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv },
    }
}

/// Fuzzes handshakes in pieces: an untrusted client at a daemon, or an untrusted daemon at a
/// client. The first two bytes select the direction and the length of the pieces. The handshake
/// must fail, and a daemon must send nothing unless the client speaks its protocol.
pub fn handshake(data: &[u8]) {
    let [to_client, piece_len, bytes @ ..] = data else {
        return;
    };
    let (client, server) = ends();
    let mut out = SendBuffer::default();
    let is_client = to_client & 1 == 1;
    let tls = if is_client {
        Tls::client(client, &mut out)
    } else {
        Tls::server(server)
    };
    let mut tls = tls.expect("a new connection");
    let spoken = out.len();
    let mut received = Vec::new();
    for piece in bytes.chunks(1 + usize::from(*piece_len) * 4) {
        received.extend_from_slice(piece);
        let step = tls.receive::<TlsError>(&mut received, &mut out, &mut |_: &[u8]| {
            panic!("data from a stranger")
        });
        let Ok(step) = step else { break };
        assert!(
            !step.open && tls.peer_key().is_none(),
            "a connection with a stranger"
        );
        received.drain(..step.discard);
        assert!(
            received.len() <= MAX_RECORD + 16 * 1024 + piece.len(),
            "{} bytes of a handshake are buffered",
            received.len()
        );
    }
    let names_us = bytes.windows(10).any(|window| window == b"nicstripe/");
    assert!(
        is_client || names_us || out.len() == spoken,
        "an outsider received {} bytes",
        out.len()
    );
    assert!(tls.send(&[b"x"], &mut out).is_err());
}

/// Returns the TLS settings of a client and a daemon that trust only each other.
fn ends() -> &'static (ClientTls, ServerTls) {
    static ENDS: OnceLock<(ClientTls, ServerTls)> = OnceLock::new();
    ENDS.get_or_init(|| {
        let (client, server) = (
            Identity::generate().expect("a key"),
            Identity::generate().expect("a key"),
        );
        let only = |key: PublicKey| Arc::new(move |other: &PublicKey| *other == key);
        (
            ClientTls::new(&client, only(server.public_key())),
            ServerTls::new(&server, only(client.public_key())),
        )
    })
}

thread_local! {
    static BUFFERS: RefCell<BufferPool> = RefCell::default();
}

/// Fuzzes a compressed chunk: it unpacks to the announced length or fails. The first three bytes
/// are the announced length. If their highest bit is set, the rest is compressed first and must
/// round-trip.
pub fn zstd(data: &[u8]) {
    let Some((told, bytes)) = data.split_first_chunk::<3>() else {
        return;
    };
    let told = u32::from_le_bytes([told[0], told[1], told[2], 0]);
    let buffers = BUFFERS.with_borrow(Clone::clone);
    if told >> 23 == 1 {
        let Some(packed) =
            Packer::new(true).pack(bytes, &buffers, Some(BitRate::from_mbit(1)), true)
        else {
            return;
        };
        assert!(packed.bytes().len() < bytes.len());
        let back = unpack(packed.bytes(), bytes.len() as u32, buffers.take())
            .expect("packed data can be unpacked");
        assert_eq!(back.bytes(), bytes);
        return;
    }
    if let Some(unpacked) = unpack(bytes, told, buffers.take()) {
        assert_eq!(unpacked.bytes().len(), told as usize);
    }
}

/// Fuzzes the exclude patterns of a tree as a peer sends them, one per line; paths follow an empty
/// line. Only inputs whose length is a multiple of 8 are compiled and matched against the paths,
/// which takes fifty times as long as parsing.
pub fn filters(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (patterns, paths) = text.split_once("\n\n").unwrap_or((&text, ""));
    let patterns: Vec<String> = patterns.split('\n').map(str::to_owned).collect();
    let read = if data.len().is_multiple_of(8) {
        excluded(&patterns, paths)
    } else {
        Filters::parse(&patterns).map(drop)
    };
    if let Err(error) = read {
        assert!(!error.one_line().chars().any(char::is_control), "{error:?}");
    }
}

fn excluded(patterns: &[String], paths: &str) -> Result<(), FileError> {
    let filters = Filters::new(patterns)?;
    for path in paths.split('\n') {
        let path = Path::new(path.trim_start_matches('/'));
        assert!(!filters.excludes(path, true) || !path.as_os_str().is_empty());
        let _ = filters.excludes(path, false);
    }
    Ok(())
}

/// Fuzzes the peers file, its lines, a typed key and a typed link; the first byte selects one. What
/// was parsed must survive writing and parsing, and every allowed change must leave a readable
/// file.
pub fn peers(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else {
        return;
    };
    match kind % 4 {
        0 => peers_file(bytes),
        1 => peers_line(&String::from_utf8_lossy(bytes)),
        2 => changes(&String::from_utf8_lossy(bytes)),
        _ => {
            if let Ok(link) = String::from_utf8_lossy(bytes).parse::<LinkRequest>() {
                assert_eq!(link.to_string().parse(), Ok(link));
            }
            assert!(PublicKey::from_spki(bytes).is_none_or(|key| key.to_spki() == *bytes));
        }
    }
}

fn peers_file(bytes: &[u8]) {
    let Ok(peers) = Peers::parse(Path::new("peers"), bytes) else {
        return;
    };
    check_file(&peers);
    let read = peers.iter().all(|peer| {
        peers.find(&peer.key) == Some(peer) && peer.to_string().parse().as_ref() == Ok(peer)
    });
    assert!(read, "a peer whose text does not round-trip");
}

/// Asserts that the peers file written for `peers` parses to the same peers and text.
fn check_file(peers: &Peers) {
    let text = peers.to_text();
    let again =
        Peers::parse(Path::new("peers"), text.as_bytes()).expect("written data can be read");
    assert!(again.iter().eq(peers.iter()));
    assert_eq!(again.to_text(), text);
}

fn peers_line(line: &str) {
    if let Ok(peer) = line.parse::<Peer>() {
        assert_eq!(peer.to_string().parse(), Ok(peer));
    }
    if let Ok(public) = line.parse::<PublicLine>() {
        assert_eq!(public.to_string().parse(), Ok(public));
    }
}

/// Adds peers with arbitrary comments, names and options, removes some, and checks the file after
/// each. `text` holds the values, separated by `|`.
fn changes(text: &str) {
    let (mut words, mut peers) = (text.split('|'), Peers::default());
    let mut word = || words.next().unwrap_or_default();
    for key in 0..3 {
        let line = PublicLine::new(
            PublicKey::from_bytes([7 + key % 2; 32]).expect("a strong key"),
            word(),
        );
        assert_eq!(line.to_string().parse().as_ref(), Ok(&line));
        let name = Some(word()).filter(|name| !name.is_empty());
        let _ = peers.add(&line, name);
        let root = word();
        let access = [Access::Full, Access::AppendOnly, Access::ReadOnly][root.len() % 3];
        let options = PeerOptions {
            root: (!root.is_empty()).then(|| PathBuf::from(root)),
            access,
            no_bench: root.len() % 2 == 1,
            no_facts: root.len() % 7 == 1,
            special_modes: root.len() % 5 == 1,
            dial: if root.len() % 3 == 0 {
                vec!["localhost:22".parse().expect("a target")]
            } else {
                Vec::new()
            },
            listen: match root.len() % 5 {
                0 => vec!["unix:/run/a b".parse().expect("a socket file")],
                _ => Vec::new(),
            },
            exec: match root.len() % 4 {
                0 => vec!["borg serve *".parse().expect("a command")],
                _ => Vec::new(),
            },
            rate: Some(BitRate(root.len() as u64)),
        };
        let _ = peers.set_options(
            &line.key,
            PeerOptions {
                rate: options.rate.filter(|rate| rate.0 > 0),
                ..options
            },
        );
        check_file(&peers);
        let _ = peers.clone().remove(word());
    }
}

#[cfg(test)]
mod tests;
