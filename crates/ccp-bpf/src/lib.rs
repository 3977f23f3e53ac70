//! A CCP datapath for TCP in eBPF, for any portus algorithm on a stock Linux kernel.
//!
//! The congestion control plane (CCP) splits congestion control: a *datapath* in the kernel
//! measures every ACK and paces, an *agent* in user space decides. This datapath is a BPF
//! `struct_ops` of type `tcp_congestion_ops`: no module, no reboot. CCP programs are validated,
//! translated to BPF when the agent installs them, and run on every ACK.
//!
//! ```no_run
//! # fn run<A>(algorithm: A) -> Result<(), Box<dyn std::error::Error>>
//! # where A: portus::CongAlg<ccp_bpf::BpfIpc> + Send + 'static {
//! let datapath = ccp_bpf::Datapath::start(ccp_bpf::Config::new("mycc"))?;
//! let backend = portus::ipc::BackendBuilder { sock: datapath.ipc()? };
//! portus::RunBuilder::new(backend).default_alg(algorithm).run().map_err(|e| e.0)?;
//! datapath.stop()?;
//! # Ok(()) }
//! ```
//!
//! While no agent is there, or it has been silent for [`Config::silence`], flows run under the
//! kernel's Cubic from inside the datapath; when an agent comes (back), they are offered to it.
#![allow(unsafe_code)]

#[cfg(test)]
mod conformance;
mod connections;
mod datapath;
mod error;
mod flows;
#[cfg(test)]
#[path = "../../ccp-vm/tests/support/generate.rs"]
mod generate;
mod governance;
mod ipc;
mod kernel;
mod layout;
mod load;
mod object;
mod own_dir;
mod pins;
mod programs;
#[cfg(test)]
#[path = "../../ccp-vm/tests/support/scripted.rs"]
mod scripted;
mod sys;
mod translate;
#[cfg(test)]
#[path = "../tests/support/translated.rs"]
mod translated;

pub use ccp_vm::{InvalidMessage, InvalidProgram};
pub use connections::{Connections, Moved};
pub use datapath::{Config, Datapath, Observer, Origin, detach};
pub use error::Error;
pub use flows::{Counters, FlowInfo};
pub use governance::{Governance, Limits, Mode};
pub use ipc::BpfIpc;
pub use layout::FlowStats;
