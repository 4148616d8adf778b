//! Who is where in a mesh or grid, who serves a row's blocks to its children, and in which slot of
//! the rotation.
//!
//! In a large grid heads serve only the *front* columns; each child there serves the child of its
//! row so many columns on, and so forth (*relays*). Every head has as many slots a round as it has
//! children, so the last column would wait for all others: `n1` slots. With relays it waits for a
//! quarter of them. In return children that relay serve no head, and heads serve each other;
//! everybody has as much to send as before.
//!
//! Invariant: in a slot in which nobody is late each child, and each head that heads serve, is sent
//! to by exactly one, and nobody sends to two of them. The few other heads take the turns of
//! children that need not send to themselves.

use crate::broadcast::message::MemberIndex;

/// Columns from which on children relay. With fewer the last one waits little, and a request that
/// was lost is missed later than its turn: the relays' lateness would cost more than they gain.
const RELAYS_FROM: u32 = 64;
/// Children of a row one after the other, the one that the head serves included.
const CHAIN: u32 = 4;
/// Slots from one of them to the next: a block that is being sent, the block itself, and the way.
const RELAY_SLOTS: u32 = 3;

/// How members are laid out: heads `0..n1`, then children column by column, then holders.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub rows: u32,
    /// Cold members.
    pub cold: u32,
    /// All members: from `cold` on they held the object from the start.
    pub members: u32,
    pub blocks: u32,
    /// Columns that are served by the heads; the others by the child of their row so many columns
    /// before.
    front: u32,
}

/// Where a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Head(u32),
    Child { row: u32, column: u32 },
    Holder,
    Source,
}

impl Layout {
    pub fn new(rows: u32, cold: u32, members: u32, blocks: u32) -> Self {
        let cold = cold.max(1);
        let mut layout = Layout {
            rows: rows.clamp(1, cold),
            cold,
            members,
            blocks,
            front: 1,
        };
        let columns = layout.columns();
        // With more columns than rows heads have more children than slots in any case.
        layout.front = match (RELAYS_FROM..=layout.rows).contains(&columns) {
            true => columns.div_ceil(CHAIN),
            false => columns.max(1),
        };
        layout
    }

    pub fn children(&self) -> u32 {
        self.cold - self.rows
    }

    /// Columns, the last one perhaps not full.
    pub fn columns(&self) -> u32 {
        self.children().div_ceil(self.rows)
    }

    pub fn full_columns(&self) -> u32 {
        self.children() / self.rows
    }

    pub fn place(&self, member: MemberIndex) -> Place {
        let index = member.0;
        if member.is_source() {
            Place::Source
        } else if index < self.rows {
            Place::Head(index)
        } else if index < self.cold {
            let child = index - self.rows;
            Place::Child {
                row: child % self.rows,
                column: child / self.rows,
            }
        } else {
            Place::Holder
        }
    }

    /// Heads do not serve all columns.
    pub fn relays(&self) -> bool {
        self.front < self.columns()
    }

    /// Who serves its row's blocks to a child, if it is not the head.
    pub fn relay(&self, child: MemberIndex) -> Option<MemberIndex> {
        match self.place(child) {
            Place::Child { row, column } => self.child(row, column.checked_sub(self.front)?),
            _ => None,
        }
    }

    /// Slots from the first column's turn to another's.
    pub fn lead(&self, column: u32) -> u32 {
        column % self.front + column / self.front * RELAY_SLOTS
    }

    /// The column whose children serve a head: the last columns, which have nobody to relay to,
    /// serve one each. None: other heads do, after their children.
    pub fn column_of_head(&self, row: u32) -> Option<u32> {
        (row < self.front).then(|| self.columns().saturating_sub(self.front) + row)
    }

    /// A column beside such a head.
    pub fn column_before_head(&self, row: u32) -> u32 {
        match self.relays() {
            true => self.front - 1,
            false => row % self.front,
        }
    }

    pub fn child(&self, row: u32, column: u32) -> Option<MemberIndex> {
        let index = self.rows + column * self.rows + row;
        (column < self.columns() && index < self.cold).then_some(MemberIndex(index))
    }

    /// Children of a row.
    pub fn height(&self, row: u32) -> u32 {
        self.full_columns() + u32::from(self.children() % self.rows > row)
    }

    /// The slot in which a member gets a block if nobody is late. None: no slot does.
    pub fn held_from(&self, member: MemberIndex, block: u32) -> Option<u32> {
        let (row, lead) = match self.place(member) {
            Place::Head(row) if self.children() == 0 => (row, 0),
            Place::Child { row, column } => (row, self.lead(column) + 1),
            _ => return None,
        };
        let from = self.row(block);
        if row == from {
            return Some(block + lead);
        }
        // The first slot after that in which this row is served this block's.
        let first = block + lead + 1;
        let turn = (row + self.rows - from) % self.rows;
        Some(first + (turn + self.rows - first % self.rows) % self.rows)
    }

    pub fn row(&self, block: u32) -> u32 {
        block % self.rows
    }

    pub fn round(&self, block: u32) -> u32 {
        block / self.rows
    }
}
