#![allow(clippy::unwrap_used)]

use nicstripe_testkit::replay;

use super::*;

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn records_corpus() {
    let sent = b"\x17data\x17more\x15\x01\x00\x16\x18\x00\x00\x01\x01";
    let harmed = |suite: u8, harm: u8, at: u8, how: u8| joined(&[&[suite, harm, at, how], sent]);
    let seeds = vec![
        ("intact", harmed(8, 0, 0, 0)),
        ("intact-chacha", harmed(9, 0, 0, 0)),
        ("bit", harmed(8, 1, 1, 40)),
        ("type-bit", harmed(9, 1, 0, 0)),
        ("version-bit", harmed(8, 1, 1, 2)),
        ("missing", harmed(8, 2, 1, 0)),
        ("repeated", harmed(8, 3, 0, 0)),
        ("swapped", harmed(8, 4, 0, 2)),
        ("padding-only", joined(&[&[8, 0, 0, 0], &[0; 20]])),
        ("padded", joined(&[&[40, 0, 0, 0], b"\0ab\x17\0\0\0\0"])),
        (
            "lengths",
            joined(&[&[8, 255, 0, 0], &[23, 3, 3, 0, 2, 1, 2, 20, 3, 1, 0, 0]]),
        ),
        (
            "length-above-the-limit",
            joined(&[&[8, 255, 0, 0], &[23, 3, 3, 0x41, 1]]),
        ),
        (
            "no-tls",
            joined(&[&[8, 255, 0, 0], b"GET / HTTP/1.1\r\n\r\n"]),
        ),
    ];
    replay("records", records, seeds);
}

