//! Element types of values.

/// The element type of a value, with NumPy's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// One byte, zero or one.
    Bool,
    /// Signed, 8 bits.
    Int8,
    /// Signed, 16 bits.
    Int16,
    /// Signed, 32 bits.
    Int32,
    /// Signed, 64 bits.
    Int64,
    /// Unsigned, 8 bits.
    Uint8,
    /// Unsigned, 16 bits.
    Uint16,
    /// Unsigned, 32 bits.
    Uint32,
    /// Unsigned, 64 bits.
    Uint64,
    /// IEEE half precision; moved, not computed with.
    Float16,
    /// The upper half of a `float32`; moved, not computed with.
    Bfloat16,
    /// IEEE single precision.
    Float32,
    /// IEEE double precision.
    Float64,
    /// Two `float32`; moved, not computed with.
    Complex64,
    /// Two `float64`; moved, not computed with.
    Complex128,
}

impl Dtype {
    /// Every element type.
    pub const ALL: [Dtype; 15] = [
        Dtype::Bool,
        Dtype::Int8,
        Dtype::Int16,
        Dtype::Int32,
        Dtype::Int64,
        Dtype::Uint8,
        Dtype::Uint16,
        Dtype::Uint32,
        Dtype::Uint64,
        Dtype::Float16,
        Dtype::Bfloat16,
        Dtype::Float32,
        Dtype::Float64,
        Dtype::Complex64,
        Dtype::Complex128,
    ];

    /// NumPy's name of the type.
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::Bool => "bool",
            Dtype::Int8 => "int8",
            Dtype::Int16 => "int16",
            Dtype::Int32 => "int32",
            Dtype::Int64 => "int64",
            Dtype::Uint8 => "uint8",
            Dtype::Uint16 => "uint16",
            Dtype::Uint32 => "uint32",
            Dtype::Uint64 => "uint64",
            Dtype::Float16 => "float16",
            Dtype::Bfloat16 => "bfloat16",
            Dtype::Float32 => "float32",
            Dtype::Float64 => "float64",
            Dtype::Complex64 => "complex64",
            Dtype::Complex128 => "complex128",
        }
    }

    /// The type that NumPy calls `name`.
    pub fn from_name(name: &str) -> Option<Dtype> {
        Dtype::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Dtype::Bool | Dtype::Int8 | Dtype::Uint8 => 1,
            Dtype::Int16 | Dtype::Uint16 | Dtype::Float16 | Dtype::Bfloat16 => 2,
            Dtype::Int32 | Dtype::Uint32 | Dtype::Float32 => 4,
            Dtype::Int64 | Dtype::Uint64 | Dtype::Float64 | Dtype::Complex64 => 8,
            Dtype::Complex128 => 16,
        }
    }

    /// What addresses of elements are multiples of; complex numbers align as their parts, as in NumPy.
    pub const fn alignment(self) -> usize {
        match self {
            Dtype::Complex64 => 4,
            Dtype::Complex128 => 8,
            other => other.size(),
        }
    }

    /// How to move elements of this type.
    pub(crate) const fn unit(self) -> Unit {
        match self {
            Dtype::Complex64 => Unit::B4x2,
            Dtype::Complex128 => Unit::B8x2,
            other => match other.size() {
                1 => Unit::B1,
                2 => Unit::B2,
                4 => Unit::B4,
                _ => Unit::B8,
            },
        }
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// An element as bytes to move: its size, and alignment where that is smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    B1,
    B2,
    B4,
    B8,
    B4x2,
    B8x2,
}

/// Evaluates an expression with a name bound to the plain type that moves elements of a [`Unit`].
macro_rules! with_unit {
    ($unit:expr, $T:ident => $body:expr) => {
        match $unit {
            $crate::dtype::Unit::B1 => {
                type $T = u8;
                $body
            }
            $crate::dtype::Unit::B2 => {
                type $T = u16;
                $body
            }
            $crate::dtype::Unit::B4 => {
                type $T = u32;
                $body
            }
            $crate::dtype::Unit::B8 => {
                type $T = u64;
                $body
            }
            $crate::dtype::Unit::B4x2 => {
                type $T = [u32; 2];
                $body
            }
            $crate::dtype::Unit::B8x2 => {
                type $T = [u64; 2];
                $body
            }
        }
    };
}
pub(crate) use with_unit;

/// Rust types that are elements of a [`Dtype`].
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The element type this Rust type stores.
    const DTYPE: Dtype;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! element {
    ($($type:ty => $dtype:ident),*) => {
        $(
            impl sealed::Sealed for $type {}
            impl Element for $type {
                const DTYPE: Dtype = Dtype::$dtype;
            }
        )*
    };
}

element! {
    bool => Bool, i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64,
    u8 => Uint8, u16 => Uint16, u32 => Uint32, u64 => Uint64, f32 => Float32, f64 => Float64
}
