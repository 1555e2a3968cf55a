//! Tests of whole HTML pages.

use std::{fs, path::PathBuf};

use super::*;
use crate::commands::bench::{table::lines, tests::samples};

#[test]
fn a_page_needs_nothing_but_itself() {
    for (name, report) in samples::all() {
        let page = page(&report);
        for needs in [
            "<script",
            "http://",
            "https://",
            "src=",
            "url(",
            "@import",
            "<link",
            "<iframe",
            "javascript:",
        ] {
            assert!(!page.contains(needs), "{name}: {needs}");
        }
        assert!(page.contains("default-src 'none'"));
    }
}

#[test]
fn tags_are_balanced_and_no_number_is_missing() {
    for (name, report) in samples::all() {
        let page = page(&report);
        balanced(&page).unwrap_or_else(|problem| panic!("{name}: {problem}"));
        assert!(!page.contains("NaN") && !page.contains("=\"inf"), "{name}");
    }
}

#[test]
fn the_sentence_comes_first_and_every_link_is_named() {
    for (name, report) in samples::all() {
        let page = page(&report);
        let sentence = escape(&capital(&report.summary.sentence));
        assert!(page.contains(&sentence), "{name}");
        for link in &report.links {
            assert!(
                page.contains(&escape(&link.ends.client.name)),
                "{name}: {}",
                link.ends.client.name
            );
        }
    }
}

#[test]
fn all_parts_are_there_that_were_measured_and_no_others() {
    let parts = |report: &BenchReport| {
        let page = page(report);
        let titles: Vec<String> = page
            .split("<h2>")
            .skip(1)
            .filter_map(|rest| rest.split("</h2>").next())
            .map(str::to_owned)
            .collect();
        titles.join("|")
    };
    let links = "Each link alone and together|Round trips, idle and loaded|Over time";
    let swept = "By message sizes, on eth1 → enp2s0|By socket buffers, on eth1 → enp2s0|By connections per link|\
                 By buffers × connections, on eth1 → enp2s0|By packet sizes";
    let cpu = "Processor time per gigabit";
    assert_eq!(
        parts(&samples::good()),
        format!("{links}|{cpu}|Both machines|Raw")
    );
    assert_eq!(
        parts(&samples::shared()),
        format!("{links}|{cpu}|Findings and remedies|Both machines|Raw")
    );
    assert_eq!(
        parts(&samples::swept()),
        format!("{links}|{swept}|{cpu}|Both machines|Raw")
    );
    assert_eq!(
        parts(&samples::with_disk()),
        format!("{links}|{cpu}|Disk to disk|Findings and remedies|Both machines|Raw")
    );
    assert_eq!(
        parts(&samples::partial()),
        "Each link alone and together|Over time|Both machines|Raw"
    );
    assert_eq!(parts(&samples::empty()), "Both machines|Raw");
}

#[test]
fn repeats_are_counted_in_words_and_processor_time_is_said_to_be_the_machines() {
    for (repeats, expected) in [
        ([1, 1], "once"),
        ([6, 6], "6 times"),
        ([6, 12], "6 to 12 times"),
    ] {
        let mut report = samples::good();
        report.plan.repeats = repeats;
        let page = page(&report);
        assert!(
            page.contains(&format!("Each load {expected} for up to ")),
            "{repeats:?}"
        );
        assert!(page.contains("including other load of the machine"));
    }
}

/// As seen in a browser: a text is 13 units high, and what is outside of the drawing is cut off.
#[test]
fn each_text_of_a_chart_has_its_room() {
    for (name, report) in samples::all() {
        let reading = Reading::of(&report);
        let drawn = links::rates(reading).unwrap_or_default();
        for text in drawn.split("<text class=\"soft\" x=\"0.0\"").skip(1) {
            let (_, text) = text.split_once('>').unwrap();
            let (text, _) = text.split_once('<').unwrap();
            assert!(svg::text_width(text) <= links::LABEL, "{name}: {text}");
        }
        for run in &report.runs {
            for way in [Direction::ToDaemon, Direction::ToClient] {
                let drawn = timeline::draw(reading, run, way).unwrap_or_default();
                for text in drawn.split("<text ").skip(1) {
                    let (_, y) = text.split_once("y=\"").unwrap();
                    let y: f64 = y.split('"').next().unwrap().parse().unwrap();
                    assert!(y >= 15.0, "{name}: {text}");
                }
            }
        }
    }
}

#[test]
fn no_two_charts_over_time_have_the_same_title() {
    for (name, report) in samples::all() {
        let figures = over_time(Reading::of(&report)).unwrap_or_default().figures;
        let titles: Vec<String> = figures.into_iter().map(|(_, title)| title).collect();
        let distinct: std::collections::BTreeSet<_> = titles.iter().collect();
        assert_eq!(distinct.len(), titles.len(), "{name}: {titles:?}");
    }
}

