//! Ours, for large casts: mesh and grid. Blocks are dealt round the first layer and exchanged in
//! rotation.
//!
//! [`super::published`] has the method's page. What stays of it: a first layer that gets each block
//! once, a second layer below it, then the swap. What is ours, and why:
//! - *blocks are small and all phases overlap*: the published phases come one after the other,
//!   which takes more than three times the limit;
//! - *a fixed rotation* in place of random requests by an estimate: these collide;
//! - *a request waits at its holder*, which makes a push of it; nobody asks again and again;
//! - *deputies* for whoever is late or silent: else one slow head holds up all.
//!
//! Block `b` belongs to row `b mod n1` and round `b / n1`. Time is counted in slots of one block.
//! The source deals block `b` to the head of its row in slot `b`. In a *mesh* every member is a
//! head and serves its row to all others. In a *grid* the head of row `i` serves it to its children
//! `(i, j)`, and child `(i', j)` serves row `i'` to column `j`, and to the heads `i` with `i mod h
//! = j`.
//!
//! The rotation: whoever serves row `i'` in column `j` begins with the member of row `2i' + j + 2`
//! and goes on upwards. Then in every slot each member is sent to by exactly one and sends to
//! exactly one: in slot `t` member `(r, j)` is served row `r - t`. A member asks in the order of
//! these slots, so that few requests wait anywhere although nobody looks at a clock. All phases
//! overlap: the whole takes `k + 2 n1` slots for `k` blocks, and some `k + 5/4 n1` with relays.
//!
//! In a large grid the head serves only the first columns, and a child there the child of its row
//! some columns on ([`layout`]); the heads that have no column of their own then are served by
//! heads, after their children: head `r` in place of column `r`.
//!
//! A head that is late or silent gets deputies: child `(i, round mod h)` asks the source instead of
//! the head, the other children ask that child. In a mesh the deputies are the other members. For a
//! child `(i', j)` that is late or silent others of row `i'` stand in, a different one for each
//! asker.
//!
//! Neighbours: [`super::plan`] has the interface; `layout` says who is where.
//!
//! Invariant: in a slot in which nobody is late each member is sent to by one and sends to one.

use super::plan::{Next, Planner, Trouble, View};
use crate::broadcast::cast::pulling::WINDOW;
use crate::broadcast::message::MemberIndex;
use layout::{Layout, Place};

mod layout;

/// Rounds that a head asks for in advance: the next deal is at the source before its turn.
const AHEAD: u32 = 2;
/// The same for a child and its head: so that a request can be named again before its turn comes.
const CHILD_AHEAD: u32 = 1;
/// Blocks of 8 KiB that fit the port of a switch, one less than 256 KB over 8,796 bytes: whatever
/// comes at once to a member, nothing is lost.
const MOST_ASKED: u32 = 28;
/// Rounds that deputies stand in for a head the first time; doubled with every time.
const DEPUTY_ROUNDS: u32 = 4;
/// The same in blocks, eight windows, where rounds are short: to find out again that the head is
/// late costs everybody some.
const DEPUTY_BLOCKS: u32 = 8 * WINDOW;
/// Requests for one block of a row by its other members that make one of them ask the dealer: a
/// single one may come of a request that was lost.
const CALLS: u32 = 2;
/// Blocks that may come so many others later than they were asked for, a window and a half, as they
/// may be on their way: no row lags by that.
const NO_LAG: u32 = 3 * WINDOW / 2;
/// In place of a row: the child of the own row that serves its blocks here.
const RELAY: u32 = u32::MAX;
/// Times that doubles: then deputies stand in for 256 rounds, longer than most casts have.
const MAX_STRIKES: u32 = 6;
/// Rows whose head is known to be late. All rows of the largest mesh and of most grids.
const MAX_LATE_ROWS: usize = 256;
/// Rows whose lag is known: more than the largest grid has.
const MAX_LAG_ROWS: u32 = 512;
/// Draws of a member that might stand in for somebody else's: where half of all are late or silent,
/// all of them miss once in 4,096 times. The first half are from outside the own column: where one
/// is late, all of its column lack what it serves.
const DRAWS: u32 = 12;
/// Attempts at one deputy before the next one is tried: as many as before a child is given up for
/// its children.
const DEPUTY_ATTEMPTS: u32 = 3;
/// Members that are looked at in search of one that answers: where half of all are silent, all of
/// them are once in 16 times, and then the source is asked.
const PEER_ATTEMPTS: u32 = 4;
/// Attempts at other members before the source is asked, which must not become everybody's choice.
const SOURCE_AFTER: u32 = 8;

