//! Rates from a web server.

use nicstripe_web::WebUrl;

use super::arguments::Measure;
use crate::{
    commands::web::{BENCH_SCHEMA, bench, bench_document, options, print_bench, refused},
    failure::Failure,
    output::{
        json::{Object, hinted_outcome, print_document},
        logging, stdout,
        terminal::Terminal,
    },
    process::runtime,
    text::quantity::Speed,
};

pub(super) fn run(measure: &Measure, url: &WebUrl, terminal: &Terminal) -> Result<(), Failure> {
    let measured = measured(measure, url, terminal);
    if measure.json {
        let document = Object::default()
            .with("schema", BENCH_SCHEMA)
            .and(hinted_outcome(measured.as_ref().err()))
            .and(measured.as_ref().map_or_else(
                |_| Object::default(),
                |measured| bench_document(url, measured),
            ));
        return print_document(&document).and(measured.map(drop));
    }
    let measured = measured?;
    if measure.quiet {
        let together = measured.iter().filter_map(|link| link.together);
        let total = nicstripe::BitRate(together.map(|rate| rate.0).sum());
        return stdout::line(Speed(total));
    }
    print_bench(url, &measured)
}

fn measured(
    measure: &Measure,
    url: &WebUrl,
    terminal: &Terminal,
) -> Result<Vec<nicstripe_web::MeasuredLink>, Failure> {
    logging::start(terminal)?;
    measure.links.check()?;
    if let Some(option) = measure.first_option_without_web() {
        return Err(refused(option));
    }
    let mut options = options(&measure.links)?;
    options.streams = measure.streams.map(usize::from);
    runtime::run(bench(url, &options, measure.load))
}
