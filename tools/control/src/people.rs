//! The users of this machine: who is at the other end of the unix socket, and what they may do.
//!
//! Key types: [`People`], [`Serves`]. Neighbours: `serve` makes one and opens the socket to a
//! group; `api::auth` asks for each connection; `user` names the user of a command.
//!
//! The system says the numbers of whoever connected (SO_PEERCRED). `/etc/passwd` and `/etc/group`
//! are read for the name and the groups, and where they do not know the number the commands `id`
//! and `getent` are asked: this program is linked statically, and such a program must not load the
//! modules by which a system may know its users (LDAP, sssd).
//!
//! `hearth up` may run control in a user namespace with one user in it. The system then shows that
//! user as number 0 and everybody else as one and the same number, so the one is known by the
//! namespace's map, and nobody else is served.
//!
//! Invariants: who cannot be told apart is not served; answers about users are at most
//! [`KNOWN_FOR`] old, and bounded in number; a command has [`ANSWER_LIMIT`], and nobody waits for
//! one who is known without it, such as root.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::principal::{GROUPS_MAX, Identity, Principal, Role};

/// How long what the system said of a user is taken for true.
const KNOWN_FOR: Duration = Duration::from_secs(20);

/// How long a command may take that is asked for a user.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Files in which a system names its users and groups.
const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// Most users who are remembered.
const KNOWN_MAX: usize = 1_024;

/// Whom a control node serves over its unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serves {
    /// Everybody who may open the socket: it runs as root.
    Everybody,
    /// Its own user and operators.
    Operators,
    /// Its own user: it runs in a user namespace, where nobody else can be told apart.
    Itself,
}

/// Why somebody at the socket is not served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stranger {
    /// Only operators are.
    #[error(
        "this control node runs as {control}, not as root: it serves {control} and operators only, and {name} is none; ask for membership in the group {group:?} (api.operators), or use a control node that root runs (`hearth serve`)"
    )]
    NotOperator {
        /// Who asks.
        name: String,
        /// Who control runs as.
        control: String,
        /// The group of operators.
        group: String,
    },
    /// The namespace hides who it is.
    #[error(
        "this control node runs in a user namespace of {control}, where it can tell nobody else apart: it serves {control} only; ask as that user"
    )]
    Hidden {
        /// Who control runs as.
        control: String,
    },
    /// What the system knows users by did not answer.
    #[error(
        "what this system knows its users by does not answer for user {0} (`id {0}`); ask again, and see to that service (sssd, LDAP)"
    )]
    NoAnswer(u32),
    /// The system did not say.
    #[error("the system does not say who connected to the control node's socket")]
    Unknown,
}

/// A command did not answer in time: what it would have said is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NoAnswer;

/// A user as the system knows them.
#[derive(Debug, PartialEq, Eq)]
struct Account {
    name: String,
    gid: u32,
    groups: Vec<u32>,
}

/// The users of this machine.
#[derive(Debug)]
pub struct People {
    /// Name of the group of operators.
    operators: String,
    /// Who this process runs as, by the system's number inside a namespace.
    own: u32,
    users: IdMap,
    groups: IdMap,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    accounts: BTreeMap<u32, (Instant, Arc<Account>)>,
    /// Numbers by name, or that there are none.
    names: BTreeMap<String, (Instant, Option<u32>)>,
    /// The number of the group of operators, if there is one.
    operators: Option<(Instant, Option<u32>)>,
}

impl People {
    /// The users of this machine, of whom members of the group `operators` are operators.
    pub fn new(operators: &str) -> Self {
        let map = |of: &str| std::fs::read_to_string(format!("/proc/self/{of}_map"));
        People {
            operators: operators.to_string(),
            own: nix::unistd::geteuid().as_raw(),
            users: IdMap::of(&map("uid").unwrap_or_default()),
            groups: IdMap::of(&map("gid").unwrap_or_default()),
            known: Mutex::default(),
        }
    }

