use std::collections::BTreeSet;

use super::{
    words::{FIRST, SECOND},
    *,
};

fn code(text: &str) -> Result<Code, CodeError> {
    text.parse()
}

fn words() -> impl Iterator<Item = &'static str> {
    FIRST.into_iter().chain(SECOND)
}

/// Returns true if one letter is changed, added or removed between two words.
fn is_one_letter_apart(one: &str, other: &str) -> bool {
    let (short, long) = match one.len() < other.len() {
        true => (one, other),
        false => (other, one),
    };
    let common = short
        .bytes()
        .zip(long.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    match long.len() - short.len() {
        0 => short[common..].get(1..) == long[common..].get(1..),
        1 => short[common..] == long[common + 1..],
        _ => false,
    }
}

/// Returns the consonants of a word as they sound, roughly: voiced and unvoiced ones are equal.
fn sound(word: &str) -> String {
    let spellings = "ph f gh g ck k qu kw kn n wr r wh w sch sk x ks ce se ci si cy sy ch # sh # \
                     c k z s d t b p v f g k j #";
    let spellings: Vec<&str> = spellings.split(' ').collect();
    let spelled = spellings
        .chunks(2)
        .fold(word.to_owned(), |word, pair| word.replace(pair[0], pair[1]));
    let mut sounds: Vec<char> = Vec::new();
    for (at, letter) in spelled.chars().enumerate() {
        match letter {
            'a' | 'e' | 'i' | 'o' | 'u' | 'y' if at == 0 => sounds.push('a'),
            'a' | 'e' | 'i' | 'o' | 'u' | 'y' | 'h' | 'w' if at > 0 => {}
            letter if sounds.last() == Some(&letter) => {}
            letter => sounds.push(letter),
        }
    }
    sounds.into_iter().collect()
}

#[test]
fn the_words_are_short_plain_and_in_one_list_only() {
    for list in [FIRST, SECOND] {
        assert!(list.is_sorted());
    }
    for word in words() {
        let is_plain = word.bytes().all(|byte| byte.is_ascii_lowercase());
        assert!(is_plain && (3..=9).contains(&word.len()), "{word}");
    }
    assert_eq!(words().collect::<BTreeSet<_>>().len(), 512);
    assert!(FIRST.contains(&"crossover") && SECOND.contains(&"violin"));
}

#[test]
fn no_two_words_sound_alike_or_differ_in_one_letter() {
    let all: Vec<&str> = words().collect();
    for (at, one) in all.iter().enumerate() {
        for other in &all[..at] {
            assert!(!is_one_letter_apart(one, other), "{one} {other}");
            assert_ne!(sound(one), sound(other), "{one} {other}");
        }
    }
}

#[test]
fn every_code_is_read_back_from_its_text_which_is_short() {
    for byte in 0..=255 {
        for bytes in [[byte, 0, byte, 255 - byte], [230, 3, byte, byte]] {
            let made = Code::from_random(bytes);
            let text = made.to_text();
            assert!(text.len() <= MOST_CODE, "{text}");
            assert_eq!(code(&text), Ok(made));
        }
    }
    let longest = |list: [&str; 256]| list.iter().map(|word| word.len()).max().unwrap();
    assert!("999--".len() + longest(FIRST) + longest(SECOND) <= MOST_CODE);
}

#[test]
fn a_random_number_is_1_to_999() {
    let number = |low, high| Code::from_random([low, high, 0, 0]).number().get();
    assert_eq!(number(0, 0), 1);
    assert_eq!(number(230, 3), 999, "998");
    assert_eq!(number(231, 3), 1, "999");
    assert!((1..=999).contains(&number(255, 255)));
}

#[test]
fn capitals_and_blanks_are_forgiven() {
    let expected = code("7-crossover-violin").unwrap();
    for typed in [
        " 7-crossover-violin\n",
        "7 crossover violin",
        "7 - Crossover - Violin",
        "007-CROSSOVER_VIOLIN",
        "7\u{2013}crossover\u{2011}violin",
        "7--crossover--violin-",
    ] {
        assert_eq!(code(typed), Ok(expected), "{typed:?}");
    }
}

#[test]
fn an_error_names_the_wrong_part_and_the_nearest_word() {
    let error = |typed: &str| code(typed).unwrap_err().to_string();
    let parts = "expected a number and two words, such as 7-crossover-violin, found";
    for (typed, expected) in [
        ("7-crossover", &*format!("{parts} 2 parts")),
        ("violin", &format!("{parts} 1 part")),
        (
            "1000-crossover-violin",
            "invalid number \"1000\" of a code: expected 1 to 999",
        ),
        (
            "7-crosover-violin",
            "\"crosover\" is not a word of codes; did you mean \"crossover\"?",
        ),
        (
            "7-crossover-Violine",
            "\"violine\" is not a word of codes; did you mean \"violin\"?",
        ),
        (
            "7-crossover-qqqqqqqqqq",
            "\"qqqqqqqqqq\" is not a word of codes",
        ),
        (
            "7-violin-crossover",
            "the two words of the code are swapped",
        ),
    ] {
        assert_eq!(error(typed), expected);
    }
    for number in ["0", "1000", "70000", "+7", "seven", "-"] {
        let typed = format!("{number}x-crossover-violin");
        assert!(error(&typed).starts_with("invalid number"), "{typed}");
    }
    let long = "x\u{1b}".repeat(5000);
    assert!(error(&format!("7-crossover-{long}")).len() < 200);
}

#[test]
fn debug_does_not_show_the_words() {
    let shown = format!("{:?}", code("7-crossover-violin").unwrap());
    assert_eq!(shown, "Code { number: 7, .. }");
    let parties = parties();
    let confirmation = Confirmation::of(Side::Joiner, b"secret", &parties);
    assert_eq!(format!("{confirmation:?}"), "Confirmation");
}

fn parties() -> Parties {
    Parties {
        joiner: [1; 32],
        inviter: [2; 32],
        binding: [3; 32],
    }
}

#[test]
fn a_confirmation_depends_on_side_secret_keys_and_connection() {
    let of = |side, secret: &[u8], change: fn(&mut Parties)| {
        let mut parties = parties();
        change(&mut parties);
        Confirmation::of(side, secret, &parties)
    };
    let expected = of(Side::Joiner, b"secret", |_| {});
    assert!(expected.is(&expected.bytes()));
    for (what, other) in [
        ("side", of(Side::Inviter, b"secret", |_| {})),
        ("secret", of(Side::Joiner, b"secre7", |_| {})),
        (
            "joiner",
            of(Side::Joiner, b"secret", |all| all.joiner = [9; 32]),
        ),
        (
            "inviter",
            of(Side::Joiner, b"secret", |all| all.inviter = [9; 32]),
        ),
        (
            "connection",
            of(Side::Joiner, b"secret", |all| all.binding = [9; 32]),
        ),
    ] {
        assert!(!expected.is(&other.bytes()), "{what}");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_confirmation_has_these_bytes() {
    let bytes = |side| hex(&Confirmation::of(side, &[7; 32], &parties()).bytes());
    assert_eq!(
        bytes(Side::Joiner),
        "88bfba95843754683c4275c0b2a7eb07f4e3b111bee0c41a1f619df5658ea1ac"
    );
    assert_eq!(
        bytes(Side::Inviter),
        "7cc2b1678a23e5dd68eb113cd88ceca56d69e0ae07339aa5b144bc39833eb7be"
    );
}

fn card() -> Card {
    Card {
        purpose: Purpose::Pair.number(),
        host: "nas".to_owned(),
        port: 7747,
    }
}

fn all() -> Vec<(Message, String)> {
    let pake = Message::Pake(Pake {
        number: 7,
        message: [0x41; PAKE_LEN],
    });
    let confirm = Message::Confirm(Confirm { mac: [0x99; 32] });
    vec![
        (
            pake,
            format!("2a00 8200 81 a2 0007 015821{}", "41".repeat(PAKE_LEN)),
        ),
        (
            confirm,
            format!("2700 8201 81 a1 005820{}", "99".repeat(32)),
        ),
        (
            Message::Card(card()),
            "0f00 8202 81 a3 0001 01636e6173 02191e43".to_owned(),
        ),
        (
            Message::Done(Done {
                name: "laptop".to_owned(),
            }),
            "0c00 8203 81 a1 00666c6170746f70".to_owned(),
        ),
        (Refusal::WrongCode.into(), "0600 8204 81 a1 0001".to_owned()),
        (
            Message::Offer(Offer {
                request: vec![1],
                items: vec![Item {
                    name: b"a".to_vec(),
                    is_dir: true,
                    is_link: false,
                    files: 2,
                    bytes: 3,
                }],
            }),
            "1300 8205 81 a2 004101 0181 a4 004161 01f5 0202 0303".to_owned(),
        ),
        (
            Message::Accept(Accept { reply: vec![2] }),
            "0700 8206 81 a1 004102".to_owned(),
        ),
    ]
}

#[test]
fn every_message_has_these_bytes_and_is_read_back_in_pieces() {
    let mut whole = Vec::new();
    for (message, expected) in all() {
        let bytes = encode(&message);
        assert_eq!(hex(&bytes), expected.replace(' ', ""), "{message:?}");
        whole.extend(bytes);
    }
    for piece_len in [1, 2, 3, 7, whole.len()] {
        let (mut reader, mut read) = (Reader::default(), Vec::new());
        for mut piece in whole.chunks(piece_len) {
            while let Some(message) = reader.next(&mut piece).unwrap() {
                read.push(message);
            }
        }
        let expected: Vec<Message> = all().into_iter().map(|(message, _)| message).collect();
        assert_eq!(read, expected);
    }
}

fn read(bytes: &[u8]) -> Result<Option<Message>, MessageError> {
    Reader::default().next(&mut &bytes[..])
}

#[test]
fn a_length_beyond_the_limit_is_refused_before_the_body_arrives() {
    assert_eq!(read(&[0, 0]), Err(MessageError::Length(0)));
    assert_eq!(read(&[1, 2]), Err(MessageError::Length(513)));
    assert_eq!(read(&[255, 255]), Err(MessageError::Length(65_535)));
    assert_eq!(read(&[0, 2]), Ok(None));
    let mut reader = Reader::default();
    reader.proved();
    assert_eq!(reader.next(&mut &[255, 255][..]), Ok(None));
    assert_eq!(
        reader.next(&mut &[0; 65_535][..]),
        Err(MessageError::Malformed)
    );
}

#[test]
fn unknown_keys_are_ignored_and_unknown_messages_refused() {
    // A card with key 9.
    let more = b"\x11\x00\x82\x02\x81\xa4\x00\x01\x01\x63nas\x02\x19\x1e\x43\x09\x05";
    assert_eq!(read(more), Ok(Some(Message::Card(card()))));
    assert_eq!(read(b"\x03\x00\x82\x09\x80"), Err(MessageError::Malformed));
    assert_eq!(read(b"\x01\x00\xff"), Err(MessageError::Malformed));
    let short = b"\x08\x00\x82\x00\x81\xa2\x00\x07\x01\x40";
    assert_eq!(read(short), Err(MessageError::Malformed), "an empty PAKE");
}

#[test]
fn a_host_name_is_cut_when_sent_and_refused_when_too_long() {
    let long = Card {
        host: "ä".repeat(99),
        ..card()
    };
    let Ok(Some(Message::Card(read_back))) = read(&encode(&Message::Card(long))) else {
        panic!("no card");
    };
    assert_eq!(read_back.host, "ä".repeat(32));
    let odd = Card {
        host: format!("a{}", "ä".repeat(99)),
        ..card()
    };
    let Ok(Some(Message::Card(read_back))) = read(&encode(&Message::Card(odd))) else {
        panic!("no card");
    };
    assert_eq!(read_back.host.len(), 63);
    let mut bytes = b"\x00\x00\x82\x02\x81\xa3\x00\x01\x01\x78\x41".to_vec();
    bytes.extend([b'h'; 65]);
    bytes.extend(b"\x02\x00");
    bytes[0] = u8::try_from(bytes.len() - 2).unwrap();
    assert_eq!(read(&bytes), Err(MessageError::Host(65)));
    let mut bytes = b"\x00\x01\x82\x03\x81\xa1\x00\x79\x01\x00".to_vec();
    bytes.extend([b'n'; 256]);
    bytes[0] = u8::try_from(bytes.len() - 2 - 256).unwrap();
    assert_eq!(read(&bytes), Err(MessageError::Name(256)));
}

#[test]
fn unknown_purposes_and_refusals_are_none() {
    assert_eq!(Purpose::from_number(1), Some(Purpose::Pair));
    assert_eq!(Purpose::from_number(2), Some(Purpose::OneCopy));
    assert_eq!(Purpose::from_number(0), None);
    assert_eq!(Purpose::from_number(3), None);
    for code in 1..=6 {
        let refusal = Refusal::from_number(code).unwrap();
        assert_eq!(Message::from(refusal), Message::Refuse(Refuse { code }));
    }
    assert_eq!(Refusal::from_number(0), None);
    assert_eq!(Refusal::from_number(7), None);
}
