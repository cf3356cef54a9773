//! How a user names a cluster: `etcd:HOST:PORT[,HOST:PORT...]/NAME`.

use core::fmt;
use core::str::FromStr;

/// A cluster, and where the etcd is that knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterName {
    /// `host:port` of one or more members of etcd.
    pub(crate) endpoints: Vec<String>,
    /// What the cluster is called.
    pub(crate) name: String,
}

/// The text names no cluster.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// It is not of this form.
    #[error(
        "`{text}` names no cluster: write etcd:HOST:PORT/NAME, such as etcd:10.0.0.5:2379/main; several HOST:PORT are separated by commas"
    )]
    Form {
        /// What was written.
        text: String,
    },
    /// It asks for TLS.
    #[error("`{text}`: etcd is reached over plain HTTP only: write etcd:HOST:PORT/NAME, without https://")]
    Tls {
        /// What was written.
        text: String,
    },
    /// The last part is no name.
    #[error("`{name}` is no name of a cluster: use letters, digits, `-`, `_` and `.`, at most 64")]
    Name {
        /// What was written.
        name: String,
    },
}

impl ClusterName {
    /// Whether a text that names a pool means a cluster.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("etcd:")
    }

    /// Where etcd is, for messages.
    #[must_use]
    pub fn etcd(&self) -> String {
        self.endpoints.join(",")
    }

    /// What the cluster is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for ClusterName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let form = || NameError::Form { text: text.to_owned() };
        let rest = text.strip_prefix("etcd:").ok_or_else(form)?;
        if rest.contains("https://") {
            return Err(NameError::Tls { text: text.to_owned() });
        }
        let (endpoints, name) = rest.split_once('/').ok_or_else(form)?;
        let endpoints: Vec<String> = endpoints
            .split(',')
            .map(|endpoint| endpoint.trim().to_owned())
            .collect();
        if !endpoints.iter().all(|endpoint| is_host_and_port(endpoint)) {
            return Err(form());
        }
        let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
            return Err(NameError::Name { name: name.to_owned() });
        }
        Ok(Self {
            endpoints,
            name: name.to_owned(),
        })
    }
}

fn is_host_and_port(endpoint: &str) -> bool {
    let parts = endpoint.rsplit_once(':');
    parts.is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|port| port != 0)
    })
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd:{}/{}", self.endpoints.join(","), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_and_shown_alike() {
        for text in ["etcd:a:2379/main", "etcd:a:1,[::1]:2,10.0.0.1:3/x-1_y.z"] {
            let name: ClusterName = text.parse().expect(text);
            assert_eq!(name.to_string(), text);
        }
        let name: ClusterName = "etcd:a:1, b:2/main".parse().expect("a space is no matter");
        assert_eq!(name.endpoints, ["a:1", "b:2"]);
        assert_eq!(name.name, "main");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = [
            ("a:2379/main", "names no cluster"),
            ("etcd:a:2379", "names no cluster"),
            ("etcd:a/main", "names no cluster"),
            ("etcd:a:0/main", "names no cluster"),
            ("etcd:,/main", "names no cluster"),
            ("etcd:http://a:2379/main", "names no cluster"),
            ("etcd:https://a:2379/main", "without https://"),
            ("etcd:a:2379/", "is no name"),
            ("etcd:a:2379/a/b", "is no name"),
        ];
        for (text, what) in wrong {
            let error = text.parse::<ClusterName>().expect_err(text).to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