    /// Whom this process serves.
    pub fn serves(&self) -> Serves {
        match self.users {
            IdMap::One { .. } => Serves::Itself,
            IdMap::Many if self.own == 0 => Serves::Everybody,
            IdMap::Many => Serves::Operators,
        }
    }

    /// Name of the user who this process runs as.
    pub fn own_name(&self) -> String {
        let uid = self.users.outside(self.own).unwrap_or(self.own);
        match self.account(uid) {
            Ok(account) => account.name.clone(),
            Err(NoAnswer) => uid.to_string(),
        }
    }

    /// Numbers of the groups of that user.
    pub fn own_groups(&self) -> Vec<u32> {
        let uid = self.users.outside(self.own).unwrap_or(self.own);
        let account = self.account(uid);
        account.map_or_else(|_| Vec::new(), |account| account.groups.clone())
    }

    /// Name of the group of operators.
    pub fn operators(&self) -> &str {
        &self.operators
    }

    /// Who has connected, with these numbers. May wait for a command: not for a task that others
    /// wait for.
    ///
    /// # Errors
    /// [`Stranger`]: somebody who is not served.
    pub fn who(&self, uid: u32, gid: u32) -> Result<Principal, Stranger> {
        let Some(host_uid) = self.users.outside(uid) else {
            let control = self.own_name();
            return Err(Stranger::Hidden { control });
        };
        // Under the number for a name, what is theirs would be somebody else's later.
        let account = self.account(host_uid);
        let account = account.map_err(|NoAnswer| Stranger::NoAnswer(host_uid))?;
        let gid = self.groups.outside(gid).unwrap_or(account.gid);
        let mut groups = account.groups.clone();
        if !groups.contains(&gid) {
            groups.insert(0, gid);
        }
        groups.truncate(GROUPS_MAX);
        let is_owner = uid == self.own;
        let in_group = || {
            let of = self.operators_gid();
            of.is_some_and(|of| groups.contains(&of))
        };
        let role = match host_uid == 0 || is_owner || in_group() {
            true => Role::Operator,
            false => Role::User,
        };
        if role != Role::Operator && self.serves() != Serves::Everybody {
            return Err(Stranger::NotOperator {
                name: account.name.clone(),
                control: self.own_name(),
                group: self.operators.clone(),
            });
        }
        Ok(Principal {
            name: account.name.clone(),
            identity: Some(Identity {
                uid: host_uid,
                gid,
                groups,
            }),
            role,
            is_owner,
        })
    }

    /// The numbers of a user by name, if the system knows one. May wait for a command.
    pub fn named(&self, name: &str) -> Option<Identity> {
        let uid = self.number(name)?;
        let account = self.account(uid).ok()?;
        Some(Identity {
            uid,
            gid: account.gid,
            groups: account.groups.clone(),
        })
    }

    fn number(&self, name: &str) -> Option<u32> {
        let known = self.known.lock().expect("no panic while held");
        if let Some((at, uid)) = known.names.get(name)
            && at.elapsed() < KNOWN_FOR
        {
            return *uid;
        }
        drop(known);
        let lines = read(USERS);
        let own = lines
            .lines()
            .filter_map(user_of)
            .find(|user| user.0 == name);
        // It would take a number for that of a user, and a word with - for an option.
        let is_word = !name.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        let uid = match own {
            Some(user) => Some(user.1),
            None if is_word => line_of("id", &["-u", name])
                .ok()?
                .and_then(|line| line.parse().ok()),
            None => None,
        };
        let mut known = self.known.lock().expect("no panic while held");
        if known.names.len() >= KNOWN_MAX {
            known.names.clear();
        }
        known.names.insert(name.to_string(), (Instant::now(), uid));
        uid
    }

