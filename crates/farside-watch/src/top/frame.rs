//! A frame: what is known as cells of a terminal of any size. A pure function.

use std::time::Duration;

use farside_gateway::{MirrorReport, PoolReport, Report};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, RenderDirection, Sparkline, Widget};

use crate::history::{Change, History};
use farside_cli::scalar::show_size;

/// In less than this nothing is told apart.
const WIDTH_MIN: u16 = 60;
const HEIGHT_MIN: u16 = 16;
/// How many mirrored nodes have a line.
const GROUPS_MAX: usize = 4;
/// Quiet text.
const QUIET: Style = Style::new().fg(Color::DarkGray);

/// Draws everything that fits.
pub(super) fn draw(history: &History, area: Rect, cells: &mut Buffer) {
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        let wanted = format!(
            "farside top needs {WIDTH_MIN} x {HEIGHT_MIN} characters; this is {} x {}",
            area.width, area.height
        );
        let wrapped = Paragraph::new(wanted).wrap(ratatui::widgets::Wrap { trim: true });
        return wrapped.render(area, cells);
    }
    let groups = groups(history.report.as_ref());
    let [top, graph, middle, bottom, mirrors, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(7),
        Constraint::Fill(1),
        Constraint::Length(groups.len() as u16),
        Constraint::Length(1),
    ])
    .areas(area);
    let halves = |area: Rect| Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas::<2>(area);
    headline(history).render(top, cells);
    throughput(history, graph, cells);
    let ([left, right], [low_left, low_right]) = (halves(middle), halves(bottom));
    panel("latency", latencies(history.change.as_ref()), left, cells);
    panel("per command", costs(history.change.as_ref()), right, cells);
    let pool = history.report.as_ref().and_then(|report| report.pool.as_ref());
    panel("memory", memory(pool, low_left), low_left, cells);
    panel(
        "hot keys",
        hot_keys(history.report.as_ref(), low_right),
        low_right,
        cells,
    );
    Paragraph::new(groups).render(mirrors, cells);
    footer(history).render(foot, cells);
}

fn panel(title: &'static str, lines: Vec<Line<'_>>, area: Rect, cells: &mut Buffer) {
    let block = Block::bordered()
        .border_style(QUIET)
        .title(Span::from(format!(" {title} ")).fg(Color::Cyan));
    Paragraph::new(lines).block(block).render(area, cells);
}

fn headline(history: &History) -> Line<'_> {
    let mut spans = vec![
        "farside top ".bold(),
        Span::from(history.address.to_string()).fg(Color::Cyan),
    ];
    if let Some(report) = &history.report {
        let threads = if report.threads == 1 { "thread" } else { "threads" };
        let text = format!(
            "  version {}  process {}  {} {threads}  up {}",
            report.version,
            report.process_id,
            report.threads,
            uptime(Duration::from_millis(report.uptime_ms))
        );
        spans.push(Span::styled(text, QUIET));
    }
    Line::from(spans)
}

/// What is wrong, or what is left to say.
fn footer(history: &History) -> Line<'_> {
    if let Some(trouble) = &history.trouble {
        return Line::from(vec![
            "no answer, trying again: ".fg(Color::Red).bold(),
            Span::from(trouble.as_str()).fg(Color::Red),
        ]);
    }
    let Some(report) = &history.report else {
        return Line::styled("connecting ...", QUIET);
    };
    let mut text = format!("connections {} of {}", report.counts.clients, report.connections_max);
    if let Some(pool) = &report.pool {
        if let (Some(live), Some(dead), Some(deaths)) = (pool.clients_live, pool.clients_dead, pool.deaths) {
            text += &format!("  pool clients {live} live, {dead} dead, {deaths} deaths");
        }
        let epochs = history.change.as_ref().map_or(0.0, |change| change.epochs);
        text += &format!("  epochs {}/s", number(epochs));
    }
    Line::from(vec![Span::styled(text, QUIET), Span::styled("  q quits", QUIET)])
}

fn throughput(history: &History, area: Rect, cells: &mut Buffer) {
    let mut title = vec![Span::from(" throughput ").fg(Color::Cyan)];
    if let Some(change) = &history.change {
        title.push(
            Span::from(format!("{} commands/s ", number(change.commands)))
                .fg(Color::Green)
                .bold(),
        );
        for (name, rate) in change.by_name.iter().take(3) {
            title.push(Span::styled(format!(" {name} {}", number(*rate)), QUIET));
        }
        title.push(Span::from(" "));
    }
    let most = history.throughput.iter().max().copied().unwrap_or(0);
    let peak = format!(" most {}/s ", number(most as f64));
    let block = Block::bordered()
        .border_style(QUIET)
        .title(Line::from(title))
        .title_top(Line::styled(peak, QUIET).right_aligned());
    // The newest on the right, whatever the width.
    let newest_first = history.throughput.iter().rev().copied();
    Sparkline::default()
        .block(block)
        .direction(RenderDirection::RightToLeft)
        .style(Style::new().fg(Color::Green))
        .data(newest_first.collect::<Vec<u64>>())
        .render(area, cells);
}

