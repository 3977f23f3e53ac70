//! The datapaths as an operator sees them.

use pk3c_ccp::stats::{Carried, DatapathCounts, DatapathView, FlowSample};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The eBPF datapath, whose table of flows is mapped here.
pub(crate) struct BpfView(pub(crate) ccp_bpf::Observer);

fn known(srtt_us: u32) -> Option<Duration> {
    (srtt_us > 0).then(|| Duration::from_micros(srtt_us.into()))
}

impl DatapathView for BpfView {
    fn flows(&self) -> Vec<FlowSample> {
        let flows = self.0.flows().into_iter();
        let sample = flows.map(|(sock_id, flow)| FlowSample {
            sock_id,
            local: flow.local,
            remote: flow.remote,
            age: flow.age,
            driven: flow.driven,
            is_driven: flow.is_driven,
            fallback_episodes: flow.stats.fallbacks,
            carried: Some(Carried {
                bytes_acked: flow.stats.bytes_acked,
                packets_delivered: flow.stats.packets_delivered,
                packets_lost: flow.stats.packets_lost,
            }),
            reports_dropped: flow.stats.reports_dropped,
            program_errors: flow.program_errors,
            srtt: known(flow.stats.srtt_us),
        });
        sample.collect()
    }

    fn counts(&self) -> DatapathCounts {
        let counters = self.0.counters();
        DatapathCounts {
            fallbacks: counters.fallbacks,
            fallbacks_loss: counters.fallbacks_loss,
            offers_dropped: counters.creates_dropped,
            closes_dropped: counters.closes_dropped,
            reports_dropped: counters.reports_dropped,
            program_errors: counters.program_errors,
            flows_without_slot: counters.no_slot,
            programs_missing: counters.missing_programs,
            updates_stale: counters.stale_updates,
            records_malformed: counters.malformed_records,
            messages_rejected: counters.rejected_messages,
        }
    }

    fn drain(&self, drain: bool) -> bool {
        self.0.drain(drain);
        true
    }

    fn is_draining(&self) -> bool {
        self.0.is_drained()
    }

    fn agent_silence(&self) -> Option<Duration> {
        Some(self.0.agent_silence())
    }
}

/// The kernel module. It describes a flow when it offers it and then with its reports; in between, ages are counted on.
/// The original ccp-kernel describes no flow.
pub(crate) struct CharView {
    observer: ccp_char::Observer,
    /// The age at the last description, and when that was seen.
    described: Mutex<HashMap<u32, (Duration, Instant)>>,
}

impl CharView {
    pub(crate) fn new(observer: ccp_char::Observer) -> Self {
        let described = Mutex::default();
        Self {
            observer,
            described,
        }
    }
}

impl DatapathView for CharView {
    fn flows(&self) -> Vec<FlowSample> {
        let now = Instant::now();
        let described = self.described.lock();
        let mut described = described.unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *described);
        let is_drained = self.observer.is_drained();
        let sample = self.observer.flows().into_iter().map(|(sock_id, flow)| {
            let same = before.get(&sock_id).filter(|(age, _)| *age == flow.age);
            let last = same.copied().unwrap_or((flow.age, now));
            described.insert(sock_id, last);
            let since = now.duration_since(last.1);
            FlowSample {
                sock_id,
                local: flow.local,
                remote: flow.remote,
                age: flow.age + since,
                driven: flow.driven + if is_drained { Duration::ZERO } else { since },
                is_driven: !is_drained,
                fallback_episodes: flow.fallbacks,
                carried: Some(Carried {
                    bytes_acked: flow.bytes_acked,
                    packets_delivered: flow.packets_delivered,
                    packets_lost: flow.packets_lost,
                }),
                reports_dropped: flow.reports_dropped,
                program_errors: flow.program_errors.into(),
                srtt: known(flow.srtt_us),
            }
        });
        sample.collect()
    }

    fn counts(&self) -> DatapathCounts {
        let counters = ccp_char::counters();
        let of = |name: &str| {
            let found = counters.iter().find(|counter| counter.name == name);
            found.map_or(0, |counter| counter.value)
        };
        let rejected = counters.iter();
        let rejected = rejected.filter(|counter| counter.name.starts_with("rejected/"));
        DatapathCounts {
            fallbacks: of("counters/fallbacks"),
            fallbacks_loss: 0,
            offers_dropped: of("counters/creates_dropped"),
            closes_dropped: 0,
            reports_dropped: of("counters/reports_dropped"),
            program_errors: of("counters/program_errors"),
            flows_without_slot: of("counters/flows_refused"),
            programs_missing: 0,
            updates_stale: of("counters/stale"),
            records_malformed: 0,
            messages_rejected: rejected.map(|counter| counter.value).sum(),
        }
    }

    fn drain(&self, drain: bool) -> bool {
        self.observer.drain(drain).is_ok()
    }

    fn is_draining(&self) -> bool {
        self.observer.is_drained()
    }

    fn agent_silence(&self) -> Option<Duration> {
        None
    }
}