    fn account(&self, uid: u32) -> Result<Arc<Account>, NoAnswer> {
        let fresh = |at: &Instant| at.elapsed() < KNOWN_FOR;
        let known = self.known.lock().expect("no panic while held");
        if let Some((_, account)) = known.accounts.get(&uid).filter(|(at, _)| fresh(at)) {
            return Ok(account.clone());
        }
        drop(known);
        let account = Arc::new(account(uid)?);
        let mut known = self.known.lock().expect("no panic while held");
        if known.accounts.len() >= KNOWN_MAX {
            known.accounts.clear();
        }
        let entry = (Instant::now(), account.clone());
        known.accounts.insert(uid, entry);
        Ok(account)
    }

    fn operators_gid(&self) -> Option<u32> {
        let known = self.known.lock().expect("no panic while held").operators;
        if let Some((_, gid)) = known.filter(|(at, _)| at.elapsed() < KNOWN_FOR) {
            return gid;
        }
        let gid = group(&self.operators);
        let mut known = self.known.lock().expect("no panic while held");
        known.operators = Some((Instant::now(), gid));
        gid
    }
}

/// The number of a group, if there is one of this name.
pub fn group(name: &str) -> Option<u32> {
    if name.is_empty() || name.starts_with('-') {
        return None;
    }
    let lines = read(GROUPS);
    let mut groups = lines.lines().filter_map(group_of);
    let known = groups.find(|(known, ..)| *known == name);
    known.map(|(_, gid, _)| gid).or_else(|| {
        let line = line_of("getent", &["group", name]).ok()??;
        group_of(&line).map(|(_, gid, _)| gid)
    })
}

fn account(uid: u32) -> Result<Account, NoAnswer> {
    match account_in(&read(USERS), &read(GROUPS), uid) {
        Some(account) => Ok(account),
        None => asked(uid, line_of),
    }
}

/// A user by the texts of [`USERS`] and [`GROUPS`].
fn account_in(users: &str, groups: &str, uid: u32) -> Option<Account> {
    let mut users = users.lines().filter_map(user_of);
    let (name, _, gid) = users.find(|(_, known, _)| *known == uid)?;
    let all = groups.lines().filter_map(group_of);
    let others =
        all.filter(|(_, of, members)| *of != gid && members.split(',').any(|of| of == name));
    let groups = std::iter::once(gid).chain(others.map(|(_, of, _)| of));
    Some(Account {
        name: name.to_string(),
        gid,
        groups: groups.take(GROUPS_MAX).collect(),
    })
}

/// A user by what commands say; `line_of` asks one.
fn asked(
    uid: u32,
    line_of: impl Fn(&str, &[&str]) -> Result<Option<String>, NoAnswer>,
) -> Result<Account, NoAnswer> {
    let number = uid.to_string();
    let Some(name) = line_of("id", &["-un", &number])? else {
        // Whoever connects has a group all the same, which the system says.
        return Ok(Account {
            name: number,
            gid: uid,
            groups: Vec::new(),
        });
    };
    let said = |option: &str| line_of("id", &[option, &name]).map(Option::unwrap_or_default);
    let numbers = |text: String| -> Vec<u32> {
        let words = text.split_ascii_whitespace();
        let numbers = words.filter_map(|word| word.parse().ok());
        numbers.take(GROUPS_MAX).collect()
    };
    Ok(Account {
        gid: said("-g")?.parse().unwrap_or(uid),
        groups: numbers(said("-G")?),
        name,
    })
}

fn read(path: &str) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Name, number and group of a line as `name:x:1000:1000:...`.
fn user_of(line: &str) -> Option<(&str, u32, u32)> {
    let mut words = line.split(':');
    let name = words.next().filter(|name| !name.is_empty())?;
    let uid = words.nth(1)?.parse().ok()?;
    Some((name, uid, words.next()?.parse().ok()?))
}

/// Name, number and members of a line as `name:x:27:ann,bob`.
fn group_of(line: &str) -> Option<(&str, u32, &str)> {
    let mut words = line.split(':');
    let name = words.next().filter(|name| !name.is_empty())?;
    let gid = words.nth(1)?.parse().ok()?;
    Some((name, gid, words.next().unwrap_or_default().trim_end()))
}

