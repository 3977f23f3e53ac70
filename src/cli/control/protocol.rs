//! The control protocol, version 1: one JSON object per line in both directions.
//!
//! ```text
//! → {"v":1,"id":7,"do":"set","values":{"hb-loss":"7%"}}
//! ← {"v":1,"id":7,"ok":{"changed":{"hb-loss":["5%","7%"]}}}
//! ← {"v":1,"id":7,"error":{"kind":"refused","message":"--hb-loss 70% is out of range: allowed is 0% to 50%"}}
//! ```
//!
//! `id` is whatever the client chose, and comes back. Unknown members of a request are refused, so that a misspelt
//! option is not silently left out; clients ignore members of answers that they do not know.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Version of the protocol; raised with a change of meaning.
pub(crate) const VERSION: u64 = 1;
/// Longest request, with its newline, bytes: all parameters at once take a fifth of it.
pub(crate) const REQUEST_MAX: usize = 16 << 10;

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Which program and protocol this is.
    Version {},
    /// The statistics of the agent as a whole.
    Status {},
    /// Live flows.
    Flows {
        /// Name of the field to sort by, largest first; oldest first without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sort: Option<String>,
        /// Only flows of which an end, the phase, the state or the reason contains this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filter: Option<String>,
        /// How many at most; 1000 without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<usize>,
    },
    /// The last intervals of one flow.
    Explain {
        /// Its number, or one of its ends as ADDRESS:PORT or :PORT.
        flow: String,
        /// Only intervals later than this, s since the agent began.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<f64>,
    },
    /// The parameters in force, and where they come from.
    Parameters {},
    /// Change parameters, all or none.
    Set {
        /// Flag → value.
        values: BTreeMap<String, String>,
    },
    /// Read the configuration file again.
    Reload {},
    /// Change what is logged.
    Log {
        /// A level or a filter, as for `--log`.
        level: String,
    },
    /// Hand all flows to the fallback, or take them back.
    Drain {
        /// `true` to hand over.
        drain: bool,
    },
    /// What the experiments of policies have collected.
    Experiments {},
}

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    pub(crate) kind: Kind,
    /// What is wrong and what to do, for people.
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(kind: Kind, message: impl ToString) -> Self {
        let message = message.to_string();
        Self { kind, message }
    }

    /// As an answer.
    pub(crate) fn answer(&self, id: Value) -> Value {
        json!({"v": VERSION, "id": id, "error": self})
    }
}

/// The kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Not a JSON object, or longer than allowed.
    Malformed,
    /// Of another version of the protocol.
    Version,
    /// Nothing that can be asked, or with wrong members.
    Unknown,
    /// Understood, but not possible.
    Refused,
    /// Too many clients.
    Busy,
}

/// Reads one line; the id is told as far as it is known.
pub(crate) fn read(line: &[u8]) -> (Value, Result<Request, Refusal>) {
    let mut object = match serde_json::from_slice(line) {
        Ok(Value::Object(object)) => object,
        Ok(_) => {
            let refusal = Refusal::new(Kind::Malformed, "a request is a JSON object on one line");
            return (Value::Null, Err(refusal));
        }
        Err(error) => {
            let message = format!("not JSON: {error}; a request is a JSON object on one line");
            return (Value::Null, Err(Refusal::new(Kind::Malformed, message)));
        }
    };
    let id = object.remove("id").unwrap_or_default();
    let version = object.remove("v");
    if version.as_ref().and_then(Value::as_u64) != Some(VERSION) {
        let said =
            version.map_or_else(|| "no version".to_owned(), |said| format!("version {said}"));
        let message = format!(
            "the request has {said}: this agent speaks version {VERSION}, write \"v\":{VERSION}"
        );
        return (id, Err(Refusal::new(Kind::Version, message)));
    }
    let request = serde_json::from_value(Value::Object(object));
    (
        id,
        request.map_err(|error| Refusal::new(Kind::Unknown, error)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refusal(line: &str) -> (Value, Refusal) {
        let (id, read) = read(line.as_bytes());
        (id, read.unwrap_err())
    }

    #[test]
    fn requests_read_back() {
        let values = BTreeMap::from([("hb-loss".to_owned(), "7%".to_owned())]);
        for request in [
            Request::Version {},
            Request::Flows {
                sort: Some("loss_ratio".into()),
                filter: None,
                limit: Some(3),
            },
            Request::Explain {
                flow: "3".into(),
                after: Some(1.5),
            },
            Request::Set { values },
            Request::Drain { drain: true },
        ] {
            let mut object = serde_json::to_value(&request).unwrap();
            object["v"] = VERSION.into();
            object["id"] = "x".into();
            let (id, read) = read(object.to_string().as_bytes());
            assert_eq!((id, read), ("x".into(), Ok(request)));
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, kind, said) in [
            ("", Kind::Malformed, "not JSON"),
            ("[1]", Kind::Malformed, "object"),
            ("{\"id\":3,\"do\":\"status\"}", Kind::Version, "no version"),
            ("{\"v\":2,\"do\":\"status\"}", Kind::Version, "version 2"),
            ("{\"v\":1}", Kind::Unknown, "do"),
            ("{\"v\":1,\"do\":\"dance\"}", Kind::Unknown, "dance"),
            (
                "{\"v\":1,\"do\":\"flows\",\"sorted\":\"x\"}",
                Kind::Unknown,
                "sorted",
            ),
            (
                "{\"v\":1,\"do\":\"drain\",\"drain\":\"yes\"}",
                Kind::Unknown,
                "boolean",
            ),
        ] {
            let (_, refusal) = refusal(line);
            assert_eq!(refusal.kind, kind, "{line}: {refusal:?}");
            assert!(refusal.message.contains(said), "{line}: {refusal:?}");
        }
        assert_eq!(refusal("{\"v\":9,\"id\":[1]}").0, json!([1]));
        let deep = "[".repeat(100_000);
        assert_eq!(refusal(&deep).1.kind, Kind::Malformed);
    }

    proptest! {
        #[test]
        fn no_line_panics(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&line);
        }

        #[test]
        fn no_object_panics(verb in "[a-z-]{0,10}", key in "\\PC{0,10}", value in any::<i64>()) {
            let object = json!({"v": 1, "do": verb, key: value});
            let _ = read(object.to_string().as_bytes());
        }
    }
}
