//! Where threads start, as an option.

use flashlock_sim::Place;

/// `--place`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Where {
    /// In turn on all NUMA nodes, as Linux places new threads; which node comes first, and which of its cores, is drawn
    #[default]
    Spread,
    /// On cores drawn from all that have no thread yet
    Anywhere,
    /// One NUMA node's cores after the other's; which node comes first, and which of its cores, is drawn
    Packed,
}

impl Where {
    /// The option's value.
    pub(super) fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self).expect("none is hidden").get_name().to_owned()
    }

    /// A remark for the title, after the machine's name.
    pub(super) fn remark(self) -> &'static str {
        match self {
            Self::Spread => "",
            Self::Anywhere => ", threads anywhere",
            Self::Packed => ", one NUMA node's cores after the other",
        }
    }
}

impl From<Where> for Place {
    fn from(place: Where) -> Self {
        match place {
            Where::Spread => Self::Spread,
            Where::Anywhere => Self::Anywhere,
            Where::Packed => Self::Packed,
        }
    }
}
