//! The forms in which the source documents showed their results, with their published numbers beside ours.
//!
//! [`pantheon`], [`ministat`], [`iperf`] and [`bequant`] each print what that document's readers know, and under it
//! what the document itself measured, with the difference. [`published`] has these numbers, [`claims`] what the
//! documents claim and whether their numbers support it, [`markdown`] puts all of it into tables for a text. Our
//! scenarios re-create their paths; where theirs are not fully known or too fast for a machine, differences show that,
//! too: each scenario's file says what was assumed.

pub mod bequant;
pub mod claims;
pub mod iperf;
pub mod markdown;
pub mod ministat;
pub mod pantheon;
pub mod printf;
pub mod published;

/// A scheme's name without its kind: `cubic` of `kernel:cubic`.
fn plain(scheme: &str) -> &str {
    scheme.rsplit(':').next().unwrap_or(scheme)
}
