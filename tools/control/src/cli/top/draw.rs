//! Draws what `hearth top` shows.
//!
//! Invariant: a pure function of the view and the size of the screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Table};

use super::{View, is_share, shown, state};
use crate::events::Severity;
use crate::monitor::picture::Health;
use crate::{clock, output};

/// Cells of the grid in a line without a tree.
const FLAT_ROW: usize = 64;
/// Steps of the scale, the lowest for zero.
const STEPS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

fn colour(health: Health) -> Color {
    match health {
        Health::Idle => Color::Green,
        Health::Busy => Color::Cyan,
        Health::Slow | Health::Stale => Color::Yellow,
        Health::Lost => Color::Red,
        Health::Awaited => Color::Blue,
        Health::Left | Health::Absent => Color::DarkGray,
    }
}

/// Draws everything.
pub fn draw(frame: &mut Frame, view: &View) {
    let grid = grid(view, frame.area().width);
    let grid_height = u16::try_from(grid.len())
        .unwrap_or(u16::MAX)
        .min(frame.area().height / 3);
    let areas = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(grid_height + 2),
        Constraint::Min(4),
        Constraint::Length(7),
        Constraint::Length(1),
    ])
    .split(frame.area());
    head(frame, areas[0], view);
    let name = view.metric().map_or("", |metric| metric.name.as_str());
    let title = Block::bordered().title(format!(" {} ", output::plain(name)));
    frame.render_widget(Paragraph::new(grid).block(title), areas[1]);
    nodes(frame, areas[2], view);
    let below = Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)])
        .split(areas[3]);
    jobs(frame, below[0], view);
    events(frame, below[1], view);
    let keys = "q end   m/M metric   s order   arrows, page keys: scroll   underlined: drained";
    frame.render_widget(
        Paragraph::new(keys).style(Style::new().fg(Color::DarkGray)),
        areas[4],
    );
}

fn head(frame: &mut Frame, area: Rect, view: &View) {
    let at = clock::rfc3339(view.now.at_ms * 1_000);
    let first = Line::from(vec![
        Span::styled("Hearth ", Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(format!("{}  {at}", output::plain(&view.now.version))),
    ]);
    let second = match (&view.trouble, &view.now.trouble) {
        (Some(trouble), _) => Line::styled(output::plain(trouble), Style::new().fg(Color::Red)),
        (None, Some(trouble)) => {
            Line::styled(output::plain(trouble), Style::new().fg(Color::Yellow))
        }
        (None, None) => Line::raw(view.strip()),
    };
    frame.render_widget(Paragraph::new(vec![first, second]), area);
}

/// The nodes as cells, a gap between leaf switches.
fn grid(view: &View, width: u16) -> Vec<Line<'static>> {
    let leaf = view
        .now
        .tree
        .first()
        .map_or(FLAT_ROW, |&width| width.max(1) as usize);
    let values = view.now.nodes.iter().filter_map(|node| view.value(node));
    let share = view.metric().is_some_and(is_share);
    let most = if share {
        1.0
    } else {
        values.fold(0.0, f64::max)
    };
    let mut lines = vec![Line::default()];
    let (mut used, room) = (0, usize::from(width.saturating_sub(2)).max(leaf.min(8)));
    for (index, node) in view.now.nodes.iter().enumerate() {
        if index % leaf == 0 && index > 0 {
            used += 1;
            lines
                .last_mut()
                .expect("not empty")
                .push_span(Span::raw(" "));
        }
        if used >= room || index % leaf == 0 && used + leaf > room && used > 0 {
            lines.push(Line::default());
            used = 0;
        }
        let cell = match view.value(node) {
            None => '?',
            Some(value) if value <= 0.0 || most <= 0.0 => STEPS[0],
            Some(value) => STEPS[((value / most * 8.0).ceil() as usize).clamp(1, 8)],
        };
        let mut style = Style::new().fg(colour(node.health));
        if node.drained.is_some() {
            style = style.add_modifier(Modifier::UNDERLINED);
        }
        lines
            .last_mut()
            .expect("not empty")
            .push_span(Span::styled(cell.to_string(), style));
        used += 1;
    }
    lines
}

fn nodes(frame: &mut Frame, area: Rect, view: &View) {
    let rows = view.rows();
    let lines = rows
        .iter()
        .skip(view.top)
        .take(usize::from(area.height))
        .map(|node| {
            let value = view
                .metric()
                .map_or_else(String::new, |metric| shown(view.value(node), metric));
            let job = node
                .job
                .map_or_else(|| "-".to_string(), |job| job.to_string());
            let name = output::plain(&node.name);
            let address = output::plain(node.address.as_deref().unwrap_or("-"));
            Row::new([name, state(node), view.cores(node), job, value, address])
                .style(Style::new().fg(colour(node.health)))
        });
    let widths = [
        Constraint::Length(9),
        Constraint::Length(15),
        Constraint::Length(5),
        Constraint::Length(9),
        Constraint::Length(16),
        Constraint::Min(12),
    ];
    let order = format!(
        " {} by {:?} ",
        output::count(rows.len(), "node"),
        view.order
    )
    .to_lowercase();
    let table = Table::new(lines, widths)
        .header(
            Row::new(["NODE", "STATE", "CORES", "JOB", "VALUE", "ADDRESS"])
                .style(Style::new().add_modifier(Modifier::BOLD)),
        )
        .block(Block::bordered().title(order));
    frame.render_widget(table, area);
}

fn jobs(frame: &mut Frame, area: Rect, view: &View) {
    let active = view.now.jobs.iter().filter(|job| !job.over);
    let line = |job: &crate::monitor::picture::JobNow| {
        let text = format!(
            "{} {} {} {} {}",
            job.id, job.state, job.name, job.nodes, job.reason
        );
        Line::raw(output::plain(&text).replace('\n', " "))
    };
    let lines: Vec<Line> = active.take(usize::from(area.height)).map(line).collect();
    let title = format!(" {} ", output::count(view.now.active_jobs, "job"));
    frame.render_widget(
        Paragraph::new(lines).block(Block::bordered().title(title)),
        area,
    );
}

fn events(frame: &mut Frame, area: Rect, view: &View) {
    let room = usize::from(area.height.saturating_sub(2));
    let events = &view.now.events;
    let newest = &events[events.len().saturating_sub(room)..];
    let line = |event: &crate::events::Event| {
        let style = match event.severity {
            Severity::Info => Style::new(),
            Severity::Warning => Style::new().fg(Color::Yellow),
            Severity::Error => Style::new().fg(Color::Red),
        };
        let date = clock::rfc3339(event.time_unix_us);
        let time = date.get(11..19).unwrap_or_default();
        Line::styled(
            format!("{time} {}", output::plain(&event.text).replace('\n', " ")),
            style,
        )
    };
    let lines: Vec<Line> = newest.iter().map(line).collect();
    frame.render_widget(
        Paragraph::new(lines).block(Block::bordered().title(" events ")),
        area,
    );
}
