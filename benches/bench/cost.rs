//! CPU time per gigabit, on cables without a rate limit.

use nicstripe_lab::{Host, LinkSpec};
use nicstripe_testkit::bench::{Place, Result, Spread};

use crate::{Settings, burden::Burden, findings::Findings, rates::bench, rig::Rig};

/// Compares the CPU time per gigabit of nicstripe, which encrypts, and iperf3, which does not. Runs
/// the two programs alternately.
pub(crate) fn unshaped(settings: &Settings, place: &Place, findings: &mut Findings) -> Result<()> {
    let burden = Burden::of([LinkSpec::unshaped()]);
    let mut rounds = Vec::new();
    for _ in 0..settings.runs {
        let rig = Rig::build(&burden, settings, place)?;
        rounds.push((bench(&rig, findings, &[])?, rig.iperf3(Host::A)?));
    }
    let ours = Spread::of(&rounds, |(bench, _)| bench.cpu_per_gbit());
    findings.note(
        "unshaped, nicstripe, CPU s per Gbit of both ends",
        ours.print(4),
    );
    findings.note(
        "unshaped, iperf3, CPU s per Gbit of both ends",
        Spread::of(&rounds, |(_, load)| load.cpu_per_gbit()).print(4),
    );
    let told = Spread::of(&rounds, |(bench, _)| {
        let told = &bench.report.summary.cpu_s_per_gbit;
        told.client
            .zip(told.daemon)
            .map_or(f64::NAN, |(client, daemon)| client + daemon)
    });
    findings.note("unshaped, from the report", told.print(4));
    let ratio = Spread::of(&rounds, |(bench, load)| {
        bench.cpu_per_gbit() / load.cpu_per_gbit()
    });
    findings.value(
        "unshaped, times the CPU time of iperf3",
        &ratio,
        2,
        "≤ 2",
        |ratio| ratio <= 2.0,
    );
    findings.note(
        "unshaped, nicstripe, Gbit/s",
        Spread::of(&rounds, |(bench, _)| bench.together() / 1e9).print(2),
    );
    findings.note(
        "unshaped, iperf3, Gbit/s",
        Spread::of(&rounds, |(_, load)| load.total() / 1e9).print(2),
    );
    Ok(())
}