/// A late head.
#[derive(Debug)]
struct LateRow {
    row: u32,
    strikes: u32,
    /// Deputies stand in for blocks of rounds below this.
    until_round: u32,
}

/// The planner of one member.
#[derive(Debug)]
pub(crate) struct Rotation {
    layout: Layout,
    place: Place,
    me: MemberIndex,
    /// Next slot to look at.
    slot: u32,
    /// In this slot, what is exchanged was looked at already and the member's own row follows.
    own: bool,
    last_slot: u32,
    /// After the last slot: blocks from here on may lack.
    sweep: u32,
    late: alloc::vec::Vec<LateRow>,
    /// How late each row's blocks came last from whoever serves them to this member, in blocks.
    lag: alloc::vec::Vec<u16>,
    /// The block that others of its row missed last, who of them asked for it last, and how many
    /// did. Requests for several blocks are not counted beside one another on purpose: deputies
    /// would act sooner, and cost more beside slow members.
    called: (u32, MemberIndex, u32),
}

impl Rotation {
    pub(crate) fn new(rows: u32, cold: u32, members: u32, blocks: u32, me: MemberIndex) -> Self {
        let layout = Layout::new(rows, cold, members, blocks);
        let rounds = blocks.div_ceil(layout.rows);
        Rotation {
            layout,
            place: layout.place(me),
            me,
            slot: 0,
            own: false,
            last_slot: (rounds + 3) * layout.rows + layout.columns() + 2,
            sweep: 0,
            late: alloc::vec::Vec::new(),
            lag: alloc::vec![0; layout.rows.min(MAX_LAG_ROWS) as usize],
            called: (u32::MAX, MemberIndex::SOURCE, 0),
        }
    }

    /// Whether somebody else is asked for a block because its row lags: as many requests are as it
    /// takes to make up for it by the end.
    fn diverts(&self, view: &mut View<'_>, block: u32) -> bool {
        let lag = self.lag.get(self.layout.row(block) as usize);
        let lag = lag.map_or(0, |lag| u32::from(*lag));
        let left = self.layout.blocks.saturating_sub(block).max(1);
        lag > NO_LAG && view.rng.below(left.into()) < lag.into()
    }

    /// How much the row of a block lags, if `from` is who serves this row's blocks to this member.
    fn lag_of(&mut self, block: u32, from: MemberIndex) -> Option<&mut u16> {
        let at = self.coordinates()?;
        let row = self.layout.row(block);
        let usual = at.0 != row && from == self.usual(block, at);
        self.lag.get_mut(row as usize).filter(|_| usual)
    }

    /// Who serves a block of another row to this member.
    fn usual(&self, block: u32, (my_row, my_column): (u32, u32)) -> MemberIndex {
        let row = self.layout.row(block);
        let head = MemberIndex(row);
        let height = self.layout.height(row);
        if height == 0 || self.is_served_by_heads() {
            head
        } else if my_column < height {
            self.layout.child(row, my_column).unwrap_or(head)
        } else {
            // The row has no child in the last column: another one each round, so that nobody
            // stands in for long.
            let turn = my_row + row + self.layout.round(block);
            self.layout.child(row, turn % height).unwrap_or(head)
        }
    }

