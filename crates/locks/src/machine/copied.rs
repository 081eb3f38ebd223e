//! Types that are copied, as the references are that they consist of.

/// `copied!(Line<'_, M>)`: that type is [`Copy`] for each machine `M`. (A derived one would ask for a machine that is.)
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
