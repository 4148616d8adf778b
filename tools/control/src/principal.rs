//! Who asks the control node, and what they may do.
//!
//! Key types: [`Principal`] (made for every connection, goes with every request), [`Role`],
//! [`Identity`] (numbers for files), [`Denied`]. Neighbours: `people` makes one of the user at the
//! other end of the unix socket, `tokens` of a token; `api::rules` says which role a route needs;
//! `jobs::Runner` asks whose a job is.
//!
//! Invariants: a principal comes from the system or from a token, never from what a request says;
//! what changes a job, or reads what it reads or writes, takes a principal or an [`Access`], which
//! only a check gives.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most supplementary groups that are kept of a user: they are written down with each job.
pub const GROUPS_MAX: usize = 256;

/// What somebody may do. Each may do what those before it may.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    ToSchema,
    clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Look at nodes, jobs and events.
    Read,
    /// Run jobs, and change their own.
    User,
    /// Change everything, and read what every job writes.
    Operator,
}

impl Role {
    /// All, the least first.
    pub const ALL: [Role; 3] = [Role::Read, Role::User, Role::Operator];

    /// The word for tables, requests and the store.
    pub fn word(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::User => "user",
            Role::Operator => "operator",
        }
    }

    /// The role of a word.
    pub fn of_word(word: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.word() == word)
    }
}

/// The numbers by which a system of the site knows a user: with these files are read and written
/// for them. As the host counts, also where control runs in a user namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Group of files that they make.
    pub gid: u32,
    /// All groups that they are in, at most [`GROUPS_MAX`].
    pub groups: Vec<u32>,
}

/// Somebody who asks the control node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Their name; empty for somebody on this machine who only looks and need not say who they are.
    pub name: String,
    /// Their numbers; none where the system does not know the name of a token.
    pub identity: Option<Identity>,
    /// What they may do.
    pub role: Role,
    /// They are the user who the control node runs as, at the unix socket of this machine.
    pub is_owner: bool,
}

/// Why somebody may not do something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// Nobody knows who it is.
    #[error(
        "this needs a token: send `Authorization: Bearer TOKEN`; `hearth token create` makes one, and the state directory has that of the control node's own user"
    )]
    Nameless,
    /// The role only looks.
    #[error(
        "{0} may only look; ask an operator for a token with the role user (`hearth token create --role user`)"
    )]
    ReadOnly(String),
    /// Operators alone may.
    #[error(
        "only operators may do this, and {name} asks with the role {role}; operators are root, the user who the control node runs as, and the members of its group api.operators (`hearth config`), and who shows a token with the role operator"
    )]
    NotOperator {
        /// Who asks.
        name: String,
        /// The role, which is that of a token where one is shown.
        role: &'static str,
    },
    /// A job is somebody else's.
    #[error(
        "job {job} is {owner}'s: only {owner} and operators change it and read what it writes, and the user {name} is neither; ask one of them"
    )]
    NotYours {
        /// The job.
        job: u64,
        /// Whose it is.
        owner: String,
        /// Who asks.
        name: String,
    },
    /// A file that nodes hold is of somebody else's job.
    #[error(
        "{0}: nodes hold a file of this name for somebody else's jobs; give your own by its path (`--with PATH`), or have an operator cast it for everybody (`hearth cast`)"
    )]
    NotYourFile(String),
    /// The request claims that somebody else asks.
    #[error(
        "this request says that {claimed:?} asks, and it comes from {name}; leave the name out, or ask as {claimed:?}"
    )]
    SomebodyElse {
        /// What it claims.
        claimed: String,
        /// Who asks.
        name: String,
    },
}

impl Denied {
    /// The stable word for scripts.
    pub fn code(&self) -> &'static str {
        match self {
            Denied::Nameless => "no-token",
            Denied::ReadOnly(_) => "read-only",
            Denied::NotOperator { .. } => "not-operator",
            Denied::NotYours { .. } | Denied::NotYourFile(_) => "not-yours",
            Denied::SomebodyElse { .. } => "not-yourself",
        }
    }
}

/// That somebody may change a job, and read what it writes: a check has shown it.
#[derive(Debug)]
pub struct Access(u64);

impl Access {
    /// The job.
    pub fn job(&self) -> u64 {
        self.0
    }
}

/// That somebody is an operator: a check has shown it.
#[derive(Debug)]
pub struct Operator<'a>(&'a Principal);

impl Operator<'_> {
    /// Their name.
    pub fn name(&self) -> &str {
        &self.0.name
    }
}

impl Principal {
    /// The control node itself.
    pub fn control() -> Self {
        Principal {
            name: "hearth".to_string(),
            identity: None,
            role: Role::Operator,
            is_owner: false,
        }
    }

