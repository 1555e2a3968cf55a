//! Rates of `nicstripe bench`, compared with iperf3 on the same cables and with theory.

use nicstripe::bench::{BenchReport, Limiter, SweepKind, SweepPoint};
use nicstripe_lab::{BitRate, Host, LinkSpec};
use nicstripe_testkit::bench::{Place, Result, Spread};

use crate::{
    Settings,
    burden::Burden,
    findings::Findings,
    iperf::Load,
    rig::{Benched, Rig},
};

/// Measures the total rate of equal gigabit cables in both directions, for each number of cables in
/// `--links`.
pub(crate) fn equal(settings: &Settings, place: &Place, findings: &mut Findings) -> Result<()> {
    for count in &settings.links {
        let burden = Burden::of(vec![LinkSpec::gigabit(); usize::from(*count)]);
        let rig = Rig::build(&burden, settings, place)?;
        let rounds = rounds(&rig, settings, findings, &[])?;
        for (way, of_ours, of_iperf3) in ways() {
            let compared = Compared {
                what: format!("{count} × 1 Gbit/s, {way}"),
                theory: theory(&burden),
            };
            compared.add(findings, &rounds, of_ours, of_iperf3);
        }
    }
    Ok(())
}

/// Measures two gigabit cables behind a shared bus of 1.2 Gbit/s.
pub(crate) fn shared(settings: &Settings, place: &Place, findings: &mut Findings) -> Result<()> {
    let burden = Burden {
        bus: Some(BUS),
        ..Burden::of([LinkSpec::gigabit(); 2])
    };
    let mut benches = Vec::new();
    let mut loads = Vec::new();
    for _ in 0..settings.runs {
        let rig = Rig::build(&burden, settings, place)?;
        benches.push(bench(&rig, findings, &[])?);
        let alone = [
            rig.iperf3_on(&[0], Host::A)?.total(),
            rig.iperf3_on(&[1], Host::A)?.total(),
        ];
        loads.push((alone, rig.iperf3(Host::A)?.total()));
    }
    let of_one = theory(&burden) / 2.0;
    for link in [0, 1] {
        let what = |program| format!("shared, eth{} alone, {program}, % of theory", link + 1);
        let ours = Spread::of(&benches, |bench| 100.0 * bench.alone(link) / of_one);
        findings.value(&what("nicstripe"), &ours, 2, "≥ 99", |share| {
            share >= 99.0
        });
        findings.value(
            &what("iperf3"),
            &Spread::of(&loads, |(alone, _)| 100.0 * alone[link] / of_one),
            2,
            "",
            |_| true,
        );
    }
    let ours = Spread::of(&benches, |bench| {
        bench.report.summary.scaling.unwrap_or(f64::NAN)
    });
    findings.value(
        "shared, scaling, nicstripe",
        &ours,
        3,
        "0.61 ± 0.03",
        |scaling| (scaling - 0.61).abs() <= 0.03,
    );
    let theirs = Spread::of(&loads, |(alone, together)| {
        together / alone.iter().sum::<f64>()
    });
    findings.value(
        "shared, scaling, iperf3",
        &theirs,
        3,
        "0.61 ± 0.03",
        |scaling| (scaling - 0.61).abs() <= 0.03,
    );
    let named: Vec<Option<Limiter>> = benches
        .iter()
        .map(|bench| bench.report.summary.limiter)
        .collect();
    findings.named("shared, limiter", &[Limiter::Shared], &named);
    Ok(())
}

/// Measures a cable of 1000 Mbit/s together with one of 100 Mbit/s.
pub(crate) fn mixed(settings: &Settings, place: &Place, findings: &mut Findings) -> Result<()> {
    let burden = Burden::of([LinkSpec::gigabit(), LinkSpec::mbit(100)]);
    let rig = Rig::build(&burden, settings, place)?;
    let rounds = rounds(&rig, settings, findings, &[])?;
    of_each_link("mixed", &burden, &rounds, findings, 2.0);
    let named: Vec<Option<Limiter>> = rounds
        .iter()
        .map(|(bench, _)| bench.report.summary.limiter)
        .collect();
    findings.named("mixed, limiter", &[Limiter::Cable], &named);
    Ok(())
}

/// Measures two gigabit cables with an MTU of 9000 bytes, and sweeps the message size.
pub(crate) fn jumbo(settings: &Settings, place: &Place, findings: &mut Findings) -> Result<()> {
    let burden = Burden::of([LinkSpec::gigabit().with_mtu(9000); 2]);
    let rig = Rig::build(&burden, settings, place)?;
    let rounds = rounds(&rig, settings, findings, &[])?;
    of_each_link("jumbo", &burden, &rounds, findings, 1.0);
    let swept = bench(&rig, findings, &["--sweep", "message"])?;
    match points(&swept.report, SweepKind::Message) {
        [] => findings.fail("jumbo: no sweep of messages in the report"),
        points => {
            let rises = rises(points, theory(&burden) / 2.0);
            findings.count(
                "jumbo, message sizes as fast as smaller ones or the cable, except dropouts",
                rises,
                points.len(),
            );
        }
    }
    Ok(())
}