fn latencies(change: Option<&Change>) -> Vec<Line<'static>> {
    let head = format!("{:<6}{:>9}{:>9}{:>9}{:>9}", "", "ops/s", "p50", "p99", "p99.9");
    let mut lines = vec![Line::styled(head, QUIET)];
    let Some(change) = change else { return lines };
    for group in ["read", "write", "whole", "other"] {
        let Some(latencies) = change.latencies.get(group) else {
            continue;
        };
        let at = |part| latencies.quantile_ns(part).map_or("-".to_owned(), duration);
        let rate = format!("{:>9}", number(change.rate_of(latencies)));
        lines.push(Line::from(vec![
            Span::from(format!("{group:<6}")),
            Span::from(rate).fg(Color::Green),
            Span::from(format!("{:>9}", at(0.5))),
            Span::from(format!("{:>9}", at(0.99))).fg(Color::Yellow),
            Span::from(format!("{:>9}", at(0.999))).fg(Color::Red),
        ]));
    }
    lines
}

fn costs(change: Option<&Change>) -> Vec<Line<'static>> {
    let Some(change) = change else { return Vec::new() };
    let mut verbs = vec![Span::styled("verbs   ", QUIET)];
    let mut fabric = "-".to_owned();
    match &change.per_command {
        None => verbs.push(Span::from("-")),
        Some(cost) => {
            for (kind, count) in cost.verbs.iter().filter(|&&(_, count)| count >= 0.005) {
                verbs.push(Span::from(format!("{count:.2}")).fg(Color::Green));
                verbs.push(Span::from(format!(" {}  ", short_verb(kind))));
            }
            let size = |bytes: f64| show_size(bytes.round() as u64);
            fabric = format!("{} read, {} written", size(cost.bytes_read), size(cost.bytes_written));
        }
    }
    let hits = change
        .hit_rate
        .map_or("-".to_owned(), |rate| format!("{:.1} %", rate * 100.0));
    let line = |name: &'static str, text: String| {
        Line::from(vec![Span::styled(format!("{name:<8}"), QUIET), Span::from(text)])
    };
    vec![
        Line::from(verbs),
        line("fabric", fabric),
        line(
            "network",
            format!(
                "{}/s in, {}/s out",
                show_size(change.bytes_in as u64),
                show_size(change.bytes_out as u64)
            ),
        ),
        line("lookups", format!("{hits} found")),
        line(
            "trouble",
            format!(
                "{}/s retries, {}/s errors",
                number(change.retries),
                number(change.errors)
            ),
        ),
    ]
}

/// Uses of the memory, most first, as many as fit.
fn memory(pool: Option<&PoolReport>, area: Rect) -> Vec<Line<'static>> {
    let Some(pool) = pool else {
        return vec![Line::styled("the pool cannot be reached", Color::Red)];
    };
    let mut uses: Vec<(String, u64, Color)> = (pool.bytes_by_block.iter())
        .map(|(block, &bytes)| (format!("{} blocks", short_size(*block)), bytes, Color::Green))
        .collect();
    uses.push(("index".to_owned(), pool.bytes_index, Color::Blue));
    uses.push(("large".to_owned(), pool.bytes_large, Color::Green));
    uses.push(("tables".to_owned(), pool.bytes_tables, Color::Blue));
    uses.retain(|&(_, bytes, _)| bytes > 0);
    uses.sort_by_key(|&(_, bytes, _)| core::cmp::Reverse(bytes));
    uses.insert(0, ("used".to_owned(), pool.bytes_used(), Color::Yellow));
    let room = usize::from(area.height.saturating_sub(2));
    uses.truncate(room);
    let bar_width = usize::from(area.width.saturating_sub(2 + 14 + 18));
    let lines = uses.into_iter().map(|(name, bytes, colour)| {
        let part = bytes as f64 / pool.bytes.max(1) as f64;
        Line::from(vec![
            Span::from(format!("{name:<14}")),
            Span::from(bar(part, bar_width)).fg(colour),
            Span::from(format!("{:>11}{:>5.1} %", show_size(bytes), part * 100.0)),
        ])
    });
    lines.collect()
}