/// What a command prints, if it succeeds: one line that is not empty. Nothing where there is no
/// such command.
fn line_of(command: &str, arguments: &[&str]) -> Result<Option<String>, NoAnswer> {
    let mut command = Command::new(command);
    command.args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else {
        return Ok(None);
    };
    let mut output = child.stdout.take().expect("it is piped");
    // Its end is that of its output.
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = output.read_to_string(&mut text);
        // Nobody may wait any more.
        drop(done.send(read.is_ok().then_some(text)));
    });
    let text = ended.recv_timeout(ANSWER_LIMIT).ok().flatten();
    if text.is_none() {
        tracing::warn!("{command:?} does not answer; users that it knows are not served");
        drop(child.kill());
    }
    let has_succeeded = child.wait().is_ok_and(|status| status.success());
    let text = text.ok_or(NoAnswer)?;
    let line = text.lines().next().unwrap_or_default().trim();
    Ok((has_succeeded && !line.is_empty()).then(|| line.to_owned()))
}

/// How numbers inside a user namespace stand for numbers outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdMap {
    /// One number is known, as `hearth up` makes it.
    One { inside: u32, outside: u32 },
    /// Those of a whole system, which names them itself.
    Many,
}

impl IdMap {
    /// By the text of `/proc/self/uid_map`: lines of first number inside, outside, and how many.
    fn of(text: &str) -> Self {
        let rows: Vec<Vec<u32>> = text
            .lines()
            .map(|line| {
                let words = line.split_ascii_whitespace();
                words.filter_map(|word| word.parse().ok()).collect()
            })
            .collect();
        match rows.as_slice() {
            [row] => match row[..] {
                [inside, outside, 1] => IdMap::One { inside, outside },
                _ => IdMap::Many,
            },
            _ => IdMap::Many,
        }
    }

