//! [`Copy`] for types made of references.

/// `copied!(Line<'_, M>)`: that type is [`Copy`] for each machine `M`. (`derive` would demand `M: Copy`.)
macro_rules! copied {
    ($name:ident<$($life:lifetime,)? $m:ident>) => {
        impl<$m: $crate::machine::Machine> Clone for $name<$($life,)? $m> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<$m: $crate::machine::Machine> Copy for $name<$($life,)? $m> {}
    };
}

pub(crate) use copied;