    /// My row, and the column in which I take part in the exchange.
    fn coordinates(&self) -> Option<(u32, u32)> {
        match self.place {
            Place::Head(row) => {
                let column = self.layout.column_of_head(row);
                let beside = || self.layout.column_before_head(row);
                Some((row, column.unwrap_or_else(beside)))
            }
            Place::Child { row, column } => Some((row, column)),
            Place::Holder | Place::Source => None,
        }
    }

    /// This member is a head that other heads serve after their children.
    fn is_served_by_heads(&self) -> bool {
        match self.place {
            Place::Head(row) => self.layout.column_of_head(row).is_none(),
            _ => false,
        }
    }

    /// The block is of this member's row.
    fn is_own(&self, block: u32) -> bool {
        let own = self.coordinates().map(|(row, _)| row);
        own == Some(self.layout.row(block))
    }

    fn is_mesh(&self) -> bool {
        self.layout.children() == 0
    }

    /// Rounds that a member asks for of its own row in advance.
    fn ahead(&self) -> u32 {
        match self.place {
            Place::Head(_) => AHEAD,
            Place::Child { .. } => CHILD_AHEAD,
            Place::Holder | Place::Source => 0,
        }
    }

    /// Slots between the deal of a row's block and its first exchange.
    fn delay(&self, column: u32) -> u32 {
        if self.is_mesh() {
            1
        } else {
            self.layout.lead(column) + 2
        }
    }

    /// Where a head gets its row: the source and the holders in turn.
    fn dealer(&self, block: u32, attempt: u32) -> MemberIndex {
        let holders = self.layout.members - self.layout.cold;
        let turn = self.layout.round(block) + self.layout.row(block) + attempt;
        match turn % (holders + 1) {
            _ if attempt > holders.min(PEER_ATTEMPTS) => MemberIndex::SOURCE,
            0 => MemberIndex::SOURCE,
            holder => MemberIndex(self.layout.cold + holder - 1),
        }
    }

    fn is_late(&self, block: u32) -> bool {
        let (row, round) = (self.layout.row(block), self.layout.round(block));
        let mut late = self.late.iter();
        late.any(|late| late.row == row && round < late.until_round)
    }

    /// Whether the own row's block is not asked from the child of the row that usually serves it
    /// here.
    fn relay_is_late(&self, block: u32) -> bool {
        let round = self.layout.round(block);
        (self.late.iter()).any(|late| late.row == RELAY && round < late.until_round)
    }

    fn row_is_late(&mut self, block: u32) {
        self.is_late_from(self.layout.row(block), self.layout.round(block));
    }

    fn is_late_from(&mut self, row: u32, round: u32) {
        let room = self.late.len() < MAX_LATE_ROWS;
        // It takes some time to notice: the rounds count from now.
        let now = round.max(self.slot / self.layout.rows);
        let rounds = DEPUTY_ROUNDS.max(DEPUTY_BLOCKS / self.layout.rows);
        match self.late.iter_mut().find(|late| late.row == row) {
            Some(late) if round < late.until_round => {}
            Some(late) => {
                late.strikes = (late.strikes + 1).min(MAX_STRIKES);
                late.until_round = now + (rounds << late.strikes);
            }
            None if room => self.late.push(LateRow {
                row,
                strikes: 0,
                until_round: now + rounds,
            }),
            None => {}
        }
    }

    /// Who stands in for the head of a block's row.
    fn deputy(&self, view: &View<'_>, block: u32, attempt: u32) -> MemberIndex {
        let (row, round) = (self.layout.row(block), self.layout.round(block));
        let dealer = || self.dealer(block, attempt);
        if attempt >= SOURCE_AFTER {
            return dealer();
        }
        for step in 0..PEER_ATTEMPTS {
            let member = if self.is_mesh() {
                let others = self.layout.cold - 1;
                if others == 0 {
                    return dealer();
                }
                let turn = (round + attempt / DEPUTY_ATTEMPTS + step) % others;
                MemberIndex((row + 1 + turn) % self.layout.cold)
            } else {
                let height = self.layout.height(row);
                if height == 0 {
                    return dealer();
                }
                let column = (round + attempt / DEPUTY_ATTEMPTS + step) % height;
                self.layout
                    .child(row, column)
                    .unwrap_or(MemberIndex::SOURCE)
            };
            if member == self.me {
                return dealer();
            }
            // One that is only late has asked: if each sibling stood in for it, all of them would
            // ask the source.
            if !view.is_gone(member) {
                return member;
            }
        }
        dealer()
    }

