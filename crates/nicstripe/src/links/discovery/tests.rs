//! Signatures of discovery messages, as another implementation makes them.

use std::{io::Write as _, os::unix::fs::PermissionsExt as _};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use nicstripe_proto::{
    discovery::{Nonce, Question, Response},
    invitation::Number,
};

use crate::trust::{Identity, is_by, sign};

/// Returns a key pair whose private key consists of `byte` only, for a test.
fn identity(byte: u8) -> Identity {
    let der = [
        &b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20"[..],
        &[byte; 32],
    ]
    .concat();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.as_file()
        .set_permissions(std::fs::Permissions::from_mode(0o600))
        .unwrap();
    write!(
        file,
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        STANDARD.encode(der)
    )
    .unwrap();
    Identity::load(file.path()).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn both_messages_are_signed_as_another_implementation_signs_them() {
    let (asker, daemon) = (identity(1), identity(2));
    let (asker_key, key) = (
        *asker.public_key().as_bytes(),
        *daemon.public_key().as_bytes(),
    );
    assert_eq!(
        hex(&asker_key),
        "8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c"
    );
    assert_eq!(
        hex(&key),
        "8139770ea87d175f56a35466c34c7ecccb8d8a91b4ee37a25df60f5b8fc9b394"
    );

    let question = Question {
        nonce: Nonce([0x11; 32]),
        key: asker_key,
        address: "fe80::1".parse().unwrap(),
        invitation: None,
    };
    let datagram = question.encode(|text| sign(&asker, text)).unwrap();
    let expected = "93c03bdfd293bbb1d2e67e340f2387b8da4b3bdc27f8ae7bfa42604012cae286\
                    a2983d1d30db78e4fd8cb9bce0df836d4b046afff56982cbe9c9e8530f1a0f00";
    assert_eq!(hex(&datagram[224..]), expected);
    assert_eq!(
        Question::decode(&datagram).unwrap().verified(is_by),
        Some(question)
    );

    let answer = Response {
        nonce: Nonce([0x11; 32]),
        key,
        address: "fe80::2".parse().unwrap(),
        port: 7747,
        index: 3,
        interface: b"eth1".to_vec(),
        host: b"nas".to_vec(),
        asker_key,
        asker_address: "fe80::1".parse().unwrap(),
        invitation: false,
    };
    let datagram = answer.encode(|text| sign(&daemon, text)).unwrap();
    let expected = "a6a95c70ab6397a22e0798d1802da1ce71da389fa6fb4419700d9bfd5c852997\
                    5bdfa38d242e66901f2625d16eb47198396219e84c794527a0c3331836474902";
    assert_eq!(hex(&datagram[224..]), expected);
    assert_eq!(
        Response::decode(&datagram).unwrap().verified(is_by),
        Some(answer)
    );
}

#[test]
fn datagrams_of_an_invitation_are_signed_as_another_implementation_signs_them() {
    let (asker, inviter) = (identity(1), identity(2));
    let question = Question {
        nonce: Nonce([0x11; 32]),
        key: *asker.public_key().as_bytes(),
        address: "fe80::1".parse().unwrap(),
        invitation: Number::new(7),
    };
    let datagram = question.encode(|text| sign(&asker, text)).unwrap();
    let expected = "1f41bd326db8134c5a1e4fb4cc495e99897cf7c788950dbfeed8695062ded515\
                    245cda035d54fbff172aa3ffcf9f14c1e3ffe8ce9e0bc180d37b679f145ba00f";
    assert_eq!(hex(&datagram[224..]), expected);
    let answer = Response {
        nonce: question.nonce,
        key: *inviter.public_key().as_bytes(),
        address: "fe80::2".parse().unwrap(),
        port: 7746,
        index: 3,
        interface: b"eth1".to_vec(),
        host: b"nas".to_vec(),
        asker_key: question.key,
        asker_address: question.address,
        invitation: true,
    };
    let datagram = answer.encode(|text| sign(&inviter, text)).unwrap();
    let expected = "737fbe12184cf5f3193171366cdf0780d2972d9abaa2314495c699c94f208421\
                    9c2f6dc6f7413776af658abad7282a6830528cf1865b2e334d3d22d6f03fe207";
    assert_eq!(hex(&datagram[224..]), expected);
}
