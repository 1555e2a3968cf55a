//! SVG drawings: shapes, scales and axes.

use std::fmt::{Display, Write as _};

/// Width of every drawing in its own units. Text is 13 units high, so that it is readable in a
/// drawing of 400 pixels.
pub(super) const WIDTH: f64 = 480.0;

/// SVG drawing under construction.
#[derive(Debug)]
pub(super) struct Svg {
    height: f64,
    body: String,
}

impl Svg {
    pub(super) fn new(height: f64) -> Self {
        Self {
            height,
            body: String::new(),
        }
    }

    /// Returns the drawing as an SVG element. `label` is its text for screen readers.
    pub(super) fn finish(self, label: &str) -> String {
        let (height, body, label) = (self.height, self.body, escape(label));
        format!(
            r#"<svg viewBox="0 0 {WIDTH:.0} {height:.0}" role="img" aria-label="{label}">{body}</svg>"#
        )
    }

    /// Draws a rectangle with the tooltip `note`. `area` is x, y, width, height.
    pub(super) fn rect(&mut self, class: &str, area: [f64; 4], note: &str) {
        let [x, y, width, height] = area;
        let (width, height) = (width.max(0.0), height.max(0.0));
        let note = match note {
            "" => String::new(),
            note => format!("<title>{}</title>", escape(note)),
        };
        let _ = write!(
            self.body,
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}">{note}</rect>"#
        );
    }

    pub(super) fn line(&mut self, class: &str, from: [f64; 2], to: [f64; 2]) {
        let ([x1, y1], [x2, y2]) = (from, to);
        let _ = write!(
            self.body,
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        );
    }

    /// Draws a line through the points (`polyline`), or the area between them (`polygon`).
    pub(super) fn points(&mut self, element: &str, class: &str, points: &[[f64; 2]]) {
        let points = points.iter().map(|[x, y]| format!("{x:.1},{y:.1}"));
        let points = points.collect::<Vec<_>>().join(" ");
        let _ = write!(
            self.body,
            r#"<{element} class="{class}" points="{points}"/>"#
        );
    }

    pub(super) fn circle(&mut self, class: &str, at: [f64; 2], radius: f64, note: &str) {
        let [x, y] = at;
        let note = escape(note);
        let _ = write!(
            self.body,
            r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="{radius:.1}"><title>{note}</title></circle>"#
        );
    }

    /// Draws a text that starts at `at`; one of class `middle` or `end` has its middle or end there.
    pub(super) fn text(&mut self, class: &str, at: [f64; 2], text: impl Display) {
        let [x, y] = at;
        let text = escape(&text.to_string());
        let _ = write!(
            self.body,
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{text}</text>"#
        );
    }

    /// Draws vertical grid lines at these values, from `top` to `bottom`, with labels below that stay
    /// within the drawing.
    pub(super) fn columns(&mut self, scale: Scale, values: &[f64], [top, bottom]: [f64; 2]) {
        for value in values {
            let x = scale.coordinate(*value);
            let class = match x {
                ..10.0 => "soft",
                x if x > WIDTH - 10.0 => "soft end",
                _ => "soft middle",
            };
            self.line("rule", [x, top], [x, bottom]);
            self.text(class, [x, bottom + 14.0], tick_text(*value));
        }
    }

    /// Draws horizontal grid lines at these values, from `left` to `right`, with labels before.
    pub(super) fn rows(&mut self, scale: Scale, values: &[f64], [left, right]: [f64; 2]) {
        for value in values {
            let y = scale.coordinate(*value);
            self.line("rule", [left, y], [right, y]);
            self.text("soft end", [left - 5.0, y + 4.0], tick_text(*value));
        }
    }

    /// Draws a legend in as many lines as needed, and returns the y coordinate of its bottom.
    pub(super) fn legend(&mut self, y: f64, entries: &[(String, String)]) -> f64 {
        let (mut x, mut y) = (0.0, y);
        for (class, text) in entries {
            let width = 20.0 + text_width(text) + 14.0;
            if x + width > WIDTH + 14.0 && x > 0.0 {
                (x, y) = (0.0, y + 18.0);
            }
            self.rect(class, [x + 1.0, y - 10.0, 13.0, 11.0], "");
            self.text("", [x + 20.0, y], text);
            x += width;
        }
        y
    }
}

/// Linear or logarithmic mapping of chart values to coordinates.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
    logarithmic: bool,
}

