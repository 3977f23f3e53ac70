//! The character device of a CCP kernel module, as a transport for portus.
//!
//! `/dev/ccpkp` speaks CCP: a READY when it is opened, then CREATE and MEASURE to read, and INSTALL,
//! CHANGE and UPDATE to write, one per call. That is all that the original ccp-kernel offers, and
//! with that alone everything here works. The module of this project (`ccp-kernel/`) also describes
//! each flow before it creates or closes it; [`Observer::flow`] has that.
//!
//! ```no_run
//! # fn run<A>(algorithm: A) -> Result<(), Box<dyn std::error::Error>>
//! # where A: portus::CongAlg<ccp_char::CharIpc> + Send + 'static {
//! let sock = ccp_char::CharIpc::open(ccp_char::DEVICE.as_ref())?;
//! let backend = portus::ipc::BackendBuilder { sock };
//! portus::RunBuilder::new(backend).default_alg(algorithm).run().map_err(|e| e.0)?;
//! # Ok(()) }
//! ```

mod counters;
mod flow;
mod inbox;
mod ipc;

pub use counters::{Counter, counters};
pub use flow::{FlowInfo, Observer};
pub use ipc::{CharIpc, DEVICE, Error};