/// Returns the points of a report's sweep. Empty if the sweep did not run.
pub(crate) fn points(report: &BenchReport, kind: SweepKind) -> &[SweepPoint] {
    report
        .sweeps
        .iter()
        .find(|sweep| sweep.kind == kind)
        .map_or(&[], |sweep| &sweep.points)
}

/// Runs `nicstripe bench` with the arguments `words`. Adds a failure if the report is inconsistent
/// or the exit code is not 0.
pub(crate) fn bench(rig: &Rig<'_>, findings: &mut Findings, words: &[&str]) -> Result<Benched> {
    let benched = rig.bench(words)?;
    findings.check(&benched.report);
    if benched.exit_code != Some(0) {
        findings.fail(format!(
            "nicstripe bench ended with {:?}, expected 0",
            benched.exit_code
        ));
    }
    Ok(benched)
}

/// Runs nicstripe and iperf3 alternately. Each round has one `nicstripe bench` and one iperf3
/// measurement in each direction.
fn rounds(
    rig: &Rig<'_>,
    settings: &Settings,
    findings: &mut Findings,
    words: &[&str],
) -> Result<Vec<Round>> {
    (0..settings.runs)
        .map(|_| {
            Ok((
                bench(rig, findings, words)?,
                [rig.iperf3(Host::A)?, rig.iperf3(Host::B)?],
            ))
        })
        .collect()
}

type Round = (Benched, [Load; 2]);
type Rate = fn(&Round) -> f64;

/// Returns the name of each direction, and the functions that return the total rate of nicstripe
/// and of iperf3 in bits per second.
fn ways() -> [(&'static str, Rate, Rate); 2] {
    let to: (_, Rate, Rate) = (
        "to the daemon",
        |(bench, _)| bench.together(),
        |(_, loads)| loads[0].total(),
    );
    let from: (_, Rate, Rate) = (
        "from the daemon",
        |(bench, _)| bench.reverse(),
        |(_, loads)| loads[1].total(),
    );
    [to, from]
}

/// Total rate in the table: its name, and its theoretical goodput in bits per second.
struct Compared {
    what: String,
    theory: f64,
}

impl Compared {
    fn add(&self, findings: &mut Findings, rounds: &[Round], of_ours: Rate, of_iperf3: Rate) {
        let Self { what, theory } = self;
        findings.note(
            &format!("{what}, nicstripe, Mbit/s"),
            Spread::of(rounds, |round| of_ours(round) / 1e6).print(1),
        );
        findings.note(
            &format!("{what}, iperf3, Mbit/s"),
            Spread::of(rounds, |round| of_iperf3(round) / 1e6).print(1),
        );
        let of_theirs = Spread::of(rounds, |round| 100.0 * of_ours(round) / of_iperf3(round));
        findings.value(
            &format!("{what}, % of iperf3"),
            &of_theirs,
            2,
            "99 to 101",
            |share| (share - 100.0).abs() <= 1.0,
        );
        let of_theory = Spread::of(rounds, |round| 100.0 * of_ours(round) / theory);
        findings.value(
            &format!("{what}, % of theory"),
            &of_theory,
            2,
            "98 to 102",
            |share| (share - 100.0).abs() <= 2.0,
        );
    }
}

/// Adds the rate of each cable while all are loaded. The rate must be within `percent` of the
/// cable's theoretical goodput.
fn of_each_link(
    case: &str,
    burden: &Burden,
    rounds: &[Round],
    findings: &mut Findings,
    percent: f64,
) {
    for (link, spec) in burden.cables.iter().enumerate() {
        let theory = spec
            .goodput()
            .map_or(f64::NAN, |rate| rate.bits_per_second() as f64);
        let what = |program| {
            format!(
                "{case}, eth{}, {program}, % of {:.1} Mbit/s",
                link + 1,
                theory / 1e6
            )
        };
        let ours = Spread::of(rounds, |(bench, _)| 100.0 * bench.part(link) / theory);
        let bar = format!("{} to {}", 100.0 - percent, 100.0 + percent);
        findings.value(&what("nicstripe"), &ours, 2, &bar, |share| {
            (share - 100.0).abs() <= percent
        });
        findings.value(
            &what("iperf3"),
            &Spread::of(rounds, |(_, loads)| 100.0 * loads[0].rates[link] / theory),
            2,
            "",
            |_| true,
        );
    }
}

/// Counts the points of a sweep that reach 95 % of the fastest point before them, or are marked as
/// dropouts.
///
/// The required rate is capped at the cable's goodput. The cable's shaper allows bursts of 256 KiB,
/// so messages up to that size exceed the line rate.
fn rises(points: &[SweepPoint], cable: f64) -> usize {
    let mut most: f64 = 0.0;
    let mut right = 0;
    for point in points {
        let rate = point.rate.median_bps as f64;
        right += usize::from(point.dropout || rate >= 0.95 * most);
        most = most.max(rate).min(cable);
    }
    right
}

pub(crate) fn theory(burden: &Burden) -> f64 {
    burden
        .cables
        .iter()
        .filter_map(|spec| spec.goodput())
        .map(|rate| rate.bits_per_second() as f64)
        .sum()
}

/// Rate limit of the shared bus, frame headers included: 1147.7 Mbit/s of payload, which is 0.61
/// times the capacity of two gigabit cables.
const BUS: BitRate = BitRate::mbit(1200);
