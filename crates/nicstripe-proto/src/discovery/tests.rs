use super::*;

fn address(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last)
}

fn question() -> Question {
    Question {
        nonce: Nonce([0x11; 32]),
        key: [0x22; 32],
        address: address(1),
        invitation: None,
    }
}

fn answer() -> Response {
    Response {
        nonce: Nonce([0x11; 32]),
        key: [0x33; 32],
        address: address(2),
        port: 7747,
        index: 3,
        interface: b"eth1".to_vec(),
        host: b"nas".to_vec(),
        asker_key: [0x22; 32],
        asker_address: address(1),
        invitation: false,
    }
}

/// Returns a fake signature that depends on the key and on every byte of the text.
fn signature(key: &Key, text: &[u8]) -> Signature {
    let mut signature = [0; SIGNATURE_LEN];
    blake3::Hasher::new_keyed(key)
        .update(text)
        .finalize_xof()
        .fill(&mut signature);
    signature
}

fn check(key: &Key, text: &[u8], made: &Signature) -> bool {
    signature(key, text) == *made
}

fn asked() -> [u8; DATAGRAM_LEN] {
    question()
        .encode(|text| Some(signature(&question().key, text)))
        .unwrap()
}

fn answered() -> [u8; DATAGRAM_LEN] {
    sign(&answer())
}

/// Returns true if the datagram is a query or an answer with a valid signature.
fn is_believed(datagram: &[u8]) -> bool {
    let question = Question::decode(datagram).and_then(|question| question.verified(check));
    let answer = Response::decode(datagram).and_then(|answer| answer.verified(check));
    question.is_some() || answer.is_some()
}

#[test]
fn a_question_has_these_bytes() {
    let datagram = question().encode(|text| {
        assert_eq!(text.len(), DOMAIN.len() + 224);
        assert!(text.starts_with(b"nicstripe discovery, version 1\0NICSTRD\n\x01\x01"));
        Some([0x99; 64])
    });
    let mut expected = b"NICSTRD\n\x01\x01\0\0\0\0\0\0".to_vec();
    expected.extend([0x11; 32]);
    expected.extend([0x22; 32]);
    expected.extend(b"\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x01");
    expected.extend([0; 128]);
    expected.extend([0x99; 64]);
    assert_eq!(datagram.unwrap(), expected[..]);
}

#[test]
fn an_answer_has_these_bytes() {
    let datagram = answer().encode(|_| Some([0x99; 64]));
    let mut expected = b"NICSTRD\n\x01\x02\x43\x1e\x03\0\0\0".to_vec();
    expected.extend([0x11; 32]);
    expected.extend([0x33; 32]);
    expected.extend(b"\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x02");
    expected.extend([0x22; 32]);
    expected.extend(b"\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x01");
    expected.extend(b"eth1\0\0\0\0\0\0\0\0\0\0\0\0");
    expected.extend(b"nas");
    expected.extend([0; 61]);
    expected.extend([0x99; 64]);
    assert_eq!(datagram.unwrap(), expected[..]);
}

#[test]
fn the_group_is_link_local_and_nobodys_registered_one() {
    assert_eq!(GROUP.to_string(), "ff12::ee69:6373");
    let [first, second, .., dynamic, _, _, _] = GROUP.octets();
    assert_eq!(
        (first, second >> 4, second & 0xf),
        (0xff, 1, 2),
        "multicast, transient, link-local"
    );
    assert!(
        dynamic & 0x80 != 0,
        "RFC 3307 keeps the numbers below 2^31 for those that are registered"
    );
}

#[test]
fn an_answer_is_as_long_as_its_question() {
    assert_eq!(asked().len(), answered().len());
    let longest = Response {
        interface: vec![b'x'; 99],
        host: vec![b'h'; 999],
        ..answer()
    };
    let read = Response::decode(&sign(&longest))
        .unwrap()
        .verified(check)
        .unwrap();
    assert_eq!(
        (read.interface, read.host),
        (vec![b'x'; 16], vec![b'h'; MOST_HOST]),
        "long values are cut, not dropped"
    );
}

#[test]
fn what_was_signed_reads_back() {
    assert_eq!(
        Question::decode(&asked()).unwrap().verified(check),
        Some(question())
    );
    assert_eq!(
        Response::decode(&answered()).unwrap().verified(check),
        Some(answer())
    );
    assert_eq!(Question::decode(&asked()).unwrap().claims(), &question());
}

#[test]
fn no_bit_can_be_changed() {
    for datagram in [asked(), answered()] {
        for bit in 0..8 * datagram.len() {
            let mut changed = datagram;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_believed(&changed), "bit {bit}");
        }
    }
}

#[test]
fn other_lengths_are_no_message() {
    for datagram in [asked(), answered()] {
        for len in (0..DATAGRAM_LEN).chain([DATAGRAM_LEN + 1, 1500]) {
            let mut other = datagram.to_vec();
            other.resize(len, 0);
            assert!(!is_believed(&other), "{len} bytes");
        }
    }
}

