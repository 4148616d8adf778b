//! Firmware's memory map, made consistent.
//!
//! What firmware reports may be unsorted, overlapping, unaligned and split into hundreds of pieces.
//! [`MemoryMap::normalise`] turns it into sorted, disjoint regions in which the more
//! restrictive kind wins, usable memory is whole pages, and equal neighbours are one region.
//!
//! Invariant: after `normalise`, regions are sorted, not empty and disjoint; no usable byte was
//! reported as anything else, and the first page is never usable.

/// Most regions a map holds: E820 has at most 128, and UEFI maps of large servers a few hundred
/// before equal neighbours are joined.
pub const REGIONS_MAX: usize = 512;

/// Granularity of usable memory in bytes.
pub const PAGE_BYTES: u64 = 4096;

/// What a region is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Free memory.
    Usable,
    /// In use by the boot hand-over: kernel, page tables, stack, boot information.
    Bootloader,
    /// Not usable, by E820 type.
    Bios(u32),
    /// Not usable, by UEFI memory type.
    Uefi(u32),
}

/// A range of physical addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First byte.
    pub start: u64,
    /// End, exclusive.
    pub end: u64,
    /// What it is for.
    pub kind: Kind,
}

impl Region {
    const EMPTY: Self = Self {
        start: 0,
        end: 0,
        kind: Kind::Usable,
    };

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

/// The map does not fit: more than [`REGIONS_MAX`] regions that cannot be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapFull;

/// A memory map of bounded size.
pub struct MemoryMap {
    regions: [Region; REGIONS_MAX],
    length: usize,
}

impl Default for MemoryMap {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryMap {
    /// An empty map.
    pub const fn new() -> Self {
        Self {
            regions: [Region::EMPTY; REGIONS_MAX],
            length: 0,
        }
    }

    /// The regions.
    pub fn regions(&self) -> &[Region] {
        &self.regions[..self.length]
    }

    /// Adds a region as firmware reported it: `bytes` may be 0 or run past the end of the address
    /// space (it is then cut off there).
    pub fn add(&mut self, start: u64, bytes: u64, kind: Kind) -> Result<(), MapFull> {
        let mut region = Region {
            start,
            end: start.saturating_add(bytes),
            kind,
        };
        if kind == Kind::Usable {
            region.start = match start.max(PAGE_BYTES).checked_next_multiple_of(PAGE_BYTES) {
                Some(start) => start,
                None => return Ok(()),
            };
            region.end -= region.end % PAGE_BYTES;
        }
        if region.start >= region.end {
            return Ok(());
        }
        self.push(region)
    }

    /// Makes the map consistent, see the module.
    pub fn normalise(&mut self) -> Result<(), MapFull> {
        let count = self.length;
        self.regions[..count].sort_unstable_by_key(|region| (region.start, region.end));
        let mut out = Self::new();
        let mut at = 0;
        while let Some(piece) = self.piece_after(at) {
            out.add(piece.start, piece.bytes(), piece.kind)?;
            at = piece.end;
        }
        *self = out;
        Ok(())
    }

    /// The next piece at or after `from` over which no region starts or ends: its start, end and
    /// the kind that wins there. Needs sorted regions.
    fn piece_after(&self, from: u64) -> Option<Region> {
        let mut piece: Option<Region> = None;
        for region in self.regions().iter().filter(|region| region.end > from) {
            match &mut piece {
                None => {
                    piece = Some(Region {
                        start: region.start.max(from),
                        ..*region
                    });
                }
                Some(piece) if region.start > piece.start => {
                    piece.end = piece.end.min(region.start);
                    break;
                }
                Some(piece) => {
                    piece.end = piece.end.min(region.end);
                    if rank(region.kind) > rank(piece.kind) {
                        piece.kind = region.kind;
                    }
                }
            }
        }
        piece
    }

    /// Marks `start..end`, whole pages inside usable memory of a normalised map, as
    /// [`Kind::Bootloader`].
    pub fn reserve(&mut self, start: u64, end: u64) -> Result<(), MapFull> {
        self.add(start, end - start, Kind::Bootloader)?;
        self.normalise()
    }

    /// The highest `bytes` (whole pages) of usable memory in `above..below` that touch none of the
    /// `avoid` ranges; needs a normalised map.
    pub fn find(&self, bytes: u64, above: u64, below: u64, avoid: &[(u64, u64)]) -> Option<u64> {
        self.regions()
            .iter()
            .rev()
            .filter(|region| region.kind == Kind::Usable)
            .find_map(|region| {
                let floor = region.start.max(above);
                let mut end = region.end.min(below);
                loop {
                    let start = end.checked_sub(bytes).filter(|&start| start >= floor)?;
                    match avoid.iter().find(|&&(low, high)| low < end && high > start) {
                        Some(&(low, _)) => end = low - low % PAGE_BYTES,
                        None => return Some(start),
                    }
                }
            })
    }

    /// Usable bytes in all.
    pub fn usable_bytes(&self) -> u64 {
        self.regions()
            .iter()
            .filter(|region| region.kind == Kind::Usable)
            .map(Region::bytes)
            .sum()
    }

    /// End of the highest usable or boot-loader region: how far RAM reaches.
    pub fn ram_end(&self) -> u64 {
        self.regions()
            .iter()
            .filter(|region| matches!(region.kind, Kind::Usable | Kind::Bootloader))
            .map(|region| region.end)
            .max()
            .unwrap_or(0)
    }

    fn push(&mut self, region: Region) -> Result<(), MapFull> {
        if let Some(last) = self.regions[..self.length].last_mut()
            && last.kind == region.kind
            && last.end == region.start
        {
            last.end = region.end;
            return Ok(());
        }
        *self.regions.get_mut(self.length).ok_or(MapFull)? = region;
        self.length += 1;
        Ok(())
    }
}

/// Where regions overlap, the kind with the higher rank wins.
fn rank(kind: Kind) -> u32 {
    match kind {
        Kind::Usable => 0,
        Kind::Bootloader => 1,
        Kind::Uefi(_) => 2,
        // E820: unusable memory (5) over everything else that is reserved.
        Kind::Bios(5) => 4,
        Kind::Bios(_) => 3,
    }
}

#[cfg(test)]
#[path = "memory_map_tests.rs"]
mod tests;
