//! Regression check of `nicstripe bench --baseline`: repeated runs on an unchanged cable report no
//! regression, a run on a slower cable does.

use std::fs;

use nicstripe::bench::BaselineVerdict;
use nicstripe_lab::{BitRate, LinkSpec};
use nicstripe_testkit::bench::{Place, Result};

use crate::{Settings, burden::Burden, findings::Findings, rates::bench, rig::Rig};

pub(crate) fn regression(
    settings: &Settings,
    place: &Place,
    findings: &mut Findings,
) -> Result<()> {
    let burden = Burden::of([LinkSpec::gigabit()]);
    let rig = Rig::build(&burden, settings, place)?;
    let baseline = place.logs().join("baseline.json");
    let first = bench(&rig, findings, &[])?;
    fs::write(&baseline, serde_json::to_vec(&first.report)?)?;
    let baseline = baseline.to_str().ok_or("the folder's name is not UTF-8")?;
    let words = ["--baseline", baseline];
    let mut quiet = 0;
    for _ in 0..settings.noise {
        let again = rig.bench(&words)?;
        findings.check(&again.report);
        let verdict = again
            .report
            .baseline
            .as_ref()
            .map(|comparison| comparison.verdict);
        quiet +=
            usize::from(again.exit_code == Some(0) && verdict != Some(BaselineVerdict::Regression));
    }
    findings.count(
        "regression, noise recognized as noise",
        quiet,
        usize::try_from(settings.noise)?,
    );
    rig.lab.set_rate(0, BitRate::mbit(900))?;
    let slower = rig.bench(&words)?;
    findings.count(
        "regression, 10 % less exits 41",
        usize::from(slower.exit_code == Some(REGRESSION)),
        1,
    );
    if let Some(comparison) = slower.report.baseline {
        findings.note(
            "regression, change and noise, %",
            format!("{:.1}, {:.1}", comparison.change_pct, comparison.noise_pct),
        );
    }
    Ok(())
}

/// Exit code of `nicstripe bench` for a regression, as documented in the manual.
const REGRESSION: i32 = 41;