    /// Whom to ask for a block of my own row.
    fn own_from(&self, view: &View<'_>, block: u32, attempt: u32) -> MemberIndex {
        match self.place {
            Place::Child { row, .. } => {
                let head = MemberIndex(row);
                let relay = self.layout.relay(self.me);
                if let Some(relay) = relay
                    && attempt == 0
                    && !view.is_silent(relay)
                    && !self.relay_is_late(block)
                {
                    return relay;
                }
                let first = u32::from(relay.is_some());
                if attempt <= first && !view.is_silent(head) && !self.is_late(block) {
                    head
                } else {
                    self.deputy(view, block, attempt.saturating_sub(1 + first))
                }
            }
            _ => {
                for attempt in attempt..attempt + PEER_ATTEMPTS {
                    let dealer = self.dealer(block, attempt);
                    if !view.is_silent(dealer) {
                        return dealer;
                    }
                }
                MemberIndex::SOURCE
            }
        }
    }

    /// Somebody who is likely to have a block that everybody gets, whatever its row: so the load of
    /// those who are late or dead falls on all alike, not on the few others of their row. Only of
    /// those whose address is known: to ask for one that is not costs more than the block, and
    /// everybody would learn every address. Heads, whose addresses more members know, are left out.
    fn anybody(&self, view: &mut View<'_>, block: u32) -> Option<MemberIndex> {
        let column = self.coordinates().map(|(_, column)| column);
        let mut soonest: Option<(u32, MemberIndex)> = None;
        for draw in 0..DRAWS {
            let Some(member) = view.any_known() else {
                break;
            };
            let other = match self.layout.place(member) {
                Place::Child { column, .. } => column,
                Place::Head(_) if self.is_mesh() => u32::MAX,
                _ => continue,
            };
            let near = draw < DRAWS / 2 && Some(other) == column;
            if member == self.me || near || view.is_silent(member) {
                continue;
            }
            let from = self.layout.held_from(member, block).unwrap_or(u32::MAX);
            if from <= self.slot {
                return Some(member);
            }
            if soonest.is_none_or(|(sooner, _)| from < sooner) {
                soonest = Some((from, member));
            }
        }
        soonest.map(|(_, member)| member)
    }

    /// Another child of a block's row whose address is known, a different one for each asker and
    /// round.
    fn row_mate(
        &self,
        view: &View<'_>,
        block: u32,
        my: (u32, u32),
        attempt: u32,
    ) -> Option<MemberIndex> {
        let row = self.layout.row(block);
        let height = self.layout.height(row);
        let first = my.0 + my.1 + row + self.layout.round(block) + attempt * 7;
        (0..height).find_map(|step| {
            let column = (first + step) % height;
            let member = self.layout.child(row, column)?;
            let other = column != my.1 && member != self.me;
            (other && view.is_known(member) && !view.is_silent(member)).then_some(member)
        })
    }