    /// The number outside; none for one that the namespace hides.
    fn outside(self, id: u32) -> Option<u32> {
        match self {
            IdMap::Many => Some(id),
            IdMap::One { inside, outside } => (id == inside).then_some(outside),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn people(own: u32, users: &str) -> People {
        People {
            operators: "a-group-that-there-is-not".to_string(),
            own,
            users: IdMap::of(users),
            groups: IdMap::of(users),
            known: Mutex::default(),
        }
    }

    const WHOLE: &str = "         0          0 4294967295\n";

    #[test]
    fn root_serves_everybody_under_their_own_name() {
        let people = people(0, WHOLE);
        assert_eq!(people.serves(), Serves::Everybody);
        let root = people.who(0, 0).unwrap();
        assert_eq!((&root.name[..], root.role), ("root", Role::Operator));
        assert!(root.is_owner);
        // A number without a name.
        let user = people.who(3_999_999, 3_999_998).unwrap();
        assert_eq!((&user.name[..], user.role), ("3999999", Role::User));
        assert!(!user.is_owner);
        let identity = user.identity.unwrap();
        assert_eq!((identity.uid, identity.gid), (3_999_999, 3_999_998));
        assert_eq!(identity.groups, [3_999_998]);
    }

    #[test]
    fn another_user_serves_itself_root_and_operators() {
        let people = people(3_999_999, WHOLE);
        assert_eq!(people.serves(), Serves::Operators);
        assert_eq!(people.who(3_999_999, 5).unwrap().role, Role::Operator);
        assert_eq!(people.who(0, 0).unwrap().role, Role::Operator);
        let error = people.who(3_999_998, 5).unwrap_err().to_string();
        assert!(
            error.contains("runs as 3999999, not as root") && error.contains("3999998 is none"),
            "{error}"
        );
    }

    #[test]
    fn members_of_the_group_are_operators() {
        let mut people = people(0, WHOLE);
        // Root's own group is there on every system.
        people.operators = "root".to_string();
        assert_eq!(people.who(3_999_999, 0).unwrap().role, Role::Operator);
        assert_eq!(people.who(3_999_999, 7).unwrap().role, Role::User);
    }

    #[test]
    fn in_a_namespace_of_one_user_that_one_is_known_by_name_and_nobody_else_is_served() {
        let people = people(0, "         0    3999999          1\n");
        assert_eq!(people.serves(), Serves::Itself);
        let own = people.who(0, 0).unwrap();
        assert_eq!((&own.name[..], own.role), ("3999999", Role::Operator));
        assert_eq!(own.identity.as_ref().unwrap().uid, 3_999_999);
        // The number that stands for everybody else, as the system counts by default.
        let error = people.who(65_534, 65_534).unwrap_err();
        assert!(matches!(error, Stranger::Hidden { .. }));
        assert!(error.to_string().contains("user namespace of 3999999"));
    }

    #[test]
    fn users_and_groups_are_read_as_a_system_writes_them() {
        let users = "root:x:0:0:root:/root:/bin/sh\nann:x:1001:100:Ann,,,:/home/ann:/bin/sh\n\
            odd\n:x:5:5::/:\nbob:x:many:5::/:\n";
        let groups = "users:x:100:\nsudo:x:27:bob,ann\nanna:x:28:anna\nstaff:x:50:ann\nodd:x\n";
        let ann = account_in(users, groups, 1_001).unwrap();
        assert_eq!((&ann.name[..], ann.gid), ("ann", 100));
        assert_eq!(ann.groups, [100, 27, 50]);
        assert_eq!(account_in(users, groups, 0).unwrap().groups, [0]);
        for unknown in [5, 1_002] {
            assert_eq!(account_in(users, groups, unknown), None);
        }
    }

    #[test]
    fn commands_have_a_limit_and_say_one_line() {
        assert_eq!(line_of("echo", &["5", "6"]), Ok(Some("5 6".to_string())));
        assert_eq!(line_of("false", &[]), Ok(None));
        assert_eq!(line_of("echo", &[]), Ok(None));
        assert_eq!(line_of("no-command-of-this-name", &[]), Ok(None));
        let waits_for = Instant::now();
        assert_eq!(line_of("sleep", &["100"]), Err(NoAnswer));
        assert!(waits_for.elapsed() < 10 * ANSWER_LIMIT);
    }

    #[test]
    fn a_user_whom_nobody_answers_for_is_nobody_rather_than_a_number() {
        let unknown = asked(5_001, |_, _| Ok(None)).unwrap();
        assert_eq!((&unknown.name[..], unknown.gid), ("5001", 5_001));
        assert_eq!(asked(5_001, |_, _| Err(NoAnswer)), Err(NoAnswer));
        let name_only = |_: &str, words: &[&str]| match words[0] {
            "-un" => Ok(Some("ann".to_string())),
            _ => Err(NoAnswer),
        };
        assert_eq!(asked(5_001, name_only), Err(NoAnswer));
    }

    #[test]
    fn namespaces_of_containers_have_users_of_their_own() {
        assert_eq!(IdMap::of("0 100000 65536\n"), IdMap::Many);
        assert_eq!(IdMap::of("0 1000 1\n1 100000 65536\n"), IdMap::Many);
        assert_eq!(IdMap::of(""), IdMap::Many);
        let one = IdMap::of("0 1000 1\n");
        assert_eq!((one.outside(0), one.outside(65_534)), (Some(1000), None));
    }

    #[test]
    fn users_are_found_by_name() {
        let people = people(0, WHOLE);
        assert_eq!(people.named("root").unwrap().uid, 0);
        assert_eq!(people.named("nobody-of-this-name"), None);
        assert_eq!(people.named("-u"), None);
        assert_eq!(people.named("0"), None, "a number is no name");
        assert_eq!(group("root"), Some(0));
        assert_eq!(group("no-group-of-this-name"), None);
    }
}