#[test]
fn one_sample_far_above_theory_does_not_set_the_scale() {
    for times in [1, 5] {
        let mut report = samples::good();
        for interval in report
            .runs
            .iter_mut()
            .filter_map(|run| run.intervals.last_mut())
        {
            interval.bytes.iter_mut().for_each(|bytes| *bytes *= times);
        }
        let reading = Reading::of(&report);
        let run = reading
            .main_phase()
            .and_then(|phase| reading.typical_run(phase))
            .unwrap();
        let drawn = timeline::draw(reading, run, Direction::ToDaemon).unwrap();
        let (_, line) = drawn.split_once(r#"<line class="dash""#).unwrap();
        let y: f64 = line.split('"').nth(3).unwrap().parse().unwrap();
        // From 238 at the bottom to 26 at the top: the theoretical rate is at 1 / (1.2 × 1.04) of
        // that or above.
        assert!(y <= 238.0 - 212.0 / 1.248 + 0.1, "{times}: {y}");
    }
}

#[test]
fn the_document_can_be_taken_out_of_the_page() {
    let report = samples::swept();
    let page = page(&report);
    let json = page
        .split("<pre>")
        .nth(1)
        .and_then(|rest| rest.split("</pre>").next())
        .unwrap();
    let json = [
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&#60;", "<"),
        ("&#62;", ">"),
        ("&#38;", "&"),
    ]
    .iter()
    .fold(json.to_owned(), |json, (entity, sign)| {
        json.replace(entity, sign)
    });
    assert_eq!(serde_json::from_str::<BenchReport>(&json).unwrap(), report);
}

#[test]
fn names_of_the_peer_are_text() {
    let mut report = samples::shared();
    report.hosts.daemon.name = Some("<script>alert(1)</script>".into());
    report.links[0].ends.daemon.name = "\"><img src=x>".into();
    report.links[1].addresses.daemon = "</table>".into();
    report.summary.sentence = "<b>bold</b> & 'quoted'".into();
    report.versions.daemon = "</style>".into();
    let page = page(&report);
    balanced(&page).unwrap();
    assert!(!page.contains("<script") && !page.contains("<img") && !page.contains("<b>bold"));
}

#[test]
fn numbers_that_make_no_sense_are_drawn_without_a_panic() {
    let mut report = samples::swept();
    for run in &mut report.runs {
        run.intervals.iter_mut().for_each(|interval| {
            (interval.dt_us, interval.bytes) = (interval.t_us % 2, vec![u64::MAX / 4; 1]);
        });
        run.window_us = 0;
    }
    for point in report.sweeps.iter_mut().flat_map(|sweep| &mut sweep.points) {
        (point.size, point.rate.median_bps, point.rate.max_bps) = (Some(0), u64::MAX / 8, 0);
    }
    report.links[0].theory_bps = Some(0);
    report.links[1].id = 77;
    report.summary.theory_bps = Some(0);
    page(&report);
}

/// Writes the HTML pages, and the tables of a narrow and a wide terminal, to a directory for
/// viewing.
#[test]
#[ignore = "for people: NICSTRIPE_BENCH_PAGES=DIR cargo test pages_can -- --ignored"]
fn pages_can_be_looked_at() {
    let folder = std::env::var_os("NICSTRIPE_BENCH_PAGES")
        .map(PathBuf::from)
        .expect("NICSTRIPE_BENCH_PAGES names a folder");
    for (name, report) in samples::all() {
        fs::write(folder.join(format!("{name}.html")), page(&report)).unwrap();
        let lines = |columns| {
            lines(&report, columns)
                .into_iter()
                .map(|line| line.text + "\n")
                .collect::<String>()
        };
        fs::write(
            folder.join(format!("{name}.txt")),
            lines(Some(100)) + "\n" + &lines(None),
        )
        .unwrap();
    }
}

/// Returns an error if an HTML element is not closed, or closed in the wrong order.
fn balanced(page: &str) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    for part in page.split('<').skip(1) {
        let tag = part.split('>').next().unwrap_or_default();
        let name = tag
            .split([' ', '/'])
            .find(|word| !word.is_empty())
            .unwrap_or_default();
        match tag {
            _ if tag.starts_with('!') || name == "meta" || tag.ends_with('/') => {}
            _ if tag.starts_with('/') => match open.pop() {
                Some(last) if last == name => {}
                last => return Err(format!("</{name}> closes {last:?}")),
            },
            _ => open.push(name),
        }
    }
    if open.is_empty() {
        Ok(())
    } else {
        Err(format!("{open:?} are not closed"))
    }
}
