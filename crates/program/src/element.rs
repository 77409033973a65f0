//! Sets of element types that kernels are generic over.

use crate::Dtype;

/// Defines an enumeration of the element types of a family of kernels, and a macro that evaluates an expression with a
/// name bound to the Rust type of one of them.
macro_rules! family {
    ($(#[$doc:meta])* $family:ident, $with:ident, $names:literal { $($dtype:ident => $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $family {
            $($dtype),*
        }

        impl $family {
            /// The members, for messages.
            pub(crate) const NAMES: &'static str = $names;

            /// The member that stores `dtype`.
            pub(crate) fn of(dtype: Dtype) -> Option<Self> {
                match dtype {
                    $(Dtype::$dtype => Some($family::$dtype),)*
                    #[allow(unreachable_patterns)]
                    _ => None,
                }
            }
        }

        macro_rules! $with {
            ($member:expr, $T:ident => $body:expr) => {
                match $member {
                    $($crate::element::$family::$dtype => {
                        type $T = $type;
                        $body
                    })*
                }
            };
        }
        pub(crate) use $with;
    };
}

family! {
    /// What matrix products, reductions and functions compute with.
    Float, with_float, "float32 or float64" { Float32 => f32, Float64 => f64 }
}

family! {
    /// What the binary operations compute with.
    Arithmetic, with_arithmetic, "float32, float64, int32 or int64" {
        Float32 => f32, Float64 => f64, Int32 => i32, Int64 => i64
    }
}

family! {
    /// What can be compared and converted.
    Number, with_number, "bool, an integer, float32 or float64" {
        Bool => threadteam_kernels::Bool, Int8 => i8, Int16 => i16, Int32 => i32, Int64 => i64,
        Uint8 => u8, Uint16 => u16, Uint32 => u32, Uint64 => u64, Float32 => f32, Float64 => f64
    }
}

family! {
    /// What indices are.
    Index, with_index, "int32 or int64" { Int32 => i32, Int64 => i64 }
}
