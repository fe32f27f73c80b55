//! How names, histories and documents are written in a story: short. It must never leave out what tells two apart.

use super::state::{Name, Root, Update};
use super::words::{Document, Incarnation, Mark, Piece, Routing};
use std::fmt::{Debug, Formatter, Result};

/// `p0.1`: the first life at place 0.
impl Debug for Incarnation {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "p{}.{}", self.place, self.life)
    }
}

/// `3/2`: term 3, version 2.
impl Debug for Name {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}/{}", self.term, self.version)
    }
}

/// `u1@5`: unit 1, computed under rewind number 5; `-` is without the record that is excluded.
impl Debug for Root {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "u{}@{}{}", self.unit, self.rewind, if self.without { "-" } else { "" })
    }
}

/// `u1@5(u1@5 u1@4)`: decided from partials of these roots.
impl Debug for Update {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{:?}", self.root)?;
        let Some(decision) = &self.decision else { return Ok(()) };
        let partials: Vec<String> = decision.iter().flatten().map(|root| format!("{root:?}")).collect();
        write!(f, "({})", partials.join(" "))
    }
}

/// `p0.1#4+`: fill 4, in-sync; `-` is filling.
impl Debug for Mark {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{:?}#{}{}", self.at, self.fill, if self.in_sync { '+' } else { '-' })
    }
}

impl Debug for Piece {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "piece(b{} r{} {}/{})", self.block, self.rewind, self.term, self.version)
    }
}

impl Debug for Routing {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "r{} t{} {:?} leads {:?}", self.rewind, self.term, self.primary, self.copies)?;
        self.heir.map_or(Ok(()), |heir| write!(f, " heir #{heir}"))?;
        self.origin.map_or(Ok(()), |origin| write!(f, " from {origin:?}"))
    }
}

impl Debug for Document {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "V{} m{} {:?}", self.version, self.master_term, self.blocks)?;
        self.named.map_or(Ok(()), |named| write!(f, " named {}@{}", named.number, named.version))?;
        self.durable.as_ref().map_or(Ok(()), |pieces| write!(f, " durable {pieces:?}"))?;
        self.excluded.map_or(Ok(()), |it| write!(f, " excluded #{} from u{}", it.number, it.first))?;
        if self.done { write!(f, " done") } else { Ok(()) }
    }
}