    /// Somebody on this machine who has not said who they are.
    pub fn nameless() -> Self {
        Principal {
            name: String::new(),
            identity: None,
            role: Role::Read,
            is_owner: false,
        }
    }

    /// Whether they have this role.
    ///
    /// # Errors
    /// [`Denied`]: a higher one is needed.
    pub fn need(&self, role: Role) -> Result<(), Denied> {
        if self.role >= role {
            return Ok(());
        }
        if self.name.is_empty() {
            return Err(Denied::Nameless);
        }
        if role == Role::User {
            return Err(Denied::ReadOnly(self.name.clone()));
        }
        Err(Denied::NotOperator {
            name: self.name.clone(),
            role: self.role.word(),
        })
    }

    /// The proof that they are an operator.
    ///
    /// # Errors
    /// [`Denied`]: they are not.
    pub fn operator(&self) -> Result<Operator<'_>, Denied> {
        self.need(Role::Operator).map(|()| Operator(self))
    }

    /// The proof that job `job` of `owner` is theirs, or that they are an operator.
    ///
    /// # Errors
    /// [`Denied`]: it is not.
    pub fn access(&self, job: u64, owner: &str) -> Result<Access, Denied> {
        self.need(Role::User)?;
        if self.role == Role::Operator || self.name == owner {
            return Ok(Access(job));
        }
        Err(Denied::NotYours {
            job,
            owner: owner.to_string(),
            name: self.name.clone(),
        })
    }

    /// That a request, if it names who asks, names them.
    ///
    /// # Errors
    /// [`Denied::SomebodyElse`].
    pub fn claims(&self, claimed: &str) -> Result<(), Denied> {
        if claimed.is_empty() || claimed == self.name {
            return Ok(());
        }
        // What a request says has no bound but that of its body.
        Err(Denied::SomebodyElse {
            claimed: claimed.chars().take(64).collect(),
            name: self.name.clone(),
        })
    }
}

/// A principal as it goes with a request.
pub type By = Arc<Principal>;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, role: Role) -> Principal {
        Principal {
            name: name.to_string(),
            identity: None,
            role,
            is_owner: false,
        }
    }

    #[test]
    fn roles_are_ordered_and_have_words() {
        assert!(Role::Read < Role::User && Role::User < Role::Operator);
        for role in Role::ALL {
            assert_eq!(Role::of_word(role.word()), Some(role));
        }
        assert_eq!(Role::of_word("root"), None);
    }

    #[test]
    fn each_role_may_do_what_the_ones_below_may() {
        for role in Role::ALL {
            for needed in Role::ALL {
                assert_eq!(of("ann", role).need(needed).is_ok(), role >= needed);
            }
        }
        let code = |who: Principal, role| who.need(role).unwrap_err().code();
        assert_eq!(code(Principal::nameless(), Role::User), "no-token");
        assert_eq!(code(Principal::nameless(), Role::Operator), "no-token");
        assert_eq!(code(of("ann", Role::Read), Role::User), "read-only");
        assert_eq!(code(of("ann", Role::User), Role::Operator), "not-operator");
        // A token of an operator may have a lesser role.
        let denied = of("root", Role::User).operator().err().unwrap().to_string();
        assert!(denied.contains("root asks with the role user"), "{denied}");
    }

    #[test]
    fn a_job_is_its_owners_and_the_operators() {
        assert_eq!(of("ann", Role::User).access(3, "ann").unwrap().job(), 3);
        assert!(of("root", Role::Operator).access(3, "ann").is_ok());
        let denied = of("bob", Role::User).access(3, "ann").unwrap_err();
        assert_eq!(denied.code(), "not-yours");
        let text = denied.to_string();
        assert!(
            text.contains("job 3 is ann's") && text.contains("bob"),
            "{text}"
        );
        // A token that only looks does not even read its own user's.
        assert_eq!(
            of("ann", Role::Read).access(3, "ann").unwrap_err().code(),
            "read-only"
        );
        // A job of which nobody said whose it is is not that of somebody who does not say.
        assert!(Principal::nameless().access(3, "").is_err());
    }

    #[test]
    fn nobody_asks_in_the_name_of_another() {
        let ann = of("ann", Role::User);
        assert!(ann.claims("").is_ok() && ann.claims("ann").is_ok());
        let long = "x".repeat(100_000);
        for claimed in ["root", "Ann", &long] {
            let denied = ann.claims(claimed).unwrap_err();
            assert_eq!(denied.code(), "not-yourself");
            assert!(denied.to_string().len() < 300);
        }
        assert!(of("root", Role::Operator).claims("ann").is_err());
    }
}
