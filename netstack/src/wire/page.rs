//! Messages of demand paging.

use super::Error;
use super::field::{Reader, Writer};
use super::join::zero;
use crate::ids::{JobId, RequestId};
use crate::page::{FRAGMENT, MAX_REQUEST, Object, PageError, fragment_count, fragment_mask};

/// PAGE_READ, node to control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRead {
    /// The node's number for the request; the same however often it asks.
    pub request: RequestId,
    /// The job.
    pub job: JobId,
    /// Which object.
    pub object: Object,
    /// First byte of the request.
    pub offset: u64,
    /// Bytes of the request.
    pub length: u32,
    /// Fragments wanted: bit i is the one at `offset + i * FRAGMENT`.
    pub fragments: u32,
}

impl PageRead {
    /// Bytes of the payload.
    pub const LEN: usize = 36;

    /// Writes the payload.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        writer
            .u64(self.request.0)
            .u64(self.job.0)
            .u8(self.object.to_wire())
            .u8(0)
            .u16(0);
        writer.u64(self.offset).u32(self.length).u32(self.fragments);
    }

    /// Reads the payload.
    pub fn parse(payload: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let request = RequestId(reader.u64()?);
        let job = JobId::from_wire(reader.u64()?).ok_or(Error::BadValue)?;
        let object = Object::from_wire(reader.u8()?).ok_or(Error::BadValue)?;
        zero(reader.u8()?.into())?;
        zero(reader.u16()?.into())?;
        let offset = reader.u64()?;
        let length = reader.u32()?;
        let fragments = reader.u32()?;
        reader.finish()?;
        let possible = (1..=MAX_REQUEST).contains(&length)
            && offset.checked_add(length.into()).is_some()
            && fragments != 0
            && fragments & !fragment_mask(length) == 0;
        if !possible {
            return Err(Error::BadValue);
        }
        Ok(PageRead {
            request,
            job,
            object,
            offset,
            length,
            fragments,
        })
    }
}

/// PAGE_DATA, control to node: one fragment, or why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageData<'a> {
    /// The request.
    pub request: RequestId,
    /// What it carries.
    pub content: Content<'a>,
}

/// What a PAGE_DATA carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// A fragment.
    Fragment {
        /// Its index in the request.
        index: u8,
        /// Bytes of the whole answer: the request's length or as far as the object goes.
        available: u32,
        /// Its bytes: [`FRAGMENT`], or what is left for the last one.
        data: &'a [u8],
    },
    /// There is no data.
    Failed(PageError),
}

impl<'a> PageData<'a> {
    /// Bytes of the payload before the data.
    pub const FIXED_LEN: usize = 16;

    /// Writes the payload.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        writer.u64(self.request.0).u8(0);
        match self.content {
            Content::Fragment {
                index,
                available,
                data,
            } => {
                assert!(
                    data.len() <= FRAGMENT,
                    "a fragment is larger than the limit"
                );
                writer.u8(index).u8(0).u8(0).u32(available).bytes(data);
            }
            Content::Failed(reason) => {
                let status = match reason {
                    PageError::TimedOut | PageError::Unreadable => 2,
                    PageError::NoSuchObject => 1,
                    PageError::UnknownJob => 3,
                };
                writer.u8(0).u8(status).u8(0).u32(0);
            }
        }
    }

    /// Reads the payload.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let request = RequestId(reader.u64()?);
        zero(reader.u8()?.into())?;
        let index = reader.u8()?;
        let status = reader.u8()?;
        zero(reader.u8()?.into())?;
        let available = reader.u32()?;
        let data = reader.rest();
        let content = match status {
            0 => {
                if data.len() != fragment_length(available, index).ok_or(Error::BadValue)? {
                    return Err(Error::BadValue);
                }
                Content::Fragment {
                    index,
                    available,
                    data,
                }
            }
            1..=3 => {
                if index != 0 || available != 0 || !data.is_empty() {
                    return Err(Error::BadValue);
                }
                Content::Failed(match status {
                    1 => PageError::NoSuchObject,
                    2 => PageError::Unreadable,
                    _ => PageError::UnknownJob,
                })
            }
            _ => return Err(Error::BadValue),
        };
        Ok(PageData { request, content })
    }
}

/// Bytes of fragment `index` of an answer of `available` bytes; None when there is no such
/// fragment. An empty answer has one empty fragment.
pub fn fragment_length(available: u32, index: u8) -> Option<usize> {
    if available > MAX_REQUEST || u32::from(index) >= fragment_count(available).max(1) {
        return None;
    }
    let start = usize::from(index) * FRAGMENT;
    Some((available as usize - start).min(FRAGMENT))
}
