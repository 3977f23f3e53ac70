//! What `top` shows, and what keys do to it; no terminal here.

use pk3c_ccp::stats::FLOW_FIELDS;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};

/// Looks that a flow's sparkline remembers.
const HISTORY: usize = 120;
/// Lines that a page moves by.
const PAGE: usize = 10;
/// Orders that `s` goes through; the first is the agent's own, by age.
const SORTS: [Option<&str>; 5] = [
    None,
    Some("goodput_bits_per_second"),
    Some("rtt_seconds"),
    Some("loss_ratio"),
    Some("remote"),
];
const FILTER_MAX: usize = 60;

/// What is on the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Page {
    /// All flows.
    #[default]
    List,
    /// One flow, by its number.
    Flow(u64),
}

/// A key, by what it may mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Up,
    Down,
    PageUp,
    PageDown,
    Enter,
    Back,
    Erase,
    Quit,
    Char(char),
}

/// The state of the view.
#[derive(Debug, Default)]
pub(super) struct App {
    pub(super) status: Value,
    pub(super) flows: Vec<Value>,
    pub(super) total: u64,
    pub(super) intervals: Vec<Value>,
    /// Reports per second since the look before.
    pub(super) reports_per_s: Option<f64>,
    pub(super) error: Option<String>,
    /// The filter is being typed.
    pub(super) typing: bool,
    filter: String,
    sort: usize,
    selected: usize,
    page: Page,
    over: bool,
    histories: BTreeMap<u64, VecDeque<f64>>,
}

impl App {
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn page(&self) -> Page {
        self.page
    }

    pub(super) fn filter(&self) -> &str {
        &self.filter
    }

