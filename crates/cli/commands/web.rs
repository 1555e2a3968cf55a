//! `links` and `bench` with a file at a web server.

use std::time::Duration;

use nicstripe::{BitRate, CancellationToken};
use nicstripe_web::{FetchOptions, MeasuredLink, Survey, SurveyedLink, WebUrl, measure};

use crate::{
    connect::arguments::LinkArgs,
    failure::{Failure, usage},
    output::{json::Object, stdout},
    process::signals::Signals,
    text::{
        known, link_text,
        quantity::{Size, Speed},
        shown,
        table::aligned,
    },
};

/// Returns the options of a fetch with the interfaces of the command line.
///
/// # Errors
///
/// An option has no meaning for a web server.
pub(super) fn options(links: &LinkArgs) -> Result<FetchOptions, Failure> {
    let port = links.port.map(|_| "-P");
    if let Some(option) = port.or_else(|| links.beyond_interfaces()) {
        return Err(refused(option));
    }
    Ok(over_interfaces(links))
}

pub(super) fn over_interfaces(links: &LinkArgs) -> FetchOptions {
    let mut options = FetchOptions::default();
    let names = links.link.iter().map(|link| link.local.to_string());
    options.links = names.collect();
    options.excluded = links.excluded().to_vec();
    options
}

pub(super) fn refused(option: &str) -> Failure {
    usage(format!("{option} cannot be used with a web server")).into()
}

pub(super) async fn survey(url: &WebUrl, links: &LinkArgs) -> Result<Survey, Failure> {
    let mut options = options(links)?;
    options.patience = Duration::from_secs(15);
    Ok(Survey::of(url, &options).await?)
}

pub(super) fn print_survey(url: &WebUrl, survey: &Survey) -> Result<(), Failure> {
    stdout::line(format_args!("{url}"))?;
    let heads = ["link", "address", "protocol", "speed", "answer", "state"];
    let row = |link: &SurveyedLink| {
        let answer = link
            .answered_after
            .map(|time| format!("{} ms", time.as_millis()));
        [
            shown(&link.interface),
            known(link.remote),
            known(link.protocol.as_ref()),
            known(link.line_rate.map(Speed)),
            known(answer),
            link.why
                .as_ref()
                .map_or_else(|| "answers".to_owned(), shown),
        ]
    };
    let unused = |(name, why): &(String, String)| format!("  {}: {}", shown(name), shown(why));
    let title = (!survey.unused.is_empty()).then(|| "not used:".to_owned());
    let remedies = survey.links.iter().filter_map(|link| link.remedy.as_ref());
    aligned(heads, survey.links.iter().map(row))
        .into_iter()
        .chain(title)
        .chain(survey.unused.iter().map(unused))
        .chain(remedies.map(|remedy| format!("  remedy {}", shown(remedy))))
        .try_for_each(stdout::line)?;
    let size = survey
        .size
        .map_or_else(|| "unknown size".to_owned(), |size| Size(size).to_string());
    let usable = usable(survey);
    let how = match (usable, survey.has_parts) {
        (0, _) => "cannot be fetched",
        (_, true) => "in parts over all links",
        (_, false) => "by one request over one link: the server has no ranges, or names no version",
    };
    stdout::line(format_args!(
        "{}, {size}, {how}",
        link_text::counted(usable)
    ))
}

fn usable(survey: &Survey) -> usize {
    survey
        .links
        .iter()
        .filter(|link| link.why.is_none())
        .count()
}

pub(super) fn document(url: &WebUrl, survey: &Survey) -> Object {
    let link = |link: &SurveyedLink| {
        Object::default()
            .with("interface", &link.interface)
            .with("remote", link.remote)
            .with("protocol", &link.protocol)
            .with(
                "answered_after_s",
                link.answered_after.map(|time| time.as_secs_f64()),
            )
            .with("line_rate_bps", link.line_rate.map(|rate| rate.0))
            .with("why", &link.why)
            .with("remedy", &link.remedy)
    };
    let unused = |(name, why): &(String, String)| {
        Object::default()
            .with("side", "here")
            .with("interface", name)
            .with("why", why)
            .with("failed", false)
    };
    Object::default()
        .with("url", url.to_string())
        .with("size_bytes", survey.size)
        .with("has_parts", survey.has_parts)
        .list("web_links", &survey.links, link)
        .list("unused", &survey.unused, unused)
}

/// Measures what each interface carries from the server, alone and together.
pub(super) async fn bench(
    url: &WebUrl,
    options: &FetchOptions,
    time: Duration,
) -> Result<Vec<MeasuredLink>, Failure> {
    let mut signals = Signals::take()?;
    let stop = CancellationToken::new();
    let measuring = async { Ok(measure(url, options, time, &stop).await?) };
    signals.unless_stopped(measuring).await
}

pub(super) fn print_bench(url: &WebUrl, measured: &[MeasuredLink]) -> Result<(), Failure> {
    stdout::line(format_args!("{url}"))?;
    let row = |link: &MeasuredLink| {
        [
            shown(&link.interface),
            known(link.alone.map(Speed)),
            known(link.together.map(Speed)),
        ]
    };
    let total = |rate: fn(&MeasuredLink) -> Option<BitRate>| {
        BitRate(measured.iter().filter_map(rate).map(|rate| rate.0).sum())
    };
    let (alone, together) = (total(|link| link.alone), total(|link| link.together));
    let sums = [
        "total".to_owned(),
        Speed(alone).to_string(),
        Speed(together).to_string(),
    ];
    let rows = measured.iter().map(row).chain([sums]);
    aligned(["link", "alone", "together"], rows)
        .into_iter()
        .try_for_each(stdout::line)?;
    let share = together.0 as f64 * 100.0 / alone.0.max(1) as f64;
    stdout::line(format_args!(
        "together {share:.1} % of the sum of what each carries alone"
    ))
}

pub(super) fn bench_document(url: &WebUrl, measured: &[MeasuredLink]) -> Object {
    let link = |link: &MeasuredLink| {
        Object::default()
            .with("interface", &link.interface)
            .with("alone_bps", link.alone.map(|rate| rate.0))
            .with("together_bps", link.together.map(|rate| rate.0))
    };
    Object::default()
        .with("url", url.to_string())
        .list("links", measured, link)
}

pub(super) const BENCH_SCHEMA: &str = "nicstripe-web-bench/1";