    /// Whom to ask for a block of another row.
    fn other_from(
        &self,
        view: &mut View<'_>,
        block: u32,
        (my_row, my_column): (u32, u32),
        attempt: u32,
    ) -> MemberIndex {
        let row = self.layout.row(block);
        let head = MemberIndex(row);
        if self.is_mesh() {
            if attempt == 0 && !view.is_silent(head) && !self.is_late(block) {
                if self.diverts(view, block)
                    && let Some(member) = self.anybody(view, block)
                    && self.layout.held_from(member, block) <= Some(self.slot)
                {
                    return member;
                }
                return head;
            }
            return self.deputy(view, block, attempt.saturating_sub(1));
        }
        if attempt > SOURCE_AFTER {
            return MemberIndex::SOURCE;
        }
        // Everybody and those of the row in turn: nobody may have it yet but one of these.
        if !attempt.is_multiple_of(2)
            && let Some(member) = self.anybody(view, block)
        {
            return member;
        }
        if attempt == 0 {
            let usual = self.usual(block, (my_row, my_column));
            let usual = (usual != self.me && !view.is_silent(usual)).then_some(usual);
            if let Some(usual) = usual
                && !self.diverts(view, block)
            {
                return usual;
            }
            if let Some(member) = self.anybody(view, block).or(usual) {
                return member;
            }
        }
        if let Some(member) = self.row_mate(view, block, (my_row, my_column), attempt) {
            return member;
        }
        if view.is_silent(head) || head == self.me {
            self.deputy(view, block, attempt)
        } else {
            head
        }
    }

    fn from(&self, view: &mut View<'_>, block: u32, attempt: u32) -> MemberIndex {
        match self.coordinates() {
            Some(at) if at.0 != self.layout.row(block) => self.other_from(view, block, at, attempt),
            Some(_) => self.own_from(view, block, attempt),
            // A holder that lacks something asks the row's head.
            None if attempt == 0 => MemberIndex(self.layout.row(block)),
            None => self.deputy(view, block, attempt),
        }
    }

    fn ask(&self, view: &mut View<'_>, block: u32, early: u32) -> Option<Next> {
        (block < self.layout.blocks && view.lacks(block)).then(|| Next::Ask {
            block,
            from: self.from(view, block, 0),
            early,
        })
    }

    /// What is exchanged in the present slot.
    fn exchanged(&self, (row, column): (u32, u32)) -> Option<u32> {
        let rows = self.layout.rows;
        if self.layout.relays() && self.is_served_by_heads() {
            // As if it were a child of the column of its number.
            let from = (self.slot + 2 * rows - row - 1) % rows;
            let since = self.slot.checked_sub(from + row + 1)?;
            return (from != row).then_some(since / rows * rows + from);
        }
        let from = (row + rows - self.slot % rows) % rows;
        let since = self.slot.checked_sub(from + self.delay(column))?;
        (from != row).then_some(since / rows * rows + from)
    }

    /// What is dealt to my row in the present slot.
    fn dealt(&self, (row, column): (u32, u32)) -> Option<u32> {
        let rows = self.layout.rows;
        match self.place {
            Place::Head(_) => {
                let early = self.slot + AHEAD * rows;
                (early % rows == row).then_some(early / rows * rows + row)
            }
            _ => {
                let since = self.slot.checked_sub(row + self.layout.lead(column) + 1)?;
                (since % rows == 0).then_some(since + row + CHILD_AHEAD * rows)
            }
        }
    }
}

impl Planner for Rotation {
    fn next(&mut self, view: &mut View<'_>) -> Next {
        if let Some(at) = self.coordinates() {
            let ahead = self.ahead();
            if self.slot == 0 && !self.own {
                // The first rounds of a member's own row, before the slots begin.
                for round in 0..ahead {
                    let block = round * self.layout.rows + at.0;
                    if let Some(next) = self.ask(view, block, round * self.layout.rows) {
                        return next;
                    }
                }
            }
            while self.slot < self.last_slot {
                let block = if self.own {
                    self.dealt(at)
                } else {
                    self.exchanged(at)
                };
                let early = match self.place {
                    Place::Child { .. } if self.own => ahead * self.layout.rows,
                    _ => 0,
                };
                let next = block.and_then(|block| self.ask(view, block, early));
                if self.own {
                    self.slot += 1;
                }
                self.own = !self.own;
                if let Some(next) = next {
                    return next;
                }
            }
        }
        // What is left: requests that were given up.
        while let Some(block) = view.have.next_missing(self.sweep) {
            self.sweep = block + 1;
            if let Some(next) = self.ask(view, block, 0) {
                return next;
            }
        }
        self.sweep = 0;
        Next::Idle
    }