impl Scale {
    /// Creates a linear scale that maps `values[0]` to `places[0]` and `values[1]` to `places[1]`.
    pub(super) fn linear(values: [f64; 2], places: [f64; 2]) -> Self {
        let ([from, to], [start, end]) = (values, places);
        Self {
            from,
            to: if to > from { to } else { from + 1.0 },
            start,
            end,
            logarithmic: false,
        }
    }

    /// Creates a logarithmic scale with the same arguments as [`Scale::linear`]. Values must be
    /// positive.
    pub(super) fn logarithmic(values: [f64; 2], places: [f64; 2]) -> Self {
        Self {
            logarithmic: true,
            ..Self::linear(values.map(logarithm), places)
        }
    }

    /// Returns the coordinate of a value. Clamps values outside the scale to its nearest end.
    pub(super) fn coordinate(self, value: f64) -> f64 {
        let value = match self.logarithmic {
            true => logarithm(value),
            false => value,
        };
        let part = ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0);
        self.start + part * (self.end - self.start)
    }
}

fn logarithm(value: f64) -> f64 {
    value.max(f64::MIN_POSITIVE).ln()
}

/// Returns round values for axis ticks, from 0 to `greatest` in at most `most` steps.
pub(super) fn ticks(greatest: f64, most: u32) -> Vec<f64> {
    if !(greatest.is_finite() && greatest > 0.0) {
        return vec![0.0];
    }
    let rough = greatest / f64::from(most);
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(10.0 * power);
    let count = (greatest / step + 1e-9).floor() as u32;
    (0..=count).map(|index| f64::from(index) * step).collect()
}

/// Returns consecutive powers of ten, from one at or below `least` to one at or above `greatest`.
pub(super) fn decades(least: f64, greatest: f64) -> Vec<f64> {
    let from = least.max(1e-9).log10().floor() as i32;
    let to = (greatest.max(1e-9).log10().ceil() as i32).max(from + 1);
    (from..=to.min(from + 12))
        .map(|power| 10_f64.powi(power))
        .collect()
}

/// Formats the value at a tick without trailing zeros.
pub(super) fn tick_text(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Estimates the width of bold text that is 13 units high, in units of the drawing.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * 8.2
}

/// Escapes text for HTML. The caller must have replaced unprintable characters by
/// `nicstripe::escaped`.
pub(super) fn escape(text: &str) -> String {
    let escaped = askama::filters::escape(text, askama::filters::Html);
    escaped.map_or_else(|never| match never {}, |text| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks(941.5, 5), [0.0, 200.0, 400.0, 600.0, 800.0]);
        assert_eq!(ticks(1.0, 4), [0.0, 0.25, 0.5, 0.75, 1.0]);
        assert_eq!(ticks(0.0, 5), [0.0]);
        assert_eq!(ticks(f64::NAN, 5), [0.0]);
        assert_eq!(tick_text(0.25), "0.25");
        assert_eq!(tick_text(200.0), "200");
    }

    #[test]
    fn decades_enclose_their_values() {
        assert_eq!(decades(0.038, 2.3), [0.01, 0.1, 1.0, 10.0]);
        assert_eq!(decades(1.0, 1.0).len(), 2);
        assert!(decades(0.0, f64::MAX).len() <= 13);
    }

    #[test]
    fn a_scale_never_leaves_its_drawing() {
        let scale = Scale::linear([0.0, 10.0], [100.0, 0.0]);
        assert_eq!(
            [0.0, 5.0, 10.0, 20.0, -5.0].map(|value| scale.coordinate(value)),
            [100.0, 50.0, 0.0, 0.0, 100.0]
        );
        let scale = Scale::logarithmic([1.0, 100.0], [0.0, 100.0]);
        assert!((scale.coordinate(10.0) - 50.0).abs() < 1e-9);
        assert_eq!(scale.coordinate(0.0), 0.0);
        assert!(
            Scale::linear([5.0, 5.0], [0.0, 10.0])
                .coordinate(5.0)
                .is_finite()
        );
    }

    #[test]
    fn text_cannot_become_markup() {
        let mut svg = Svg::new(10.0);
        svg.text("", [0.0, 0.0], r#"</text><script>"&'"#);
        let drawn = svg.finish(r#""><b>"#);
        assert!(
            !drawn.contains("<script") && !drawn.contains("<b>"),
            "{drawn}"
        );
    }
}
