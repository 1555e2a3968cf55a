//! Cases with a known bottleneck, which `nicstripe bench` must diagnose.

use std::time::Duration;

use nicstripe::bench::{Limiter, SweepKind};
use nicstripe_lab::{Host, LinkSpec};
use nicstripe_testkit::bench::{Place, Result, Spread};

use crate::{
    Settings,
    burden::Burden,
    findings::Findings,
    iperf::Load,
    rates::{bench, theory},
    rig::{Benched, Rig},
};

pub(crate) fn slow_receiver(
    settings: &Settings,
    place: &Place,
    findings: &mut Findings,
) -> Result<()> {
    let burden = Burden {
        stopped: Some(Host::B),
        ..one_gigabit()
    };
    Trial {
        what: "slow receiver",
        burden,
        expected: &[Limiter::Receiver],
    }
    .run(settings, place, findings)
    .map(drop)
}

pub(crate) fn starved_sender(
    settings: &Settings,
    place: &Place,
    findings: &mut Findings,
) -> Result<()> {
    let burden = Burden {
        stopped: Some(Host::A),
        ..one_gigabit()
    };
    Trial {
        what: "starved sender",
        burden,
        expected: &[Limiter::Sender],
    }
    .run(settings, place, findings)
    .map(drop)
}

/// Limits the receive buffer, then the send buffer, to 16 KiB by `tcp_rmem` and `tcp_wmem`. These
/// limits also apply to programs that set no size.
///
/// The kernel may report no time as limited by the send buffer: `tcp_cwnd_validate` counts such
/// time only while no data is unsent, and Nagle's algorithm prevents that (measured with iperf3: 0
/// of 3.8 s). The diagnosis therefore uses the content of the buffer, which is less than bandwidth
/// × delay.
pub(crate) fn small_buffer(
    settings: &Settings,
    place: &Place,
    findings: &mut Findings,
) -> Result<()> {
    // The short round trip between namespaces lets 8 KiB reach 98 %, and the cable is full.
    let small = |host, name| Burden {
        sysctls: vec![(host, name, "4096 16384 16384")],
        ..Burden::of([LinkSpec::gigabit().with_delay(ONE_WAY)])
    };
    let receiver = small(Host::B, "net/ipv4/tcp_rmem");
    let expected = &[Limiter::ReceiveBuffer, Limiter::Window];
    Trial {
        what: "receive buffer of 16 KiB, 2 ms",
        burden: receiver,
        expected,
    }
    .run(settings, place, findings)?;
    let sender = small(Host::A, "net/ipv4/tcp_wmem");
    let expected = &[Limiter::SendBuffer, Limiter::Window];
    Trial {
        what: "send buffer of 16 KiB, 2 ms",
        burden: sender,
        expected,
    }
    .run(settings, place, findings)
    .map(drop)
}

pub(crate) fn cpu(settings: &Settings, place: &Place, findings: &mut Findings) -> Result<()> {
    let burden = Burden {
        millicores: Some(settings.millicores),
        ..one_gigabit()
    };
    Trial {
        what: "quota of the daemon",
        burden,
        expected: &[Limiter::Cpu],
    }
    .run(settings, place, findings)
    .map(drop)
}

/// Measures with a frame loss of 0.1 %.
///
/// TCP recovers from the loss at a cost of 1 % if the RTT is short, and the cable is full. It
/// cannot if the RTT is 10 ms: the Mathis equation gives 44 Mbit/s.
pub(crate) fn loss(settings: &Settings, place: &Place, findings: &mut Findings) -> Result<()> {
    let short = Burden {
        loss: LOSS,
        ..one_gigabit()
    };
    let short = Trial {
        what: "0.1 % lost",
        burden: short,
        expected: &[Limiter::Loss, Limiter::Cable],
    };
    let rounds = short.run(settings, place, findings)?;
    check_full(&rounds, findings);
    for (bench, _) in rounds {
        let summary = &bench.report.summary;
        if summary
            .links
            .iter()
            .all(|link| link.retransmitted_bytes.unwrap_or(0) == 0)
        {
            findings.fail("0.1 % lost: nothing was retransmitted");
        }
    }
    let long = Burden {
        loss: LOSS,
        ..Burden::of([gigabit_of_10_ms()])
    };
    Trial {
        what: "0.1 % lost, 10 ms",
        burden: long,
        expected: &[Limiter::Loss],
    }
    .run(settings, place, findings)
    .map(drop)
}

