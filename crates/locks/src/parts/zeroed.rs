//! # State that is zero when it is made
//!
//! All-zero state is a free lock. A lock's state is a struct of words, and of such structs; [`zeroed!`](crate::zeroed)
//! lists their fields.

use crate::machine::{ConstWord, Word};

/// State that can be made: all of its words are zero.
pub trait Zeroed: 'static {
    /// A free lock's state.
    fn zeroed() -> Self;
}

/// The same as a constant, for locks in statics.
pub trait ConstZeroed: Zeroed {
    /// A free lock's state.
    const ZERO: Self;
}

impl<W: Word> Zeroed for W {
    fn zeroed() -> Self {
        W::new(0)
    }
}

impl<W: ConstWord> ConstZeroed for W {
    const ZERO: Self = <W as ConstWord>::ZERO;
}

/// The state of a lock that is only a word.
impl Zeroed for () {
    fn zeroed() {}
}

impl ConstZeroed for () {
    const ZERO: () = ();
}

/// `zeroed!(Queue<M> { head, tail })`: that struct, whose words are of the machine `M`, is [`Zeroed`], and
/// [`ConstZeroed`] where words are constants. `Queue<M, S>`: a second type argument is the type of a field.
#[macro_export]
macro_rules! zeroed {
    ($name:ident<$m:ident $(, $inner:ident)?> { $($field:ident),+ }) => {
        impl<$m: $crate::machine::Machine $(, $inner: $crate::parts::zeroed::Zeroed)?>
            $crate::parts::zeroed::Zeroed for $name<$m $(, $inner)?>
        {
            fn zeroed() -> Self {
                Self { $($field: $crate::parts::zeroed::Zeroed::zeroed()),+ }
            }
        }

        impl<$m: $crate::machine::Machine<Word: $crate::machine::ConstWord>
            $(, $inner: $crate::parts::zeroed::ConstZeroed)?>
            $crate::parts::zeroed::ConstZeroed for $name<$m $(, $inner)?>
        {
            const ZERO: Self = Self { $($field: $crate::parts::zeroed::ConstZeroed::ZERO),+ };
        }
    };
}
