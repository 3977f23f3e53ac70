//! Rounds: flows that begin anew together, when all of them are complete.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::watch;

/// A meeting point of the flows that transfer in rounds, all in one thread.
#[derive(Debug)]
pub(super) struct Rounds {
    members: Cell<usize>,
    arrived: Cell<usize>,
    /// Rounds that are complete.
    complete: watch::Sender<u32>,
}

impl Rounds {
    pub(super) fn new(members: usize) -> Rc<Self> {
        Rc::new(Self {
            members: Cell::new(members),
            arrived: Cell::new(0),
            complete: watch::Sender::new(0),
        })
    }

    /// A flow takes part until the membership is dropped.
    pub(super) fn member(self: &Rc<Self>) -> Member {
        Member(Rc::clone(self))
    }

    fn check(&self) {
        if self.arrived.get() >= self.members.get() {
            self.arrived.set(0);
            self.complete.send_modify(|complete| *complete += 1);
        }
    }
}

/// A flow that takes part. Dropped, the others do not wait for it any more.
#[derive(Debug)]
pub(super) struct Member(Rc<Rounds>);

impl Member {
    /// Says that this flow is complete, and waits until all are.
    pub(super) async fn meet(&self) {
        let mut complete = self.0.complete.subscribe();
        let this = *complete.borrow_and_update();
        self.0.arrived.set(self.0.arrived.get() + 1);
        self.0.check();
        // The sender lives as long as its members.
        let _ = complete.wait_for(|complete| *complete > this).await;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.0.members.set(self.0.members.get() - 1);
        if self.0.members.get() > 0 {
            self.0.check();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::time::Duration;
    use tokio::runtime::Builder;
    use tokio::task::LocalSet;

    /// Three flows with times of their own, each of which notes when it begins a round.
    #[test]
    fn a_round_begins_for_all_at_once_and_leavers_hold_nobody_up() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let log = Rc::new(RefCell::new(Vec::new()));
        let rounds = Rounds::new(3);
        let tasks = LocalSet::new();
        for flow in 0..3_u64 {
            let (log, member) = (Rc::clone(&log), rounds.member());
            tasks.spawn_local(async move {
                for round in 0..3_u64 {
                    log.borrow_mut().push((round, flow));
                    tokio::time::sleep(Duration::from_millis(1 + 5 * flow)).await;
                    // The second flow leaves in its second round.
                    if (flow, round) == (1, 1) {
                        return;
                    }
                    member.meet().await;
                }
            });
        }
        runtime.block_on(tasks);
        let log = log.borrow();
        assert!(
            log.is_sorted_by_key(|(round, _)| *round),
            "a flow was a round ahead: {log:?}"
        );
        assert_eq!(log.len(), 8);
    }
}