#[test]
fn a_question_is_no_answer_and_the_other_way_round() {
    assert!(Response::decode(&asked()).is_none());
    assert!(Question::decode(&answered()).is_none());
}

/// Returns true if the answer, signed by its sender, is believed.
fn is_taken(answer: &Response) -> bool {
    is_believed(&sign(answer))
}

fn sign(answer: &Response) -> [u8; DATAGRAM_LEN] {
    answer
        .encode(|text| Some(signature(&answer.key, text)))
        .unwrap()
}

/// Returns the answer of [`answer`] with a change.
fn changed(change: impl FnOnce(&mut Response)) -> Response {
    let mut answer = answer();
    change(&mut answer);
    answer
}

#[test]
fn addresses_from_beyond_the_link_are_refused() {
    for elsewhere in [
        "2001:db8::1",
        "::1",
        "ff12::ee69:6373",
        "::ffff:10.0.0.1",
        "fec0::1",
    ] {
        let address: Ipv6Addr = elsewhere.parse().unwrap();
        let question = Question {
            address,
            ..question()
        };
        let asked = question.encode(|text| Some(signature(&question.key, text)));
        assert!(!is_believed(&asked.unwrap()), "{elsewhere}");
        let answers = [
            changed(|answer| answer.address = address),
            changed(|answer| answer.asker_address = address),
        ];
        assert!(!answers.iter().any(is_taken), "{elsewhere}");
    }
}

#[test]
fn an_answer_needs_a_port_and_an_interface_and_nothing_behind_its_names() {
    for wrong in [
        changed(|answer| answer.port = 0),
        changed(|answer| answer.interface.clear()),
        changed(|answer| answer.interface = b"eth1\0eth2".to_vec()),
        changed(|answer| answer.host = b"nas\0\x1b[2J".to_vec()),
    ] {
        assert!(!is_taken(&wrong), "{wrong:?}");
    }
    let nameless = changed(|answer| answer.host.clear());
    assert!(is_taken(&nameless), "a host need not have a name");
}

#[test]
fn an_answer_belongs_to_one_question_of_one_asker_at_one_address() {
    assert!(answer().answers(&question()));
    for other in [
        changed(|answer| answer.nonce = Nonce([0x12; 32])),
        changed(|answer| answer.asker_key = [0x23; 32]),
        changed(|answer| answer.asker_address = address(9)),
    ] {
        assert!(!other.answers(&question()), "{other:?}");
    }
}

#[test]
fn whoever_cannot_sign_sends_nothing() {
    assert_eq!(question().encode(|_| None), None);
    assert_eq!(answer().encode(|_| None), None);
}

fn invited() -> (Question, Response) {
    let question = Question {
        invitation: Number::new(7),
        ..question()
    };
    let answer = Response {
        invitation: true,
        ..answer()
    };
    (question, answer)
}

#[test]
fn datagrams_of_an_invitation_differ_in_kind_and_number_only() {
    let (question, answer) = invited();
    let encoded = question.encode(|_| Some([0x99; 64])).unwrap();
    let mut plain = self::question().encode(|_| Some([0x99; 64])).unwrap();
    assert!(plain[8..12] == [1, 1, 0, 0] && encoded[8..12] == [1, 3, 7, 0]);
    plain[8..12].copy_from_slice(&encoded[8..12]);
    assert_eq!(encoded, plain);
    let encoded = answer.encode(|_| Some([0x99; 64])).unwrap();
    let mut plain = self::answer().encode(|_| Some([0x99; 64])).unwrap();
    assert!(plain[9] == 2 && encoded[9] == 4);
    plain[9] = 4;
    assert_eq!(encoded, plain);
}

#[test]
fn a_question_for_an_invitation_is_read_back_with_its_number() {
    let (question, answer) = invited();
    let datagram = question.encode(|text| Some(signature(&question.key, text)));
    let read = Question::decode(&datagram.unwrap()).unwrap();
    assert_eq!(read.verified(check), Some(question.clone()));
    let read = Response::decode(&sign(&answer)).unwrap();
    assert_eq!(read.verified(check), Some(answer.clone()));
    assert!(answer.answers(&question));
    assert!(!answer.answers(&self::question()), "for a daemon");
    assert!(!self::answer().answers(&question), "by a daemon");
}

#[test]
fn a_number_belongs_to_an_invitation_and_is_1_to_999() {
    let (question, _) = invited();
    let datagram = question.encode(|_| Some([0; 64])).unwrap();
    let with = |kind: u8, number: u16| {
        let mut datagram = datagram;
        datagram[9] = kind;
        datagram[10..12].copy_from_slice(&number.to_le_bytes());
        Question::decode(&datagram).is_some()
    };
    assert!(with(3, 1) && with(3, 999) && with(1, 0));
    assert!(!with(3, 0) && !with(3, 1000) && !with(1, 7));
    assert!(!with(2, 7) && !with(4, 7) && !with(5, 7));
}