    /// Name of the field by which flows are sorted.
    pub(super) fn sort(&self) -> Option<&'static str> {
        SORTS[self.sort]
    }

    /// For people.
    pub(super) fn sort_heading(&self) -> &'static str {
        let field = FLOW_FIELDS
            .iter()
            .find(|field| Some(field.name) == self.sort());
        field.map_or("age", |field| field.heading)
    }

    /// Index of the selected flow.
    pub(super) fn selected(&self) -> Option<usize> {
        (!self.flows.is_empty()).then(|| self.selected.min(self.flows.len() - 1))
    }

    /// Goodput of a flow at the last looks, bit/s, oldest first.
    pub(super) fn history(
        &self,
        flow: &Value,
    ) -> impl DoubleEndedIterator<Item = f64> + ExactSizeIterator {
        let history = flow["flow"].as_u64().and_then(|id| self.histories.get(&id));
        let values: Vec<_> = history.into_iter().flatten().copied().collect();
        values.into_iter()
    }

    /// The flow that the page is about, as far as it lives and the filter lets it through.
    pub(super) fn flow(&self, number: u64) -> Option<&Value> {
        self.flows.iter().find(|flow| flow["flow"] == number)
    }

    /// Takes the answers of a look.
    pub(super) fn on_look(
        &mut self,
        status: Value,
        flows: &Value,
        intervals: Option<anyhow::Result<Value>>,
    ) {
        let number = |status: &Value, name: &str| status["stats"][name].as_f64();
        let since = |name| Some(number(&status, name)? - number(&self.status, name)?);
        let elapsed = since("uptime_seconds").filter(|seconds| *seconds > 0.05);
        self.reports_per_s = elapsed.and_then(|seconds| Some(since("reports")? / seconds));
        let before = self
            .selected()
            .map(|index| self.flows[index]["flow"].clone());
        self.status = status;
        self.error = None;
        self.flows = flows["flows"].as_array().cloned().unwrap_or_default();
        self.total = flows["total"].as_u64().unwrap_or(0);
        // The selection stays on its flow, wherever that has moved.
        let moved = self
            .flows
            .iter()
            .position(|flow| Some(&flow["flow"]) == before.as_ref());
        self.selected = moved.unwrap_or(self.selected);
        if elapsed.is_some() || self.histories.is_empty() {
            self.remember();
        }
        match intervals {
            Some(Ok(answer)) => {
                self.intervals = answer["intervals"].as_array().cloned().unwrap_or_default();
            }
            Some(Err(error)) => self.error = Some(format!("{error:#}")),
            None => self.intervals.clear(),
        }
    }

    fn remember(&mut self) {
        let mut histories = std::mem::take(&mut self.histories);
        for flow in &self.flows {
            let Some(number) = flow["flow"].as_u64() else {
                continue;
            };
            let mut history = histories.remove(&number).unwrap_or_default();
            if history.len() == HISTORY {
                history.pop_front();
            }
            history.push_back(flow["goodput_bits_per_second"].as_f64().unwrap_or(0.0));
            self.histories.insert(number, history);
        }
    }

    /// The agent did not answer; what was shown stays.
    pub(super) fn on_error(&mut self, error: String) {
        self.error = Some(error);
        self.reports_per_s = None;
    }

    /// Does what a key says; `true` if the agent should be asked at once.
    pub(super) fn on_input(&mut self, input: Input) -> bool {
        if input == Input::Quit {
            self.over = true;
            return false;
        }
        if self.typing {
            return self.on_typing(input);
        }
        let last = self.flows.len().saturating_sub(1);
        match (self.page, input) {
            (_, Input::Char('q')) => self.over = true,
            (Page::Flow(_), Input::Back | Input::Enter | Input::Erase) => self.page = Page::List,
            (Page::List, Input::Up | Input::Char('k')) => {
                self.selected = self.selected.min(last).saturating_sub(1);
            }
            (Page::List, Input::Down | Input::Char('j')) => {
                self.selected = (self.selected + 1).min(last);
            }
            (Page::List, Input::PageUp) => {
                self.selected = self.selected.min(last).saturating_sub(PAGE);
            }
            (Page::List, Input::PageDown) => self.selected = (self.selected + PAGE).min(last),
            (Page::List, Input::Char('s')) => {
                self.sort = (self.sort + 1) % SORTS.len();
                return true;
            }
            (Page::List, Input::Char('/')) => self.typing = true,
            (Page::List, Input::Back) => {
                self.filter.clear();
                return true;
            }
            (Page::List, Input::Enter) => {
                let flow = self
                    .selected()
                    .and_then(|index| self.flows[index]["flow"].as_u64());
                if let Some(flow) = flow {
                    self.page = Page::Flow(flow);
                    self.intervals.clear();
                }
                return flow.is_some();
            }
            _ => {}
        }
        false
    }

    fn on_typing(&mut self, input: Input) -> bool {
        match input {
            Input::Char(c) if self.filter.len() < FILTER_MAX => self.filter.push(c),
            Input::Erase => drop(self.filter.pop()),
            Input::Enter => self.typing = false,
            Input::Back => {
                self.filter.clear();
                self.typing = false;
            }
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn flows(numbers: &[u64]) -> Value {
        let flows: Vec<_> = numbers
            .iter()
            .map(|n| json!({"flow": n, "goodput_bits_per_second": *n as f64 * 1e6}))
            .collect();
        json!({"total": numbers.len(), "flows": flows})
    }

    fn status(uptime_s: f64, reports: u64) -> Value {
        json!({"stats": {"uptime_seconds": uptime_s, "reports": reports}})
    }

    #[test]
    fn the_selection_follows_its_flow() {
        let mut app = App::default();
        assert_eq!(app.selected(), None);
        app.on_look(status(1.0, 0), &flows(&[1, 2, 3]), None);
        app.on_input(Input::Down);
        app.on_look(status(2.0, 500), &flows(&[3, 1, 2]), None);
        assert_eq!(app.selected(), Some(2), "flow 2");
        assert_eq!(app.reports_per_s, Some(500.0));
        assert!(app.on_input(Input::Enter), "ask for its intervals");
        assert_eq!(app.page(), Page::Flow(2));
        app.on_look(
            status(3.0, 500),
            &flows(&[3]),
            Some(Err(anyhow::anyhow!("no live flow"))),
        );
        assert_eq!(app.error.as_deref(), Some("no live flow"));
        app.on_input(Input::Back);
        assert_eq!((app.page(), app.selected()), (Page::List, Some(0)));
        for input in [Input::PageDown, Input::PageUp, Input::Up, Input::Char('x')] {
            assert!(!app.on_input(input));
        }
        app.on_input(Input::Char('q'));
        assert!(app.is_over());
    }

    #[test]
    fn a_filter_is_typed_and_cleared() {
        let mut app = App::default();
        app.on_input(Input::Char('/'));
        for c in "q10".chars() {
            assert!(app.on_input(Input::Char(c)), "the agent filters");
        }
        app.on_input(Input::Erase);
        app.on_input(Input::Enter);
        assert_eq!(
            (app.filter(), app.typing, app.is_over()),
            ("q1", false, false)
        );
        assert!(app.on_input(Input::Back));
        assert_eq!(app.filter(), "");
        for heading in ["goodput", "rtt", "loss", "remote", "age"] {
            assert!(app.on_input(Input::Char('s')));
            assert_eq!(app.sort_heading(), heading);
        }
        app.on_input(Input::Quit);
        assert!(app.is_over());
    }

    #[test]
    fn histories_are_bounded_and_forget_flows() {
        let mut app = App::default();
        for second in 0..HISTORY as u64 + 5 {
            app.on_look(status(second as f64, 0), &flows(&[1, 2]), None);
        }
        let flow = app.flows[0].clone();
        assert_eq!(app.history(&flow).len(), HISTORY);
        app.on_look(status(1e6, 0), &flows(&[2]), None);
        assert_eq!(app.history(&flow).len(), 0);
        app.on_error("gone".to_owned());
        assert_eq!((app.flows.len(), app.reports_per_s), (1, None));
    }
}