#[test]
fn handshake_corpus() {
    // The corpus holds recorded hellos of each end, because their keys are random.
    let alert = [21, 3, 3, 0, 2, 2, 40];
    let seeds = vec![
        (
            "http",
            joined(&[&[0, 9], b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"]),
        ),
        ("ssh", joined(&[&[0, 255], b"SSH-2.0-OpenSSH_10.0\r\n"])),
        ("alert", joined(&[&[0, 0], &alert])),
        ("alert-to-client", joined(&[&[1, 0], &alert])),
        ("empty-record", joined(&[&[0, 0], &[22, 3, 1, 0, 0]])),
        (
            "change-cipher-specs",
            joined(&[&[0, 3], &[20, 3, 3, 0, 1, 1].repeat(40)]),
        ),
        (
            "fragments-without-end",
            joined(&[&[0, 3], &[22, 3, 1, 0, 1, 1].repeat(40)]),
        ),
        (
            "message-of-16-mib",
            joined(&[&[0, 255], &[22, 3, 1, 0, 4, 1, 255, 255, 255]]),
        ),
        (
            "record-of-16-kib-and-no-more",
            joined(&[&[0, 255], &[22, 3, 1, 0x41, 0]]),
        ),
        (
            "record-too-long",
            joined(&[&[0, 255], &[22, 3, 1, 0x41, 1]]),
        ),
        ("data-first", joined(&[&[0, 255], &[23, 3, 3, 0, 1, 0]])),
    ];
    replay("handshake", handshake, seeds);
}

#[test]
#[ignore = "writes files of the corpus that differ each time"]
fn write_hellos() {
    let (client, server) = ends();
    let (mut to_server, mut to_client) = (SendBuffer::default(), SendBuffer::default());
    let mut end = Tls::client(client, &mut to_server).unwrap();
    let hello = to_server.pending().to_vec();
    let mut received = hello.clone();
    Tls::server(server)
        .unwrap()
        .receive::<TlsError>(&mut received, &mut to_client, &mut |_: &[u8]| Ok(()))
        .unwrap();
    end.receive::<TlsError>(
        &mut to_client.pending().to_vec(),
        &mut to_server,
        &mut |_: &[u8]| Ok(()),
    )
    .unwrap();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/handshake");
    let other = |from: &[u8], to: &[u8]| {
        let at = hello
            .windows(from.len())
            .position(|window| window == from)
            .unwrap();
        joined(&[&hello[..at], to, &hello[at + to.len()..]])
    };
    let files = [
        ("hello", joined(&[&[0, 255], &hello])),
        ("hello-twice", joined(&[&[0, 80], &hello, &hello])),
        (
            "hello-and-second-flight-of-another",
            joined(&[&[0, 255], to_server.pending()]),
        ),
        (
            "hello-of-http2",
            joined(&[&[0, 255], &other(b"nicstripe/1", b"h2_________")]),
        ),
        (
            "hello-of-version-2",
            joined(&[&[0, 255], &other(b"nicstripe/1", b"nicstripe/2")]),
        ),
        ("hello-cut", joined(&[&[0, 3], &hello[..hello.len() / 2]])),
        (
            "answer-to-another",
            joined(&[&[1, 255], to_client.pending()]),
        ),
    ];
    files
        .into_iter()
        .for_each(|(name, bytes)| std::fs::write(corpus.join(name), bytes).unwrap());
}

#[test]
fn zstd_corpus() {
    let pack = |bytes: &[u8]| ::zstd::bulk::compress(bytes, 1).unwrap();
    let told = |len: u32, frame: &[u8]| joined(&[&len.to_le_bytes()[..3], frame]);
    let text: Vec<u8> = b"all work and no play "
        .iter()
        .copied()
        .cycle()
        .take(2000)
        .collect();
    let (zeros, bomb) = (pack(&[0; 1 << 18]), pack(&vec![0; 16 << 20]));
    let mut window = pack(&text);
    // A frame without the single-segment flag, which requests a window of 2 GiB.
    window.splice(4..7, [0, 0xa8]);
    let seeds = vec![
        ("text", told(2000, &pack(&text))),
        ("text-told-shorter", told(1999, &pack(&text))),
        ("text-told-longer", told(2001, &pack(&text))),
        ("text-twice", told(4000, &pack(&text).repeat(2))),
        ("text-cut", told(2000, &pack(&text)[..20])),
        ("chunk-of-zeros", told(1 << 18, &zeros)),
        ("bomb-told-as-it-is", told((16 << 20) - 1, &bomb)),
        ("bomb-told-as-a-chunk", told(1 << 18, &bomb)),
        ("window-of-2-gib", told(2000, &window)),
        (
            "skippable-frame",
            told(0, &[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4]),
        ),
        ("nothing", told(0, b"")),
        ("pack", told(1 << 23, &text)),
        ("pack-nothing", told(1 << 23, b"")),
        (
            "pack-random",
            told(
                1 << 23,
                &std::array::from_fn::<u8, 251, _>(|at| (at * at) as u8),
            ),
        ),
    ];
    replay("zstd", zstd, seeds);
}

#[test]
fn filters_corpus() {
    // Padded to a length at which the filters are compiled and matched as well.
    let compiled = |text: &[u8]| joined(&[text, &vec![b'\n'; (8 - text.len() % 8) % 8]]);
    let seeds = vec![
        (
            "some",
            compiled(b"*.o\n!keep.o\n/top\nbuild/\n\na.o\nd/keep.o\nbuild\ntop"),
        ),
        ("stars", compiled(b"**/a/**/b/**\n***\n\nx/a/y/b/z")),
        ("classes", compiled(b"[a-z]*[!0-9]\n[z-a]\n\nab")),
        ("alternatives", compiled(b"{a,b{c,d}}\n{,\n}\n\na")),
        ("escapes", compiled(b"\\#x\n\\!y\nz\\ \n\\\n\n#x\nz ")),
        ("remarks", compiled(b"# nothing\n\n#")),
        ("slashes", compiled(b"/\n//\na//b\n!\n!/\n\na/b")),
        ("control-in-a-refusal", b"{\x1b[31m\n\nx".to_vec()),
        ("control", compiled(b"[\x1b[31m\n[\n\nx")),
    ];
    replay("filters", filters, seeds);
}

#[test]
fn peers_corpus() {
    const KEY: &str = "nicstripe-ed25519 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const OTHER: &str = "nicstripe-ed25519 BQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let with = |kind: u8, text: &str| joined(&[&[kind], text.as_bytes()]);
    let seeds = vec![
        (
            "file",
            with(
                0,
                &format!("# mine\n\nread-only,root=\"/a b\" {KEY} nas\n  rate=10M {OTHER}\n"),
            ),
        ),
        ("file-without-an-end", with(0, &format!("{KEY} nas"))),
        (
            "file-key-twice",
            with(0, &format!("{KEY}\nread-only {KEY}\n")),
        ),
        ("file-name-twice", with(0, &format!("{KEY} a\n{OTHER} a\n"))),
        ("file-hidden", with(0, &format!("{KEY} a\u{202e}b\n"))),
        ("file-carriage-return", with(0, &format!("{KEY} a\r\n"))),
        ("file-not-utf8", joined(&[&[0], b"\xff\n"])),
        (
            "line",
            with(
                1,
                &format!(r#"read-only,root="/a b,c\"d\\e",rate="2G" {KEY} nas"#),
            ),
        ),
        ("line-public", with(1, &format!("{KEY} me@box two words"))),
        ("line-unbalanced", with(1, &format!("root=\"/a {KEY}"))),
        (
            "line-unicode-blank",
            with(1, &format!("root=/a\u{2003}b {KEY}\u{2003}x")),
        ),
        ("change", with(2, "me@box|nas|/srv|nas|a b||/a b,c|x|||")),
        ("change-root-hidden", with(2, "c|n|/a\u{202e}b|n")),
        ("change-root-line-separator", with(2, "c|n|/a\u{2028}b|n")),
        ("change-name-remark", with(2, "#remark||/|||#x|")),
        ("link", with(3, "eth0=fd00::2")),
        ("link-of-nothing", with(3, "=")),
        ("link-empty", with(3, "")),
    ];
    replay("peers", peers, seeds);
}