    fn instead(
        &mut self,
        view: &mut View<'_>,
        block: u32,
        from: MemberIndex,
        trouble: Trouble,
        attempt: u32,
    ) -> Option<MemberIndex> {
        let head = MemberIndex(self.layout.row(block));
        if matches!(trouble, Trouble::Late | Trouble::Silent | Trouble::NotHere) {
            if from == head {
                self.row_is_late(block);
            } else if Some(from) == self.layout.relay(self.me) && self.is_own(block) {
                self.is_late_from(RELAY, self.layout.round(block));
            }
        }
        if attempt == 1 && trouble == Trouble::Late {
            // It lags by so much at least; by more with each block that is late before one comes.
            let least = self.late_after().min(u16::MAX.into()) as u16;
            if let Some(lag) = self.lag_of(block, from) {
                *lag = lag.saturating_mul(2).max(least);
            }
        }
        Some(self.from(view, block, attempt))
    }

    fn arrived(&mut self, _view: &mut View<'_>, block: u32, from: MemberIndex, late: Option<u32>) {
        if let Some(late) = late
            && let Some(lag) = self.lag_of(block, from)
        {
            *lag = late.min(u16::MAX.into()) as u16;
        }
    }

    fn stands_in(&mut self, _view: &mut View<'_>, asker: MemberIndex, block: u32) -> bool {
        let row = self.layout.row(block);
        let called = match (self.place, self.layout.place(asker)) {
            (Place::Child { row: mine, .. }, Place::Child { row: other, .. }) => {
                // Whom this member relays to asks in any case.
                mine == row && other == row && self.layout.relay(asker) != Some(self.me)
            }
            (Place::Head(mine), Place::Head(other)) if self.is_mesh() => {
                mine != row && other != row
            }
            _ => false,
        };
        if !called {
            return false;
        }
        let (last, by, times) = self.called;
        let times = match last == block {
            true => times + u32::from(by != asker),
            false => 1,
        };
        self.called = (block, asker, times);
        if times < CALLS {
            return false;
        }
        self.row_is_late(block);
        true
    }

    fn order(&self, block: u32, asker: MemberIndex) -> u64 {
        let rows = self.layout.rows;
        let row = self.layout.row(block);
        if self.is_own(block) && self.layout.relay(asker) == Some(self.me) {
            // First of all: others wait for it there.
            return block.into();
        }
        let rank = match (self.place, self.layout.place(asker)) {
            // A head serves its children column by column.
            (Place::Head(_), Place::Child { column, .. }) if !self.is_mesh() => column,
            (Place::Head(_), Place::Head(asker)) if self.is_mesh() => {
                (asker + 2 * rows - (2 * row + 1) % rows) % rows
            }
            (Place::Child { column, .. }, Place::Child { row: asker, .. } | Place::Head(asker)) => {
                (asker + rows - (2 * row + self.delay(column)) % rows) % rows
            }
            (Place::Head(_), Place::Head(asker)) if self.layout.relays() => asker,
            _ => rows,
        };
        u64::from(block) << 32 | u64::from(rank)
    }

    fn patience(&self, _block: u32, from: MemberIndex) -> u32 {
        match self.layout.place(from) {
            Place::Source | Place::Holder => (AHEAD + 1) * self.layout.rows,
            // It says after what is normal that it keeps a request, and the first request is made
            // ahead.
            Place::Head(_) if self.is_mesh() => self.layout.rows * 3 / 4,
            Place::Head(_) => self.layout.columns() * 3 / 4,
            Place::Child { .. } => 0,
        }
    }

    fn most_asked(&self) -> u32 {
        MOST_ASKED
    }

    fn late_after(&self) -> u32 {
        self.layout.rows + self.layout.rows / 4 + 24
    }

    fn kept_waiting(&self) -> u32 {
        match self.place {
            Place::Source | Place::Holder => (AHEAD + 1) * self.layout.rows,
            Place::Head(_) if !self.is_mesh() => self.layout.columns(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests;
