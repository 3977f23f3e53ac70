//! What the service manager is told (systemd's notify protocol): ready, reloading, stopping, and that the agent lives.
//! Without one, nothing happens.

use super::operator::Operator;
use sd_notify::NotifyState;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// An agent whose loop has not turned for so long is not alive. It turns every 25 ms.
const SILENCE_MAX: Duration = Duration::from_secs(2);

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "the service manager does not hear");
    }
}

/// Sockets can choose the congestion control.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The configuration is read again, by `work`.
pub(crate) fn reloading(work: impl FnOnce()) {
    let since = NotifyState::monotonic_usec_now();
    let states = [Some(NotifyState::Reloading), since.ok()];
    tell(&states.into_iter().flatten().collect::<Vec<_>>());
    work();
    ready();
}

/// The end has begun.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Gives signs of life for as long as the agent's own loop turns, if the service manager wants them.
pub(super) async fn watch(operator: Arc<Operator>) {
    let Some(period) = sd_notify::watchdog_enabled().filter(|period| !period.is_zero()) else {
        return;
    };
    let mut ticks = tokio::time::interval(period / 2);
    loop {
        ticks.tick().await;
        let silence = operator.monitor().datapath().agent_silence();
        if silence.is_none_or(|silence| silence < SILENCE_MAX) {
            tell(&[NotifyState::Watchdog]);
        }
    }
}
