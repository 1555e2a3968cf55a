//! Chart of the stages of a copy: a pipe whose segments are as thick as the rate of their stage.

use nicstripe::bench::{DiskReport, Spread};

use super::svg::{Svg, WIDTH};

pub(super) fn draw(disk: &DiskReport, names: [String; 3]) -> Option<String> {
    let stages = [
        ("read", disk.read),
        ("network", disk.network),
        ("write", disk.write),
    ];
    let rates = stages.iter().filter_map(|(_, rate)| *rate);
    let most = rates.map(|rate| rate.median_bps).max();
    let most = most.filter(|most| *most > 0)? as f64;
    let mut svg = Svg::new(HEIGHT);
    let thickness = |rate: &Spread| (rate.median_bps as f64 / most * PIPE).max(3.0);
    for (index, ((stage, rate), name)) in stages.iter().zip(&names).enumerate() {
        let x = index as f64 * STAGE;
        let narrowest = disk.narrowest.as_deref() == Some(*stage);
        let label = |svg: &mut Svg, class, y, text: &str| {
            svg.text(class, [x + STAGE / 2.0 - 10.0, y], text);
        };
        label(&mut svg, "strong middle", 14.0, stage);
        label(&mut svg, "soft middle", 30.0, name);
        if let Some(rate) = rate {
            let (class, fill, text) = match narrowest {
                true => ("badtext middle", "badfill", "narrowest"),
                false => ("strong middle", "pale c1", ""),
            };
            let height = thickness(rate);
            let area = [x, MIDDLE - height / 2.0, STAGE - 20.0, height];
            svg.rect(fill, area, "");
            let below = MIDDLE + PIPE / 2.0;
            label(&mut svg, class, below + 18.0, &megabytes(rate));
            label(&mut svg, class, below + 34.0, text);
        } else {
            label(&mut svg, "soft middle", MIDDLE + 4.0, "not measured");
        }
        if index < 2 {
            let at = x + STAGE - 16.0;
            let tip = [at + 12.0, MIDDLE];
            svg.points(
                "polygon",
                "soft",
                &[[at, MIDDLE - 12.0], tip, [at, MIDDLE + 12.0]],
            );
        }
    }
    if let Some(all) = &disk.all {
        svg.text(
            "strong middle",
            [WIDTH / 2.0, HEIGHT - 4.0],
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
