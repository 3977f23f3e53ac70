//! From result files to what people read: tables for the terminal, JSON, and a page of HTML.
//!
//! [`mod@read`] loads the results of directories, [`group`] collects those of one scenario and scheme, [`measure`]
//! says what of a run is shown, and the rest shows it. Void runs are in no figure, and named by all of them.

pub mod compare;
pub mod group;
pub mod html;
pub mod json;
pub mod measure;
pub mod read;
#[cfg(test)]
pub(crate) mod sample;
pub mod table;

pub use group::{Group, Groups};
pub use measure::{Better, MEASURES, Measure};
pub use read::{ReadError, Results, read};
