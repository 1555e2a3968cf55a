//! Tests of receipts.

use std::fs;

use nicstripe_testkit::{
    Outcome, content,
    pair::{MIB, Pair},
};
use serde_json::Value;

fn verify(pair: &Pair, words: &[&str]) -> Outcome {
    let mut words = pair.cp_arguments(words);
    "verify".clone_into(&mut words[0]);
    pair.client.run(words)
}

#[test]
fn a_receipt_tells_of_a_copy_at_either_end_which_bytes_are_wrong() {
    let pair = Pair::new();
    let bytes = content(3 * MIB + 9);
    fs::write(pair.client.path("img"), &bytes).unwrap();
    pair.cp(&["--receipt", "r.json", "img", "127.0.0.1:copy"])
        .expect(0);
    let receipt: Value =
        serde_json::from_slice(&fs::read(pair.client.path("r.json")).unwrap()).unwrap();
    assert_eq!(receipt["name"], "copy");
    assert_eq!(receipt["blake3"], blake3::hash(&bytes).to_string());
    assert_eq!(receipt["pieces"].as_array().unwrap().len(), 4);
    let carried = receipt["copy"]["links"].as_array().unwrap().iter();
    let carried: u64 = carried.map(|link| link["bytes"].as_u64().unwrap()).sum();
    assert_eq!(carried, bytes.len() as u64);

    let right = verify(&pair, &["r.json", "img"]).expect(0);
    right.says(&["img is what nas read at", "3.0 MiB"]);
    verify(&pair, &["r.json", "127.0.0.1:copy"]).expect(0);
    let mut wrong = bytes.clone();
    wrong[MIB + 5] ^= 1;
    wrong.pop();
    for (path, name) in [
        (pair.server.path("copy"), "127.0.0.1:copy"),
        (pair.client.path("img"), "img"),
    ] {
        fs::write(path, &wrong).unwrap();
        let found = verify(&pair, &["--json", "r.json", name]).expect(40);
        let document: Value = serde_json::from_str(&found.stdout).unwrap();
        let expected = serde_json::json!([[MIB, 2 * MIB], [3 * MIB, 3 * MIB + 9]]);
        assert_eq!(document["wrong"], expected);
        found.error(&[
            "differs from its receipt: it has 3145736 bytes, expected 3145737",
            "wrong: bytes 1048576 to 2097152, 3145728 to 3145737",
        ]);
    }
}

#[test]
fn a_receipt_of_a_copy_to_here_is_signed_here() {
    let pair = Pair::new();
    fs::write(pair.server.path("img"), content(MIB)).unwrap();
    pair.cp(&["--receipt", "r.json", "127.0.0.1:img", "."])
        .expect(0);
    let right = verify(&pair, &["r.json", "img"]).expect(0);
    right.says(&["img is what this machine read at"]);
}

#[test]
fn a_receipt_that_was_altered_or_is_by_a_stranger_is_refused() {
    let pair = Pair::new();
    fs::write(pair.client.path("img"), "content").unwrap();
    pair.cp(&["--receipt", "r.json", "img", "127.0.0.1:"])
        .expect(0);
    let text = fs::read_to_string(pair.client.path("r.json")).unwrap();
    let altered = text.replace("\"source\":\"img\"", "\"source\":\"other\"");
    assert_ne!(altered, text);
    fs::write(pair.client.path("altered.json"), altered).unwrap();
    let refused = verify(&pair, &["altered.json", "img"]).expect(40);
    refused.error(&["altered.json was altered"]);
    let extra = text.replacen('{', "{\"approved\":true,", 1);
    fs::write(pair.client.path("extra.json"), extra).unwrap();
    let refused = verify(&pair, &["extra.json", "img"]).expect(11);
    refused.error(&["extra.json is no receipt that can be used", "approved"]);

    // At a machine that trusts neither.
    let stranger = nicstripe_testkit::Side::here();
    for file in ["r.json", "img"] {
        fs::copy(pair.client.path(file), stranger.path(file)).unwrap();
    }
    let refused = stranger.run(["verify", "r.json", "img"]).expect(5);
    let refused = refused.error(&["the receiver's key is not trusted here"]);
    refused.hint(&["--signer"]);
    let receipt: Value = serde_json::from_str(&text).unwrap();
    let of = |field: &str| receipt[field].as_str().unwrap().to_owned();
    let (receiver, sender) = (of("receiver"), of("sender"));
    let with = |key: &str| stranger.run(["verify", "--signer", key, "r.json", "img"]);
    with(&receiver).expect(0);
    with(&sender).expect(5);
}

#[test]
fn there_is_no_receipt_of_a_tree_and_none_where_it_cannot_be_written() {
    let pair = Pair::new();
    fs::write(pair.client.path("img"), "content").unwrap();
    for (words, code, said) in [
        (
            &["-r", "--receipt", "r.json", ".", "127.0.0.1:all"][..],
            2,
            "a receipt is of one file",
        ),
        (
            &["--receipt", "no/r.json", "img", "127.0.0.1:"],
            11,
            "no/r.json",
        ),
        (&["--receipt", ".", "img", "127.0.0.1:"], 11, "directory"),
    ] {
        pair.cp(words).expect(code).error(&[said]);
    }
    assert!(!pair.server.path("img").exists());
    let refused = verify(&pair, &["--signer", "nicstripe-ed25519 x", "img", "img"]);
    refused.expect(2);
}
