//! Places for connections over the unix socket, shared among users: nobody keeps the others out,
//! and all of them together not the operator.
//!
//! Key types: [`Places`], [`Place`]. Neighbour: `bounded` asks for one for each connection.
//!
//! Invariant: root and the user who control runs as have no bound here but that of all connections,
//! of which others leave a quarter.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What is said to a user with too many connections, before it ends.
pub const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
content-type: application/json\r\nconnection: close\r\ncontent-length: 128\r\n\r\n\
{\"code\":\"too-many-connections\",\"error\":\"you have as many connections to the control node as one may; end some, then try again\"}\n";

/// Connections of users.
#[derive(Debug, Clone)]
pub struct Places {
    own: u32,
    of_user_max: usize,
    others_max: usize,
    open: Arc<Mutex<BTreeMap<u32, usize>>>,
}

/// The place of a connection; it is free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    /// None: one without a bound.
    counted: Option<(u32, Places)>,
}

impl Places {
    /// Of `connections` in all a quarter for each user, and three for all but `own` and root.
    pub fn new(own: u32, connections: usize) -> Self {
        Places {
            own,
            of_user_max: (connections / 4).max(1),
            others_max: (connections * 3 / 4).max(1),
            open: Arc::default(),
        }
    }

    /// A place for a connection of this user, if there is one.
    pub fn enter(&self, user: u32) -> Option<Place> {
        if user == self.own || user == 0 {
            return Some(Place { counted: None });
        }
        let mut open = self.open.lock().expect("no panic while held");
        let all: usize = open.values().sum();
        let own = open.get(&user).copied().unwrap_or(0);
        if own >= self.of_user_max || all >= self.others_max {
            return None;
        }
        open.insert(user, own + 1);
        drop(open);
        Some(Place {
            counted: Some((user, self.clone())),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((user, places)) = &self.counted else {
            return;
        };
        let mut open = places.open.lock().expect("no panic while held");
        let left = open.get(user).map_or(0, |count| count - 1);
        match left {
            0 => drop(open.remove(user)),
            left => drop(open.insert(*user, left)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_leaves_places_to_others_and_all_of_them_to_the_operator() {
        let places = Places::new(7, 8);
        let mut held: Vec<Place> = (0..2).map(|_| places.enter(1).unwrap()).collect();
        assert!(places.enter(1).is_none());
        for user in [2, 2, 3, 3] {
            held.push(places.enter(user).unwrap());
        }
        assert!(places.enter(4).is_none(), "three quarters are taken");
        held.extend((0..20).map(|at| places.enter([0, 7][at % 2]).unwrap()));
        held.remove(0);
        held.push(places.enter(4).unwrap());
        assert!(places.enter(1).is_none());
        drop(held);
        assert!(places.open.lock().unwrap().is_empty());
    }

    #[test]
    fn the_refusal_has_the_length_that_it_says() {
        let text = std::str::from_utf8(REFUSAL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.ends_with(&format!("content-length: {}", body.len())),
            "{}",
            body.len()
        );
        let body: crate::api::types::ErrorBody = serde_json::from_str(body).unwrap();
        assert_eq!(body.code, "too-many-connections");
    }
}