fn hot_keys(report: Option<&Report>, area: Rect) -> Vec<Line<'static>> {
    let Some(report) = report else { return Vec::new() };
    if report.hot_keys.is_empty() {
        return vec![Line::styled("no key stands out", QUIET)];
    }
    let room = usize::from(area.height.saturating_sub(2));
    let bar_width = usize::from(area.width.saturating_sub(2 + 8)) / 3;
    let key_width = usize::from(area.width.saturating_sub(2 + 8)) - bar_width;
    let hottest = report.hot_keys.first().map_or(1.0, |hot| hot.share);
    let lines = report.hot_keys.iter().take(room).map(|hot| {
        // Keys are any bytes; what would move the cursor must not.
        let key: String = hot.key.chars().map(|c| if c.is_control() { '.' } else { c }).collect();
        let key: String = key.chars().take(key_width - 1).collect();
        Line::from(vec![
            Span::from(format!("{key:<key_width$}")),
            Span::from(bar(hot.share / hottest, bar_width)).fg(Color::Magenta),
            Span::from(format!("{:>6.2} %", hot.share * 100.0)),
        ])
    });
    lines.collect()
}

/// A line for each mirrored node, those first that need a look.
fn groups(report: Option<&Report>) -> Vec<Line<'static>> {
    let nodes = report.iter().flat_map(|report| report.nodes.iter().enumerate());
    let mut groups: Vec<(Color, Line<'static>)> = nodes
        .filter_map(|(node, report)| Some(group(node, report.mirror.as_ref()?)))
        .collect();
    let rank = |colour: Color| [Color::Red, Color::Yellow].iter().position(|&worse| worse == colour);
    groups.sort_by_key(|&(colour, _)| rank(colour).unwrap_or(usize::MAX));
    groups.into_iter().take(GROUPS_MAX).map(|(_, line)| line).collect()
}

fn group(node: usize, mirror: &MirrorReport) -> (Color, Line<'static>) {
    let (entries, bytes) = mirror.lag();
    let (backups, silent) = (mirror.count("backup"), mirror.count("silent"));
    let mut text = match mirror.has_primary {
        true => format!("primary {}", mirror.primary),
        false => "no primary answers".to_owned(),
    };
    text += &format!(
        "  epoch {}  {backups} backup{}",
        mirror.epoch,
        if backups == 1 { "" } else { "s" }
    );
    if silent > 0 {
        text += &format!("  {silent} silent");
    }
    if entries > 0 {
        text += &format!("  {entries} changes behind");
    }
    if bytes > 0 {
        text += &format!("  {} to copy", show_size(bytes));
    }
    let colour = match (mirror.has_primary, silent == 0 && backups > 0) {
        (false, _) => Color::Red,
        (true, false) => Color::Yellow,
        (true, true) => Color::Green,
    };
    let name = Span::styled(format!("mirrored node {node}  "), QUIET);
    (colour, Line::from(vec![name, Span::from(text).fg(colour)]))
}

/// A bar of so many cells, filled in part.
fn bar(part: f64, cells: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (part.clamp(0.0, 1.0) * cells as f64 * 8.0).round() as usize;
    let filled = "█".repeat(eighths / 8) + EIGHTHS[eighths % 8];
    format!("{filled:<cells$}")
}

/// A number for people, in at most six characters.
fn number(value: f64) -> String {
    match value {
        value if value >= 1e9 => format!("{:.2} G", value / 1e9),
        value if value >= 1e6 => format!("{:.2} M", value / 1e6),
        value if value >= 1e3 => format!("{:.1} k", value / 1e3),
        value => format!("{value:.0}"),
    }
}

fn duration(ns: u64) -> String {
    match ns {
        u64::MAX => "> 17 s".to_owned(),
        ns if ns >= 1_000_000_000 => format!("{:.2} s", ns as f64 / 1e9),
        ns if ns >= 1_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        ns if ns >= 100_000 => format!("{:.0} us", ns as f64 / 1e3),
        ns => format!("{:.1} us", ns as f64 / 1e3),
    }
}

/// The field's own short names, where there are any.
fn short_verb(kind: &str) -> &str {
    match kind {
        "compare-swap" => "cas",
        "fetch-add" => "faa",
        other => other,
    }
}

fn short_size(bytes: u64) -> String {
    show_size(bytes).replace(" bytes", " B")
}

fn uptime(up: Duration) -> String {
    let seconds = up.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests;
