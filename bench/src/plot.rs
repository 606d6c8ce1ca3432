//! Draws the times of a command as bars on a logarithmic scale: an SVG without
//! script, font or outside reference, readable on light and dark ground.

use crate::figures::{Spread, readable};

const WIDTH: f64 = 880.0;
const LEFT: f64 = 286.0;
const RIGHT: f64 = 92.0;
const TOP: f64 = 74.0;
const STEP: f64 = 29.0;
const GAP: f64 = 14.0;
const BAR: f64 = 18.0;
const BOTTOM: f64 = 48.0;

const STYLE: &str = "\
text { font: 14px system-ui, sans-serif; fill: #24292f }
.title { font-size: 17px; font-weight: 600 }
.small { font-size: 12px; fill: #59636e }
.value { font-weight: 600 }
.grid { stroke: #8c959f; stroke-opacity: .28 }
.ours { fill: #b0803c }
.other { fill: #8c959f }
.spread { stroke: #24292f; stroke-width: 1.5; stroke-opacity: .55 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.small { fill: #9198a1 }
.ours { fill: #d9a860 }
.other { fill: #6e7681 }
.spread { stroke: #e6edf3 }
}";

/// One bar, in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    label: String,
    spread: Spread,
}

impl Bar {
    /// A bar as long as the median, with a line from minimum to maximum.
    pub(crate) fn new(label: impl Into<String>, spread: Spread) -> Self {
        Self { label: label.into(), spread }
    }

    /// What stands before the colon: bars of one group lie close together.
    fn group(&self) -> &str {
        self.label.split_once(':').map_or("", |it| it.0)
    }

    fn is_ours(&self) -> bool {
        self.label.contains("beige")
    }
}

/// A scale of whole powers of ten.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Scale {
    first: i32,
    last: i32,
}

impl Scale {
    /// The smallest one on which all bars have room.
    fn of(bars: &[Bar]) -> Self {
        let power = |it: f64| it.max(1e-3).log10();
        let minima = bars.iter().map(|it| power(it.spread.minimum));
        let maxima = bars.iter().map(|it| power(it.spread.maximum));
        let first = minima.fold(f64::INFINITY, f64::min).floor() as i32;
        let last = maxima.fold(f64::NEG_INFINITY, f64::max).ceil() as i32;
        Self { first, last: last.max(first + 1) }
    }

    fn x(self, value: f64) -> f64 {
        let span = f64::from(self.last - self.first);
        let part = (value.max(1e-3).log10() - f64::from(self.first)) / span;
        LEFT + part.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }
}

/// The whole picture; the bars in their order.
pub(crate) fn draw(bars: &[Bar]) -> String {
    let scale = Scale::of(bars);
    let tops = tops(bars);
    let foot = tops.last().map_or(TOP, |it| it + STEP);
    let height = foot + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
         aria-label=\"How long one command takes\">\n<style>{STYLE}</style>\n\
         <text class=\"title\" x=\"16\" y=\"30\">How long one command takes</text>\n\
         <text class=\"small\" x=\"16\" y=\"50\">a command that does nothing, on a \
         logarithmic scale: each step to the right is ten times as long</text>\n"
    );
    for power in scale.first..=scale.last {
        svg.push_str(&grid_line(scale, power, foot));
    }
    for (bar, top) in bars.iter().zip(tops) {
        svg.push_str(&draw_bar(scale, bar, top));
    }
    let foot = foot + 38.0;
    svg.push_str(&format!(
        "<text class=\"small\" x=\"16\" y=\"{foot}\">bars: median; thin lines: minimum to \
         maximum; measured in turns, in one run, by: make bench</text>\n</svg>\n"
    ));
    svg
}

/// Where each bar begins, with a gap between groups.
fn tops(bars: &[Bar]) -> Vec<f64> {
    let mut tops = Vec::new();
    let mut top = TOP;
    for (index, bar) in bars.iter().enumerate() {
        if index > 0 && bars[index - 1].group() != bar.group() {
            top += GAP;
        }
        tops.push(top);
        top += STEP;
    }
    tops
}

fn grid_line(scale: Scale, power: i32, foot: f64) -> String {
    let value = 10_f64.powi(power);
    let (x, top, label) = (scale.x(value), TOP - 8.0, foot + 14.0);
    let text = if power < 0 { value.to_string() } else { readable(value) };
    format!(
        "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{foot}\"/>\
         <text class=\"small\" x=\"{x:.1}\" y=\"{label}\" text-anchor=\"middle\">{text} ms</text>\n"
    )
}

fn draw_bar(scale: Scale, bar: &Bar, top: f64) -> String {
    let (label, class) = (escaped(&bar.label), if bar.is_ours() { "ours" } else { "other" });
    let Spread { minimum, median, maximum, .. } = bar.spread;
    let [from, to, end] = [minimum, maximum, median].map(|it| scale.x(it));
    let (width, middle, base) = ((end - LEFT).max(1.0), top + BAR / 2.0, top + BAR - 4.0);
    let (name, value) = (LEFT - 12.0, to.max(end) + 10.0);
    let text = readable(median);
    format!(
        "<text x=\"{name}\" y=\"{base}\" text-anchor=\"end\">{label}</text>\
         <rect class=\"{class}\" x=\"{LEFT}\" y=\"{top}\" width=\"{width:.1}\" height=\"{BAR}\" \
         rx=\"3\"/><line class=\"spread\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{middle}\" \
         y2=\"{middle}\"/><text class=\"value\" x=\"{value:.1}\" y=\"{base}\">{text} ms</text>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(label: &str, values: [f64; 3]) -> Bar {
        Bar::new(label, Spread::of(values).expect("three values"))
    }

    /// Fails unless every tag that is opened is closed, in order.
    #[track_caller]
    fn check_well_formed(svg: &str) {
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1) {
            let (tag, text) = tag.split_once('>').expect("a tag has an end");
            assert_eq!(tag.matches('"').count() % 2, 0, "quotes of <{tag}>");
            assert!(!text.contains('&') || text.contains(';'), "{text}");
            let name = tag.split([' ', '/']).find(|it| !it.is_empty()).expect("a name");
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name));
            } else if !tag.ends_with('/') {
                open.push(name);
            }
        }
        assert_eq!(open, Vec::<&str>::new());
    }

    #[test]
    fn a_plot_is_well_formed_whatever_the_names_are() {
        let bars = [bar("a <b> & \"c\"", [0.5, 1.0, 2.0]), bar("beige exec", [1.0, 1.0, 150.0])];
        let svg = draw(&bars);
        check_well_formed(&svg);
        assert!(svg.contains("a &lt;b&gt; &amp; &quot;c&quot;"), "{svg}");
        assert!(!svg.contains("script") && !svg.contains("href"), "{svg}");
    }

    #[test]
    fn the_scale_takes_in_all_bars_and_tenfold_steps_are_alike() {
        let bars = [bar("fast", [0.5, 1.0, 2.0]), bar("slow", [50.0, 60.0, 150.0])];
        let scale = Scale::of(&bars);
        assert_eq!(scale, Scale { first: -1, last: 3 });
        let step = scale.x(1.0) - scale.x(0.1);
        assert!((scale.x(1000.0) - scale.x(100.0) - step).abs() < 1e-9);
        assert_eq!((scale.x(0.1), scale.x(1000.0)), (LEFT, WIDTH - RIGHT));
        assert_eq!(scale.x(0.0), LEFT, "nothing falls off the edge");
    }

    #[test]
    fn only_what_goes_through_beige_is_ours() {
        let ours = ["docker: beige exec", "docker: beige, one command", "docker: docker exec"];
        let found = ours.map(|it| bar(it, [1.0, 1.0, 1.0]).is_ours());
        assert_eq!(found, [true, true, false]);
    }
}
