//! `links` without a host.

use crate::harness::{Side, text};

#[test]
fn the_loopback_is_listed_and_is_no_link() {
    let outcome = Side::here().run(["links", "--json"]).expect(0);
    let document = outcome.document_of("links");
    let interfaces = document["interfaces"].as_array().unwrap();
    let lo = interfaces.iter().find(|interface| text(interface, "interface") == "lo").unwrap();
    assert_eq!((&lo["is_link"], text(lo, "why")), (&false.into(), "loopback"), "{document:#}");
}

#[test]
fn a_host_that_nobody_serves_is_an_error() {
    let outcome = Side::here().run(["links", "--port", "1", "127.0.0.1"]).expect(10);
    outcome.error(&["cannot connect to 127.0.0.1:1"]);
}
