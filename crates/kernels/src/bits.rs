//! Elements as plain bits: kernels that only move elements are compiled once for each size.

use std::mem::MaybeUninit;

/// One byte of an element.
pub(crate) type Bits8 = MaybeUninit<u8>;
/// Two bytes of an element.
pub(crate) type Bits16 = MaybeUninit<u16>;
/// Four bytes of an element.
pub(crate) type Bits32 = MaybeUninit<u32>;
/// Eight bytes of an element.
pub(crate) type Bits64 = MaybeUninit<u64>;
/// Sixteen bytes of an element, aligned as a complex number is.
pub(crate) type Bits128 = [MaybeUninit<u64>; 2];

/// The sizes that elements mostly have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    One,
    Two,
    Four,
    Eight,
    Sixteen,
}

impl Size {
    /// The size of `T`, or `None` when its size or its alignment is unusual.
    pub(crate) const fn of<T>() -> Option<Size> {
        match (size_of::<T>(), align_of::<T>()) {
            (1, _) => Some(Size::One),
            (2, 2..) => Some(Size::Two),
            (4, 4..) => Some(Size::Four),
            (8, 8..) => Some(Size::Eight),
            (16, 8..) => Some(Size::Sixteen),
            _ => None,
        }
    }
}

/// Evaluates `$body` with `$bits` standing for the bits of `$size`.
macro_rules! with_bits {
    ($size:expr, $bits:ident => $body:expr) => {
        match $size {
            $crate::bits::Size::One => {
                type $bits = $crate::bits::Bits8;
                $body
            }
            $crate::bits::Size::Two => {
                type $bits = $crate::bits::Bits16;
                $body
            }
            $crate::bits::Size::Four => {
                type $bits = $crate::bits::Bits32;
                $body
            }
            $crate::bits::Size::Eight => {
                type $bits = $crate::bits::Bits64;
                $body
            }
            $crate::bits::Size::Sixteen => {
                type $bits = $crate::bits::Bits128;
                $body
            }
        }
    };
}

pub(crate) use with_bits;
