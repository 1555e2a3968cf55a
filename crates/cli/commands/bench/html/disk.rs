//! Chart of the stages of a copy: a pipe whose segments are as thick as the rate of their stage.

use nicstripe::bench::{DiskReport, Spread};

use super::svg::{Anchor, Svg, WIDTH};

/// Draws the stages of the disk measurement; `None` if none was measured.
pub(super) fn draw(disk: &DiskReport, names: [String; 3]) -> Option<String> {
    let stages = [
        ("read", disk.read),
        ("network", disk.network),
        ("write", disk.write),
    ];
    let most = stages
        .iter()
        .filter_map(|(_, rate)| *rate)
        .map(|rate| rate.median_bps)
        .max()
        .filter(|most| *most > 0)? as f64;
    let mut svg = Svg::new(HEIGHT);
    let thickness = |rate: &Spread| (rate.median_bps as f64 / most * PIPE).max(3.0);
    for (index, ((stage, rate), name)) in stages.iter().zip(&names).enumerate() {
        let x = index as f64 * STAGE;
        let narrowest = disk.narrowest.as_deref() == Some(*stage);
        svg.text(
            "strong",
            [x + STAGE / 2.0 - 10.0, 14.0],
            Anchor::Middle,
            stage,
        );
        svg.text("soft", [x + STAGE / 2.0 - 10.0, 30.0], Anchor::Middle, name);
        let (class, text) = match narrowest {
            true => ("badtext", "narrowest"),
            false => ("strong", ""),
        };
        match rate {
            Some(rate) => {
                let height = thickness(rate);
                svg.rect(
                    if narrowest { "badfill" } else { "pale c1" },
                    [x, MIDDLE - height / 2.0, STAGE - 20.0, height],
                    "",
                );
                svg.text(
                    class,
                    [x + STAGE / 2.0 - 10.0, MIDDLE + PIPE / 2.0 + 18.0],
                    Anchor::Middle,
                    megabytes(rate),
                );
                svg.text(
                    class,
                    [x + STAGE / 2.0 - 10.0, MIDDLE + PIPE / 2.0 + 34.0],
                    Anchor::Middle,
                    text,
                );
            }
            None => svg.text(
                "soft",
                [x + STAGE / 2.0 - 10.0, MIDDLE + 4.0],
                Anchor::Middle,
                "not measured",
            ),
        }
        if index < 2 {
            let at = x + STAGE - 16.0;
            svg.polygon(
                "soft",
                &[
                    [at, MIDDLE - 12.0],
                    [at + 12.0, MIDDLE],
                    [at, MIDDLE + 12.0],
                ],
            );
        }
    }
    if let Some(all) = &disk.all {
        svg.text(
            "strong",
            [WIDTH / 2.0, HEIGHT - 4.0],
            Anchor::Middle,
            format!("a copy: {}", megabytes(all)),
        );
    }
    Some(svg.finish("Stages of a copy"))
}

fn megabytes(rate: &Spread) -> String {
    format!("{:.1} MB/s", rate.median_bps as f64 / 8e6)
}

const STAGE: f64 = (WIDTH + 20.0) / 3.0;
const PIPE: f64 = 70.0;
const MIDDLE: f64 = 78.0;
const HEIGHT: f64 = 178.0;
