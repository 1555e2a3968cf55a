//! Tests of the metrics of `serve`: format, values, and access.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use nicstripe_testkit::{
    Process, Side, content,
    pair::{MIB, Pair},
};

/// Starts a client and a daemon with a Prometheus endpoint. Returns both, and the endpoint's
/// address.
fn pair() -> (Pair, String) {
    let pair = Pair::serving(&["--metrics", "127.0.0.1:0"], "");
    let line = pair.daemon.process.await_stderr("metrics at http://");
    let address = line
        .split("http://")
        .nth(1)
        .unwrap()
        .strip_suffix("/metrics")
        .unwrap()
        .to_owned();
    (pair, address)
}

/// Sends an HTTP request to the endpoint. Returns the complete response.
fn ask(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    // A connection that the daemon closes early counts as an empty response.
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn get(address: &str) -> Page {
    let answer = ask(
        address,
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n",
    );
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("{answer:?}"));
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(
        head.contains("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{head}"
    );
    assert!(
        head.contains(&format!("Content-Length: {}", body.len())),
        "{head}"
    );
    Page::parse(body)
}

/// Polls the metrics for up to 30 s until `is_it` returns true. The daemon updates the values of a
/// session once a second.
#[track_caller]
fn await_page(address: &str, is_it: impl Fn(&Page) -> bool) -> Page {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let page = get(address);
        if is_it(&page) {
            return page;
        }
        assert!(Instant::now() < deadline, "{page:#?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Samples of an OpenMetrics page. The parser validates the page like promtool and the
/// specification.
#[derive(Debug)]
struct Page {
    samples: BTreeMap<String, f64>,
}

impl Page {
    #[track_caller]
    fn parse(text: &str) -> Self {
        assert!(
            text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1,
            "{text}"
        );
        let (mut types, mut helped, mut samples) =
            (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        for line in text.lines().filter(|line| *line != "# EOF") {
            match line
                .split_once("# TYPE ")
                .or_else(|| line.split_once("# HELP "))
                .or_else(|| line.split_once("# UNIT "))
            {
                Some(("", rest)) => {
                    let (family, what) = rest.split_once(' ').unwrap();
                    match &line[2..6] {
                        "TYPE" => assert!(
                            types.insert(family.to_owned(), what.to_owned()).is_none(),
                            "two types of {family}"
                        ),
                        "HELP" => {
                            assert!(helped.insert(family.to_owned()) && what.len() > 5, "{line}");
                        }
                        _ => assert!(family.ends_with(&format!("_{what}")), "{line}"),
                    }
                }
                _ => {
                    let (series, value) =
                        line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
                    check_series(series, &types);
                    let value: f64 = value
                        .parse()
                        .unwrap_or_else(|error| panic!("{line:?}: {error}"));
                    assert!(
                        samples.insert(series.to_owned(), value).is_none(),
                        "twice: {series}"
                    );
                }
            }
        }
        assert_eq!(types.keys().cloned().collect::<BTreeSet<_>>(), helped);
        Self { samples }
    }

    /// Returns the value of a time series; 0 if it is absent.
    fn value(&self, series: &str) -> f64 {
        self.samples.get(series).copied().unwrap_or(0.0)
    }

    /// Returns the sum of all time series whose names begin with `begins`.
    fn sum(&self, begins: &str) -> f64 {
        self.samples
            .iter()
            .filter(|(series, _)| series.starts_with(begins))
            .map(|(_, value)| value)
            .sum()
    }
}

/// Panics unless a time series belongs to a declared metric family, has a suffix of the family's
/// type, and has well-formed labels.
#[track_caller]
fn check_series(series: &str, types: &BTreeMap<String, String>) {
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    assert!(
        name.starts_with("nicstripe_") || name.starts_with("process_"),
        "{series}"
    );
    assert!(
        name.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
        "{series}"
    );
    let is_of = |family: &str, kind: &str| match kind {
        "counter" => name.strip_prefix(family) == Some("_total"),
        "gauge" => name == family,
        "histogram" => matches!(
            name.strip_prefix(family),
            Some("_bucket" | "_sum" | "_count")
        ),
        "info" => name.strip_prefix(family) == Some("_info"),
        _ => false,
    };
    assert!(
        types.iter().any(|(family, kind)| is_of(family, kind)),
        "{series} belongs to nothing in {types:?}"
    );
    let labels = labels
        .strip_suffix('}')
        .unwrap_or_else(|| panic!("{series}"));
    for label in labels.split(',').filter(|label| !label.is_empty()) {
        let (key, value) = label.split_once('=').unwrap_or_else(|| panic!("{series}"));
        assert!(
            key.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
            "{series}"
        );
        assert!(
            value.len() > 2 && value.starts_with('"') && value.ends_with('"'),
            "{series}"
        );
    }
}

#[test]
fn a_copy_shows_in_the_metrics_and_nothing_that_a_peer_words() {
    let (pair, address) = pair();
    let before = get(&address);
    assert_eq!(before.value("nicstripe_sessions"), 0.0);
    assert_eq!(before.sum("nicstripe_payload_bytes_total"), 0.0);
    pair.client.write("secret-name", content(8 * MIB));
    pair.cp(&["secret-name", "127.0.0.1:"]).expect(0);
    pair.cp(&["127.0.0.1:secret-name", "copy"]).expect(0);
    pair.client.write("secret-name", content(MIB));
    // A target that appears after the copy has looked for it is in the daemon's count as well.
    Process::spawn_fed(
        pair.cp_command(&["--no-replace", "-", "127.0.0.1:secret-name"]),
        vec![0],
    )
    .finish()
    .expect(11);
    let ended = |page: &Page| {
        page.sum("nicstripe_transfers_total") == 3.0 && page.value("nicstripe_sessions") == 0.0
    };
    let page = await_page(&address, ended);
    for labels in [
        r#"direction="receive",result="done""#,
        r#"direction="send",result="done""#,
        r#"direction="receive",result="exists""#,
    ] {
        let series = format!("nicstripe_transfers_total{{{labels}}}");
        assert_eq!(page.value(&series), 1.0, "{labels}");
    }
    assert_eq!(page.value("nicstripe_sessions_begun_total"), 3.0);
    for direction in ["receive", "send"] {
        let bytes = page.value(&format!(
            "nicstripe_payload_bytes_total{{interface=\"lo\",direction=\"{direction}\"}}"
        ));
        // A chunk may have been sent twice because a link was slow.
        assert!(
            (8.0..=16.0).contains(&(bytes / MIB as f64)),
            "{direction} {bytes}"
        );
    }
    assert_eq!(
        page.value("nicstripe_digest_mismatches_total")
            + page.value("nicstripe_corrupt_chunks_total"),
        0.0
    );
    assert_eq!(page.sum("nicstripe_paths{"), 0.0);
    assert_eq!(page.value("nicstripe_buffers_held_bytes"), 0.0);
    assert!(page.value("process_start_time_seconds") > 1.7e9);
    assert!(
        page.value("process_resident_memory_bytes") > 1e6 && page.value("process_open_fds") > 4.0
    );
    let text = format!("{page:?}");
    let is_worded = text.contains("secret") || text.contains("laptop");
    assert!(!is_worded, "{text}");
}

#[test]
fn who_is_turned_away_is_counted_by_reason() {
    let (pair, address) = pair();
    let connect = || TcpStream::connect(("127.0.1.2", pair.daemon.port)).unwrap();
    let _idle = connect();
    await_page(&address, |page| page.value("nicstripe_greetings") == 1.0);
    connect().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    await_page(&address, |page| {
        page.value("nicstripe_greetings_refused_total{reason=\"not_tls\"}") == 1.0
    });
    let stranger = Side::here();
    stranger.trust(&pair.server, "nas", "");
    stranger.write("file", b"bytes");
    let port = pair.daemon.port.to_string();
    stranger
        .run(["cp", "-P", &port, "file", "127.0.0.1:"])
        .expect(5);
    await_page(&address, |page| {
        page.value("nicstripe_greetings_refused_total{reason=\"untrusted_key\"}") >= 1.0
    });
    // The daemon closes the idle connection after 5 s.
    await_page(&address, |page| {
        page.value("nicstripe_greetings_refused_total{reason=\"timed_out\"}") == 1.0
    });
    assert_eq!(get(&address).value("nicstripe_sessions_begun_total"), 0.0);
}

#[test]
fn without_the_option_nobody_listens_for_questions() {
    let side = Side::here();
    side.run(["serve", "--port", "0", "--metrics", "0.0.0.0:0"])
        .expect(2)
        .error(&["metrics", "metrics-any"]);
    let pair = Pair::new();
    pair.daemon.process.signal(rustix::process::Signal::TERM);
    let outcome = pair.daemon.process.finish().expect(143);
    assert!(!outcome.stderr.contains("metrics"), "{outcome}");
}

#[test]
fn whatever_is_asked_the_answer_is_short_and_the_daemon_goes_on() {
    let (pair, address) = pair();
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\n", "405"),
        ("GET /metrics HTTP/3\r\n\r\n", "400"),
        ("\u{16}\u{3}\u{1}\r\n\r\n", "400"),
    ] {
        let answer = ask(&address, request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request:?}: {answer}"
        );
    }
    let head = ask(&address, "HEAD /metrics HTTP/1.0\r\n\r\n");
    assert!(
        head.starts_with("HTTP/1.1 200 OK") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    // Unterminated requests: the daemon rejects a long one and cuts off a short one.
    let long = ask(
        &address,
        &format!("GET /metrics HTTP/1.1\r\n{}", "x: y\r\n".repeat(2000)),
    );
    assert!(
        long.is_empty() || long.starts_with("HTTP/1.1 400"),
        "{long}"
    );
    let begun = Instant::now();
    assert_eq!(ask(&address, "GET /metrics HTTP/1.1\r\n"), "");
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );
    // Idle connections delay others only briefly.
    let _idle: Vec<TcpStream> = (0..8)
        .map(|_| TcpStream::connect(&address).unwrap())
        .collect();
    get(&address);
    pair.client.write("file", b"bytes");
    pair.cp(&["file", "127.0.0.1:"]).expect(0);
}
