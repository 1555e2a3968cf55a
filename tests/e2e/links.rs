//! Tests of `nicstripe links` without a host, and with unknown interfaces.

use nicstripe_testkit::{Side, text};

#[test]
fn the_loopback_is_listed_and_is_no_link() {
    let outcome = Side::here().run(["links", "--json"]).expect(0);
    let document = outcome.document_of("links");
    let interfaces = document["interfaces"].as_array().unwrap();
    let lo = interfaces
        .iter()
        .find(|interface| text(interface, "interface") == "lo")
        .unwrap();
    assert_eq!(
        (&lo["is_link"], text(lo, "why")),
        (&false.into(), "loopback"),
        "{document:#}"
    );
}

#[test]
fn an_interface_to_leave_out_that_is_not_here_is_an_error_with_the_choices() {
    let client = Side::here();
    client.write("source", b"bytes");
    // No process listens on that port. A connection attempt would cause another error.
    for command in [
        &["links", "127.0.0.1"][..],
        &["links"],
        &["cp", "source", "127.0.0.1:"],
    ] {
        let excluding = |name| {
            client.run(
                [
                    command,
                    &["-P", "1", "--exclude-link", "lo", "--exclude-link", name],
                ]
                .concat(),
            )
        };
        excluding("nosuch0")
            .expect(2)
            .error(&["\"nosuch0\"", "cannot exclude", "lo"]);
    }
    client
        .run([
            "cp",
            "-P",
            "1",
            "--json",
            "--exclude-link",
            "nosuch0",
            "source",
            "127.0.0.1:",
        ])
        .expect(2)
        .document();
    client.run(["links", "--exclude-link", "lo"]).expect(0);
}

#[test]
fn a_host_that_nobody_serves_is_an_error() {
    let outcome = Side::here()
        .run(["links", "--port", "1", "127.0.0.1"])
        .expect(10);
    outcome.error(&["cannot connect to 127.0.0.1:1"]);
    let words = ["links", "--json", "--port", "1", "127.0.0.1"];
    let document = Side::here().run(words).expect(10).document_of("links");
    assert_eq!(
        (&document["ok"], &document["exit_code"]),
        (&false.into(), &10.into())
    );
    assert!(text(&document, "error").contains("cannot connect to 127.0.0.1:1"));
    assert!(text(&document, "hint").contains("nicstripe serve"));
    let words = ["links", "--json", "--exclude-link", "nosuch0"];
    let document = Side::here().run(words).expect(2).document_of("links");
    assert!(text(&document, "error").contains("nosuch0"), "{document:#}");
}