/// Measures with an RTT of 10 ms. Today's default buffers fill the cable; the older defaults of 256
/// KiB do not.
pub(crate) fn delay(settings: &Settings, place: &Place, findings: &mut Findings) -> Result<()> {
    let long = Burden::of([gigabit_of_10_ms()]);
    let of_theory = theory(&long);
    let rounds = Trial {
        what: "10 ms",
        burden: long.clone(),
        expected: &[Limiter::Cable],
    }
    .run(settings, place, findings)?;
    let ours = Spread::of(&rounds, |(bench, _)| 100.0 * bench.together() / of_theory);
    findings.value(
        "10 ms, nicstripe, % of theory",
        &ours,
        2,
        "≥ 97",
        |share| share >= 97.0,
    );
    let theirs = Spread::of(&rounds, |(_, load)| 100.0 * load.total() / of_theory);
    findings.value("10 ms, iperf3, % of theory", &theirs, 2, "≥ 97", |share| {
        share >= 97.0
    });
    let yesterday = vec![
        (Host::B, "net/ipv4/tcp_rmem", "4096 131072 262144"),
        (Host::A, "net/ipv4/tcp_wmem", "4096 16384 262144"),
    ];
    let narrow = Burden {
        sysctls: yesterday,
        ..long.clone()
    };
    let named = &[Limiter::Window, Limiter::ReceiveBuffer, Limiter::SendBuffer];
    Trial {
        what: "10 ms, buffers of 256 KiB",
        burden: narrow,
        expected: named,
    }
    .run(settings, place, findings)?;
    plateau(&long, settings, place, findings)
}

/// Sweeps the buffer size. The plateau must start within a factor of two of bandwidth × delay.
fn plateau(
    burden: &Burden,
    settings: &Settings,
    place: &Place,
    findings: &mut Findings,
) -> Result<()> {
    let rig = Rig::build(burden, settings, place)?;
    let swept = bench(&rig, findings, &["--sweep", "buffer"])?;
    let Some(sweep) = swept
        .report
        .sweeps
        .iter()
        .find(|sweep| sweep.kind == SweepKind::Buffer)
    else {
        findings.fail("10 ms: no sweep of buffers in the report");
        return Ok(());
    };
    // Delay of the cable without its queue. The report may use a longer delay.
    let bdp = burden.cables[0]
        .line_rate()
        .map_or(f64::NAN, |rate| rate.bits_per_second() as f64)
        / 8.0
        * 0.01;
    findings.note(
        "10 ms, bandwidth × delay under load, KiB",
        format!("{:.0}", sweep.bdp_bytes.unwrap_or(0) as f64 / 1024.0),
    );
    let doublings = Spread::of(&[sweep.plateau], |plateau| {
        plateau.map_or(f64::NAN, |bytes| (bytes as f64 / bdp).log2())
    });
    let bar = "-1 to 1 of 1221 KiB";
    findings.value(
        "10 ms, plateau of buffers, doublings",
        &doublings,
        2,
        bar,
        |doublings| doublings.abs() <= 1.0,
    );
    Ok(())
}

/// Adds a failure for each round that reports the cable as the limiter although the cable's
/// efficiency is below [`FULL`].
fn check_full(rounds: &[(Benched, Load)], findings: &mut Findings) {
    for (bench, _) in rounds {
        let summary = &bench.report.summary;
        if summary.limiter == Some(Limiter::Cable)
            && summary
                .efficiency
                .is_some_and(|efficiency| efficiency < FULL)
        {
            findings.fail(format!(
                "a cable used to {:?} is reported as full",
                summary.efficiency
            ));
        }
    }
}

/// Impairments, and the diagnoses that are acceptable under them.
struct Trial {
    what: &'static str,
    burden: Burden,
    expected: &'static [Limiter],
}

impl Trial {
    /// Measures nicstripe and iperf3 alternately, each round in a new lab. Adds the results to the
    /// findings.
    fn run(
        &self,
        settings: &Settings,
        place: &Place,
        findings: &mut Findings,
    ) -> Result<Vec<(Benched, Load)>> {
        let mut rounds = Vec::new();
        for _ in 0..settings.runs {
            let rig = Rig::build(&self.burden, settings, place)?;
            rounds.push((bench(&rig, findings, &[])?, rig.iperf3(Host::A)?));
        }
        let what = self.what;
        let named: Vec<Option<Limiter>> = rounds
            .iter()
            .map(|(bench, _)| bench.report.summary.limiter)
            .collect();
        findings.named(&format!("{what}, limiter"), self.expected, &named);
        let of_ours = Spread::of(&rounds, |(bench, _)| bench.together() / 1e6);
        findings.note(&format!("{what}, nicstripe, Mbit/s"), of_ours.print(1));
        findings.note(
            &format!("{what}, iperf3, Mbit/s"),
            Spread::of(&rounds, |(_, load)| load.total() / 1e6).print(1),
        );
        findings.note(
            &format!("{what}, iperf3, segments retransmitted"),
            Spread::of(&rounds, |(_, load)| load.retransmits as f64).print(0),
        );
        if let Some((bench, _)) = rounds.last() {
            findings.note(
                &format!("{what}, said"),
                bench.report.summary.sentence.clone(),
            );
        }
        Ok(rounds)
    }
}

fn one_gigabit() -> Burden {
    Burden::of([LinkSpec::gigabit()])
}

fn gigabit_of_10_ms() -> LinkSpec {
    LinkSpec::gigabit().with_delay(Duration::from_millis(5))
}

const LOSS: f64 = 0.001;

/// Minimum efficiency (goodput divided by theory) of a cable that counts as full.
const FULL: f64 = 0.97;

/// One-way delay at which a window of 16 KiB allows at most 65 Mbit/s.
const ONE_WAY: Duration = Duration::from_millis(1);
